//! Scrubbing: reads every written row of the shard's segments, oldest first, and compares every
//! cell, live or dead, header or parity, with the segment's headers. A damaged column is marked,
//! and repair rewrites it elsewhere, as it does with columns on draining drives.
//!
//! Always true: nothing is written here; a segment is pinned while it is read; everything before
//! the reported position was read, and its repairs are in a checkpoint: columns that wait for
//! repair, or for a checkpoint, hold the position back. A scrub ends after a checkpoint with the
//! marks of the columns that could not be repaired yet.

mod segment;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use format::limits::{BLOCK, BLOCK_BYTES};
use format::{Column, Incarnation, Row, SegmentId};
use futures_util::future::select;
use reactor::{LocalSender, Notify, Reactor, WaitList, local_oneshot};
use segment::SegmentScrub;

use super::Shard;
use super::background::{BackgroundJob, StepOutcome};
use crate::invariant::narrow;
use crate::repair::{BackgroundBudget, Throttle};
use crate::scrub::{Scrub, ScrubFindings, ScrubProgress};

/// Bytes read at once, in all columns together.
const WINDOW_BYTES: usize = 4 << 20;
/// Bytes read after which a checkpoint persists the repairs.
const CHECKPOINT_BYTES: u64 = 1 << 30;
/// Time after which a checkpoint of the repairs that failed is tried again.
const STORE_RETRY: Duration = Duration::from_secs(10);

/// The scrub state of a shard.
#[derive(Default)]
pub(crate) struct Scrubber {
    /// The limits and the current run, for all shards.
    shared: Arc<Scrub>,
    /// The run in progress, unless its step is running, and later ones.
    runs: RefCell<VecDeque<ScrubRun>>,
    work: Notify,
    throttle: Throttle,
    /// Notified when a condition that the scrub waits for may have changed.
    changed: WaitList,
}

/// A scrub of the segments written after `after`, up to `until`.
struct ScrubRun {
    number: u64,
    after: Incarnation,
    until: Incarnation,
    /// The last segment that was read.
    at: Incarnation,
    /// The first segment with a damaged column, and the bytes read since: after a crash before the
    /// next checkpoint, its repair is lost.
    healed: Option<(Incarnation, u64)>,
    begun: bool,
    reply: LocalSender<bool>,
}

impl ScrubRun {
    /// Returns true if the run reads all segments.
    fn is_complete(&self) -> bool {
        self.after == Incarnation::default()
    }
}

/// The reason why a segment was not read to its end.
enum Interrupted {
    /// The scrub is paused: the segment will be read again.
    Paused,
    /// The shard stops, or the scrub was cancelled.
    Ended,
}

impl BackgroundJob for Scrubber {
    async fn wait_for_work(&self, _: &Shard) {
        self.work.notified().await;
    }

    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome {
        let next = self.runs.borrow_mut().pop_front();
        let Some(mut run) = next else { return StepOutcome::Idle };
        if !run.begun {
            self.begin(shard, &mut run);
        }
        match self.scrub_next(shard, &mut run).await {
            None if !self.has_ended(shard, run.number) => self.runs.borrow_mut().push_front(run),
            completed => self.end(run, completed == Some(true)),
        }
        StepOutcome::More
    }
}

impl Scrubber {
    /// Creates the state with the limits and runs of all shards, and the budget of this one.
    pub(super) fn new(shared: Arc<Scrub>, budget: Rc<BackgroundBudget>) -> Self {
        Self { shared, throttle: Throttle::new(budget), ..Self::default() }
    }

    /// Wakes the scrub: limits have changed, a scrub was cancelled, or the shard stops.
    pub(crate) fn wake(&self, shard: &Shard) {
        self.changed.wake_all();
        shard.checkpointer.wake();
        shard.repair.wake();
    }

