//! The tables of the index, and one transaction over all of them.

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::allocator::BodyRun;
pub(crate) use crate::database::failed;
use crate::database::{IndexDatabase, OpenDatabase, in_use};
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::events::{ChangeSource, OutboxInfo};
use crate::keys;
use crate::record::{BucketRecord, VersionRecord, decode, encode};
use crate::segment::BodySegment;

type Bytes = TableDefinition<'static, &'static [u8], &'static [u8]>;
pub(crate) type BytesTable<'t> = Table<'t, &'static [u8], &'static [u8]>;
pub(crate) type ReadBytes = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

const BUCKETS: TableDefinition<&str, &[u8]> = TableDefinition::new("buckets");
/// Current objects, which are no delete markers.
pub(crate) const OBJECTS: Bytes = TableDefinition::new("objects");
/// All other versions and delete markers.
pub(crate) const VERSIONS: Bytes = TableDefinition::new("versions");
const UPLOADS: TableDefinition<u64, &[u8]> = TableDefinition::new("uploads");
/// The uploads of each bucket by key.
pub(crate) const BUCKET_UPLOADS: Bytes = TableDefinition::new("bucket uploads");
pub(crate) const PARTS: Bytes = TableDefinition::new("parts");
/// Allocated runs: blocks and number of references by the first block.
const RUNS: TableDefinition<u64, (u64, u64)> = TableDefinition::new("runs");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
/// The rules for events by the number of the bucket.
const EVENT_RULES: TableDefinition<u64, &[u8]> = TableDefinition::new("event rules");
/// The events that wait, by target and number.
pub(crate) const EVENTS: Bytes = TableDefinition::new("events");
/// The numbers of waiting and of dropped events by target.
const OUTBOXES: TableDefinition<&str, (u64, u64)> = TableDefinition::new("outboxes");

/// The counter of versions, buckets and uploads.
const SEQUENCE: &str = "sequence";
/// Blocks from this one on were never allocated.
const FRONTIER: &str = "frontier";
/// The counter of events.
const EVENT: &str = "event";
/// 1 after a clean close: no unused block holds data.
const CLEAN: &str = "clean";

/// The tables in a write transaction, and the runs that it frees.
pub(crate) struct IndexTxn<'t> {
    buckets: Table<'t, &'static str, &'static [u8]>,
    pub(crate) objects: BytesTable<'t>,
    pub(crate) versions: BytesTable<'t>,
    pub(crate) uploads: Table<'t, u64, &'static [u8]>,
    pub(crate) bucket_uploads: BytesTable<'t>,
    pub(crate) parts: BytesTable<'t>,
    runs: Table<'t, u64, (u64, u64)>,
    counters: Table<'t, &'static str, u64>,
    pub(crate) event_rules: Table<'t, u64, &'static [u8]>,
    pub(crate) events: BytesTable<'t>,
    pub(crate) outboxes: Table<'t, &'static str, (u64, u64)>,
    /// The largest number of events that wait for a target.
    pub(crate) outbox_max: u64,
    /// The sender of the change that is applied.
    pub(crate) source: ChangeSource,
    /// True once the transaction has stored an event.
    pub(crate) has_new_events: bool,
    /// The runs of new bodies.
    pub(crate) added: Vec<BodyRun>,
    freed: Vec<BodyRun>,
}

/// The runs that a transaction changes.
#[derive(Debug, Default)]
pub(crate) struct ChangedRuns {
    /// The runs of new bodies.
    pub(crate) added: Vec<BodyRun>,
    /// The runs that nothing refers to any longer.
    pub(crate) freed: Vec<BodyRun>,
}

