//! The store on a volume.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::allocator::Allocator;
use crate::apply::find_readable;
use crate::body_file::{RunReader, RunWriter};
use crate::committer::{CommitRequest, Committer};
use crate::database::IndexDatabase;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::event_signal::{EventSignal, EventSignalSender};
use crate::events::{ChangeSource, EventRule, OUTBOX_MAX, ObjectEvent, OutboxInfo};
use crate::index::{IndexSnapshot, IndexTxn, OBJECTS, PARTS, VERSIONS, failed};
use crate::listing;
use crate::record::{VersionRecord, summary_info};
use crate::region::IndexRegion;
use crate::space::BodySpace;
use crate::store::{BodyReader, BodyWriter, ObjectStore, Pending};
use crate::types::{BucketInfo, Change, ListPage, ListQuery, ObjectInfo, ObjectRef, PartInfo, UploadInfo};
use crate::upload::{find_upload, part_info, parts_of, upload_info};
use crate::volume::{BLOCK, BlockVolume};

/// Settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// The memory for pages of the index, in bytes.
    pub cache_bytes: usize,
    /// The largest number of events that wait for a target; later ones are dropped and counted.
    pub outbox_max: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { cache_bytes: 256 << 20, outbox_max: OUTBOX_MAX }
    }
}

/// An object store on a block volume. Dropping it closes it cleanly.
pub struct VolumeStore {
    database: Option<Arc<IndexDatabase>>,
    space: Arc<BodySpace>,
    requests: Mutex<Sender<CommitRequest>>,
    settings_epoch: Arc<AtomicU64>,
    event_signal: Arc<EventSignalSender>,
    threads: Vec<JoinHandle<()>>,
}

impl VolumeStore {
    /// Opens the store on a volume; creates it on an empty volume.
    ///
    /// After a crash this discards all blocks that no object refers to.
    ///
    /// # Errors
    /// When the volume holds other data, is too small, or fails.
    pub fn open(volume: Arc<dyn BlockVolume>, options: StoreOptions) -> Result<Self> {
        let (region, index_end) = IndexRegion::open(volume.clone())?;
        let database = Arc::new(IndexDatabase::open(region.clone(), options.cache_bytes)?);
        let space = Arc::new(open_space(&database, volume, index_end)?);
        region.mark_created()?;
        let (sender, receiver) = channel();
        let settings_epoch = Arc::new(AtomicU64::new(0));
        let event_signal = Arc::<EventSignalSender>::default();
        let committer = Committer {
            database: database.clone(),
            space: space.clone(),
            settings_epoch: settings_epoch.clone(),
            outbox_max: options.outbox_max,
            event_signal: event_signal.clone(),
            failed: None,
            uncertain: None,
        };
        let reclaimer = space.clone();
        let threads = vec![
            spawn("object-commit", move || committer.run(&receiver))?,
            spawn("object-reclaim", move || reclaimer.reclaim())?,
        ];
        let requests = Mutex::new(sender);
        Ok(Self { database: Some(database), space, requests, settings_epoch, event_signal, threads })
    }

    /// Returns the signal of new events. It replaces one that was returned earlier.
    pub fn event_signal(&self) -> EventSignal {
        self.event_signal.connect()
    }

    fn snapshot(&self) -> Result<IndexSnapshot<'_>> {
        let closed = || ObjectError::new(ObjectErrorKind::Closed, "closed");
        IndexSnapshot::begin(self.database.as_ref().ok_or_else(closed)?)
    }

    fn find(&self, object: &ObjectRef) -> Result<(VersionRecord, bool)> {
        let snapshot = self.snapshot()?;
        let bucket = snapshot.bucket(&object.bucket)?.number;
        let (objects, versions) = (snapshot.table(OBJECTS)?, snapshot.table(VERSIONS)?);
        let found = find_readable(&objects, &versions, bucket, object)?;
        Ok((found.record, found.is_current))
    }

    #[cfg(test)]
    pub(crate) fn database(&self) -> &IndexDatabase {
        self.database.as_ref().unwrap()
    }

    /// Waits until the space of all deleted objects without readers is free. Returns false if
    /// readers hold the space of others.
    pub fn wait_for_reclaim(&self) -> bool {
        self.space.wait_for_reclaim()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(work)?)
}

