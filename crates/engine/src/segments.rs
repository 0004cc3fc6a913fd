//! A shard's segment table in memory: what each segment is, where its columns lie, and how many of its blocks live.
//!
//! Plain state. Always true (docs/invariants.md):
//! - S1: a segment's live count is the number of map entries, node pointers and table pointers that point into it.
//! - S2: a segment is freed only when it is sealed, nothing is in flight to it, and nothing in it lives.
//! - S3: a freed segment's zones are given back only when a checkpoint that was begun after it was freed is durable
//!   and no read of it is running.

mod checkpoint;
mod columns;
mod locations;
mod recovery;
mod victim;

use std::collections::BTreeSet;

use format::{
    Address, DriveIndex, Incarnation, MapEntry, Row, SegmentId, SegmentRecord, SegmentState, ZoneIndex,
};

use crate::geometry::Geometry;
pub(crate) use checkpoint::CheckpointMark;
pub(crate) use columns::Incomplete;
pub(crate) use locations::CellLocation;
use locations::ColumnLocation;
use victim::Age;
pub use victim::FillHistogram;

/// Blocks that the cleaner moves at once: writers wait for no more than that in between, and each such chunk may become a
/// record of its own.
pub(crate) const CHUNK_BLOCKS: u32 = 64;

/// What space is wanted for, the more needed the higher: each level may use what the ones below may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AllocPriority {
    /// New data.
    User,
    /// Trims, zeros and healed blocks: each gives back something, but perhaps no segment.
    Trimming,
    /// What gains space for certain: the cleaner; and what an administrator does about a full pool: deleted volumes and the
    /// catalogue.
    Freeing,
    /// Checkpoints: without them nothing that was freed comes back.
    Checkpoint,
}

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentPhase {
    /// Records are appended.
    Open,
    /// Full, or ended by a recovery.
    Sealed,
    /// Empty; its zones wait for the checkpoint that is begun next to become durable.
    Freed {
        /// Checkpoints begun before it was freed.
        checkpoints: u64,
    },
}

/// A segment in memory.
pub(crate) struct Segment {
    record: SegmentRecord,
    phase: SegmentPhase,
    /// Records being written to it.
    in_flight: u32,
    /// Row at which the next record starts.
    append: Row,
    /// Row after the last record whose effects are in the map.
    applied: Row,
    /// Row up to which its columns were flushed.
    flushed: Row,
    /// First row that a recovery must look at; `None` once a checkpoint holds all of it.
    replay_from: Option<Row>,
    /// Who may append: a segment opened while space was short is for those who need it most.
    level: AllocPriority,
    readers: u32,
    /// How old its data is, for the cleaner.
    age: Age,
    /// The checkpoint that was begun last when it was cleaned: what still lives goes with the next one.
    cleaned: Option<u64>,
    /// Columns with cells that are not what they must be, a bit for each: they are to be written anew.
    damaged: u32,
}

/// Room at the end of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendRoom {
    /// The row at which the next record starts.
    pub(crate) row: Row,
    /// Rows left.
    pub(crate) rows: u32,
    /// Who may use it.
    pub(crate) level: AllocPriority,
}