impl<'t> IndexTxn<'t> {
    /// Opens the tables; creates them in a new index.
    ///
    /// Outboxes accept no event before `outbox_max` is set.
    pub(crate) fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        let table = |definition| transaction.open_table(definition).map_err(failed);
        Ok(Self {
            buckets: transaction.open_table(BUCKETS).map_err(failed)?,
            objects: table(OBJECTS)?,
            versions: table(VERSIONS)?,
            uploads: transaction.open_table(UPLOADS).map_err(failed)?,
            bucket_uploads: table(BUCKET_UPLOADS)?,
            parts: table(PARTS)?,
            runs: transaction.open_table(RUNS).map_err(failed)?,
            counters: transaction.open_table(COUNTERS).map_err(failed)?,
            event_rules: transaction.open_table(EVENT_RULES).map_err(failed)?,
            events: table(EVENTS)?,
            outboxes: transaction.open_table(OUTBOXES).map_err(failed)?,
            outbox_max: 0,
            source: ChangeSource::default(),
            has_new_events: false,
            added: Vec::new(),
            freed: Vec::new(),
        })
    }

    /// Ends the use of the tables. Returns the runs that the transaction changes.
    pub(crate) fn into_changed_runs(self) -> ChangedRuns {
        ChangedRuns { added: self.added, freed: self.freed }
    }

    fn counter(&self, name: &str) -> Result<u64> {
        Ok(self.counters.get(name).map_err(failed)?.map_or(0, |value| value.value()))
    }

    fn set_counter(&mut self, name: &str, value: u64) -> Result<()> {
        self.counters.insert(name, value).map_err(failed)?;
        Ok(())
    }

    /// Returns a number that no version, bucket or upload has had.
    pub(crate) fn next_sequence(&mut self) -> Result<u64> {
        let next = self.counter(SEQUENCE)? + 1;
        self.set_counter(SEQUENCE, next)?;
        Ok(next)
    }

    /// Returns a number that no event has had.
    pub(crate) fn next_event(&mut self) -> Result<u64> {
        let next = self.counter(EVENT)? + 1;
        self.set_counter(EVENT, next)?;
        Ok(next)
    }

    /// The first block that was never allocated.
    pub(crate) fn frontier(&self) -> Result<u64> {
        self.counter(FRONTIER)
    }

    pub(crate) fn set_frontier(&mut self, block: u64) -> Result<()> {
        self.set_counter(FRONTIER, block)
    }

    /// True after a clean close.
    pub(crate) fn is_clean(&self) -> Result<bool> {
        Ok(self.counter(CLEAN)? == 1)
    }

    pub(crate) fn set_clean(&mut self, clean: bool) -> Result<()> {
        self.set_counter(CLEAN, u64::from(clean))
    }

    /// The allocated runs in order.
    pub(crate) fn used_runs(&self) -> Result<Vec<BodyRun>> {
        let mut runs = Vec::new();
        for row in self.runs.iter().map_err(failed)? {
            let (start, value) = row.map_err(failed)?;
            runs.push(BodyRun { start: start.value(), blocks: value.value().0 });
        }
        Ok(runs)
    }

    /// The allocated runs: blocks and references by the first block.
    #[cfg(test)]
    pub(crate) fn references(&self) -> std::collections::BTreeMap<u64, (u64, u64)> {
        let rows = self.runs.iter().unwrap().map(|row| row.unwrap());
        rows.map(|(start, value)| (start.value(), value.value())).collect()
    }

    /// The numbers of all buckets.
    #[cfg(test)]
    pub(crate) fn bucket_numbers(&self) -> Vec<u64> {
        let number = |value: &[u8]| decode::<BucketRecord>(value).unwrap().number;
        self.buckets.iter().unwrap().map(|row| number(row.unwrap().1.value())).collect()
    }

    /// The newest number of versions, buckets and uploads.
    #[cfg(test)]
    pub(crate) fn last_sequence(&self) -> u64 {
        self.counter(SEQUENCE).unwrap()
    }

    /// Adds a run with one reference.
    pub(crate) fn add_run(&mut self, run: BodyRun) -> Result<()> {
        let before = self.runs.insert(run.start, (run.blocks, 1)).map_err(failed)?;
        assert!(before.is_none(), "run {} was in use", run.start);
        Ok(())
    }

    /// Counts another reference to each run of a body.
    pub(crate) fn share(&mut self, body: &[BodySegment]) -> Result<()> {
        for segment in body {
            let BodySegment::Run { run, .. } = segment else { continue };
            let (blocks, references) = self.run(*run)?;
            self.runs.insert(*run, (blocks, references + 1)).map_err(failed)?;
        }
        Ok(())
    }

    /// Drops the references of a body to its runs.
    pub(crate) fn unshare(&mut self, body: &[BodySegment]) -> Result<()> {
        for segment in body {
            let BodySegment::Run { run, .. } = segment else { continue };
            let (blocks, references) = self.run(*run)?;
            if references > 1 {
                self.runs.insert(*run, (blocks, references - 1)).map_err(failed)?;
            } else {
                self.runs.remove(*run).map_err(failed)?;
                self.freed.push(BodyRun { start: *run, blocks });
            }
        }
        Ok(())
    }

    fn run(&self, start: u64) -> Result<(u64, u64)> {
        let row = self.runs.get(start).map_err(failed)?.map(|value| value.value());
        row.ok_or_else(|| damaged(format!("a body refers to the free block {start}")))
    }

    /// Returns a bucket.
    pub(crate) fn bucket(&self, name: &str) -> Result<BucketRecord> {
        let row = self.buckets.get(name).map_err(failed)?;
        decode(row.ok_or_else(|| ObjectError::no_bucket(name))?.value())
    }

    pub(crate) fn put_bucket(&mut self, bucket: &BucketRecord) -> Result<()> {
        self.buckets.insert(bucket.info.name.as_str(), encode(bucket)?.as_slice()).map_err(failed)?;
        Ok(())
    }

    pub(crate) fn remove_bucket(&mut self, name: &str) -> Result<()> {
        self.buckets.remove(name).map_err(failed)?;
        Ok(())
    }

    /// Returns the current object of a key.
    pub(crate) fn current(&self, bucket: u64, key: &str) -> Result<Option<VersionRecord>> {
        get_version(&self.objects, &keys::object_key(bucket, key.as_bytes()))
    }
}

