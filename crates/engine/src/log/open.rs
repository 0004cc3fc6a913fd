//! Opening and sealing segments, and the spares that are opened before they are needed.
//!
//! Changes which segment is open for each class (`OpenSegments`). Always true: an open segment is
//! in the superblocks before it is used. Must not know: records, queues.

use std::collections::VecDeque;

use format::{SegmentClass, SegmentId};

use super::appender::{AppendPlace, Appender};
use super::open_segments::{CLASSES, OpenError};
use crate::error::{Error, ErrorKind};
use crate::invariant::to_index;
use crate::segments::AllocPriority;

/// Total payload blocks of the spare segments, where segments are small and free ones plenty:
/// opening a segment waits for a flush of the superblocks, and fast drives fill several of them
/// meanwhile.
const AHEAD_BLOCKS: u32 = 16 << 8;
/// Maximum number of spare segments.
const SPARES_MAX: usize = 4;

impl Appender {
    /// Returns the open segment of a class and its room, if a write of this priority may use it.
    pub(super) fn current(&self, class: SegmentClass, priority: AllocPriority) -> Option<AppendPlace> {
        let segment = self.open.of(class).current.get()?;
        let room = self.rows.segments.borrow().room(segment);
        (room.level <= priority).then_some(AppendPlace { segment, scheme: self.scheme_of(class), room })
    }

    /// Returns how many blocks fit into the open segment of moved data during a compaction.
    pub(crate) fn room_for_moves(&self) -> u64 {
        let room = self.current(SegmentClass::Cold, AllocPriority::Checkpoint);
        room.map_or(0, |place| u64::from(place.room.rows) * u64::from(self.geometry.scheme.data()))
    }

    /// Returns true if a checkpoint must complete before another segment is opened at this
    /// priority. The rest of the list of recent segments is reserved for higher priorities, and its
    /// end for the checkpoint itself.
    pub(super) fn recent_is_full(&self, priority: AllocPriority) -> bool {
        let limit = match priority {
            AllocPriority::User => self.recent_max * 8 / 16,
            AllocPriority::Trimming => self.recent_max * 9 / 16,
            AllocPriority::Freeing => self.recent_max * 10 / 16,
            AllocPriority::Checkpoint => return false,
        };
        self.rows.segments.borrow().recent_count() >= limit
    }

    /// Returns true if enough segments were opened since the last checkpoint to make the next one
    /// due.
    fn recent_is_due(&self) -> bool {
        self.rows.segments.borrow().recent_count() >= self.recent_max / 3
    }

    /// Seals the open segment of a class, if there is one.
    pub(super) fn seal(&self, class: SegmentClass) {
        if let Some(id) = self.open.of(class).current.take() {
            self.rows.segments.borrow_mut().seal(id);
        }
    }

    /// Seals the open segments that miss columns if their successors would not: repair can complete
    /// them then.
    pub(crate) fn seal_incomplete(&self) {
        if !self.can_replace_incomplete() {
            return;
        }
        for class in self.completable_classes() {
            let open = self.open.of(class);
            if open.current.get().is_some_and(|id| self.is_incomplete(id)) {
                self.seal(class);
            }
            let (kept, ended): (VecDeque<_>, VecDeque<_>) =
                open.spares.take().into_iter().partition(|id| !self.is_incomplete(*id));
            *open.spares.borrow_mut() = kept;
            ended.into_iter().for_each(|id| self.rows.segments.borrow_mut().seal(id));
        }
    }

    /// Returns true if there is space to complete the open segments that miss columns, and for
    /// their successors.
    pub(crate) fn can_replace_incomplete(&self) -> bool {
        let incomplete = |class| {
            let open = self.open.of(class);
            let spares = open.spares.borrow();
            open.current.get().iter().chain(spares.iter()).filter(|id| self.is_incomplete(**id)).count()
        };
        self.space.can_replace(self.completable_classes().map(incomplete).sum())
    }

    fn completable_classes(&self) -> impl Iterator<Item = SegmentClass> {
        let active_count = self.rows.drives.active_count();
        CLASSES.into_iter().filter(move |class| active_count >= usize::from(self.scheme_of(*class).width()))
    }

    fn is_incomplete(&self, id: SegmentId) -> bool {
        let use_of = |drive| self.rows.drives.use_of(drive);
        self.rows.segments.borrow().incomplete_one(id, use_of).is_some()
    }

    /// Waits until every segment whose zones were requested by now is registered.
    pub(crate) async fn wait_for_opening(&self) {
        let requested = self.open.requested.get();
        let is_opening = || self.open.opening_ids.borrow().first().is_some_and(|first| *first <= requested);
        self.open.registered.until(|| (!is_opening()).then_some(())).await;
    }

    /// Returns true while a write of this class would wait for a segment that is being opened.
    pub(super) fn is_opening(&self, class: SegmentClass) -> bool {
        let open = self.open.of(class);
        open.opening.get() > 0 && open.spares.borrow().is_empty()
    }

