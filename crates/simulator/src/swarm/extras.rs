//! The operations of [`Extras`](super::plan::Extras).

use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::Reactor;

use super::SwarmRun;
use super::excess_faults::ExcessFaults;
use super::plan::{EXTRA_OPS, Extra};

/// Number of seconds within which the pool must notice that its host has space again.
const NOTICE_SECONDS: u64 = 10;

impl SwarmRun {
    /// Returns the extra operation that comes next, if one does.
    pub(super) fn next_extra(&self) -> Option<Extra> {
        let extras = self.plan.extras.as_ref()?;
        if extras.weights.iter().all(|weight| *weight == 0) || !self.extras_random.once_in(extras.once_in) {
            return None;
        }
        let (extra, _) = EXTRA_OPS.get(self.extras_random.weighted(&extras.weights))?;
        (self.excess.get() == ExcessFaults::None).then_some(*extra)
    }

    pub(super) async fn operate_extra(self: &Rc<Self>, extra: Extra, pool: &Pool) {
        match extra {
            Extra::DeleteInUse => self.delete_in_use(pool).await,
            Extra::HangDrive => self.hang_drive(pool).await,
            Extra::FillHost => self.fill_host(pool).await,
            Extra::Damage => self.damage_too_much(pool).await,
            Extra::LoseTooMany => self.lose_too_many(pool).await,
        }
    }

    /// Sleeps for up to `max` microseconds.
    pub(super) async fn sleep_up_to(&self, max: u64) {
        Reactor::current().sleep(Duration::from_micros(self.extras_random.between(1, max))).await;
    }

    /// Returns true if the same process opens a closed pool again.
    pub(super) fn reopens(&self) -> bool {
        let reopens = self.plan.extras.as_ref().is_some_and(|extras| extras.reopens);
        reopens && self.excess.get() == ExcessFaults::None && self.extras_random.once_in(2)
    }

    /// Makes the file systems under some drives full, or gives all of them space again.
    async fn fill_host(&self, pool: &Pool) {
        self.host_was_full.set(true);
        if self.extras_random.once_in(2) {
            let one_in = *self.extras_random.choose(&[1, 2]);
            self.trace(|| format!("the host of 1 drive in {one_in} is full"));
            self.count(|stats| stats.full_hosts += 1);
            self.machine.disks.iter().for_each(|disk| disk.set_host_full(self.extras_random.once_in(one_in)));
            return;
        }
        self.machine.disks.iter().for_each(|disk| disk.set_host_full(false));
        self.trace(|| "the hosts of all drives have space".into());
        for last in (0..NOTICE_SECONDS).map(|second| second + 1 == NOTICE_SECONDS) {
            match pool.checkpoint().await {
                Err(error) if last && !self.may_fail(&error) && !self.has_full_host() => {
                    return self.fail(format!("the hosts have space, but checkpoints fail: {error:?}"));
                }
                Err(_) => Reactor::current().sleep(Duration::from_secs(1)).await,
                Ok(()) => return,
            }
        }
    }

    /// Returns true if the file system under a drive is full. Another worker may have filled it
    /// again.
    pub(super) fn has_full_host(&self) -> bool {
        self.machine.disks.iter().any(|disk| disk.is_host_full())
    }

    /// Makes a drive hang for a while. Meanwhile the drive may be removed and returned. The
    /// operations in flight complete after that, or fail.
    async fn hang_drive(self: &Rc<Self>, pool: &Pool) {
        let victims = self.victims.borrow().clone();
        if victims.is_empty() {
            return;
        }
        let victim = *self.extras_random.choose(&victims);
        let Some(disk) = self.machine.disks.get(victim).filter(|disk| !disk.is_dead() && !disk.is_hung())
        else {
            return;
        };
        self.count(|stats| stats.hung_drives += 1);
        self.trace(|| format!("drive {victim} hangs"));
        disk.hang();
        self.sleep_up_to(3_000_000).await;
        let mut back = None;
        if self.extras_random.once_in(2) {
            let (run, pool) = (self.clone(), pool.clone());
            let returns = self.extras_random.once_in(2);
            // In a separate task, because both calls may wait for the hung operations.
            back = Some(
                Reactor::current().spawn(async move { run.fail_and_return(&pool, victim, returns).await }),
            );
            self.sleep_up_to(3_000_000).await;
        }
        let failing = self.extras_random.once_in(3);
        self.trace(|| format!("drive {victim} is released; its held operations fail: {failing}"));
        disk.release(failing);
        if let Some(back) = back {
            back.await;
        }
    }

    /// Removes a drive, and plugs it in again if it `returns`.
    async fn fail_and_return(&self, pool: &Pool, victim: usize, returns: bool) {
        let result = pool.fail_drive(u16::try_from(victim).unwrap_or(0)).await;
        self.trace(|| format!("drive {victim} is failed while it hangs: {result:?}"));
        self.tolerate("fail_drive", result, &[engine::ErrorKind::NotFound]);
        if returns {
            self.sleep_up_to(1_000_000).await;
            self.plug_in_and_return(pool, victim).await;
        }
    }
}
