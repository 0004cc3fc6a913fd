//! A shard's segment table in memory: what each segment is, where its columns lie, and how many of its blocks live.
//!
//! Plain state. Always true (docs/invariants.md):
//! - S1: a segment's live count is the number of map entries, node pointers and table pointers that point into it.
//! - S2: a segment is freed only when it is sealed, nothing is in flight to it, and nothing in it lives.
//! - S3: a freed segment's zones are given back only when a checkpoint that was begun after it was freed is durable
//!   and no read of it is running.

mod columns;

use format::{
    Address, Column, DriveIndex, Incarnation, MapEntry, Row, SegmentClass, SegmentId, SegmentRecord,
    SegmentState, ZoneIndex,
};

use crate::geometry::Geometry;
pub(crate) use columns::Incomplete;

/// Blocks that the cleaner moves at once: writers wait for no more than that in between, and each such chunk may become a
/// record of its own.
pub(crate) const CHUNK_BLOCKS: u32 = 64;

/// Sealed segments by how much of them lives: none of it, up to a tenth, and so on up to all.
pub type Fullness = [u64; 11];

/// What space is wanted for, the more needed the higher: each level may use what the ones below may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Privilege {
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
enum Life {
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
    life: Life,
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
    level: Privilege,
    readers: u32,
    /// How old its data is, for the cleaner.
    age: Age,
    /// The checkpoint that was begun last when it was cleaned: what still lives goes with the next one.
    cleaned: Option<u64>,
    /// Columns with cells that are not what they must be, a bit for each: they are to be written anew.
    damaged: u32,
}

/// When the data of a segment was written, in incarnations of segments: for data that was moved, the mean of where it
/// came from.
#[derive(Clone, Copy, Default)]
struct Age {
    moved: u64,
    born: u64,
}

impl Age {
    fn add(&mut self, born: u64) {
        self.moved += 1;
        self.born += born;
    }

    fn mean(&self, own: u64) -> u64 {
        self.born.checked_div(self.moved).unwrap_or(own)
    }
}

/// Where a cell lies on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The drive.
    pub(crate) drive: DriveIndex,
    /// Byte on the drive.
    pub(crate) offset: u64,
}

/// A column as the read path wants it.
#[derive(Clone, Copy)]
struct ColumnPlace {
    base: u64,
    missing_from: u32,
    drive: DriveIndex,
}

/// Room at the end of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The row at which the next record starts.
    pub(crate) row: Row,
    /// Rows left.
    pub(crate) rows: u32,
    /// Who may use it.
    pub(crate) level: Privilege,
}

/// The segment table.
pub(crate) struct Segments {
    geometry: Geometry,
    slots: Vec<Option<Segment>>,
    places: Vec<ColumnPlace>,
    live: Vec<u32>,
    /// Their sum.
    live_blocks: u64,
    /// Sealed segments that may have become empty.
    emptied: Vec<SegmentId>,
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
            emptied: Vec::new(),
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
    pub(crate) fn vacant(&self) -> SegmentId {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        SegmentId::new(u32::try_from(free + 1).unwrap_or(u32::MAX))
    }

