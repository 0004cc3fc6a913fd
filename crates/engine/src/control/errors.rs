//! Read errors of drives: counted in the superblock, reported as events, and drives with too many
//! errors drained.
//!
//! Read errors lose no data: the blocks are reconstructed and relocated. Therefore a failing drive
//! stays online and is drained as soon as no other drive is lost and the other drives have enough
//! space. Until then the pool's status reports the drive as failing.
//!
//! Always true: draining a failing drive does not reduce the pool's redundancy. Counts are
//! published when a new zone counts, or with the next publish; a crash loses only the counts since
//! then.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use format::{DriveErrors, DriveIndex, DriveState, EventKind, ShardIndex, Superblock};
use reactor::Reactor;

use super::Control;
use crate::bad_reads::{BadRead, DriveErrorLog, is_failing, zone_error_limit};
use crate::error::ErrorKind;
use crate::invariant::narrow;

/// Error state of the drives in addition to the superblock.
pub(super) struct ErrorTracking {
    log: RefCell<Vec<DriveErrorLog>>,
    /// See [`crate::Tuning::retire_after`].
    retire_after: u32,
    /// Set while a task looks for drives to drain; `again` makes it start over.
    retiring: Cell<bool>,
    again: Cell<bool>,
    /// A failing drive was not drained because the other drives lack space.
    wants_space: Cell<bool>,
    /// Number of lost blocks of each shard.
    lost: RefCell<BTreeMap<ShardIndex, u64>>,
}

impl ErrorTracking {
    pub(super) fn new(superblock: &Superblock, retire_after: u32) -> Self {
        let log = superblock.drives.iter().map(|record| DriveErrorLog::of(&record.errors)).collect();
        Self {
            log: RefCell::new(log),
            retire_after,
            retiring: Cell::default(),
            again: Cell::default(),
            wants_space: Cell::default(),
            lost: RefCell::default(),
        }
    }
}

impl Control {
    /// Stores the number of lost blocks of a shard; emits an event if the number has increased.
    pub(super) fn record_lost_blocks(&self, shard: ShardIndex, count: u64) {
        let mut lost = self.errors.lost.borrow_mut();
        let before = std::mem::replace(lost.entry(shard).or_default(), count);
        drop(lost);
        if count > before {
            self.events.emit(EventKind::BlocksLost, count - before, "");
        }
    }

    /// Counts bad reads. Drives with too many errors are drained in the background.
    pub(super) async fn record_bad_reads(self: &Rc<Self>, reads: &[BadRead]) {
        let mut new_zone = false;
        for read in reads {
            new_zone |= self.count_bad_read(read);
        }
        self.report_errors();
        if new_zone {
            self.schedule_retirement();
            // A failed pool does not store counts.
            let _ = self.publish(|_| ()).await;
        }
    }

    /// Counts one bad read. Returns true if its zone was not counted before; only such a read is
    /// logged as a warning, because a failing drive can fail thousands of reads per second.
    fn count_bad_read(&self, read: &BadRead) -> bool {
        let (drive, limit) = (read.drive, self.limit(read.drive));
        let zone = read.offset.and_then(|offset| self.geometry.zone_at(offset));
        let now = self.events.now();
        let wrong = read.error.is_none();
        let new_zone = self.with_errors(drive, |log, errors| log.count(errors, (zone, wrong), limit, now));
        let Some((zone, true)) = zone.zip(new_zone) else { return false };
        let path = self.path_of(drive);
        match read.error {
            Some(error) => tracing::warn!(%drive, path, %zone, %error, "reads of a zone fail"),
            None => tracing::warn!(%drive, path, %zone, "reads of a zone return corrupt data"),
        }
        true
    }

    /// Calls `change` with the error state of a drive.
    fn with_errors<T>(
        &self,
        drive: DriveIndex,
        change: impl FnOnce(&mut DriveErrorLog, &mut DriveErrors) -> T,
    ) -> Option<T> {
        let mut log = self.errors.log.borrow_mut();
        let mut state = self.state.borrow_mut();
        let record = state.superblock.drives.get_mut(drive.index())?;
        if log.len() <= drive.index() {
            log.resize_with(drive.index() + 1, DriveErrorLog::default);
        }
        log.get_mut(drive.index()).map(|log| change(log, &mut record.errors))
    }