/// The segment table.
pub(crate) struct Segments {
    geometry: Geometry,
    slots: Vec<Option<Segment>>,
    places: Vec<ColumnLocation>,
    live: Vec<u32>,
    /// Their sum.
    live_blocks: u64,
    /// Those of which a recovery would have to read something, and so all that are not flushed.
    recent: BTreeSet<SegmentId>,
    /// No slot before this one is vacant.
    taken: usize,
    /// The newest incarnation there was.
    newest: u64,
    /// Sealed segments that may have become empty.
    emptied: Vec<SegmentId>,
    /// Freed segments that wait for a checkpoint.
    freed: usize,
    /// Zones that columns have left.
    vacated: Vec<columns::Vacated>,
    checkpoints: u64,
    version: u64,
    /// While a log is replayed: the newest segment that it was found in.
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
            recent: BTreeSet::new(),
            taken: 0,
            newest: 0,
            emptied: Vec::new(),
            freed: 0,
            vacated: Vec::new(),
            checkpoints: 0,
            version: 0,
            replaying: None,
        }
    }

    /// Rises when a segment's columns change: what was said of them before is out of date.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A slot for a new segment.
    pub(crate) fn vacant(&mut self) -> SegmentId {
        self.taken += self.slots.iter().skip(self.taken).take_while(|place| place.is_some()).count();
        SegmentId::new(u32::try_from(self.taken + 1).unwrap_or(u32::MAX))
    }

    /// Puts a new, open segment in a vacant slot.
    pub(crate) fn open(&mut self, id: SegmentId, record: SegmentRecord, level: AllocPriority) {
        assert_eq!(record.state, SegmentState::Open);
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
            age: Age::default(),
            cleaned: None,
            damaged: 0,
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
        self.newest = self.newest.max(segment.record.incarnation.get());
        if segment.replay_from.is_some() {
            self.recent.insert(id);
        }
        if let Some(place) = self.slots.get_mut(index) {
            assert!(place.is_none(), "segment {id} is taken");
            *place = Some(segment);
        }
        self.update_locations(id);
    }

    /// The segment.
    ///
    /// # Panics
    /// If it does not exist: every address in the map points to one that does (S1).
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

    /// True if the segment exists.
    pub(crate) fn contains(&self, id: SegmentId) -> bool {
        matches!(self.slots.get(slot(id)), Some(Some(_)))
    }

    /// The segment as it is stored, with the rows written so far.
    pub(crate) fn record(&self, id: SegmentId) -> SegmentRecord {
        let segment = self.get(id);
        SegmentRecord { rows: segment.append.get(), ..segment.record.clone() }
    }

    /// The scheme of a segment.
    pub(crate) fn scheme(&self, id: SegmentId) -> format::Scheme {
        self.get(id).record.scheme
    }

    /// Keeps a segment's zones from being given back while a read of it runs.
    pub(crate) fn pin(&mut self, id: SegmentId) {
        self.get_mut(id).readers += 1;
    }

    /// Takes back one [`Segments::pin`].
    pub(crate) fn unpin(&mut self, id: SegmentId) {
        let segment = self.get_mut(id);
        assert!(segment.readers > 0, "S3: a segment is unpinned more often than pinned");
        segment.readers -= 1;
        if segment.readers == 0 && !self.vacated.is_empty() {
            self.drained(id);
        }
    }

    /// An entry now points to a block (S1).
    pub(crate) fn add_reference(&mut self, address: Address) {
        match self.live.get_mut(slot(address.segment())) {
            Some(live) => *live += 1,
            None => panic!("S1: {address} does not exist"),
        }
        self.live_blocks += 1;
    }

    /// An entry no longer points to a block (S1).
    pub(crate) fn drop_reference(&mut self, address: Address) {
        let id = address.segment();
        match self.live.get_mut(slot(id)) {
            Some(live) if *live > 0 => {
                *live -= 1;
                if *live == 0 {
                    self.emptied.push(id);
                }
            }
            _ => panic!("S1: {address} is not counted"),
        }
        self.live_blocks -= 1;
    }

    /// `old` was replaced by `new` in the map.
    pub(crate) fn replace_reference(&mut self, old: MapEntry, new: MapEntry) {
        if let Some(address) = new.address() {
            self.add_reference(address);
        }
        if let Some(address) = old.address() {
            self.drop_reference(address);
        }
    }

    /// Room left in an open segment.
    pub(crate) fn room(&self, id: SegmentId) -> AppendRoom {
        let segment = self.get(id);
        assert_eq!(segment.phase, SegmentPhase::Open, "only open segments have room");
        let rows = self.geometry.rows() - segment.append.get();
        AppendRoom { row: segment.append, rows, level: segment.level }
    }

    /// A record of `rows` rows is being written at the end of the segment.
    pub(crate) fn append(&mut self, id: SegmentId, rows: u32) {
        let limit = self.geometry.rows();
        let segment = self.get_mut(id);
        assert_eq!(segment.phase, SegmentPhase::Open, "records go to open segments");
        segment.append = segment.append.plus(rows);
        segment.in_flight += 1;
        assert!(segment.append.get() <= limit, "a record passes the end of its segment");
    }

    /// The record that ends before `end` is in the map, or has failed for good.
    pub(crate) fn record_applied(&mut self, id: SegmentId, end: Row) {
        let segment = self.get_mut(id);
        assert!(segment.in_flight > 0 && end > segment.applied, "records of a segment land in order");
        segment.in_flight -= 1;
        segment.applied = end;
        if segment.in_flight == 0 {
            self.emptied.push(id);
        }
    }

    /// Ends a segment: nothing is appended any more.
    pub(crate) fn seal(&mut self, id: SegmentId) {
        let segment = self.get_mut(id);
        assert_eq!(segment.phase, SegmentPhase::Open, "a segment is sealed once");
        segment.phase = SegmentPhase::Sealed;
        segment.record.state = SegmentState::Sealed;
        segment.record.rows = segment.append.get();
        self.emptied.push(id);
    }

    /// Frees the segments that have become empty (S2). Gives how many.
    pub(crate) fn free_emptied(&mut self) -> usize {
        let mut freed = 0;
        for id in std::mem::take(&mut self.emptied) {
            let live = self.live(id);
            let checkpoints = self.checkpoints;
            let replaying = self.replaying;
            let Some(Some(segment)) = self.slots.get_mut(slot(id)) else { continue };
            // During a replay: what is still to come may live, and what comes after all of it must stay.
            let ahead = replaying.is_some_and(|newest| segment.record.incarnation.get() > newest);
            let landed = segment.in_flight == 0 && segment.applied == segment.append && !ahead;
            if segment.phase == SegmentPhase::Sealed && landed && live == 0 {
                segment.phase = SegmentPhase::Freed { checkpoints };
                freed += 1;
            }
        }
        self.freed += freed;
        freed
    }

    /// Live blocks of a segment.
    pub(crate) fn live(&self, id: SegmentId) -> u32 {
        self.live.get(slot(id)).copied().unwrap_or(0)
    }

    /// Live blocks of all segments.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live_blocks
    }

    /// The segments that exist.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let taken = self.slots.iter().enumerate().filter(|(_, segment)| segment.is_some());
        taken.filter_map(|(index, _)| Some(SegmentId::new(u32::try_from(index + 1).ok()?)))
    }

    /// The zones in use.
    pub(crate) fn zones(&self) -> Vec<(DriveIndex, ZoneIndex)> {
        let segments = self.slots.iter().flatten();
        segments.flat_map(|segment| segment.record.columns.iter().filter_map(|column| column.zone)).collect()
    }

    /// Everything written to the segments so far is durable up to what was applied at the time of `mark`.
    pub(crate) fn flush_mark(&self) -> Vec<(SegmentId, Row)> {
        let unflushed = self.recent.iter().filter(|id| self.get(**id).flushed < self.get(**id).applied);
        unflushed.map(|id| (*id, self.get(*id).applied)).collect()
    }

    /// The rows of a [`Segments::flush_mark`] are durable now.
    pub(crate) fn flushed(&mut self, mark: &[(SegmentId, Row)]) {
        for (id, row) in mark {
            if let Some(Some(segment)) = self.slots.get_mut(slot(*id)) {
                segment.flushed = segment.flushed.max(*row);
            }
        }
    }

    /// A drive is lost: what was not flushed to it was never written. Gives how many segments that concerns.
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

    /// The newest segment that there was.
    pub(crate) fn newest_incarnation(&self) -> Incarnation {
        Incarnation::new(self.newest)
    }

    /// The oldest segment that is not gone.
    pub(crate) fn oldest_incarnation(&self) -> Incarnation {
        let incarnations = self.slots.iter().flatten().map(|segment| segment.record.incarnation.get());
        Incarnation::new(incarnations.min().unwrap_or(u64::MAX))
    }

    /// Freed segments that wait for a checkpoint.
    pub(crate) fn freed_count(&self) -> usize {
        self.freed
    }
}

fn slot(id: SegmentId) -> usize {
    assert!(id.get() > 0, "segments count from 1");
    id.index() - 1
}
