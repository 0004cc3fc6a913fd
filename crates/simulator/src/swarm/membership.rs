//! Drive changes in a swarm run: loss, rebuild, return, addition, drain.
//!
//! Never more drives misbehave or are lost at a time than the scheme tolerates. The set of these
//! drives changes only when the pool reports full redundancy.

use std::pin::pin;
use std::time::Duration;

use engine::{ErrorKind, Pool, PoolStatus, RepairLimits, RepairState};
use format::DriveState;
use futures_util::future::{Either, select};
use reactor::Reactor;

use super::SwarmRun;
use super::errors::NO_ERRORS;
use super::plan::repair_rate;

/// Seconds of a day.
pub(super) const DAY: u64 = 86_400;

impl SwarmRun {
    /// Loses a drive: it dies, or an administrator removes it.
    pub(super) async fn lose_drive(&self, pool: &Pool) {
        let at = usize::try_from(self.random.below(8)).unwrap_or(0);
        let Some(victim) = self.victims.borrow().get(at).copied() else { return };
        let Some(disk) = self.machine.disks.get(victim) else { return };
        if disk.is_dead() {
            return;
        }
        self.count(|stats| stats.lost_drives += 1);
        if self.random.once_in(2) {
            self.trace(|| format!("drive {victim} dies"));
            disk.set_dead(true);
            return;
        }
        let result = pool.fail_drive(u16::try_from(victim).unwrap_or(0)).await;
        self.trace(|| format!("drive {victim} is failed: {result:?}"));
        // Another worker was faster.
        self.tolerate("fail_drive", result, &[ErrorKind::NotFound]);
    }

    /// Waits for repair. The lost drives' data is elsewhere then, and other drives may be lost.
    pub(super) async fn repair(&self, pool: &Pool) {
        let Ok(before) = pool.status().await else { return };
        if before.repair.state != RepairState::Paused && pool.wait_for_repair().await.is_ok() {
            self.trace(|| "repair has settled".into());
            self.check_needs_drive(pool).await;
            self.choose_victims(pool).await;
        }
    }

    /// Checks that repair does not wait for a drive while enough drives are online.
    async fn check_needs_drive(&self, pool: &Pool) {
        for last in [false, true] {
            let Ok(status) = pool.status().await else { return };
            let online = status.drives.iter().filter(|drive| drive.state.accepts_segments()).count();
            // While paused, repair does not re-examine the drives.
            let looks = self.joining.get() == 0 && !pool.repair_limits().paused && status.failure.is_none();
            let enough = online >= usize::from(status.scheme.width());
            if status.repair.state != RepairState::NeedsDrive || !enough || !looks {
                return;
            }
            if last {
                return self
                    .fail(format!("repair waits for a drive, but {online} are online: {:?}", status.repair));
            }
            // A drive may have joined or stayed just now.
            Reactor::current().sleep(Duration::from_secs(1)).await;
            let _ = pool.wait_for_repair().await;
        }
    }

    pub(super) async fn limit_repair(&self, pool: &Pool) {
        let limits =
            RepairLimits { paused: self.random.once_in(3), bytes_per_second: repair_rate(&self.random) };
        let result = pool.set_repair_limits(limits).await;
        self.trace(|| format!("repair is limited to {limits:?}: {result:?}"));
    }

    /// Starts or cancels a scrub, sets its limits, or waits for its end.
    pub(super) async fn scrub(&self, pool: &Pool) {
        let limits =
            RepairLimits { paused: self.random.once_in(8), bytes_per_second: repair_rate(&self.random) };
        let result = match self.random.below(8) {
            0 => pool.cancel_scrub().await.map(|_| ()),
            1 => pool.set_scrub_limits(limits).await,
            2 if !pool.scrub_limits().paused => {
                self.wait_for_scrub(pool).await;
                Ok(())
            }
            _ => pool.start_scrub().await.map(|_| ()),
        };
        self.trace(|| format!("scrub: {result:?}"));
        self.tolerate("scrub", result, NO_ERRORS);
        self.count_scrub(pool).await;
    }

