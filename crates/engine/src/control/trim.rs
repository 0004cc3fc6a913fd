//! Backing space of free zones: reserved before use, and discarded some time after release.
//!
//! A file under a drive grows before the zone is written, when a full file system can still be
//! reported as an error. Released zones keep their space for a while ([`DISCARD_DELAY`]): a pool
//! under write load reuses them, without changes to the file system's allocation or the SSD's
//! mapping. Always true: a zone being discarded is not free (Z1), and no discard starts or runs
//! after [`Control::stop`] has ended.

use std::rc::{Rc, Weak};
use std::time::Duration;

use format::{DriveIndex, ZoneIndex};
use reactor::{IoErrorKind, IoResult, Reactor};

use super::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::narrow;
use crate::zones::ZoneRun;

/// Minimum time between the release of a zone and its discard.
const DISCARD_DELAY: Duration = Duration::from_secs(5);
/// Bytes per reservation or discard on one drive: large enough to keep file extents contiguous,
/// small enough not to occupy a drive for long.
const STEP_BYTES: u64 = 64 << 20;

impl Control {
    /// Reserves backing space for these zones, and for a few zones after each, on sparse drives.
    pub(super) async fn reserve_backing(&self, unbacked: &[(DriveIndex, ZoneIndex)]) -> Result<()> {
        let is_sparse =
            |index: &DriveIndex| self.drive(*index).is_some_and(|drive| drive.properties().sparse);
        if !unbacked.iter().any(|(index, _)| is_sparse(index)) {
            return Ok(());
        }
        self.waiting_reservations.set(self.waiting_reservations.get() + 1);
        // One at a time: a failed reservation may undo an overlapping concurrent reservation.
        self.idle.until(|| (!self.reserving.get() && !self.discarding.get()).then_some(())).await;
        self.waiting_reservations.set(self.waiting_reservations.get() - 1);
        self.reserving.set(true);
        let mut result = Ok(());
        for (index, zone) in unbacked {
            let reserved = self.reserve_from(*index, *zone).await;
            if reserved.is_err_and(|error| error.kind() == IoErrorKind::NoSpace) {
                let message = format!("the file system under drive {index} is full");
                result = Err(Error::new(ErrorKind::NoSpace, message));
                break;
            }
            // Other errors show up when the zone is written.
        }
        self.reserving.set(false);
        self.idle.wake_all();
        result
    }

    async fn reserve_from(&self, index: DriveIndex, zone: ZoneIndex) -> IoResult {
        let Some(drive) = self.drive(index) else { return Ok(0) };
        if !drive.properties().sparse {
            return Ok(0);
        }
        let (offset, bytes) = (self.geometry.zone_offset(zone), self.geometry.zone_bytes);
        let more = self.state.borrow().zones.discarded_after(index, zone, self.step_zones() - 1);
        let reserved = drive.reserve(offset, bytes * (1 + u64::from(more.count))).await;
        match reserved {
            Err(_) if more.count > 0 => drive.reserve(offset, bytes).await,
            Ok(_) => {
                self.state.borrow_mut().zones.mark_backed(more);
                reserved
            }
            Err(_) => reserved,
        }
    }

    fn step_zones(&self) -> u32 {
        narrow::<u32, _>(STEP_BYTES / self.geometry.zone_bytes, "C5").max(1)
    }

    /// Discards zones that have been free for a while, until [`Control::stop`]. One task per pool.
    /// While waiting for zones, it does not keep the control alive.
    pub(crate) async fn trim(control: Weak<Self>) {
        loop {
            let Some(this) = control.upgrade() else { return };
            this.zones_freed.notified().await;
            drop(this);
            loop {
                Reactor::current().sleep(DISCARD_DELAY).await;
                let Some(this) = control.upgrade().filter(|this| !this.has_ended()) else { return };
                while let Some(runs) = this.next_discards() {
                    this.discard_all(runs).await;
                }
                if this.has_ended() {
                    return;
                }
                if !this.state.borrow_mut().zones.age_backed() {
                    break;
                }
            }
        }
    }

    /// Returns the zones to discard; none while a reservation waits or free space is low.
    fn next_discards(&self) -> Option<Vec<ZoneRun>> {
        let mut state = self.state.borrow_mut();
        let space_is_low = self.space.free_for_users() < self.space.high_water() + self.step_zones();
        let reservation_waits = self.reserving.get() || self.waiting_reservations.get() > 0;
        if state.stopping || reservation_waits || space_is_low {
            return None;
        }
        let runs = state.zones.take_aged(self.step_zones());
        (!runs.is_empty()).then_some(runs)
    }

    /// Discards zones. A failed discard only costs the drive some spare area.
    async fn discard_all(&self, runs: Vec<ZoneRun>) {
        self.discarding.set(true);
        self.count_space();
        let mut discards = Vec::new();
        for run in &runs {
            let Some(drive) = self.drive(run.drive) else { continue };
            let (offset, bytes) = (self.geometry.zone_offset(run.first), self.bytes_of(run));
            if drive.properties().discard {
                discards.push(drive.discard(offset, bytes));
            }
        }
        for discard in discards {
            let _ = discard.await;
        }
        runs.into_iter().for_each(|run| self.state.borrow_mut().zones.finish_discard(run));
        self.count_space();
        self.discarding.set(false);
        self.idle.wake_all();
    }

    fn bytes_of(&self, run: &ZoneRun) -> u64 {
        self.geometry.zone_bytes * u64::from(run.count)
    }

    fn has_ended(&self) -> bool {
        self.state.borrow().stopping
    }

    /// Waits until no discard is running.
    pub(super) async fn discards_finished(self: Rc<Self>) {
        self.zones_freed.notify();
        self.idle.until(|| (!self.discarding.get()).then_some(())).await;
    }
}
