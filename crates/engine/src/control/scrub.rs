//! The control's part in scrubbing: schedule, progress, findings, and resumption after a restart.
//!
//! The superblock stores each shard's position, which is published from time to time or with other
//! changes. After a crash, only the segments since then are read again.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use format::{EventKind, Incarnation, ScrubTally, ShardIndex, Superblock};
use reactor::{Reactor, WaitList};

use super::Control;
use crate::error::Result;
use crate::join_all::join_all;
use crate::scrub::{Scrub, ScrubFindings, ScrubStatus};

/// Number of bytes read after which the position is published.
const PUBLISH_BYTES: u64 = 1 << 30;
/// Maximum number of damage events per scrub, so that the event log keeps other events.
const EVENTS_MAX: u64 = 100;

/// Scrub state of the control.
pub(super) struct ScrubControl {
    shared: Arc<Scrub>,
    /// Bytes read since the position was published.
    unpublished_bytes: Cell<u64>,
    /// Damage events emitted in this run.
    events: Cell<u64>,
    changed: WaitList,
}

impl ScrubControl {
    pub(super) fn new(shared: Arc<Scrub>) -> Self {
        Self {
            shared,
            unpublished_bytes: Cell::default(),
            events: Cell::default(),
            changed: WaitList::default(),
        }
    }

    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }
}

impl Control {
    /// Starts a scrub. Returns false if one is running.
    ///
    /// # Errors
    /// If the pool has failed or is closed.
    pub(crate) async fn start_scrub(self: &Rc<Self>) -> Result<bool> {
        // Not during a membership change or while the pool is being closed.
        let _permit = self.begin_change().await?;
        if self.state.borrow().superblock.scrub.running {
            return Ok(false);
        }
        let now = self.events.now();
        self.publish(|superblock| {
            let shards = superblock.shards.len();
            let newest = superblock.next_incarnation.get().saturating_sub(1);
            let scrub = &mut superblock.scrub;
            (scrub.running, scrub.until) = (true, Incarnation::new(newest));
            scrub.current = ScrubTally { began: now, ..ScrubTally::default() };
            scrub.positions = vec![Incarnation::new(0); shards];
        })
        .await?;
        self.events.emit(EventKind::ScrubStarted, 0, "");
        self.resume_scrub();
        Ok(true)
    }

    /// Starts a scrub if one is due.
    ///
    /// # Errors
    /// As [`Control::start_scrub`].
    pub(crate) async fn start_scrub_if_due(self: &Rc<Self>) -> Result<bool> {
        let is_due = {
            let state = self.state.borrow();
            let scrub = &state.superblock.scrub;
            // A new pool needs no scrub yet, and a cancelled scrub is not restarted immediately.
            let last = scrub.last.began.max(scrub.current.began).max(state.superblock.created);
            // `abs_diff`, because a wrong clock may have stored a start far in the future.
            scrub.every > 0 && !scrub.running && self.events.now().abs_diff(last) >= scrub.every
        };
        if is_due { self.start_scrub().await } else { Ok(false) }
    }

    /// Resumes a scrub that the superblock lists as running, in the background.
    pub(crate) fn resume_scrub(self: &Rc<Self>) {
        if !self.state.borrow().superblock.scrub.running {
            return;
        }
        let run = self.scrubbing.shared.next_run();
        self.scrubbing.events.set(0);
        let control = self.clone();
        let scrub = async move {
            if control.scrub_all(run).await {
                control.end_scrub(run).await;
            }
            control.scrubbing.wake();
        };
        Reactor::current().spawn(scrub).detach();
    }

    /// Scrubs in every shard; returns true if all shards finished.
    async fn scrub_all(&self, run: u64) -> bool {
        let (positions, until) = {
            let state = self.state.borrow();
            (state.superblock.scrub.positions.clone(), state.superblock.scrub.until)
        };
        let shards = self.shards.borrow().clone();
        let is_whole = Cell::new(shards.len() == positions.len());
        let whole = &is_whole;
        let scrub = shards.into_iter().zip(positions).map(|(shard, after)| async move {
            let ended = shard
                .call(move |shard| async move { shard.scrubber.scrub(&shard, run, after, until).await })
                .await;
            whole.set(ended.unwrap_or(false) && whole.get());
            Ok(())
        });
        join_all(scrub).await.is_ok() && is_whole.get()
    }

