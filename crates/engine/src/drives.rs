//! The pool's drives as one shard uses them: which may be used, and which hold writes that are not durable yet.
//!
//! Always true (D1): a drive that is lost is never written or believed again until the pool is opened anew.

use std::cell::Cell;
use std::rc::Rc;

use format::DriveIndex;
use reactor::{Drive, Io, Span};

/// One drive.
struct Slot {
    /// `None` if it was missing when the pool was opened.
    drive: Option<Rc<dyn Drive>>,
    online: Cell<bool>,
    /// Written since its last flush began.
    dirty: Cell<bool>,
    volatile: bool,
    /// Reads that it failed or answered wrongly.
    read_errors: Cell<u64>,
}

/// The drives, by index.
pub(crate) struct Drives {
    slots: Vec<Slot>,
}

impl Drives {
    /// Drives as opened on this reactor; `None` for one that may not be used.
    pub(crate) fn new(drives: Vec<Option<Rc<dyn Drive>>>) -> Self {
        let slot = |drive: Option<Rc<dyn Drive>>| {
            let volatile = drive.as_ref().is_some_and(|drive| drive.properties().volatile_cache);
            Slot {
                online: Cell::new(drive.is_some()),
                drive,
                dirty: Cell::new(false),
                volatile,
                read_errors: Cell::new(0),
            }
        };
        Self { slots: drives.into_iter().map(slot).collect() }
    }

    fn usable(&self, index: DriveIndex) -> Option<(&Slot, &Rc<dyn Drive>)> {
        let slot = self.slots.get(index.index()).filter(|slot| slot.online.get())?;
        slot.drive.as_ref().map(|drive| (slot, drive))
    }

    /// True if the drive may be used.
    pub(crate) fn is_online(&self, index: DriveIndex) -> bool {
        self.usable(index).is_some()
    }

    /// Drives that may be used.
    pub(crate) fn online(&self) -> usize {
        self.slots.iter().filter(|slot| slot.online.get() && slot.drive.is_some()).count()
    }

    /// Starts a flush of one drive, whatever was written to it; `None` if it may not be used. Done at once where completed writes
    /// are durable.
    pub(crate) fn flush(&self, index: DriveIndex) -> Option<Io> {
        let (slot, drive) = self.usable(index)?;
        Some(if slot.volatile { drive.flush() } else { Io::ready(Ok(0)) })
    }

    /// Starts a read; `None` if the drive may not be used.
    pub(crate) fn read(&self, index: DriveIndex, offset: u64, into: &[Span]) -> Option<Io> {
        self.usable(index).map(|(_, drive)| drive.read(offset, into))
    }

    /// A read is about to begin.
    pub(crate) fn expect_read(&self, index: DriveIndex, offset: u64, length: usize) {
        if let Some((_, drive)) = self.usable(index) {
            drive.expect_read(offset, length);
        }
    }

    /// Starts a write; `None` if the drive may not be used.
    pub(crate) fn write(&self, index: DriveIndex, offset: u64, from: &[Span]) -> Option<Io> {
        let (slot, drive) = self.usable(index)?;
        slot.dirty.set(true);
        Some(drive.write(offset, from))
    }

    /// Starts a flush of every drive that was written since its last one and forgets on power loss.
    pub(crate) fn flush_dirty(&self) -> Vec<(DriveIndex, Io)> {
        let mut flushes = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let Ok(index) = u16::try_from(index).map(DriveIndex::new) else { continue };
            let Some((_, drive)) = self.usable(index) else { continue };
            if slot.dirty.replace(false) && slot.volatile {
                flushes.push((index, drive.flush()));
            }
        }
        flushes
    }

    /// True if no drive in use loses completed writes at a power cut: completion is durability.
    pub(crate) fn all_durable(&self) -> bool {
        !self.slots.iter().any(|slot| slot.online.get() && slot.volatile)
    }

    /// Takes a drive out of use (D1).
    pub(crate) fn lose(&self, index: DriveIndex) {
        if let Some(slot) = self.slots.get(index.index()) {
            slot.online.set(false);
        }
    }

    /// Counts a read that the drive failed or answered wrongly.
    pub(crate) fn count_read_error(&self, index: DriveIndex) {
        if let Some(slot) = self.slots.get(index.index()) {
            slot.read_errors.set(slot.read_errors.get() + 1);
        }
    }

    /// Reads that each drive failed or answered wrongly.
    pub(crate) fn read_errors(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| slot.read_errors.get()).collect()
    }

    /// A write of the drive has completed: the next flush must reach it, whatever flush began meanwhile.
    pub(crate) fn mark_dirty(&self, index: DriveIndex) {
        if let Some(slot) = self.slots.get(index.index()) {
            slot.dirty.set(true);
        }
    }

    /// Marks every drive as written, so that the next flush reaches all.
    pub(crate) fn mark_all_dirty(&self) {
        self.slots.iter().for_each(|slot| slot.dirty.set(true));
    }
}