    /// Scrubs the segments written after `after`, up to `until`. Returns true if it completed.
    pub(crate) async fn scrub(
        &self,
        shard: &Shard,
        number: u64,
        after: Incarnation,
        until: Incarnation,
    ) -> bool {
        if shard.background.is_stopping() {
            return false;
        }
        let (reply, ended) = local_oneshot();
        let run = ScrubRun { number, after, until, at: after, healed: None, begun: false, reply };
        self.runs.borrow_mut().push_back(run);
        self.work.notify();
        ended.await.unwrap_or(false)
    }

    /// Ends the runs that wait, because the shard stops.
    pub(super) fn cancel(&self) {
        drop(self.runs.take());
        self.work.notify();
    }

    fn begin(&self, shard: &Shard, run: &mut ScrubRun) {
        run.begun = true;
        self.throttle.begin(&self.shared.limits, Reactor::current().now());
        if run.is_complete() {
            shard.lost.begin_review();
        }
    }

    fn end(&self, run: ScrubRun, completed: bool) {
        self.throttle.end(&self.shared.limits);
        run.reply.send(completed);
    }

    /// Scrubs the next segment, or ends the run after the last. Returns whether the run completed,
    /// once it has ended.
    async fn scrub_next(&self, shard: &Rc<Shard>, run: &mut ScrubRun) -> Option<bool> {
        self.wait_to_scrub(shard, run.number).await;
        if self.has_ended(shard, run.number) {
            return Some(false);
        }
        if run.healed.is_some_and(|(_, since)| since >= CHECKPOINT_BYTES)
            && shard.checkpointer.checkpoint(shard).await.is_ok()
        {
            run.healed = None;
        }
        let next = shard.rows.segments.borrow().next_to_scrub(run.at, run.until);
        let Some((id, incarnation)) = next else { return Some(self.finish(shard, run).await) };
        let read = {
            let _pin = shard.rows.pin(id);
            let read = self.scrub_segment(shard, run.number, id).await;
            if let Ok(found) = &read {
                self.mark_damage(shard, found);
            }
            read
        };
        shard.report_gone_drives().await;
        match read {
            Ok(found) => {
                run.at = incarnation;
                let first = (!found.damage.is_empty()).then_some((run.at, 0));
                run.healed = run.healed.or(first).map(|(first, since)| (first, since + found.bytes));
                let first = run.healed.map_or(run.at, |(first, _)| position_before(first));
                let position = self.durable_position(shard, run.at).min(first);
                shard.link.record_scrub_progress(run.number, position, found).await;
                None
            }
            Err(Interrupted::Paused) => None,
            Err(Interrupted::Ended) => Some(false),
        }
    }

    /// Makes the results of a run durable. Returns true if the run completed.
    async fn finish(&self, shard: &Rc<Shard>, run: &ScrubRun) -> bool {
        let unhealed = shard.rows.segments.borrow().damaged().next().is_some();
        if (run.healed.is_some() || unhealed) && !self.store_repairs(shard, run.number).await {
            return false;
        }
        shard.lost.end_review(shard, run.is_complete()).await;
        let position = self.durable_position(shard, run.until);
        shard.link.record_scrub_progress(run.number, position, ScrubFindings::default()).await;
        !self.has_ended(shard, run.number)
    }

    /// Makes a checkpoint, which stores the repairs, and the marks of the columns that still wait
    /// for repair. If it fails, waits for another one to complete, or for a while, and tries again:
    /// an idle pool makes no other checkpoint. Returns false if the scrub ends before.
    async fn store_repairs(&self, shard: &Rc<Shard>, run: u64) -> bool {
        while !self.has_ended(shard, run) {
            let Err(error) = shard.checkpointer.checkpoint(shard).await else { return true };
            tracing::warn!(shard = %shard.identity.shard, %error, "repairs of the scrub are not durable yet");
            // Not for one that fails: both would be tried again and again, each because the other
            // failed.
            let completed = shard.checkpointer.completed();
            let changed = || shard.checkpointer.completed() != completed || self.has_ended(shard, run);
            let change = pin!(shard.checkpointer.until(changed));
            select(change, pin!(Reactor::current().sleep(STORE_RETRY))).await;
        }
        false
    }

