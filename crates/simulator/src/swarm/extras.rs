//! The operations of [`Extras`](super::plan::Extras).

use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::Reactor;

use super::Life;
use super::excess::Excess;
use super::plan::{EXTRA_OPS, Extra};

/// Number of seconds within which the pool must notice that its host has space again.
const NOTICE_SECONDS: u64 = 10;

impl Life {
    /// Returns the extra operation that comes next, if one does.
    pub(super) fn next_extra(&self) -> Option<Extra> {
        let extras = self.plan.extras.as_ref()?;
        if extras.weights.iter().all(|weight| *weight == 0) || !self.extra.once_in(extras.once_in) {
            return None;
        }
        let (extra, _) = EXTRA_OPS.get(self.extra.weighted(&extras.weights))?;
        (self.excess.get() == Excess::Nothing).then_some(*extra)
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
    pub(super) async fn pause(&self, most: u64) {
        Reactor::current().sleep(Duration::from_micros(self.extra.between(1, most))).await;
    }

    /// Returns true if the same process opens a closed pool again.
    pub(super) fn opens_again(&self) -> bool {
        let reopens = self.plan.extras.as_ref().is_some_and(|extras| extras.reopens);
        reopens && self.excess.get() == Excess::Nothing && self.extra.once_in(2)
    }

    /// Makes the file systems under some drives full, or gives all of them space again.
    async fn fill_host(&self, pool: &Pool) {
        self.host_was_full.set(true);
        if self.extra.once_in(2) {
            let one_in = *self.extra.choose(&[1, 2]);
            self.say(|| format!("the host of 1 drive in {one_in} is full"));
            self.count(|stats| stats.full_hosts += 1);
            self.machine.disks.iter().for_each(|disk| disk.set_host_full(self.extra.once_in(one_in)));
            return;
        }
        self.machine.disks.iter().for_each(|disk| disk.set_host_full(false));
        self.say(|| "the hosts of all drives have space".into());
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
        let victim = *self.extra.choose(&victims);
        let Some(disk) = self.machine.disks.get(victim).filter(|disk| !disk.is_dead() && !disk.is_hung())
        else {
            return;
        };
        self.count(|stats| stats.hung_drives += 1);
        self.say(|| format!("drive {victim} hangs"));
        disk.hang();
        self.pause(3_000_000).await;
        let mut back = None;
        if self.extra.once_in(2) {
            let (life, pool) = (self.clone(), pool.clone());
            let returns = self.extra.once_in(2);
            // In a separate task, because both calls may wait for the hung operations.
            back = Some(Reactor::current().spawn(async move { life.take_out(&pool, victim, returns).await }));
            self.pause(3_000_000).await;
        }
        let failing = self.extra.once_in(3);
        self.say(|| format!("drive {victim} is released; its held operations fail: {failing}"));
        disk.release(failing);
        if let Some(back) = back {
            back.await;
        }
    }

    /// Removes a drive, and plugs it in again if it `returns`.
    async fn take_out(&self, pool: &Pool, victim: usize, returns: bool) {
        let result = pool.fail_drive(u16::try_from(victim).unwrap_or(0)).await;
        self.say(|| format!("drive {victim} is failed while it hangs: {result:?}"));
        self.tolerate("fail_drive", result, &[engine::ErrorKind::NotFound]);
        if returns {
            self.pause(1_000_000).await;
            self.put_in(pool, victim).await;
        }
    }
}
