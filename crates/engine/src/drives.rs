//! The pool's drives as one shard uses them: which may be used, and which hold writes that are not durable yet.
//!
//! Always true (D1): a drive that is lost is never written or believed again until it joins anew.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use format::DriveIndex;
use format::limits::BLOCK;
use reactor::{Drive, Io, Span, Window, Writable};
use smallvec::SmallVec;

use crate::bad_reads::BadReads;
use crate::in_flight::InFlight;

/// What becomes of what lies on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriveUse {
    /// It is there to stay.
    Active,
    /// It is there, and to be moved elsewhere.
    Draining,
    /// It is not to be had.
    Failed,
}

/// A drive in one of its terms in the pool: lost and back again, it has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriveEpoch {
    pub(crate) index: DriveIndex,
    epoch: u32,
}

/// One drive.
struct DriveSlot {
    /// `None` if it is not in use.
    drive: Option<Rc<dyn Drive>>,
    /// How often it has joined.
    epoch: u32,
    online: Cell<bool>,
    draining: Cell<bool>,
    /// Written since its last flush began.
    dirty: Cell<bool>,
    volatile: bool,
    /// What is on it is memory of this process, which whoever reads and writes moves himself.
    in_memory: bool,
}

impl DriveSlot {
    fn new(drive: Option<Rc<dyn Drive>>) -> Self {
        let properties = drive.as_ref().map(|drive| drive.properties());
        let in_memory = drive.as_ref().is_some_and(|drive| drive.window(0, BLOCK).is_some());
        Self {
            epoch: 0,
            online: Cell::new(drive.is_some()),
            draining: Cell::new(false),
            drive,
            dirty: Cell::new(false),
            volatile: properties.is_some_and(|properties| properties.volatile_cache),
            in_memory,
        }
    }

    fn usable(&self) -> Option<&dyn Drive> {
        self.drive.as_deref().filter(|_| self.online.get())
    }
}

/// The drives, by index.
pub(crate) struct Drives {
    slots: RefCell<Vec<DriveSlot>>,
    /// Reads that they did not answer as they should.
    pub(crate) bad_reads: BadReads,
}

impl Drives {
    /// Drives as opened on this reactor; `None` for one that may not be used.
    pub(crate) fn new(drives: Vec<Option<Rc<dyn Drive>>>) -> Self {
        let slots = RefCell::new(drives.into_iter().map(DriveSlot::new).collect());
        Self { slots, bad_reads: BadReads::default() }
    }

    /// A drive joins the pool, with a number that no other has.
    pub(crate) fn join(&self, index: DriveIndex, drive: Rc<dyn Drive>) {
        let mut slots = self.slots.borrow_mut();
        let count = slots.len().max(index.index() + 1);
        slots.resize_with(count, || DriveSlot::new(None));
        if let Some(slot) = slots.get_mut(index.index()) {
            assert!(slot.usable().is_none(), "D1: drive {index} is in use already");
            let epoch = slot.epoch + 1;
            *slot = DriveSlot { epoch, ..DriveSlot::new(Some(drive)) };
        }
    }

    /// What `what` gives of a drive that may be used.
    fn with<T>(&self, index: DriveIndex, what: impl FnOnce(&DriveSlot, &dyn Drive) -> T) -> Option<T> {
        let slots = self.slots.borrow();
        let slot = slots.get(index.index())?;
        slot.usable().map(|drive| what(slot, drive))
    }

    /// True if the drive may be used.
    pub(crate) fn is_online(&self, index: DriveIndex) -> bool {
        self.with(index, |_, _| ()).is_some()
    }

    /// What becomes of what lies on a drive.
    pub(crate) fn use_of(&self, index: DriveIndex) -> DriveUse {
        let leaves = self.with(index, |slot, _| slot.draining.get());
        leaves.map_or(DriveUse::Failed, |leaves| if leaves { DriveUse::Draining } else { DriveUse::Active })
    }

    /// Drives that are there to stay.
    pub(crate) fn active_count(&self) -> usize {
        let stays = |slot: &&DriveSlot| slot.usable().is_some() && !slot.draining.get();
        self.slots.borrow().iter().filter(stays).count()
    }

    /// True if all that may be used are memory of this process.
    pub(crate) fn are_in_memory(&self) -> bool {
        self.slots.borrow().iter().all(|slot| slot.in_memory || slot.usable().is_none())
    }

    /// These drives, and no others, are to be emptied.
    pub(crate) fn set_draining(&self, draining: &[DriveIndex]) {
        for (index, slot) in (0..).map(DriveIndex::new).zip(&*self.slots.borrow()) {
            slot.draining.set(draining.contains(&index));
        }
    }

