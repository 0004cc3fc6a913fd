//! The open segments of a log, and the spares that are opened before they are needed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use format::{Scheme, SegmentClass, SegmentId};
use reactor::WaitList;

use super::{Log, WriteClass};
use crate::error::{Error, ErrorKind, Result};
use crate::segments::{AllocPriority, AppendRoom};

/// Total payload blocks of the spare segments, where segments are small and free ones plenty:
/// opening a segment waits for a flush of the superblocks, and fast drives fill several of them
/// meanwhile.
const AHEAD_BLOCKS: u32 = 16 << 8;
/// Maximum number of spare segments.
const SPARES_MAX: usize = 4;

/// All segment classes.
const CLASSES: [SegmentClass; 4] =
    [SegmentClass::Hot, SegmentClass::Mirror, SegmentClass::Cold, SegmentClass::Map];

/// The open segments of each class.
#[derive(Default)]
pub(super) struct OpenSegments {
    hot: OpenClass,
    mirror: OpenClass,
    cold: OpenClass,
    map: OpenClass,
    /// Segments that are being opened, by request number.
    opening_ids: RefCell<BTreeSet<u64>>,
    requested: Cell<u64>,
    registered: WaitList,
}

/// The open segment of a class, and its spares.
#[derive(Default)]
struct OpenClass {
    current: Cell<Option<SegmentId>>,
    /// Segments opened before they are needed.
    spares: RefCell<VecDeque<SegmentId>>,
    /// Number of spares that are being opened.
    opening: Cell<usize>,
    opened: WaitList,
}

impl OpenSegments {
    fn of(&self, class: SegmentClass) -> &OpenClass {
        match class {
            SegmentClass::Hot => &self.hot,
            SegmentClass::Mirror => &self.mirror,
            SegmentClass::Cold => &self.cold,
            SegmentClass::Map => &self.map,
        }
    }
}

impl Log {
    /// Returns the scheme of segments of this class.
    pub(super) fn scheme_of(&self, class: SegmentClass) -> Scheme {
        match class {
            SegmentClass::Hot | SegmentClass::Cold | SegmentClass::Map => self.geometry.scheme,
            SegmentClass::Mirror => self.geometry.scheme.mirror(),
        }
    }