    /// Number of zones with errors at which the drive fails.
    fn limit(&self, drive: DriveIndex) -> Option<u32> {
        let state = self.state.borrow();
        zone_error_limit(self.errors.retire_after, state.superblock.drive(drive)?.zones)
    }

    fn drive_indexes(&self) -> impl Iterator<Item = DriveIndex> + use<> {
        let count = narrow(self.state.borrow().superblock.drives.len(), "C5");
        (0..count).map(DriveIndex::new)
    }

    fn report_errors(&self) {
        let now = self.events.now();
        for drive in self.drive_indexes() {
            let take = |log: &mut DriveErrorLog, errors: &mut DriveErrors| {
                Some((log.take_unreported(errors, now)?, *errors))
            };
            let Some((amount, errors)) = self.with_errors(drive, take).flatten() else { continue };
            let text = format!(
                "{}: read errors: {}, corrupt reads: {} (total)",
                self.path_of(drive),
                errors.unreadable,
                errors.wrong
            );
            self.events.emit_drive_amount(drive, EventKind::DriveReadErrors, amount, &text);
        }
    }

    /// Drives of the pool that have reached the limit of zones with errors.
    pub(crate) fn failing(&self) -> Vec<DriveIndex> {
        let state = self.state.borrow();
        let fails = |drive: &DriveIndex| {
            let limit = |zones| zone_error_limit(self.errors.retire_after, zones);
            let record = state.superblock.drive(*drive);
            record.is_some_and(|record| {
                record.state != DriveState::Removed && is_failing(&record.errors, limit(record.zones))
            })
        };
        let count = narrow(state.superblock.drives.len(), "C5");
        (0..count).map(DriveIndex::new).filter(fails).collect()
    }

    /// Resets the count of zones with errors, because an administrator keeps the drive. Returns
    /// true if the drive has had read errors.
    pub(super) fn clear_errors(&self, drive: DriveIndex) -> bool {
        let now = self.events.now();
        let clear = |log: &mut DriveErrorLog, errors: &mut DriveErrors| {
            log.clear(errors, now);
            errors.last != 0
        };
        self.with_errors(drive, clear).unwrap_or(false)
    }

    /// Drains failing drives if possible, in the background.
    pub(crate) fn schedule_retirement(self: &Rc<Self>) {
        if self.failing().is_empty() {
            return;
        }
        self.errors.again.set(true);
        if self.errors.retiring.replace(true) {
            return;
        }
        let control = self.clone();
        let retire = async move {
            while control.errors.again.replace(false) {
                control.retire_failing().await;
            }
            control.errors.retiring.set(false);
        };
        Reactor::current().spawn(retire).detach();
    }

    /// Tries again to drain failing drives after space was freed.
    pub(super) fn retire_if_short(self: &Rc<Self>) {
        if self.errors.wants_space.take() {
            self.schedule_retirement();
        }
    }

    async fn retire_failing(&self) {
        for drive in self.failing() {
            let errors = self.with_errors(drive, |log, errors| {
                (!std::mem::replace(&mut log.failure_reported, true)).then_some(*errors)
            });
            if let Some(errors) = errors.flatten() {
                let path = self.path_of(drive);
                tracing::warn!(%drive, path, zones = errors.zones, "too many zones with read errors: the drive is failing");
                self.events.emit_drive_amount(drive, EventKind::DriveFailing, u64::from(errors.zones), &path);
            }
            let online = |state| state == Some(DriveState::Online);
            let state = self.state.borrow().superblock.drive(drive).map(|record| record.state);
            // Repair of lost columns comes first and needs the space.
            if !online(state) || self.has_lost_drive() {
                continue;
            }
            if let Err(error) = self.remove_drive(drive, true).await {
                self.errors.wants_space.set(error.kind() == ErrorKind::NoSpace);
                tracing::debug!(%drive, %error, "a failing drive cannot be removed");
            }
        }
    }

    fn has_lost_drive(&self) -> bool {
        self.state.borrow().superblock.drives.iter().any(|record| record.state.counts_as_lost())
    }
}
