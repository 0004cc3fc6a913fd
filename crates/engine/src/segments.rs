//! A shard's segment table in memory: the state, column locations and live count of each segment.
//!
//! Plain state. Always true (docs/invariants.md):
//! - S1: a segment's live count is the number of map entries, node pointers and table pointers to
//!   it.
//! - S2: a segment is freed only when it is sealed, has no writes in flight and no live blocks.
//! - S3: a freed segment's zones are released only when a checkpoint started after the segment was
//!   freed is durable and no read of the segment is running.

mod checkpoint;
mod columns;
mod death_rate;
mod locations;
mod recovery;
mod victim;

use std::collections::BTreeSet;

use format::{
    Address, DriveIndex, Incarnation, MapEntry, Row, SegmentId, SegmentRecord, SegmentState, ZoneIndex,
};

use crate::geometry::Geometry;
use crate::invariant::{element, narrow};
pub(crate) use checkpoint::CheckpointMark;
pub(crate) use columns::Incomplete;
use death_rate::DeathRate;
pub(crate) use locations::CellLocation;
use locations::ColumnLocation;
pub use victim::FillHistogram;

/// Blocks that the cleaner moves per chunk: limits the delay of writers between chunks. A chunk may
/// become one record.
pub(crate) const CHUNK_BLOCKS: u32 = 64;

/// Priority of a segment allocation. Higher priorities may use parts of the reserve that lower ones
/// may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AllocPriority {
    /// New user data.
    User,
    /// Trims, zeros and repaired blocks: each frees blocks, but not necessarily a segment.
    Trimming,
    /// Operations that certainly free space: the cleaner, deletion of volumes, and catalogue
    /// changes that an administrator needs in a full pool.
    Freeing,
    /// Checkpoints: no freed space is released without them.
    Checkpoint,
}

/// Lifecycle state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentPhase {
    /// Records are appended.
    Open,
    /// Full, or sealed by a recovery.
    Sealed,
    /// Empty; its zones are released when the next checkpoint is durable.
    Freed {
        /// Number of checkpoints started before it was freed.
        checkpoints: u64,
    },
}

/// One segment in memory.
pub(crate) struct Segment {
    record: SegmentRecord,
    phase: SegmentPhase,
    /// Records being written to the segment.
    in_flight: u32,
    /// Row of the next record.
    append: Row,
    /// End row of the last record that is applied to the map.
    applied: Row,
    /// Row up to which the columns are flushed.
    flushed: Row,
    /// First row that a recovery must replay; `None` once a checkpoint covers the whole segment.
    replay_from: Option<Row>,
    /// Lowest priority that may append: a segment opened from the reserve is kept for higher
    /// priorities.
    level: AllocPriority,
    readers: u32,
    /// For the choice of victims.
    deaths: DeathRate,
    /// The last checkpoint started when the segment was cleaned; the next one moves the remaining
    /// blocks.
    cleaned: Option<u64>,
}

/// Free rows at the end of an open segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendRoom {
    /// Row of the next record.
    pub(crate) row: Row,
    /// Number of free rows.
    pub(crate) rows: u32,
    /// Lowest priority that may use them.
    pub(crate) level: AllocPriority,
}

/// The segment table.
pub(crate) struct Segments {
    geometry: Geometry,
    slots: Vec<Option<Segment>>,
    places: Vec<ColumnLocation>,
    live: Vec<u32>,
    /// Sum of `live`.
    live_blocks: u64,
    /// Number of references dropped so far.
    drops: u64,
    /// Segments that a recovery would have to replay in part; includes all unflushed ones.
    recent: BTreeSet<SegmentId>,
    /// All slots before this one are occupied.
    vacant_hint: usize,
    /// Highest incarnation so far.
    newest: u64,
    /// Sealed segments that may be empty.
    emptied: Vec<SegmentId>,
    /// Number of freed segments that wait for a checkpoint.
    freed: usize,
    /// Zones that columns were moved away from.
    vacated: Vec<columns::Vacated>,
    checkpoints: u64,
    /// Number of the last checkpoint whose tables were stored.
    stored_checkpoint: u64,
    version: u64,
    /// During a replay: the newest segment that the log contained at its start.
    replaying: Option<u64>,
}