    /// Waits until the scrub ends or is paused. Its repairs cannot become durable while a host file
    /// system is full.
    async fn wait_for_scrub(&self, pool: &Pool) {
        let settled = pin!(pool.scrub_settled());
        let deadline = pin!(Reactor::current().sleep(Duration::from_secs(DAY)));
        match select(settled, deadline).await {
            Either::Left((settled, _)) => self.tolerate("scrub_settled", settled, NO_ERRORS),
            Either::Right(_) if self.has_full_host() => {}
            Either::Right(_) => self.fail("a scrub does not end within a day".into()),
        }
    }

    /// Sets the interval of scrubs to the plan's.
    pub(super) async fn schedule_scrubs(&self, pool: &Pool) {
        let every = self.plan.scrub_days * DAY;
        if self.plan.days_pass > 0 && pool.status().await.is_ok_and(|status| status.scrub.every != every) {
            let result = pool.set_scrub_every(every).await;
            self.trace(|| format!("scrub interval set to {every} s: {result:?}"));
            self.tolerate("set_scrub_every", result, NO_ERRORS);
        }
    }

    /// Lets days pass, and lets the pool start a scrub if one is due.
    pub(super) async fn advance_days(&self, pool: &Pool) {
        self.machine.events.skip_seconds(self.added_random.below(40) * DAY);
        let result = pool.start_scrub_if_due().await;
        self.trace(|| format!("days pass; scheduled scrub started: {result:?}"));
        if matches!(result, Ok(true)) {
            self.count(|stats| stats.scheduled += 1);
        }
        self.tolerate("scrub if due", result.map(|_| ()), NO_ERRORS);
    }

    async fn count_scrub(&self, pool: &Pool) {
        if let Ok(status) = pool.status().await
            && status.scrub.last.bytes > 0
            && !status.scrub.running
        {
            self.count(|stats| {
                stats.scrubs += 1;
                stats.damaged += status.scrub.last.damaged;
            });
        }
    }

    /// Replaces victims that are removed from the pool by other drives.
    async fn choose_victims(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        // The reported state must be durable before the run relies on it.
        if pool.wait_for_repair().await.is_err() {
            return;
        }
        let in_state = |wanted: DriveState| {
            let drives = status.drives.iter().filter(move |drive| drive.state == wanted);
            drives.map(|drive| usize::from(drive.index))
        };
        for removed in in_state(DriveState::Removed) {
            if self.removed_drives.borrow().contains(&removed) {
                continue;
            }
            self.removed_drives.borrow_mut().push(removed);
            self.count(|stats| stats.rebuilt += 1);
            let mut victims = self.victims.borrow_mut();
            let Some(at) = victims.iter().position(|victim| *victim == removed) else { continue };
            victims.remove(at);
            let others: Vec<_> =
                in_state(DriveState::Online).filter(|drive| !victims.contains(drive)).collect();
            if self.random.once_in(2) || others.is_empty() {
                continue;
            }
            let next = *self.random.choose(&others);
            self.trace(|| format!("drive {removed} is removed, drive {next} becomes a victim"));
            victims.push(next);
            if let Some(disk) = self.machine.disks.get(next) {
                disk.set_faults(self.plan.faults);
            }
        }
    }

    /// Adds the next spare to the pool. Its index there must equal its index in the machine.
    pub(super) async fn add_drive(&self, pool: &Pool) {
        if self.adding.replace(true) {
            return;
        }
        self.joining.set(self.joining.get() + 1);
        let spare = pool.status().await.map_or(usize::MAX, |status| status.drives.len());
        if spare < self.machine.disks.len() {
            // A spare has a volatile cache, regardless of the other drives.
            self.spare_joined.set(true);
            self.update_write_through();
            let result = self.machine.add_drive(pool, spare).await;
            self.trace(|| format!("drive {spare} is added: {result:?}"));
            match &result {
                Ok(number) if usize::from(*number) != spare => {
                    self.fail(format!("drive {spare} was added with index {number}"));
                }
                Ok(_) => {
                    self.count(|stats| stats.added += 1);
                    if let Ok(status) = pool.status().await {
                        self.check_growth(&status);
                    }
                }
                Err(_) => {}
            }
            self.tolerate("add_drive", result.map(|_| ()), self.no_space_if_host_full());
            let _ = pool.wait_for_repair().await;
        }
        self.joining.set(self.joining.get() - 1);
        self.adding.set(false);
    }

