//! What free zones hold of their drives: space is reserved before it is used, and given back when nobody wants it.
//!
//! A file grows before the zone is written, while running out of space is still an answer and not a loss. Zones that come
//! back stay as they are for a while ([`REST`]): a pool that is being written takes them again, and neither a file
//! system's allocator nor an SSD's table of trimmed blocks has to change twice for that. Always true: a zone that is being
//! discarded is not free (Z1), and nothing is discarded once [`Control::stop`] has ended.

use std::rc::{Rc, Weak};
use std::time::Duration;

use format::{DriveIndex, ZoneIndex};
use reactor::{IoErrorKind, IoResult, Reactor};

use super::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::zones::ZoneRun;

/// How long a zone is left alone at least, from when it comes back to when it is discarded.
const REST: Duration = Duration::from_secs(5);
/// Bytes of one drive that are reserved or discarded at once: small files' extents stay in one piece, and no drive is kept
/// busy for long.
const STEP_BYTES: u64 = 64 << 20;

impl Control {
    /// Lets files under drives grow now, for these zones and a few after them.
    pub(super) async fn reserve_backing(&self, unbacked: &[(DriveIndex, ZoneIndex)]) -> Result<()> {
        let is_sparse =
            |index: &DriveIndex| self.drive(*index).is_some_and(|drive| drive.properties().sparse);
        if !unbacked.iter().any(|(index, _)| is_sparse(index)) {
            return Ok(());
        }
        self.to_reserve.set(self.to_reserve.get() + 1);
        // One at a time: a file system that fails to reserve a range may take back what another call reserved in it.
        self.idle.until(|| (!self.reserving.get() && !self.discarding.get()).then_some(())).await;
        self.to_reserve.set(self.to_reserve.get() - 1);
        self.reserving.set(true);
        let mut result = Ok(());
        for (index, zone) in unbacked {
            let reserved = self.reserve_from(*index, *zone).await;
            if reserved.is_err_and(|error| error.kind() == IoErrorKind::NoSpace) {
                let message = format!("the file system under drive {index} is full");
                result = Err(Error::new(ErrorKind::NoSpace, message));
                break;
            }
            // Anything else shows when the zone is written.
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
        let ahead = drive.reserve(offset, bytes * (1 + u64::from(more.count))).await;
        match ahead {
            Err(_) if more.count > 0 => drive.reserve(offset, bytes).await,
            Ok(_) => {
                self.state.borrow_mut().zones.mark_backed(more);
                ahead
            }
            Err(_) => ahead,
        }
    }

    fn step_zones(&self) -> u32 {
        u32::try_from(STEP_BYTES / self.geometry.zone_bytes).unwrap_or(1).max(1)
    }

    /// Discards what nobody has used for a while, until [`Control::stop`]. One task a pool, which waits for zones without keeping
    /// the control from being dropped while they rest.
    pub(crate) async fn trim(control: Weak<Self>) {
        loop {
            let Some(this) = control.upgrade() else { return };
            this.zones_freed.notified().await;
            drop(this);
            loop {
                Reactor::current().sleep(REST).await;
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

    /// Zones to discard now: none while somebody waits to reserve some, or space is so short that they are about to be used.
    fn next_discards(&self) -> Option<Vec<ZoneRun>> {
        let mut state = self.state.borrow_mut();
        let space_is_short = self.space.free_for_users() < self.space.high_water() + self.step_zones();
        let reservation_waits = self.reserving.get() || self.to_reserve.get() > 0;
        if state.stopping || reservation_waits || space_is_short {
            return None;
        }
        let runs = state.zones.take_aged(self.step_zones());
        (!runs.is_empty()).then_some(runs)
    }

    /// Tells the drives that these zones are unused. A refusal costs the drive some spare area, nothing else.
    async fn discard_all(&self, runs: Vec<ZoneRun>) {
        self.discarding.set(true);
        self.count_space();
        let mut begun = Vec::new();
        for run in &runs {
            let Some(drive) = self.drive(run.drive) else { continue };
            let (offset, bytes) = (self.geometry.zone_offset(run.first), self.bytes_of(run));
            if drive.properties().discard {
                begun.push(drive.discard(offset, bytes));
            }
        }
        for discard in begun {
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

    /// Ends once nothing is being discarded.
    pub(super) async fn discards_finished(self: Rc<Self>) {
        self.zones_freed.notify();
        self.idle.until(|| (!self.discarding.get()).then_some(())).await;
    }
}
