//! Drives in the lives of the swarm: lost, rebuilt, back again, added, emptied.
//!
//! Never more of them misbehave or are lost at a time than the scheme bears: which may, changes only when the pool says that it
//! bears as much as before.

use std::time::Duration;

use engine::{ErrorKind, Pool, PoolStatus, RepairLimits, RepairState};
use format::DriveState;
use reactor::Reactor;

use super::Life;
use super::errors::NOTHING;
use super::plan::repair_rate;

/// Seconds.
pub(super) const DAY: u64 = 86_400;

impl Life {
    /// Loses a drive: it dies, or somebody takes it out.
    pub(super) async fn lose_drive(&self, pool: &Pool) {
        let at = usize::try_from(self.random.below(8)).unwrap_or(0);
        let Some(victim) = self.victims.borrow().get(at).copied() else { return };
        let Some(disk) = self.machine.disks.get(victim) else { return };
        if disk.is_dead() {
            return;
        }
        self.count(|stats| stats.lost_drives += 1);
        if self.random.once_in(2) {
            self.say(|| format!("drive {victim} dies"));
            disk.set_dead(true);
            return;
        }
        let result = pool.fail_drive(u16::try_from(victim).unwrap_or(0)).await;
        self.say(|| format!("drive {victim} is taken out: {result:?}"));
        // Somebody else was faster.
        self.tolerate("fail_drive", result, &[ErrorKind::NotFound]);
    }

    /// Waits for repair. What lost drives held is elsewhere then, and others may be lost.
    pub(super) async fn repair(&self, pool: &Pool) {
        let Ok(before) = pool.status().await else { return };
        if before.repair.state != RepairState::Paused && pool.repair_settled().await.is_ok() {
            self.say(|| "repair has settled".into());
            self.check_obstacle(pool).await;
            self.choose_victims(pool).await;
        }
    }

    /// Repair that wants another drive has none.
    async fn check_obstacle(&self, pool: &Pool) {
        for last in [false, true] {
            let Ok(status) = pool.status().await else { return };
            let online = status.drives.iter().filter(|drive| drive.state.accepts_segments()).count();
            // Who is told to pause looks again only afterwards.
            let looks = self.joining.get() == 0 && !pool.repair_limits().paused && status.failure.is_none();
            let enough = online >= usize::from(status.scheme.width());
            if status.repair.state != RepairState::NeedsDrive || !enough || !looks {
                return;
            }
            if last {
                return self
                    .fail(format!("repair wants a drive, and {online} are in use: {:?}", status.repair));
            }
            // One may have come, or stayed, this very moment.
            Reactor::current().sleep(Duration::from_secs(1)).await;
            let _ = pool.repair_settled().await;
        }
    }

    pub(super) async fn limit_repair(&self, pool: &Pool) {
        let limits =
            RepairLimits { paused: self.random.once_in(3), bytes_per_second: repair_rate(&self.random) };
        let result = pool.set_repair_limits(limits).await;
        self.say(|| format!("repair is limited to {limits:?}: {result:?}"));
    }

    /// Has everything read, or calls that off, or waits for its end.
    pub(super) async fn scrub(&self, pool: &Pool) {
        let limits =
            RepairLimits { paused: self.random.once_in(8), bytes_per_second: repair_rate(&self.random) };
        let result = match self.random.below(8) {
            0 => pool.cancel_scrub().await.map(|_| ()),
            1 => pool.set_scrub_limits(limits).await,
            2 if !pool.scrub_limits().paused => pool.scrub_settled().await,
            _ => pool.start_scrub().await.map(|_| ()),
        };
        self.say(|| format!("scrub: {result:?}"));
        self.tolerate("scrub", result, NOTHING);
        self.count_scrub(pool).await;
    }

    /// Has scrubs begin as often as the plan says.
    pub(super) async fn schedule_scrubs(&self, pool: &Pool) {
        let every = self.plan.scrub_days * DAY;
        if self.plan.days_pass > 0 && pool.status().await.is_ok_and(|status| status.scrub.every != every) {
            let result = pool.set_scrub_every(every).await;
            self.say(|| format!("scrubs begin every {every} s: {result:?}"));
            self.tolerate("set_scrub_every", result, NOTHING);
        }
    }