    async fn end_scrub(&self, run: u64) {
        if !self.scrubbing.shared.is_run(run) {
            return;
        }
        let now = self.events.now();
        let ended = self.publish(|superblock| {
            let scrub = &mut superblock.scrub;
            scrub.running = false;
            scrub.last = ScrubTally { ended: now, ..scrub.current };
            scrub.current = ScrubTally::default();
        });
        if ended.await.is_ok() {
            let last = self.state.borrow().superblock.scrub.last;
            let (mib, seconds) = (last.bytes.div_ceil(1 << 20), last.ended.saturating_sub(last.began));
            let duration = if seconds == 0 { "less than 1 s".to_owned() } else { format!("{seconds} s") };
            let text = format!("{mib} MiB read in {duration}, {} rows cannot be reconstructed", last.lost);
            tracing::info!(?last, "scrub finished");
            self.events.emit(EventKind::ScrubFinished, last.damaged, &text);
        }
    }

    /// Records a shard's position and findings.
    pub(super) async fn record_scrub_progress(
        &self,
        run: u64,
        shard: ShardIndex,
        position: Incarnation,
        found: &ScrubFindings,
    ) {
        if !self.scrubbing.shared.is_run(run) {
            return;
        }
        let change = |superblock: &mut Superblock| {
            let scrub = &mut superblock.scrub;
            scrub.current.bytes += found.bytes;
            scrub.current.damaged += found.damaged();
            scrub.current.lost += found.lost;
            scrub.positions.get_mut(shard.index()).into_iter().for_each(|place| *place = position);
        };
        for damage in &found.damage {
            if self.scrubbing.events.get() < EVENTS_MAX {
                self.scrubbing.events.set(self.scrubbing.events.get() + 1);
                let text = format!(
                    "{}: shard {shard}, segment {}, column {}, from row {}: {} blocks unreadable, {} corrupt",
                    self.path_of(damage.drive),
                    damage.segment,
                    damage.column,
                    damage.row,
                    damage.unreadable,
                    damage.wrong
                );
                let amount = damage.unreadable + damage.wrong;
                self.events.emit_drive_amount(damage.drive, EventKind::Damaged, amount, &text);
            }
        }
        let unpublished_bytes = self.scrubbing.unpublished_bytes.get() + found.bytes;
        let is_due = unpublished_bytes >= PUBLISH_BYTES;
        self.scrubbing.unpublished_bytes.set(if is_due { 0 } else { unpublished_bytes });
        if is_due {
            // A failed pool does not store progress.
            let _ = self.publish(change).await;
        } else {
            change(&mut self.state.borrow_mut().superblock);
        }
    }

    /// Cancels the running scrub. Returns false if there is none.
    ///
    /// # Errors
    /// If the pool has failed or is closed.
    pub(crate) async fn cancel_scrub(&self) -> Result<bool> {
        let _permit = self.begin_change().await?;
        if !self.state.borrow().superblock.scrub.running {
            return Ok(false);
        }
        self.scrubbing.shared.next_run();
        self.publish(|superblock| {
            let scrub = &mut superblock.scrub;
            scrub.running = false;
            scrub.current = ScrubTally { began: scrub.current.began, ..ScrubTally::default() };
        })
        .await?;
        self.events.emit(EventKind::ScrubCancelled, 0, "");
        self.notify_scrub_changed().await;
        Ok(true)
    }

    /// Notifies shards and waiting tasks of changed limits or a changed scrub state.
    pub(crate) async fn notify_scrub_changed(&self) {
        let shards = self.shards.borrow().clone();
        for shard in shards {
            let _ = shard.call(|shard| async move { shard.scrubber.wake(&shard) }).await;
        }
        self.scrubbing.wake();
    }

    /// Sets the interval between starts of scheduled scrubs, in seconds; 0 disables them.
    ///
    /// # Errors
    /// If the pool has failed or is closed.
    pub(crate) async fn set_scrub_every(&self, seconds: u64) -> Result<()> {
        self.publish(|superblock| superblock.scrub.every = seconds).await
    }

    /// Waits until no scrub is running, or scrubbing is paused.
    pub(crate) async fn scrub_idle(&self) {
        let idle = || {
            let state = self.state.borrow();
            let running = state.superblock.scrub.running && !state.stopping && state.failure.is_none();
            !running || self.scrubbing.shared.limits.is_paused()
        };
        self.scrubbing.changed.until(|| idle().then_some(())).await;
    }

    /// Returns the scrub status from the superblock, the shards' positions, and the last segment to
    /// read.
    pub(crate) fn scrub_status(&self) -> (ScrubStatus, Vec<Incarnation>, Incarnation) {
        let state = self.state.borrow();
        let scrub = &state.superblock.scrub;
        let status = ScrubStatus {
            every: scrub.every,
            running: scrub.running,
            paused: self.scrubbing.shared.limits.is_paused(),
            current: scrub.current,
            last: scrub.last,
            ..ScrubStatus::default()
        };
        (status, scrub.positions.clone(), scrub.until)
    }
}