    /// Returns the position up to which all repairs are durable: damage that waits for repair would
    /// be forgotten in a crash.
    fn durable_position(&self, shard: &Shard, at: Incarnation) -> Incarnation {
        let damaged = shard.rows.segments.borrow().damaged().map(|(incarnation, _)| incarnation).min();
        damaged.map_or(at, |damaged| at.min(position_before(damaged)))
    }

    fn has_ended(&self, shard: &Shard, run: u64) -> bool {
        shard.has_ended() || !self.shared.is_run(run)
    }

    /// Waits while there is something to repair, which has priority, or the scrub is paused.
    async fn wait_to_scrub(&self, shard: &Shard, run: u64) {
        shard.repair.wait_for_requests(shard).await;
        let may_proceed = || self.has_ended(shard, run) || !self.shared.limits.is_paused();
        self.changed.until(|| may_proceed().then_some(())).await;
    }

    /// Marks the damaged columns, which repair then rewrites.
    fn mark_damage(&self, shard: &Shard, found: &ScrubFindings) {
        for damage in &found.damage {
            shard.rows.segments.borrow_mut().mark_damaged(damage.segment, Column::new(damage.column));
            tracing::warn!(shard = %shard.identity.shard, ?damage, "column damaged: it will be rewritten");
        }
        if !found.damage.is_empty() {
            shard.repair.request();
        }
    }

    /// Returns the progress of a scrub.
    pub(crate) fn progress(&self, shard: &Shard, after: Incarnation, until: Incarnation) -> ScrubProgress {
        let segments = shard.rows.segments.borrow();
        ScrubProgress {
            bytes_left: segments.cells_to_scrub(after, until) * BLOCK_BYTES,
            bytes_per_second: self.throttle.rate(),
            unhealed: segments.damaged().map(|(_, columns)| u64::from(columns)).sum(),
        }
    }

    /// Reads and compares a segment, which is pinned, up to its last applied record.
    async fn scrub_segment(
        &self,
        shard: &Shard,
        run: u64,
        id: SegmentId,
    ) -> Result<ScrubFindings, Interrupted> {
        let Some(record) = shard.rows.segments.borrow().applied_record(id) else {
            return Ok(ScrubFindings::default());
        };
        let mut reading = SegmentScrub::new(shard, id, &record);
        let column = WINDOW_BYTES / usize::from(record.scheme.width());
        let may_proceed = || !self.has_ended(shard, run) && !self.shared.limits.is_paused();
        let mut row = 0;
        while row < record.rows && !reading.ended {
            if let Some(permit) = self.throttle.acquire(&self.shared.limits, may_proceed).await {
                let whole = narrow::<u32, _>(permit.chunk_bytes(column) / BLOCK, "C5").max(1);
                let count = whole.min(record.rows - row);
                permit.finish(reading.scrub_rows(Row::new(row), count).await);
                row += count;
            }
            if self.has_ended(shard, run) {
                return Err(Interrupted::Ended);
            }
            if self.shared.limits.is_paused() {
                return Err(Interrupted::Paused);
            }
            // The segment was freed: damage in it does not matter.
            if shard.rows.segments.borrow().applied_record(id).is_none() {
                return Ok(ScrubFindings { bytes: reading.found.bytes, ..ScrubFindings::default() });
            }
        }
        if reading.ended {
            tracing::error!(shard = %shard.identity.shard, segment = %id, row = %reading.known_to, "header unreadable: only the live blocks in the rest of its segment are verified");
            shard.lost.note_after(shard, id, reading.known_to).await;
        }
        Ok(reading.found)
    }
}

/// Returns the position right before a segment.
fn position_before(incarnation: Incarnation) -> Incarnation {
    Incarnation::new(incarnation.get().saturating_sub(1))
}