    /// Returns the open segment of a class and its room, if a write of this priority may use it.
    pub(super) fn current(
        &self,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> Option<(SegmentId, AppendRoom)> {
        let id = self.open.of(class).current.get()?;
        let room = self.rows.segments.borrow().room(id);
        (room.level <= priority).then_some((id, room))
    }

    /// Returns the allocation priority of a write class.
    pub(super) fn priority(&self, write_class: WriteClass) -> AllocPriority {
        match write_class {
            WriteClass::Cold if self.space_gate.borrow().is_compacting() => AllocPriority::Checkpoint,
            _ => write_class.priority(),
        }
    }

    /// Sets whether moved data may use the checkpoint reserve. Only a compaction, which makes sure
    /// that enough of it remains for checkpoints, sets this.
    pub(crate) fn set_compacting(&self, compacting: bool) {
        self.space_gate.borrow_mut().set_compacting(compacting);
    }

    /// Returns how many blocks fit into the open segment of moved data during a compaction.
    pub(crate) fn room_for_moves(&self) -> u64 {
        let room = self.current(SegmentClass::Cold, AllocPriority::Checkpoint);
        room.map_or(0, |(_, room)| u64::from(room.rows) * u64::from(self.geometry.scheme.data()))
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
        self.pacer.space.can_replace(self.completable_classes().map(incomplete).sum())
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

    /// Makes a new segment the open one of its class.
    ///
    /// # Errors
    /// `NoSpace` if there is no segment for this priority; any other error has failed the pool.
    pub(super) async fn open_next(
        self: &Rc<Self>,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> Result<()> {
        let open = self.open.of(class);
        let is_available = || open.opening.get() == 0 || !open.spares.borrow().is_empty();
        open.opened.until(|| is_available().then_some(())).await;
        let spare = open.spares.borrow_mut().pop_front();
        let id = match spare {
            Some(spare) => spare,
            None => self.open_segment(class, priority).await?,
        };
        self.seal(class);
        open.current.set(Some(id));
        Ok(())
    }

    /// Opens spare segments for new data in the background.
    pub(super) fn open_ahead(self: &Rc<Self>, class: SegmentClass) {
        let Some((_, room)) = self.current(class, AllocPriority::User) else { return };
        let wanted = self.spares_wanted(class, room.rows);
        let open = self.open.of(class);
        while open.spares.borrow().len() + open.opening.get() < wanted
            && !self.recent_is_full(AllocPriority::User)
        {
            open.opening.set(open.opening.get() + 1);
            let log = self.clone();
            let open_spare = async move {
                // Without space there is no spare; the write that needs the segment gets the error.
                // Any other error has failed or closed the pool, which later requests report.
                let opened = log.open_segment(class, AllocPriority::User).await;
                let open = log.open.of(class);
                open.spares.borrow_mut().extend(opened.ok());
                open.opening.set(open.opening.get() - 1);
                open.opened.wake_all();
            };
            self.reactor.spawn(open_spare).detach();
        }
    }

    /// Returns how many spares there should be, with `rows` rows left in the open segment: one when
    /// that is half full, more where segments are small, unless free space is low.
    fn spares_wanted(&self, class: SegmentClass, rows: u32) -> usize {
        let space = &self.pacer.space;
        // Small commits, which go to mirrors, arrive one by one.
        if class == SegmentClass::Hot && space.free_for_users() > space.high_water() {
            let segment = self.geometry.rows() * u32::from(self.geometry.scheme.data());
            let spares = usize::try_from(AHEAD_BLOCKS / segment).unwrap_or(SPARES_MAX).min(SPARES_MAX);
            if spares > 1 {
                return spares;
            }
        }
        usize::from(rows < self.geometry.rows() / 2)
    }

    /// Allocates a segment and publishes it in the superblocks. It counts as registered when this
    /// returns: the caller assigns it to its class without waiting in between.
    async fn open_segment(&self, class: SegmentClass, priority: AllocPriority) -> Result<SegmentId> {
        let number = self.open.requested.get() + 1;
        self.open.requested.set(number);
        self.open.opening_ids.borrow_mut().insert(number);
        let opened = self.open_and_publish(class, priority).await;
        self.open.opening_ids.borrow_mut().remove(&number);
        self.open.registered.wake_all();
        opened
    }

    async fn open_and_publish(&self, class: SegmentClass, priority: AllocPriority) -> Result<SegmentId> {
        let (record, level) = self.link.allocate(self.scheme_of(class), class, priority).await?;
        let id = {
            let mut segments = self.rows.segments.borrow_mut();
            let id = segments.vacant();
            segments.open(id, record, level);
            // A drive may have failed while the zones were being allocated.
            segments.mark_unwritten(id, |drive| self.rows.drives.is_online(drive));
            id
        };
        tracing::debug!(shard = %self.identity.shard, segment = %id, ?class, "segment opened");
        // Freed segments become usable with a checkpoint, which must be made before the last free
        // one is taken. Not while one is in progress: it may free enough, and each checkpoint
        // writes tables in addition to nodes.
        let freed_segments = self.rows.segments.borrow().freed_count();
        let may_want = class != SegmentClass::Map && !self.checkpointing.get();
        let is_wanted = may_want && self.pacer.wants_checkpoint(freed_segments);
        if self.recent_is_due() || is_wanted {
            self.checkpoint_due.notify();
        }
        let published = self.link.publish(self.shard_record()).await;
        if let Err(error) = published {
            let error = if error.kind() == ErrorKind::NoSpace {
                Error::new(ErrorKind::PoolFailed, format!("cannot write the superblocks: {error}"))
            } else {
                error
            };
            self.fail(&error);
            return Err(error);
        }
        Ok(id)
    }
}