    /// Makes a new segment the open one of its class.
    pub(super) async fn open_next(
        &self,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> std::result::Result<(), OpenError> {
        let open = self.open.of(class);
        open.opened.until(|| (!self.is_opening(class)).then_some(())).await;
        let spare = open.spares.borrow_mut().pop_front();
        let id = match spare {
            Some(spare) => spare,
            None => self.open_segment(class, priority).await?,
        };
        self.seal(class);
        assert!(self.rows.segments.borrow().contains(id), "Z1: segment {id} is opened before it is used");
        assert!(open.current.replace(Some(id)).is_none(), "S2: a segment is sealed before its successor");
        Ok(())
    }

    /// Returns true if another spare segment of a class should be opened, which is then counted as
    /// being opened until [`Appender::open_spare`] returns.
    pub(super) fn begin_spare(&self, class: SegmentClass) -> bool {
        let Some(place) = self.current(class, AllocPriority::User) else { return false };
        let open = self.open.of(class);
        let count = open.spares.borrow().len() + open.opening.get();
        let is_wanted =
            count < self.spares_wanted(class, place.room.rows) && !self.recent_is_full(AllocPriority::User);
        open.opening.set(open.opening.get() + usize::from(is_wanted));
        is_wanted
    }

    /// Opens a spare segment that [`Appender::begin_spare`] counted.
    ///
    /// Without space there is no spare: the write that needs the segment gets the error.
    pub(super) async fn open_spare(&self, class: SegmentClass) -> std::result::Result<(), OpenError> {
        let opened = self.open_segment(class, AllocPriority::User).await;
        let open = self.open.of(class);
        assert!(open.opening.get() > 0, "Z1: a spare is opened once");
        open.opening.set(open.opening.get() - 1);
        let opened = opened.map(|spare| open.spares.borrow_mut().push_back(spare));
        open.opened.wake_all();
        opened
    }

    /// Returns how many spares there should be, with `rows` rows left in the open segment: one when
    /// that is half full, more where segments are small, unless free space is low.
    fn spares_wanted(&self, class: SegmentClass, rows: u32) -> usize {
        let space = &self.space;
        // Small commits, which go to mirrors, arrive one by one.
        if class == SegmentClass::Hot && space.free_for_users() > space.high_water() {
            let segment = self.geometry.rows() * u32::from(self.geometry.scheme.data());
            let spares = to_index(u64::from(AHEAD_BLOCKS / segment)).min(SPARES_MAX);
            if spares > 1 {
                return spares;
            }
        }
        usize::from(rows < self.geometry.rows() / 2)
    }

    /// Allocates a segment and publishes it in the superblocks. It counts as registered when this
    /// returns: the caller assigns it to its class without waiting in between.
    async fn open_segment(
        &self,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> std::result::Result<SegmentId, OpenError> {
        let number = self.open.requested.get() + 1;
        self.open.requested.set(number);
        self.open.opening_ids.borrow_mut().insert(number);
        let opened = self.open_and_publish(class, priority).await;
        self.open.opening_ids.borrow_mut().remove(&number);
        self.open.registered.wake_all();
        opened
    }

    async fn open_and_publish(
        &self,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> std::result::Result<SegmentId, OpenError> {
        let allocated = self.link.allocate(self.scheme_of(class), class, priority).await;
        let (record, level) = allocated.map_err(OpenError::Unallocated)?;
        let id = {
            let mut segments = self.rows.segments.borrow_mut();
            let id = segments.vacant();
            segments.open(id, record, level);
            // A drive may have failed while the zones were being allocated.
            segments.mark_unwritten(id, |drive| self.rows.drives.is_online(drive));
            id
        };
        tracing::debug!(shard = %self.identity.shard, segment = %id, ?class, "segment opened");
        self.request_checkpoint(class);
        let published = self.link.publish(self.shard_record()).await;
        published.map(|()| id).map_err(|error| match error.kind() {
            ErrorKind::NoSpace => {
                let message = format!("cannot write the superblocks: {error}");
                OpenError::Unpublished(Error::new(ErrorKind::PoolFailed, message))
            }
            _ => OpenError::Unpublished(error),
        })
    }

    /// Requests a checkpoint if the segment that was opened makes one due.
    fn request_checkpoint(&self, class: SegmentClass) {
        // Freed segments become usable with a checkpoint, which must be made before the last free
        // one is taken. Not while one is in progress: it may free enough, and each checkpoint
        // writes tables in addition to nodes.
        let freed_segments = self.rows.segments.borrow().freed_count();
        let may_want = class != SegmentClass::Map && !self.checkpoints.is_running();
        if self.recent_is_due() || (may_want && self.space.wants_checkpoint(freed_segments)) {
            self.checkpoints.request();
        }
    }
}