    /// Starts a flush of one drive, whatever was written to it; `None` if it may not be used. Done at once where completed writes
    /// are durable.
    pub(crate) fn flush(&self, index: DriveIndex) -> Option<InFlight> {
        self.with(index, |slot, drive| {
            InFlight::new(if slot.volatile { drive.flush() } else { Io::ready(Ok(0)) })
        })
    }

    /// Starts a read; `None` if the drive may not be used.
    pub(crate) fn read(
        &self,
        index: DriveIndex,
        offset: u64,
        into: &[Span],
    ) -> Option<(DriveEpoch, InFlight)> {
        self.with(index, |slot, drive| {
            (DriveEpoch { index, epoch: slot.epoch }, InFlight::new(drive.read(offset, into)))
        })
    }

    /// True if the drive is in use, in this term: what an I/O of an earlier one ended with says nothing of it.
    pub(crate) fn is_current(&self, drive: DriveEpoch) -> bool {
        self.with(drive.index, |slot, _| slot.epoch == drive.epoch).unwrap_or(false)
    }

    /// What `look` makes of bytes that lie in this process's memory; `None` if they do not, or if the drive may not be used.
    pub(crate) fn with_window<T>(
        &self,
        index: DriveIndex,
        offset: u64,
        length: usize,
        look: impl FnOnce(Window<'_>) -> T,
    ) -> Option<T> {
        self.with(index, |_, drive| drive.window(offset, length).map(look)).flatten()
    }

    /// Has `length` bytes from each of these offsets written where they lie, if all of them are memory of this process, on drives that
    /// may be used. `None` if they are not.
    pub(crate) fn write_in_place<T>(
        &self,
        places: impl Iterator<Item = (DriveIndex, u64)>,
        length: usize,
        fill: impl FnOnce(&mut [Writable<'_>]) -> T,
    ) -> Option<T> {
        let slots = self.slots.borrow();
        let writable = |(index, offset): (DriveIndex, u64)| {
            let slot = slots.get(index.index())?;
            let writable = slot.usable()?.writable(offset, length)?;
            slot.dirty.set(true);
            Some(writable)
        };
        let all: Option<SmallVec<[Writable<'_>; 8]>> = places.map(writable).collect();
        all.map(|mut all| fill(&mut all))
    }

    /// A read is about to begin.
    pub(crate) fn prefetch_hint(&self, index: DriveIndex, offset: u64, length: usize) {
        self.with(index, |_, drive| drive.expect_read(offset, length));
    }

    /// Starts a write; `None` if the drive may not be used.
    pub(crate) fn write(&self, index: DriveIndex, offset: u64, from: &[Span]) -> Option<InFlight> {
        self.with(index, |slot, drive| {
            slot.dirty.set(true);
            InFlight::new(drive.write(offset, from))
        })
    }

    /// Starts a flush of every drive that was written since its last one and forgets on power loss.
    pub(crate) fn flush_dirty(&self) -> Vec<(DriveIndex, InFlight)> {
        let mut flushes = Vec::new();
        for (index, slot) in (0..).map(DriveIndex::new).zip(&*self.slots.borrow()) {
            let Some(drive) = slot.usable() else { continue };
            if slot.dirty.replace(false) && slot.volatile {
                flushes.push((index, InFlight::new(drive.flush())));
            }
        }
        flushes
    }

    /// True if no drive in use loses completed writes at a power cut: completion is durability.
    pub(crate) fn all_durable(&self) -> bool {
        !self.slots.borrow().iter().any(|slot| slot.online.get() && slot.volatile)
    }

    fn change(&self, index: DriveIndex, change: impl FnOnce(&DriveSlot)) {
        if let Some(slot) = self.slots.borrow().get(index.index()) {
            change(slot);
        }
    }

    /// Takes a drive out of use (D1), and lets go of it: it may be opened anew.
    pub(crate) fn take_offline(&self, index: DriveIndex) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(index.index()) {
            slot.online.set(false);
            slot.drive = None;
        }
    }

    /// A write of the drive has completed: the next flush must reach it, whatever flush began meanwhile.
    pub(crate) fn mark_dirty(&self, index: DriveIndex) {
        self.change(index, |slot| slot.dirty.set(true));
    }

    /// Marks every drive as written, so that the next flush reaches all.
    pub(crate) fn mark_all_dirty(&self) {
        self.slots.borrow().iter().for_each(|slot| slot.dirty.set(true));
    }
}