    /// Days pass, and somebody looks whether it is time to scrub.
    pub(super) async fn let_days_pass(&self, pool: &Pool) {
        self.machine.world.pass(self.later.below(40) * DAY);
        let result = pool.start_scrub_if_due().await;
        self.say(|| format!("days pass; a scrub begins by itself: {result:?}"));
        if matches!(result, Ok(true)) {
            self.count(|stats| stats.scheduled += 1);
        }
        self.tolerate("scrub if due", result.map(|_| ()), NOTHING);
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

    /// Puts other drives in the place of victims that do not belong to the pool any more.
    async fn choose_victims(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        // What it says must be on the drives before it is relied on.
        if pool.repair_settled().await.is_err() {
            return;
        }
        let in_state = |wanted: DriveState| {
            let drives = status.drives.iter().filter(move |drive| drive.state == wanted);
            drives.map(|drive| usize::from(drive.index))
        };
        for removed in in_state(DriveState::Removed) {
            if self.gone.borrow().contains(&removed) {
                continue;
            }
            self.gone.borrow_mut().push(removed);
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
            self.say(|| format!("drive {removed} is gone for good, drive {next} may be next"));
            victims.push(next);
            if let Some(disk) = self.machine.disks.get(next) {
                disk.set_faults(self.plan.faults);
            }
        }
    }

    /// Takes the next spare into the pool. Its number there is its own.
    pub(super) async fn add_drive(&self, pool: &Pool) {
        if self.adding.replace(true) {
            return;
        }
        self.joining.set(self.joining.get() + 1);
        let spare = pool.status().await.map_or(usize::MAX, |status| status.drives.len());
        if spare < self.machine.disks.len() {
            // It has a volatile cache, whatever the others have.
            self.took_spare.set(true);
            self.promise_write_through();
            let result = self.machine.add(pool, spare).await;
            self.say(|| format!("drive {spare} is added: {result:?}"));
            match &result {
                Ok(number) if usize::from(*number) != spare => {
                    self.fail(format!("drive {spare} was given the number {number}"));
                }
                Ok(_) => {
                    self.count(|stats| stats.added += 1);
                    if let Ok(status) = pool.status().await {
                        self.check_growth(&status);
                    }
                }
                Err(_) => {}
            }
            self.tolerate("add_drive", result.map(|_| ()), self.where_host_is_full());
            let _ = pool.repair_settled().await;
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
        self.put_in(pool, drive).await;
    }

    /// Plugs a drive in and has the pool take it back.
    pub(super) async fn put_in(&self, pool: &Pool, drive: usize) {
        let Some(disk) = self.machine.disks.get(drive) else { return };
        disk.plug_in();
        if let Some(absent) = self.machine.absent.borrow_mut().get_mut(drive) {
            *absent = false;
        }
        self.joining.set(self.joining.get() + 1);
        let result = self.machine.bring_back(pool, drive).await;
        // Whoever has begun to look at repair may have seen it as it was before.
        let _ = pool.repair_settled().await;
        self.joining.set(self.joining.get() - 1);
        self.say(|| format!("drive {drive} is plugged in again: {result:?}"));
        match &result {
            Ok(number) if usize::from(*number) != drive => {
                self.fail(format!("drive {drive} came back as {number}"));
            }
            Ok(_) => self.count(|stats| stats.returned += 1),
            // Its superblocks rot, or somebody else was faster.
            Err(_) => {
                let may = &[ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Exists, ErrorKind::Io];
                self.tolerate("return_drive", result.map(|_| ()), may);
            }
        }
    }

    /// Has a drive emptied.
    pub(super) async fn evacuate(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        let drive = self.random.choose(&status.drives).index;
        let result = pool.evacuate_drive(drive).await;
        self.say(|| format!("drive {drive} is to be emptied: {result:?}"));
        self.tolerate_refusal(pool, "evacuate_drive", result, &status).await;
    }

    /// Keeps a drive that was to be emptied.
    pub(super) async fn keep(&self, pool: &Pool) {
        let Ok(status) = pool.status().await else { return };
        let leaving = status.drives.iter().filter(|drive| drive.state == DriveState::Draining);
        let leaving: Vec<u16> = leaving.map(|drive| drive.index).collect();
        if leaving.is_empty() {
            return;
        }
        let drive = *self.random.choose(&leaving);
        let result = pool.keep_drive(drive).await;
        self.say(|| format!("drive {drive} stays: {result:?}"));
        self.tolerate_refusal(pool, "keep_drive", result, &status).await;
    }

    /// A drive cannot be emptied or kept where it is not in use, too few are left or there is no room; nor while a drive is lost or what
    /// it missed is being completed.
    async fn tolerate_refusal(
        &self,
        pool: &Pool,
        what: &str,
        result: engine::Result<()>,
        before: &PoolStatus,
    ) {
        let is_short = |status: &PoolStatus| status.drives.iter().any(|drive| drive.state.counts_as_lost());
        let mut may = vec![ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::NoSpace];
        if is_short(before) || pool.status().await.is_ok_and(|after| is_short(&after)) {
            may.push(ErrorKind::Busy);
        }
        self.tolerate(what, result, &may);
    }

    /// The pool is as large as its drives: one that is coming back may not be told of everywhere yet.
    fn check_growth(&self, status: &PoolStatus) {
        let zones = |counts: fn(DriveState) -> bool| -> u64 {
            let drives = status.drives.iter().filter(|drive| counts(drive.state));
            drives.map(|drive| u64::from(drive.zones)).sum()
        };
        let most = zones(DriveState::accepts_segments);
        let least = most - zones(|state| state == DriveState::Returning);
        if !(least..=most).contains(&status.space.zones) {
            self.fail(format!("drives in use have {least} to {most} zones, the pool {}", status.space.zones));
        }
    }
}