    /// Puts a new, open segment in a vacant slot.
    pub(crate) fn open(&mut self, id: SegmentId, record: SegmentRecord, level: Privilege) {
        assert_eq!(record.state, SegmentState::Open);
        let segment = Segment {
            record,
            life: Life::Open,
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

    /// A segment that was just opened is never written on drives that are not in use.
    pub(crate) fn never_written(&mut self, id: SegmentId, in_use: impl Fn(DriveIndex) -> bool) {
        let columns = self.get_mut(id).record.columns.iter_mut();
        for column in columns.filter(|column| column.zone.is_some_and(|(drive, _)| !in_use(drive))) {
            column.missing_from = Row::new(0);
        }
        self.place_columns(id);
    }

    /// Puts a sealed segment back as it was stored. `replay_from` as in the superblock, if it is still listed there.
    /// What lies before that row counts as applied; the rest is told by [`Segments::replayed`].
    pub(crate) fn restore(&mut self, id: SegmentId, mut record: SegmentRecord, replay_from: Option<Row>) {
        record.state = SegmentState::Sealed;
        let end = Row::new(record.rows);
        let segment = Segment {
            record,
            life: Life::Sealed,
            in_flight: 0,
            append: end,
            applied: replay_from.unwrap_or(end),
            flushed: end,
            replay_from,
            level: Privilege::User,
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
            let nowhere = ColumnPlace { base: 0, missing_from: 0, drive: DriveIndex::new(0) };
            self.places.resize((index + 1) * self.width(), nowhere);
        }
        if let Some(place) = self.slots.get_mut(index) {
            assert!(place.is_none(), "segment {id} is taken");
            *place = Some(segment);
        }
        self.place_columns(id);
    }

    fn width(&self) -> usize {
        usize::from(self.geometry.table_width)
    }

    /// Brings the read path's view of a segment's columns up to date.
    fn place_columns(&mut self, id: SegmentId) {
        let (width, geometry) = (self.width(), self.geometry);
        let Some(Some(segment)) = self.slots.get(slot(id)) else { return };
        let places = self.places.iter_mut().skip(slot(id) * width);
        for (place, column) in places.zip(&segment.record.columns) {
            *place = match column.zone {
                Some((drive, zone)) => {
                    let base = geometry.zone_offset(zone);
                    ColumnPlace { base, missing_from: column.missing_from.get(), drive }
                }
                None => ColumnPlace { base: 0, missing_from: 0, drive: DriveIndex::new(0) },
            };
        }
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

    /// Where a block's cell lies, if it was written there.
    pub(crate) fn cell(&self, address: Address) -> Option<Cell> {
        self.cell_at(address.segment(), address.column(), address.row())
    }

    /// Where the cell of `column` and `row` lies, if it was written.
    pub(crate) fn cell_at(&self, id: SegmentId, column: Column, row: Row) -> Option<Cell> {
        let place = self.places.get(slot(id) * self.width() + column.index())?;
        if row.get() >= place.missing_from {
            return None;
        }
        let offset = place.base + u64::from(row.get()) * format::limits::BLOCK_BYTES;
        Some(Cell { drive: place.drive, offset })
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
    pub(crate) fn gained(&mut self, address: Address) {
        match self.live.get_mut(slot(address.segment())) {
            Some(live) => *live += 1,
            None => panic!("S1: {address} does not exist"),
        }
        self.live_blocks += 1;
    }

    /// An entry no longer points to a block (S1).
    pub(crate) fn lost(&mut self, address: Address) {
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
    pub(crate) fn replaced(&mut self, old: MapEntry, new: MapEntry) {
        if let Some(address) = new.address() {
            self.gained(address);
        }
        if let Some(address) = old.address() {
            self.lost(address);
        }
    }

    /// Room left in an open segment.
    pub(crate) fn room(&self, id: SegmentId) -> Room {
        let segment = self.get(id);
        assert_eq!(segment.life, Life::Open, "only open segments have room");
        let rows = self.geometry.rows() - segment.append.get();
        Room { row: segment.append, rows, level: segment.level }
    }

    /// A record of `rows` rows is being written at the end of the segment.
    pub(crate) fn append(&mut self, id: SegmentId, rows: u32) {
        let limit = self.geometry.rows();
        let segment = self.get_mut(id);
        assert_eq!(segment.life, Life::Open, "records go to open segments");
        segment.append = segment.append.plus(rows);
        segment.in_flight += 1;
        assert!(segment.append.get() <= limit, "a record passes the end of its segment");
    }

    /// The record that ends before `end` is in the map, or has failed for good.
    pub(crate) fn landed(&mut self, id: SegmentId, end: Row) {
        let segment = self.get_mut(id);
        assert!(segment.in_flight > 0 && end > segment.applied, "records of a segment land in order");
        segment.in_flight -= 1;
        segment.applied = end;
        if segment.in_flight == 0 {
            self.emptied.push(id);
        }
    }

    /// A recovery has replayed the record that ends before `end`.
    pub(crate) fn replayed(&mut self, id: SegmentId, end: Row) {
        let segment = self.get_mut(id);
        segment.applied = segment.applied.max(end);
    }

    /// Sets where a recovery found a segment to end, and takes the rows from `from` on as missing in every column
    /// whose drive is not in use: it did not take part in the recovery.
    pub(crate) fn cut(&mut self, id: SegmentId, from: Row, end: Row, in_use: impl Fn(DriveIndex) -> bool) {
        let segment = self.get_mut(id);
        assert!(segment.life == Life::Sealed && segment.in_flight == 0, "only a recovery cuts segments");
        segment.record.rows = end.get();
        (segment.append, segment.flushed) = (end, end);
        segment.applied = segment.applied.min(end);
        for column in &mut segment.record.columns {
            if column.zone.is_some_and(|(drive, _)| !in_use(drive)) {
                column.missing_from = column.missing_from.min(from);
            }
        }
        self.place_columns(id);
    }

    /// Ends a segment: nothing is appended any more.
    pub(crate) fn seal(&mut self, id: SegmentId) {
        let segment = self.get_mut(id);
        assert_eq!(segment.life, Life::Open, "a segment is sealed once");
        segment.life = Life::Sealed;
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
            if segment.life == Life::Sealed && landed && live == 0 {
                segment.life = Life::Freed { checkpoints };
                freed += 1;
            }
        }
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

    /// A block was moved from one segment to another, which is no younger for it.
    pub(crate) fn inherited(&mut self, from: SegmentId, to: SegmentId) {
        let source = self.get(from);
        let born = source.age.mean(source.record.incarnation.get());
        self.get_mut(to).age.add(born);
    }

    /// The segment that is most worth cleaning, by cost and benefit (Rosenblum and Ousterhout, 1992): what it gives back,
    /// weighted with how long its data has been left alone, over what moving its live blocks costs. None whose live
    /// blocks would take more than `worth` of the zones that it gives back; with `of_map`, only one of nodes and tables. With what they
    /// would take.
    pub(crate) fn victim(&self, worth: f32, of_map: bool) -> Option<(SegmentId, f32)> {
        let newest = self.newest();
        let may_be = |id: &SegmentId| !of_map || self.get(*id).record.class == SegmentClass::Map;
        let scored = self.ids().filter(may_be).filter_map(|id| {
            let share = self.live_share(id).filter(|share| *share <= worth)?;
            let segment = self.get(id);
            let age = newest - segment.age.mean(segment.record.incarnation.get()).min(newest) + 1;
            Some((id, share, benefit(share, age)))
        });
        scored.max_by(|(.., a), (.., b)| a.total_cmp(b)).map(|(id, share, _)| (id, share))
    }

    /// What the live blocks of a segment that may be cleaned would take elsewhere, headers and padding included, as a
    /// share of its zones.
    #[allow(clippy::cast_precision_loss)]
    fn live_share(&self, id: SegmentId) -> Option<f32> {
        let segment = self.get(id);
        let live = self.live(id);
        let landed = segment.in_flight == 0 && segment.applied == segment.append;
        let again = segment.cleaned.is_none_or(|checkpoint| self.checkpoints > checkpoint + 1);
        if segment.life != Life::Sealed || !landed || live == 0 || !again {
            return None;
        }
        let scheme = self.geometry.scheme;
        // A header for each chunk, with which it fills whole rows; the last record ends with its row.
        let cells = (live + live.div_ceil(CHUNK_BLOCKS) + u32::from(scheme.data())) as f32;
        let elsewhere =
            cells * f32::from(scheme.width()) / (f32::from(scheme.data()) * self.geometry.rows() as f32);
        Some(elsewhere / f32::from(segment.record.scheme.width()))
    }

    /// How many sealed segments are how full of what lives, by tenths of what they may hold: empty ones that wait for a checkpoint first,
    /// then up to a tenth, and so on.
    pub(crate) fn by_fullness(&self) -> Fullness {
        let mut counts = Fullness::default();
        let payload = self.geometry.segment_payload().max(1);
        let sealed = self.ids().filter(|id| self.get(*id).life != Life::Open);
        for id in sealed {
            let tenth = (u64::from(self.live(id)) * 10).div_ceil(payload);
            let at = usize::try_from(tenth).unwrap_or(usize::MAX).min(counts.len() - 1);
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        counts
    }

    /// The cleaner has moved what it could; the rest goes with the next checkpoint.
    pub(crate) fn cleaned(&mut self, id: SegmentId) {
        let checkpoints = self.checkpoints;
        self.get_mut(id).cleaned = Some(checkpoints);
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

    /// Segments of which a recovery would have to read something: from which row, and how they are stored.
    pub(crate) fn recent(&self) -> Vec<(SegmentId, Row, SegmentRecord)> {
        self.ids().filter_map(|id| Some((id, self.get(id).replay_from?, self.record(id)))).collect()
    }

    /// Number of segments that [`Segments::recent`] would list.
    pub(crate) fn recent_count(&self) -> usize {
        self.slots.iter().flatten().filter(|segment| segment.replay_from.is_some()).count()
    }

    /// Everything written to the segments so far is durable up to what was applied at the time of `mark`.
    pub(crate) fn flush_mark(&self) -> Vec<(SegmentId, Row)> {
        let unflushed = self.ids().filter(|id| self.get(*id).flushed < self.get(*id).applied);
        unflushed.map(|id| (id, self.get(id).applied)).collect()
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
        let concerned: Vec<_> = self.ids().filter(|id| self.get(*id).replay_from.is_some()).collect();
        let mut changed = 0;
        for id in concerned {
            let segment = self.get_mut(id);
            let (flushed, sealed_whole) =
                (segment.flushed, segment.life != Life::Open && segment.flushed == segment.append);
            let columns = segment.record.columns.iter_mut();
            for column in columns.filter(|column| column.zone.is_some_and(|(on, _)| on == drive)) {
                if !sealed_whole && column.missing_from > flushed {
                    column.missing_from = flushed;
                    changed += 1;
                }
            }
            self.place_columns(id);
        }
        self.version += 1;
        changed
    }

    /// The replay of what was found in the segments begins. What is written until it ends comes after all of that, so no
    /// checkpoint on the way may leave it out: a recovery takes records up to the first gap.
    pub(crate) fn begin_replay(&mut self) {
        self.replaying = Some(self.newest());
    }

    /// The replay is over; every segment is to be looked at for [`Segments::free_emptied`], since nothing told of empty ones.
    pub(crate) fn end_replay(&mut self) {
        self.replaying = None;
        let ids: Vec<_> = self.ids().collect();
        self.emptied.extend(ids);
    }

    /// True for a segment that was opened while the log is being replayed.
    fn is_ahead(&self, record: &SegmentRecord) -> bool {
        self.replaying.is_some_and(|newest| record.incarnation.get() > newest)
    }

    /// Begins a checkpoint: the live counts now, and for each segment the row from which a recovery on top of the
    /// checkpoint would have to look.
    pub(crate) fn begin_checkpoint(&mut self) -> CheckpointMark {
        self.checkpoints += 1;
        let from = self.ids().filter_map(|id| {
            let segment = self.get(id);
            if self.is_ahead(&segment.record) {
                return segment.replay_from.map(|row| (id, row));
            }
            let more = segment.life == Life::Open || segment.applied < segment.append;
            more.then_some((id, segment.applied))
        });
        CheckpointMark {
            checkpoint: self.checkpoints,
            live: self.live.clone(),
            from: from.collect(),
            born: self.newest(),
        }
    }

    fn newest(&self) -> u64 {
        self.incarnations().max().unwrap_or(0)
    }

    fn incarnations(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().map(|segment| segment.record.incarnation.get())
    }

    /// The newest segment.
    pub(crate) fn newest_incarnation(&self) -> Incarnation {
        Incarnation::new(self.newest())
    }

    /// The oldest segment that is not gone.
    pub(crate) fn oldest_incarnation(&self) -> Incarnation {
        Incarnation::new(self.incarnations().min().unwrap_or(u64::MAX))
    }

    /// The checkpoint begun at `mark` is about to be published: recoveries look from the mark on.
    pub(crate) fn end_checkpoint(&mut self, mark: &CheckpointMark) {
        for (index, segment) in self.slots.iter_mut().enumerate() {
            let Some(segment) = segment else { continue };
            if segment.record.incarnation.get() > mark.born {
                continue;
            }
            let marked = mark.from.iter().find(|(id, _)| slot(*id) == index);
            segment.replay_from = marked.map(|(_, row)| *row);
        }
    }

    /// Segments that were freed before the checkpoint at `mark` began, which is durable now, are gone: gives their zones,
    /// which may be used again, and those that columns had left before (S3).
    pub(crate) fn release(&mut self, mark: &CheckpointMark) -> Vec<(DriveIndex, ZoneIndex)> {
        let mut released = self.release_vacated(mark);
        for place in &mut self.slots {
            let gone = place.as_ref().is_some_and(|segment| {
                let before =
                    matches!(segment.life, Life::Freed { checkpoints } if checkpoints < mark.checkpoint);
                before && segment.readers == 0
            });
            if gone && let Some(segment) = place.take() {
                released.extend(segment.record.columns.iter().filter_map(|column| column.zone));
            }
        }
        released
    }

    /// The segment table as the checkpoint at `mark` stores it.
    pub(crate) fn stored(&self, mark: &CheckpointMark) -> Vec<Option<SegmentRecord>> {
        let ids = 1..=u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        ids.map(SegmentId::new)
            .map(|id| {
                let segment = self.slots.get(slot(id))?.as_ref()?;
                let gone =
                    matches!(segment.life, Life::Freed { checkpoints } if checkpoints < mark.checkpoint);
                (!gone).then(|| self.record(id))
            })
            .collect()
    }

    /// Sets a live count as a checkpoint stored it.
    pub(crate) fn restore_live(&mut self, id: SegmentId, count: u32) {
        if let Some(live) = self.live.get_mut(slot(id)) {
            self.live_blocks = self.live_blocks + u64::from(count) - u64::from(*live);
            *live = count;
        }
    }

    /// Freed segments that wait for a checkpoint.
    pub(crate) fn freed_count(&self) -> usize {
        let freed = |segment: &&Segment| matches!(segment.life, Life::Freed { .. });
        self.slots.iter().flatten().filter(freed).count()
    }
}

/// What a checkpoint remembers of the segments at its start.
pub(crate) struct CheckpointMark {
    checkpoint: u64,
    /// Live counts, in segment order; adjusted as nodes are stored.
    pub(crate) live: Vec<u32>,
    from: Vec<(SegmentId, Row)>,
    /// Incarnations above this were born later.
    born: u64,
}

impl CheckpointMark {
    /// Leaves the pointers of the tables out of the counts: storing the counts changes them. They are counted in again
    /// when the tables are loaded.
    pub(crate) fn leave_out(&mut self, tables: &[MapEntry]) {
        for entry in tables {
            self.replaced(*entry, MapEntry::ABSENT);
        }
    }

    /// A node pointer of the frozen map changed.
    pub(crate) fn replaced(&mut self, old: MapEntry, new: MapEntry) {
        if let Some(address) = new.address() {
            let index = slot(address.segment());
            if self.live.len() <= index {
                self.live.resize(index + 1, 0);
            }
            if let Some(live) = self.live.get_mut(index) {
                *live += 1;
            }
        }
        if let Some(address) = old.address()
            && let Some(live) = self.live.get_mut(slot(address.segment()))
        {
            assert!(*live > 0, "S1: a stored node is not counted");
            *live -= 1;
        }
    }
}

/// How much age counts. With 1, as in the paper, or 1/2, uniformly overwritten data is moved too often; with 1/4 or less, data of which a part
/// is hot.
const AGE_EXPONENT: f32 = 0.375;

/// How much cleaning a segment is worth.
#[allow(clippy::cast_precision_loss)]
fn benefit(share: f32, age: u64) -> f32 {
    // Reading the headers costs something even where nothing lives.
    (1.0 - share) * (age as f32).powf(AGE_EXPONENT) / (0.05 + share)
}

fn slot(id: SegmentId) -> usize {
    assert!(id.get() > 0, "segments count from 1");
    id.index() - 1
}
