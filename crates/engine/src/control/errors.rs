//! Drives that do not answer reads as they should: counted in the superblock, said, and emptied when it is too much.
//!
//! A drive that errs loses nothing: what it does not give is computed, and written elsewhere. So it is no lost drive, but one that
//! is to be emptied as soon as that takes nothing from anybody: when no other drive is lost, and the others have room. Until then it
//! stays, and the pool's status says that it fails.
//!
//! Always true: emptying it never lowers what the pool bears. Counts are published when a zone counts anew, or with whatever is
//! published next; a crash loses no more than what was counted in between.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use format::{DriveErrors, DriveIndex, DriveState, EventKind, ShardIndex, Superblock};
use reactor::Reactor;

use super::Control;
use crate::bad_reads::{BadRead, DriveErrorLog, is_failing, zone_error_limit};
use crate::error::ErrorKind;

/// What is known of the drives' errors, beside what the superblock says.
pub(super) struct ErrorTracking {
    known: RefCell<Vec<DriveErrorLog>>,
    /// See [`crate::Tuning::retire_after`].
    retire_after: u32,
    /// Somebody is looking for drives to empty, and is to look again.
    retiring: Cell<bool>,
    again: Cell<bool>,
    /// A drive was not emptied because the others have no room.
    wants_space: Cell<bool>,
    /// Lost blocks of each shard.
    lost: RefCell<BTreeMap<ShardIndex, u64>>,
}

impl ErrorTracking {
    pub(super) fn new(superblock: &Superblock, retire_after: u32) -> Self {
        let known = superblock.drives.iter().map(|record| DriveErrorLog::of(&record.errors)).collect();
        Self {
            known: RefCell::new(known),
            retire_after,
            retiring: Cell::default(),
            again: Cell::default(),
            wants_space: Cell::default(),
            lost: RefCell::default(),
        }
    }
}

impl Control {
    /// A shard has so many lost blocks now: an event says so when they have become more.
    pub(super) fn record_lost_blocks(&self, shard: ShardIndex, count: u64) {
        let mut lost = self.errors.lost.borrow_mut();
        let before = lost.insert(shard, count).unwrap_or(0);
        drop(lost);
        if count > before {
            self.events.emit(EventKind::BlocksLost, count - before, "");
        }
    }

    /// Counts reads that drives did not answer as they should. A drive for which that is too many is emptied, in the background.
    pub(super) async fn record_bad_reads(self: &Rc<Self>, reads: &[BadRead]) {
        let mut counts = false;
        for read in reads {
            counts |= self.count(read);
        }
        self.report_errors();
        if counts {
            self.schedule_retirement();
            // A pool that has failed counts no more.
            let _ = self.publish(|_| ()).await;
        }
    }

    /// True if something counts against a drive that did not before.
    fn count(&self, read: &BadRead) -> bool {
        let limit = self.limit(read.drive);
        let zone = read.offset.and_then(|offset| self.geometry.zone_at(offset));
        let now = self.events.now();
        self.with_errors(read.drive, |known, errors| known.count(errors, (zone, read.wrong), limit, now))
            .unwrap_or(false)
    }

    /// What `change` gives, of a drive's errors.
    fn with_errors<T>(
        &self,
        drive: DriveIndex,
        change: impl FnOnce(&mut DriveErrorLog, &mut DriveErrors) -> T,
    ) -> Option<T> {
        let mut known = self.errors.known.borrow_mut();
        let mut state = self.state.borrow_mut();
        let record = state.superblock.drives.get_mut(drive.index())?;
        if known.len() <= drive.index() {
            known.resize_with(drive.index() + 1, DriveErrorLog::default);
        }
        known.get_mut(drive.index()).map(|known| change(known, &mut record.errors))
    }

    /// In how many zones a drive may err.
    fn limit(&self, drive: DriveIndex) -> Option<u32> {
        let state = self.state.borrow();
        zone_error_limit(self.errors.retire_after, state.superblock.drive(drive)?.zones)
    }

    fn numbers(&self) -> impl Iterator<Item = DriveIndex> + use<> {
        let count = self.state.borrow().superblock.drives.len();
        (0..u16::try_from(count).unwrap_or(u16::MAX)).map(DriveIndex::new)
    }

    fn report_errors(&self) {
        let now = self.events.now();
        for drive in self.numbers() {
            let say = |known: &mut DriveErrorLog, errors: &mut DriveErrors| {
                Some((known.take_unreported(errors, now)?, *errors))
            };
            let Some((amount, errors)) = self.with_errors(drive, say).flatten() else { continue };
            let text = format!(
                "{}: reads that it failed in its life: {}, answered wrongly: {}",
                self.path_of(drive),
                errors.unreadable,
                errors.wrong
            );
            self.events.emit_drive_amount(drive, EventKind::DriveReadErrors, amount, &text);
        }
    }

    /// Drives that err in too many places, and belong to the pool.
    pub(crate) fn failing(&self) -> Vec<DriveIndex> {
        let state = self.state.borrow();
        let fails = |drive: &DriveIndex| {
            let limit = |zones| zone_error_limit(self.errors.retire_after, zones);
            let record = state.superblock.drive(*drive);
            record.is_some_and(|record| {
                record.state != DriveState::Removed && is_failing(&record.errors, limit(record.zones))
            })
        };
        let count = u16::try_from(state.superblock.drives.len()).unwrap_or(u16::MAX);
        (0..count).map(DriveIndex::new).filter(fails).collect()
    }

    /// What counted against a drive does not any more: somebody wants to keep it.
    pub(super) fn clear_errors(&self, drive: DriveIndex) {
        let now = self.events.now();
        self.with_errors(drive, |known, errors| known.clear(errors, now));
    }

    /// Has drives that fail emptied, if that is possible by now. In the background.
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

    /// There is more space than there was.
    pub(super) fn retire_if_short(self: &Rc<Self>) {
        if self.errors.wants_space.take() {
            self.schedule_retirement();
        }
    }

    async fn retire_failing(&self) {
        for drive in self.failing() {
            let errors = self.with_errors(drive, |known, errors| {
                (!std::mem::replace(&mut known.failure_reported, true)).then_some(*errors)
            });
            if let Some(errors) = errors.flatten() {
                let path = self.path_of(drive);
                tracing::warn!(%drive, path, zones = errors.zones, "a drive errs in many places: it is to go");
                self.events.emit_drive_amount(drive, EventKind::DriveFailing, u64::from(errors.zones), &path);
            }
            let online = |state| state == Some(DriveState::Online);
            let state = self.state.borrow().superblock.drive(drive).map(|record| record.state);
            // What is missing comes first, and wants the space.
            if !online(state) || self.counts_a_loss() {
                continue;
            }
            if let Err(error) = self.evacuate_drive(drive, true).await {
                self.errors.wants_space.set(error.kind() == ErrorKind::NoSpace);
                tracing::debug!(%drive, %error, "a drive that fails is not emptied");
            }
        }
    }

    fn counts_a_loss(&self) -> bool {
        self.state.borrow().superblock.drives.iter().any(|record| record.state.counts_as_lost())
    }
}