    /// Plugs a lost drive in again.
    pub(super) async fn return_drive(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        let lost = status.drives.iter().filter(|drive| drive.state.is_lost());
        let lost: Vec<usize> = lost.map(|drive| usize::from(drive.index)).collect();
        if lost.is_empty() {
            return;
        }
        let drive = *self.random.choose(&lost);
        self.plug_in_and_return(pool, drive).await;
    }

    /// Plugs a drive in and returns it to the pool.
    pub(super) async fn plug_in_and_return(&self, pool: &Pool, drive: usize) {
        let Some(disk) = self.machine.disks.get(drive) else { return };
        disk.plug_in();
        if let Some(absent) = self.machine.absent.borrow_mut().get_mut(drive) {
            *absent = false;
        }
        self.joining.set(self.joining.get() + 1);
        let result = self.machine.return_drive(pool, drive).await;
        // A repair check that has already begun may have seen the earlier state.
        let _ = pool.wait_for_repair().await;
        self.joining.set(self.joining.get() - 1);
        self.trace(|| format!("drive {drive} is plugged in again: {result:?}"));
        match &result {
            Ok(number) if usize::from(*number) != drive => {
                self.fail(format!("drive {drive} was returned with index {number}"));
            }
            Ok(_) => self.count(|stats| stats.returned += 1),
            // Its superblocks are corrupt, or another worker was faster.
            Err(_) => {
                let mut allowed =
                    vec![ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Exists, ErrorKind::Io];
                allowed.extend(self.no_space_if_host_full());
                self.tolerate("return_drive", result.map(|_| ()), &allowed);
            }
        }
    }

    /// Drains a drive.
    pub(super) async fn evacuate(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        let drive = self.random.choose(&status.drives).index;
        let result = pool.remove_drive(drive).await;
        self.trace(|| format!("drive {drive} is to be drained: {result:?}"));
        self.tolerate_refusal(pool, "remove_drive", result, &status).await;
    }

    /// Cancels the drain of a drive.
    pub(super) async fn keep_drive(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        let leaving = status.drives.iter().filter(|drive| drive.state == DriveState::Draining);
        let leaving: Vec<u16> = leaving.map(|drive| drive.index).collect();
        if leaving.is_empty() {
            return;
        }
        let drive = *self.random.choose(&leaving);
        let result = pool.cancel_remove_drive(drive).await;
        self.trace(|| format!("drain of drive {drive} is cancelled: {result:?}"));
        self.tolerate_refusal(pool, "cancel_remove_drive", result, &status).await;
    }

    /// Allows the refusals of a drain or its cancellation. The drive may not be in use, too few
    /// drives or too little space may be left, or another drive may be lost or catching up.
    async fn tolerate_refusal(
        &self,
        pool: &Pool,
        operation: &str,
        result: engine::Result<()>,
        before: &PoolStatus,
    ) {
        let is_short = |status: &PoolStatus| status.drives.iter().any(|drive| drive.state.counts_as_lost());
        let mut allowed = vec![ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::NoSpace];
        if is_short(before) || pool.status().await.is_ok_and(|after| is_short(&after)) {
            allowed.push(ErrorKind::Busy);
        }
        self.tolerate(operation, result, &allowed);
    }

    /// Checks that the pool's zones match its drives. Not every shard may know of a returning drive
    /// yet.
    fn check_growth(&self, status: &PoolStatus) {
        let zones = |counts: fn(DriveState) -> bool| -> u64 {
            let drives = status.drives.iter().filter(|drive| counts(drive.state));
            drives.map(|drive| u64::from(drive.zones)).sum()
        };
        let most = zones(DriveState::accepts_segments);
        let least = most - zones(|state| state == DriveState::Returning);
        if !(least..=most).contains(&status.space.zones) {
            self.fail(format!(
                "the drives in use have {least} to {most} zones, but the pool has {}",
                status.space.zones
            ));
        }
    }
}
