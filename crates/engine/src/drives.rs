//! The pool's drives as seen by one shard: tracks online drives and drives with unflushed writes.
//!
//! Always true (D1): a failed drive is neither written nor read until it joins the pool again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use format::DriveIndex;
use reactor::{Drive, Io, Span};

use crate::bad_reads::BadReads;
use crate::in_flight::InFlight;

/// The use of a drive: whether its data can stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriveUse {
    /// Online; data stays on this drive.
    Active,
    /// Online, but all data must move to other drives.
    Draining,
    /// Offline; data on this drive cannot be read.
    Failed,
}

/// A drive together with its join epoch. The epoch changes each time the drive joins the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriveEpoch {
    pub(crate) index: DriveIndex,
    epoch: u32,
}

/// The state of one drive.
struct DriveSlot {
    /// `None` if the drive is not in use.
    drive: Option<Rc<dyn Drive>>,
    /// Number of times a drive has joined in this slot.
    epoch: u32,
    online: Cell<bool>,
    draining: Cell<bool>,
    /// Written since the last flush started.
    dirty: Cell<bool>,
    volatile: bool,
}

impl DriveSlot {
    fn new(drive: Option<Rc<dyn Drive>>) -> Self {
        let properties = drive.as_ref().map(|drive| drive.properties());
        Self {
            epoch: 0,
            online: Cell::new(drive.is_some()),
            draining: Cell::new(false),
            drive,
            dirty: Cell::new(false),
            volatile: properties.is_some_and(|properties| properties.volatile_cache),
        }
    }

    fn usable(&self) -> Option<&dyn Drive> {
        self.drive.as_deref().filter(|_| self.online.get())
    }
}

/// The pool's drives, by index.
pub(crate) struct Drives {
    slots: RefCell<Vec<DriveSlot>>,
    /// Failed and corrupt reads of these drives.
    pub(crate) bad_reads: BadReads,
}

impl Drives {
    /// Creates the table from drives opened on this reactor; `None` for a drive that must not be
    /// used.
    pub(crate) fn new(drives: Vec<Option<Rc<dyn Drive>>>) -> Self {
        let slots = RefCell::new(drives.into_iter().map(DriveSlot::new).collect());
        Self { slots, bad_reads: BadReads::default() }
    }

    /// Adds a drive to the pool under an unused index.
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

    /// Calls `access` with a drive; `None` if the drive is offline.
    fn with<T>(&self, index: DriveIndex, access: impl FnOnce(&DriveSlot, &dyn Drive) -> T) -> Option<T> {
        let slots = self.slots.borrow();
        let slot = slots.get(index.index())?;
        slot.usable().map(|drive| access(slot, drive))
    }

    /// Returns true if the drive is online.
    pub(crate) fn is_online(&self, index: DriveIndex) -> bool {
        self.with(index, |_, _| ()).is_some()
    }

    /// Returns whether data on a drive can stay there.
    pub(crate) fn use_of(&self, index: DriveIndex) -> DriveUse {
        let leaves = self.with(index, |slot, _| slot.draining.get());
        leaves.map_or(DriveUse::Failed, |leaves| if leaves { DriveUse::Draining } else { DriveUse::Active })
    }

    /// Number of online drives that are not draining.
    pub(crate) fn active_count(&self) -> usize {
        let stays = |slot: &&DriveSlot| slot.usable().is_some() && !slot.draining.get();
        self.slots.borrow().iter().filter(stays).count()
    }

    /// Marks exactly these drives as draining.
    pub(crate) fn set_draining(&self, draining: &[DriveIndex]) {
        for (index, slot) in (0..).map(DriveIndex::new).zip(&*self.slots.borrow()) {
            slot.draining.set(draining.contains(&index));
        }
    }

    /// Starts a flush of one drive, even if it has no unflushed writes; `None` if the drive is
    /// offline. Completes immediately if the drive has no volatile cache.
    pub(crate) fn flush(&self, index: DriveIndex) -> Option<InFlight> {
        self.with(index, |slot, drive| {
            InFlight::new(if slot.volatile { drive.flush() } else { Io::ready(Ok(0)) })
        })
    }

    /// Starts a read; `None` if the drive is offline.
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

    /// Returns true if the drive is online in the same epoch. The result of an I/O from an earlier
    /// epoch must be ignored.
    pub(crate) fn is_current(&self, drive: DriveEpoch) -> bool {
        self.with(drive.index, |slot, _| slot.epoch == drive.epoch).unwrap_or(false)
    }

    /// Starts a write; `None` if the drive is offline.
    pub(crate) fn write(&self, index: DriveIndex, offset: u64, from: &[Span]) -> Option<InFlight> {
        self.with(index, |slot, drive| {
            slot.dirty.set(true);
            InFlight::new(drive.write(offset, from))
        })
    }

    /// Starts a flush of every drive that has a volatile cache and unflushed writes.
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

    /// Returns true if no online drive loses completed writes on a power cut.
    pub(crate) fn all_durable(&self) -> bool {
        !self.slots.borrow().iter().any(|slot| slot.online.get() && slot.volatile)
    }

    fn change(&self, index: DriveIndex, change: impl FnOnce(&DriveSlot)) {
        if let Some(slot) = self.slots.borrow().get(index.index()) {
            change(slot);
        }
    }

    /// Takes a drive offline (D1) and drops the handle, so that the drive can be opened again.
    pub(crate) fn take_offline(&self, index: DriveIndex) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(index.index()) {
            slot.online.set(false);
            slot.drive = None;
        }
    }

    /// Marks a drive as written after a write completed, because a flush may have started before
    /// that.
    pub(crate) fn mark_dirty(&self, index: DriveIndex) {
        self.change(index, |slot| slot.dirty.set(true));
    }

    /// Marks every drive as written, so that the next flush reaches all of them.
    pub(crate) fn mark_all_dirty(&self) {
        self.slots.borrow().iter().for_each(|slot| slot.dirty.set(true));
    }
}