/// Prepares the tables, and the allocator from the runs in use.
fn open_space(database: &IndexDatabase, volume: Arc<dyn BlockVolume>, index_end: u64) -> Result<BodySpace> {
    let transaction = database.begin_write()?;
    let mut index = IndexTxn::open(&transaction)?;
    let (start, end) = (index_end / BLOCK, volume.size() / BLOCK);
    let frontier = index.frontier()?.max(start);
    let allocator = Allocator::new(start, frontier, end, index.used_runs()?.into_iter());
    let is_clean = index.is_clean()?;
    index.set_clean(false)?;
    drop(index);
    if !is_clean {
        for gap in allocator.gaps() {
            volume.discard(gap.start * BLOCK, gap.blocks * BLOCK)?;
        }
        volume.flush()?;
    }
    transaction.commit().map_err(failed)?;
    Ok(BodySpace::new(volume, allocator))
}

impl ObjectStore for VolumeStore {
    fn commit_from(&self, change: Change, source: ChangeSource) -> Pending {
        let (sender, pending) = Pending::new();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a committer the change is dropped, which answers that the store is closed.
        let _ = requests.send(CommitRequest::Change(Box::new((change, source)), sender));
        pending
    }

    fn body_writer(&self, length: u64) -> Box<dyn BodyWriter> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let advance = move || {
            let closed = || ObjectError::new(ObjectErrorKind::Closed, "the object store is closed");
            let (sender, receiver) = channel();
            requests.send(CommitRequest::Advance(sender)).map_err(|_| closed())?;
            receiver.recv().map_err(|_| closed())?
        };
        Box::new(RunWriter::new(self.space.clone(), length, Box::new(advance)))
    }

    fn settings_epoch(&self) -> u64 {
        self.settings_epoch.load(Ordering::Acquire)
    }

    fn buckets(&self) -> Result<Vec<BucketInfo>> {
        Ok(self.snapshot()?.buckets()?.into_iter().map(|bucket| bucket.info).collect())
    }

    fn bucket(&self, name: &str) -> Result<BucketInfo> {
        Ok(self.snapshot()?.bucket(name)?.info)
    }

    fn object(&self, object: &ObjectRef) -> Result<ObjectInfo> {
        let (record, is_latest) = self.find(object)?;
        Ok(record.info(&object.key, is_latest))
    }

    fn open(&self, object: &ObjectRef) -> Result<(ObjectInfo, Box<dyn BodyReader>)> {
        let lookup = self.space.begin_lookup();
        let found = self.find(object);
        let body = found.as_ref().map_or(&[][..], |(record, _)| &record.detail.body);
        let hold = self.space.end_lookup(lookup, body);
        let (record, is_latest) = found?;
        let mut info = summary_info(&record.summary, &object.key, is_latest);
        (info.attributes, info.parts) = (record.detail.attributes, record.detail.parts);
        info.lock = record.detail.lock;
        let reader = RunReader { space: self.space.clone(), body: record.detail.body, _hold: hold };
        Ok((info, Box::new(reader)))
    }

    fn list(&self, query: &ListQuery) -> Result<ListPage<ObjectInfo>> {
        listing::list_objects(&self.snapshot()?, query)
    }

    fn list_versions(&self, query: &ListQuery) -> Result<ListPage<ObjectInfo>> {
        listing::list_versions(&self.snapshot()?, query)
    }

    fn uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>> {
        listing::list_uploads(&self.snapshot()?, bucket)
    }

    fn upload(&self, upload: &str) -> Result<UploadInfo> {
        let (number, record) = find_upload(&self.snapshot()?.uploads()?, upload)?;
        Ok(upload_info(number, record))
    }

    fn parts(&self, upload: &str, after: u16, limit: usize) -> Result<Vec<PartInfo>> {
        let snapshot = self.snapshot()?;
        let (number, _) = find_upload(&snapshot.uploads()?, upload)?;
        let parts = parts_of(&snapshot.table(PARTS)?, number, after, limit)?;
        Ok(parts.into_iter().map(|(number, part)| part_info(number, part)).collect())
    }

    fn event_rules(&self, bucket: &str) -> Result<Vec<EventRule>> {
        self.snapshot()?.event_rules(bucket)
    }

    fn outboxes(&self) -> Result<Vec<OutboxInfo>> {
        self.snapshot()?.outboxes()
    }

    fn events(&self, target: &str, limit: usize) -> Result<Vec<ObjectEvent>> {
        self.snapshot()?.events(target, limit)
    }
}

impl Drop for VolumeStore {
    fn drop(&mut self) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a committer there is nothing to close.
        let _ = requests.send(CommitRequest::Close);
        drop(requests);
        for (index, thread) in self.threads.drain(..).enumerate() {
            if index == 1 {
                self.space.close();
            }
            if thread.join().is_err() {
                tracing::error!("a thread of the object store panicked");
            }
        }
        self.database = None;
    }
}
