//! The segments that a log appends to, and getting the next ones before they are needed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use format::{Scheme, SegmentClass, SegmentId};
use reactor::WaitList;

use super::{Log, WriteClass};
use crate::error::{Error, ErrorKind, Result};
use crate::segments::{AllocPriority, AppendRoom};

/// Payload blocks that the spare segments hold together, where segments are small and there are plenty: opening one waits
/// for the superblocks to be flushed, and meanwhile fast drives take several of them.
const AHEAD_BLOCKS: u32 = 16 << 8;
/// Spare segments at most.
const SPARES_MAX: usize = 4;

/// Every class.
const CLASSES: [SegmentClass; 4] =
    [SegmentClass::Hot, SegmentClass::Mirror, SegmentClass::Cold, SegmentClass::Map];

/// The open segments of each class.
#[derive(Default)]
pub(super) struct OpenSegments {
    hot: OpenClass,
    mirror: OpenClass,
    cold: OpenClass,
    map: OpenClass,
    /// Segments that are being opened, as numbered by `asked`.
    coming: RefCell<BTreeSet<u64>>,
    asked: Cell<u64>,
    arrived: WaitList,
}

/// The open segment of a class, and spares of it.
#[derive(Default)]
struct OpenClass {
    current: Cell<Option<SegmentId>>,
    /// Opened ahead of need.
    spares: RefCell<VecDeque<SegmentId>>,
    /// Spares that are being opened.
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
    /// The scheme of segments of this class.
    pub(super) fn scheme_of(&self, class: SegmentClass) -> Scheme {
        match class {
            SegmentClass::Hot | SegmentClass::Cold | SegmentClass::Map => self.geometry.scheme,
            SegmentClass::Mirror => self.geometry.scheme.mirror(),
        }
    }

    /// The open segment of a class, with its room, if there is one that this write_class may use.
    pub(super) fn current(
        &self,
        class: SegmentClass,
        privilege: AllocPriority,
    ) -> Option<(SegmentId, AppendRoom)> {
        let id = self.open.of(class).current.get()?;
        let room = self.rows.segments.borrow().room(id);
        (room.level <= privilege).then_some((id, room))
    }

    /// How much a write_class needs space.
    pub(super) fn priority(&self, write_class: WriteClass) -> AllocPriority {
        match write_class {
            WriteClass::Cold if self.compacting.get() => AllocPriority::Checkpoint,
            _ => write_class.priority(),
        }
    }

    /// Whether what is moved may take of checkpoints' own space: while somebody sees to it that enough is left for them.
    pub(crate) fn set_compacting(&self, is_so: bool) {
        self.compacting.set(is_so);
    }

    /// Blocks that go into the open segment of moved data while such space may be taken.
    pub(crate) fn room_for_moves(&self) -> u64 {
        let room = self.current(SegmentClass::Cold, AllocPriority::Checkpoint);
        room.map_or(0, |(_, room)| u64::from(room.rows) * u64::from(self.geometry.scheme.data()))
    }

    /// True if a checkpoint must come before another segment is opened for this use. What is left then is for those who
    /// need it more, and the last for the checkpoint itself.
    pub(super) fn recent_is_full(&self, privilege: AllocPriority) -> bool {
        let most = match privilege {
            AllocPriority::User => self.recent_max * 8 / 16,
            AllocPriority::Trimming => self.recent_max * 9 / 16,
            AllocPriority::Freeing => self.recent_max * 10 / 16,
            AllocPriority::Checkpoint => return false,
        };
        self.rows.segments.borrow().recent_count() >= most
    }

    /// True if enough segments have been opened since the last checkpoint for another one.
    fn recent_is_due(&self) -> bool {
        self.rows.segments.borrow().recent_count() >= self.recent_max / 3
    }

    /// Seals the open segment of a class, if there is one.
    pub(super) fn seal(&self, class: SegmentClass) {
        if let Some(id) = self.open.of(class).current.take() {
            self.rows.segments.borrow_mut().seal(id);
        }
    }