/// Returns the version in a row.
pub(crate) fn get_version(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<Option<VersionRecord>> {
    let row = table.get(key).map_err(failed)?;
    row.map(|row| VersionRecord::decode(row.value())).transpose()
}

/// The tables as of the last commit.
pub(crate) struct IndexSnapshot<'d> {
    transaction: ReadTransaction,
    _database: OpenDatabase<'d>,
}

impl<'d> IndexSnapshot<'d> {
    /// Begins to read the last commit.
    ///
    /// # Errors
    /// `NoSpace` if the database waits for space in the pool.
    pub(crate) fn begin(database: &'d IndexDatabase) -> Result<Self> {
        let open = database.read();
        let transaction = in_use(&open)?.begin_read().map_err(failed)?;
        Ok(Self { transaction, _database: open })
    }

    /// Returns the runs of `runs` that the index does not contain.
    pub(crate) fn without(&self, runs: impl IntoIterator<Item = BodyRun>) -> Result<Vec<BodyRun>> {
        let table = self.transaction.open_table(RUNS).map_err(failed)?;
        let mut unused = Vec::new();
        for run in runs {
            if table.get(run.start).map_err(failed)?.is_none() {
                unused.push(run);
            }
        }
        Ok(unused)
    }

    /// The first block that was never allocated.
    pub(crate) fn frontier(&self) -> Result<u64> {
        let table = self.transaction.open_table(COUNTERS).map_err(failed)?;
        Ok(table.get(FRONTIER).map_err(failed)?.map_or(0, |value| value.value()))
    }

    /// Opens a table.
    pub(crate) fn table(&self, definition: Bytes) -> Result<ReadBytes> {
        self.transaction.open_table(definition).map_err(failed)
    }

    pub(crate) fn uploads(&self) -> Result<redb::ReadOnlyTable<u64, &'static [u8]>> {
        self.transaction.open_table(UPLOADS).map_err(failed)
    }

    pub(crate) fn event_rules_table(&self) -> Result<redb::ReadOnlyTable<u64, &'static [u8]>> {
        self.transaction.open_table(EVENT_RULES).map_err(failed)
    }

    /// Returns the outboxes by target.
    pub(crate) fn outboxes(&self) -> Result<Vec<OutboxInfo>> {
        let table = self.transaction.open_table(OUTBOXES).map_err(failed)?;
        let mut outboxes = Vec::new();
        for row in table.iter().map_err(failed)? {
            let (target, counts) = row.map_err(failed)?;
            let (pending, dropped) = counts.value();
            outboxes.push(OutboxInfo { target: target.value().to_owned(), pending, dropped });
        }
        Ok(outboxes)
    }

    pub(crate) fn bucket(&self, name: &str) -> Result<BucketRecord> {
        let table = self.transaction.open_table(BUCKETS).map_err(failed)?;
        let row = table.get(name).map_err(failed)?;
        decode(row.ok_or_else(|| ObjectError::no_bucket(name))?.value())
    }

    pub(crate) fn buckets(&self) -> Result<Vec<BucketRecord>> {
        let table = self.transaction.open_table(BUCKETS).map_err(failed)?;
        let mut buckets = Vec::new();
        for row in table.iter().map_err(failed)? {
            buckets.push(decode(row.map_err(failed)?.1.value())?);
        }
        Ok(buckets)
    }
}

/// An error for an index that contradicts itself.
pub(crate) fn damaged(message: impl std::fmt::Display) -> ObjectError {
    ObjectError::new(ObjectErrorKind::Io, format!("the index of the object store is damaged: {message}"))
}