impl Segments {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            slots: Vec::new(),
            places: Vec::new(),
            live: Vec::new(),
            live_blocks: 0,
            drops: 0,
            recent: BTreeSet::new(),
            vacant_hint: 0,
            newest: 0,
            emptied: Vec::new(),
            freed: 0,
            vacated: Vec::new(),
            checkpoints: 0,
            stored_checkpoint: 0,
            version: 0,
            replaying: None,
        }
    }

    /// A counter that changes when any segment's columns change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns a vacant slot for a new segment.
    pub(crate) fn vacant(&mut self) -> SegmentId {
        self.vacant_hint +=
            self.slots.iter().skip(self.vacant_hint).take_while(|place| place.is_some()).count();
        SegmentId::new(narrow(self.vacant_hint + 1, "C5"))
    }

    /// Puts a new, open segment into a vacant slot.
    pub(crate) fn open(&mut self, id: SegmentId, record: SegmentRecord, level: AllocPriority) {
        assert_eq!(record.state, SegmentState::Open, "a new segment is open");
        assert_eq!(record.columns.len(), usize::from(record.scheme.width()), "a segment has all columns");
        let segment = Segment {
            record,
            phase: SegmentPhase::Open,
            in_flight: 0,
            append: Row::new(0),
            applied: Row::new(0),
            flushed: Row::new(0),
            replay_from: Some(Row::new(0)),
            level,
            readers: 0,
            deaths: DeathRate::default(),
            cleaned: None,
        };
        self.put(id, segment);
    }

    fn put(&mut self, id: SegmentId, segment: Segment) {
        let index = slot(id);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
            self.live.resize(index + 1, 0);
            self.places.resize((index + 1) * self.width(), ColumnLocation::UNWRITTEN);
        }
        assert!(segment.record.incarnation.get() > 0, "S1: segment {id} has no incarnation");
        self.newest = self.newest.max(segment.record.incarnation.get());
        if segment.replay_from.is_some() {
            self.recent.insert(id);
        }
        let taken = self.slots.get_mut(index).and_then(|place| place.replace(segment));
        assert!(taken.is_none(), "segment {id} is taken");
        assert_eq!(element(&self.live, index, "S1"), 0, "S1: segment {id} has references of its predecessor");
        self.update_locations(id);
    }

    /// Returns a segment.
    ///
    /// # Panics
    /// If the segment does not exist: every address in the map refers to an existing segment (S1).
    fn get(&self, id: SegmentId) -> &Segment {
        match self.slots.get(slot(id)) {
            Some(Some(segment)) => segment,
            _ => panic!("S1: segment {id} does not exist"),
        }
    }

    fn get_mut(&mut self, id: SegmentId) -> &mut Segment {
        match self.slots.get_mut(slot(id)) {
            Some(Some(segment)) => segment,
            _ => panic!("S1: segment {id} does not exist"),
        }
    }

    /// Returns true if the segment exists.
    pub(crate) fn contains(&self, id: SegmentId) -> bool {
        matches!(self.slots.get(slot(id)), Some(Some(_)))
    }

    /// Returns the segment's record with the number of rows written so far.
    pub(crate) fn record(&self, id: SegmentId) -> SegmentRecord {
        let segment = self.get(id);
        SegmentRecord { rows: segment.append.get(), ..segment.record.clone() }
    }

    /// Returns the scheme of a segment.
    pub(crate) fn scheme(&self, id: SegmentId) -> format::Scheme {
        self.get(id).record.scheme
    }

    /// Prevents the release of a segment's zones while a read is running.
    pub(crate) fn pin(&mut self, id: SegmentId) {
        self.get_mut(id).readers += 1;
    }

    /// Reverts one [`Segments::pin`].
    pub(crate) fn unpin(&mut self, id: SegmentId) {
        let segment = self.get_mut(id);
        assert!(segment.readers > 0, "S3: a segment is unpinned more often than pinned");
        segment.readers -= 1;
        if segment.readers == 0 && !self.vacated.is_empty() {
            self.drained(id);
        }
    }

    /// Counts a new reference to a block (S1).
    pub(crate) fn add_reference(&mut self, address: Address) {
        let cells = self.geometry.rows() * u32::from(self.geometry.scheme.data());
        match self.live.get_mut(slot(address.segment())) {
            Some(live) if *live < cells => *live += 1,
            Some(_) => panic!("S1: {address} has more references than its segment has cells"),
            None => panic!("S1: {address} does not exist"),
        }
        self.live_blocks += 1;
    }

    /// Removes a reference to a block (S1).
    pub(crate) fn drop_reference(&mut self, address: Address) {
        let id = address.segment();
        match self.live.get_mut(slot(id)) {
            Some(live) if *live > 0 => {
                *live -= 1;
                if *live == 0 {
                    self.emptied.push(id);
                }
            }
            _ => panic!("S1: {address} has no counted reference"),
        }
        assert!(self.live_blocks > 0, "S1: the sum of live blocks is lower than a segment's count");
        self.live_blocks -= 1;
        self.drops += 1;
    }

    /// Counts the replacement of entry `old` by `new` in the map.
    pub(crate) fn replace_reference(&mut self, old: MapEntry, new: MapEntry) {
        if let Some(address) = new.address() {
            self.add_reference(address);
        }
        if let Some(address) = old.address() {
            self.drop_reference(address);
        }
    }

    /// Returns the free rows of an open segment.
    pub(crate) fn room(&self, id: SegmentId) -> AppendRoom {
        let segment = self.get(id);
        assert_eq!(segment.phase, SegmentPhase::Open, "only open segments have free rows");
        assert!(segment.append.get() <= self.geometry.rows(), "R2: segment {id} has rows beyond its zones");
        let rows = self.geometry.rows() - segment.append.get();
        AppendRoom { row: segment.append, rows, level: segment.level }
    }

    /// Reserves `rows` rows at the end of the segment for a record that is about to be written.
    pub(crate) fn append(&mut self, id: SegmentId, rows: u32) {
        let limit = self.geometry.rows();
        let segment = self.get_mut(id);
        assert_eq!(segment.phase, SegmentPhase::Open, "records are appended to open segments only");
        assert!(rows > 0, "a record has rows");
        segment.append = segment.append.plus(rows);
        segment.in_flight += 1;
        assert!(segment.append.get() <= limit, "a record exceeds its segment");
    }

    /// Marks the record that ends before `end` as applied to the map, or as finally failed.
    pub(crate) fn record_applied(&mut self, id: SegmentId, end: Row) {
        let segment = self.get_mut(id);
        assert!(segment.in_flight > 0 && end > segment.applied, "records of a segment are applied in order");
        assert!(end <= segment.append, "L1: a record is applied that was not appended");
        segment.in_flight -= 1;
        segment.applied = end;
        if segment.in_flight == 0 {
            self.emptied.push(id);
        }
    }

    /// Seals a segment against further appends.
    pub(crate) fn seal(&mut self, id: SegmentId) {
        let segment = self.get_mut(id);
        assert_eq!(segment.phase, SegmentPhase::Open, "a segment is sealed once");
        assert_eq!(segment.record.state, SegmentState::Open, "S2: an open segment is recorded as open");
        assert!(segment.applied <= segment.append, "L1: segment {id} has applied rows beyond its end");
        segment.phase = SegmentPhase::Sealed;
        segment.record.state = SegmentState::Sealed;
        segment.record.rows = segment.append.get();
        self.emptied.push(id);
        self.observe_deaths(id);
    }

    /// Frees empty sealed segments (S2). Returns their number.
    pub(crate) fn free_emptied(&mut self) -> usize {
        let mut freed = 0;
        for id in std::mem::take(&mut self.emptied) {
            let live = self.live(id);
            let checkpoints = self.checkpoints;
            let replaying = self.replaying;
            let Some(Some(segment)) = self.slots.get_mut(slot(id)) else { continue };
            // During a replay, records still to be replayed may add references, and newer segments
            // must stay.
            let ahead = replaying.is_some_and(|newest| segment.record.incarnation.get() > newest);
            let landed = segment.in_flight == 0 && segment.applied == segment.append && !ahead;
            if segment.phase == SegmentPhase::Sealed && landed && live == 0 {
                assert_eq!(segment.record.state, SegmentState::Sealed, "S2: only sealed segments are freed");
                segment.phase = SegmentPhase::Freed { checkpoints };
                freed += 1;
            }
        }
        self.freed += freed;
        freed
    }

    /// Number of live blocks of a segment.
    pub(crate) fn live(&self, id: SegmentId) -> u32 {
        element(&self.live, slot(id), "S1")
    }

    /// Number of live blocks of all segments.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live_blocks
    }

    /// Iterates over the existing segments.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let taken = self.slots.iter().enumerate().filter(|(_, segment)| segment.is_some());
        taken.filter_map(|(index, _)| Some(SegmentId::new(u32::try_from(index + 1).ok()?)))
    }

    /// All zones in use.
    pub(crate) fn zones(&self) -> Vec<(DriveIndex, ZoneIndex)> {
        let segments = self.slots.iter().flatten();
        segments.flat_map(|segment| segment.record.columns.iter().filter_map(|column| column.zone)).collect()
    }

    /// Returns the applied row of each segment with unflushed rows. Pass it to
    /// [`Segments::flushed`] after a flush.
    pub(crate) fn flush_mark(&self) -> Vec<(SegmentId, Row)> {
        let unflushed = self.recent.iter().filter(|id| self.get(**id).flushed < self.get(**id).applied);
        unflushed.map(|id| (*id, self.get(*id).applied)).collect()
    }

    /// Marks the rows of a [`Segments::flush_mark`] as durable.
    pub(crate) fn flushed(&mut self, mark: &[(SegmentId, Row)]) {
        for (id, row) in mark {
            if let Some(Some(segment)) = self.slots.get_mut(slot(*id)) {
                assert!(*row <= segment.applied, "L4: only applied rows of segment {id} are durable");
                segment.flushed = segment.flushed.max(*row);
                assert!(
                    segment.flushed <= segment.append,
                    "L4: segment {id} has durable rows beyond its end"
                );
            }
        }
    }

    /// Marks unflushed rows of a lost drive as missing. Returns the number of columns changed.
    pub(crate) fn drive_lost(&mut self, drive: DriveIndex) -> usize {
        let mut changed = 0;
        for id in self.recent.clone() {
            let segment = self.get_mut(id);
            let (flushed, sealed_whole) =
                (segment.flushed, segment.phase != SegmentPhase::Open && segment.flushed == segment.append);
            let columns = segment.record.columns.iter_mut();
            for column in columns.filter(|column| column.zone.is_some_and(|(on, _)| on == drive)) {
                if !sealed_whole && column.missing_from > flushed {
                    column.missing_from = flushed;
                    changed += 1;
                }
            }
            self.update_locations(id);
        }
        self.version += 1;
        changed
    }

    /// Highest incarnation so far.
    pub(crate) fn newest_incarnation(&self) -> Incarnation {
        Incarnation::new(self.newest)
    }

    /// Lowest incarnation of the existing segments.
    pub(crate) fn oldest_incarnation(&self) -> Incarnation {
        let incarnations = self.slots.iter().flatten().map(|segment| segment.record.incarnation.get());
        Incarnation::new(incarnations.fold(u64::MAX, u64::min))
    }

    /// Number of freed segments that wait for a checkpoint.
    pub(crate) fn freed_count(&self) -> usize {
        self.freed
    }
}

fn slot(id: SegmentId) -> usize {
    assert!(id.get() > 0, "segment ids start at 1");
    id.index() - 1
}