    /// Ends the open segments that miss columns and whose successors would not: they can be completed then.
    pub(crate) fn seal_incomplete(&self) {
        if !self.can_replace_incomplete() {
            return;
        }
        for class in self.classes_that_can_be_whole() {
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

    /// True if there is room for open segments that miss columns to be completed, and for their successors.
    pub(crate) fn can_replace_incomplete(&self) -> bool {
        let incomplete = |class| {
            let open = self.open.of(class);
            let spares = open.spares.borrow();
            open.current.get().iter().chain(spares.iter()).filter(|id| self.is_incomplete(**id)).count()
        };
        self.pacer.space.can_replace(self.classes_that_can_be_whole().map(incomplete).sum())
    }

    fn classes_that_can_be_whole(&self) -> impl Iterator<Item = SegmentClass> {
        let active_count = self.rows.drives.active_count();
        CLASSES.into_iter().filter(move |class| active_count >= usize::from(self.scheme_of(*class).width()))
    }

    fn is_incomplete(&self, id: SegmentId) -> bool {
        let standing = |drive| self.rows.drives.use_of(drive);
        self.rows.segments.borrow().incomplete_one(id, standing).is_some()
    }

    /// Waits until every segment for which zones had been asked by now is in its place.
    pub(crate) async fn wait_for_opening(&self) {
        let asked = self.open.asked.get();
        let coming = || self.open.coming.borrow().first().is_some_and(|first| *first <= asked);
        self.open.arrived.until(|| (!coming()).then_some(())).await;
    }

    /// Makes a new segment the open one of its class.
    ///
    /// # Errors
    /// `NoSpace` if none is to be had for this write_class; anything else is the pool's failure.
    pub(super) async fn open_next(
        self: &Rc<Self>,
        class: SegmentClass,
        privilege: AllocPriority,
    ) -> Result<()> {
        let open = self.open.of(class);
        let one_is_there = || open.opening.get() == 0 || !open.spares.borrow().is_empty();
        open.opened.until(|| one_is_there().then_some(())).await;
        let spare = open.spares.borrow_mut().pop_front();
        let id = match spare {
            Some(spare) => spare,
            None => self.open_segment(class, privilege).await?,
        };
        self.seal(class);
        open.current.set(Some(id));
        Ok(())
    }

    /// Opens the next segments for new data in the background.
    pub(super) fn open_ahead(self: &Rc<Self>, class: SegmentClass) {
        let Some((_, room)) = self.current(class, AllocPriority::User) else { return };
        let wanted = self.spares_wanted(class, room.rows);
        let open = self.open.of(class);
        while open.spares.borrow().len() + open.opening.get() < wanted
            && !self.recent_is_full(AllocPriority::User)
        {
            open.opening.set(open.opening.get() + 1);
            let log = self.clone();
            let ahead = async move {
                // Without space there is no spare; whoever needs the segment meets the error itself.
                let opened = log.open_segment(class, AllocPriority::User).await;
                let open = log.open.of(class);
                open.spares.borrow_mut().extend(opened.ok());
                open.opening.set(open.opening.get() - 1);
                open.opened.wake_all();
            };
            self.reactor.spawn(ahead).detach();
        }
    }

    /// How many spares there should be, with `rows` left in the open segment: one when that is half full, more of small
    /// ones unless space is short.
    fn spares_wanted(&self, class: SegmentClass, rows: u32) -> usize {
        let space = &self.pacer.space;
        // Small commits, which go to mirrors, come one by one.
        if class == SegmentClass::Hot && space.free_for_users() > space.high_water() {
            let segment = self.geometry.rows() * u32::from(self.geometry.scheme.data());
            let ahead = usize::try_from(AHEAD_BLOCKS / segment).unwrap_or(SPARES_MAX).min(SPARES_MAX);
            if ahead > 1 {
                return ahead;
            }
        }
        usize::from(rows < self.geometry.rows() / 2)
    }

    /// Gets zones, and the superblocks to know of them. The segment arrives when this ends: its caller gives it its place at once.
    async fn open_segment(&self, class: SegmentClass, privilege: AllocPriority) -> Result<SegmentId> {
        let number = self.open.asked.get() + 1;
        self.open.asked.set(number);
        self.open.coming.borrow_mut().insert(number);
        let opened = self.open_and_publish(class, privilege).await;
        self.open.coming.borrow_mut().remove(&number);
        self.open.arrived.wake_all();
        opened
    }

    async fn open_and_publish(&self, class: SegmentClass, privilege: AllocPriority) -> Result<SegmentId> {
        let (record, level) = self.link.allocate(self.scheme_of(class), class, privilege).await?;
        let id = {
            let mut segments = self.rows.segments.borrow_mut();
            let id = segments.vacant();
            segments.open(id, record, level);
            // One that was lost while the zones were on their way here.
            segments.mark_unwritten(id, |drive| self.rows.drives.is_online(drive));
            id
        };
        tracing::debug!(shard = %self.identity.shard, segment = %id, ?class, "segment opened");
        // What is on its way to be free comes with a checkpoint: before the last of what is free is taken. Not with one after the other:
        // each costs what it stores besides nodes, and the one that is being made may bring enough.
        let coming = self.rows.segments.borrow().freed_count();
        let may_want = class != SegmentClass::Map && !self.checkpointing.get();
        let is_wanted = may_want && self.pacer.wants_checkpoint(coming);
        if self.recent_is_due() || is_wanted {
            self.checkpoint_due.notify();
        }
        let published = self.link.publish(self.shard_record()).await;
        if let Err(error) = published {
            let error = if error.kind() == ErrorKind::NoSpace {
                Error::new(ErrorKind::PoolFailed, format!("the superblocks cannot be written: {error}"))
            } else {
                error
            };
            self.fail(&error);
            return Err(error);
        }
        Ok(id)
    }
}
