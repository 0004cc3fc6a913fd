//! The background jobs of a shard: one scheduler for their tasks, with one budget of drive time.
//!
//! A job owns its state and implements [`BackgroundJob`]; the scheduler waits for its work, calls
//! its steps, and ends it with the shard. Jobs that read or write much on their own account, repair
//! and scrub, take each chunk from the budget. Always true: a stop of the shard waits for every
//! step that has begun. Must not know: the work of the jobs.

use std::cell::Cell;
use std::rc::Rc;

use reactor::{Reactor, WaitList};

use super::Shard;
use crate::repair::BackgroundBudget;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// There may be more work now.
    More,
    /// There is no work, or none that can be done now.
    Idle,
    /// The job has ended, because the pool has failed.
    Ended,
}

/// A job in the background of a shard.
pub(super) trait BackgroundJob {
    /// Waits until there may be work, or the shard stops.
    async fn wait_for_work(&self, shard: &Shard);

    /// Does the next piece of work. Not called once the shard stops.
    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome;
}

/// The scheduler of a shard's background jobs.
#[derive(Default)]
pub(super) struct Background {
    /// Drive time of the jobs that read or write much.
    pub(super) budget: Rc<BackgroundBudget>,
    stopping: Cell<bool>,
    /// Number of running tasks.
    tasks: Cell<usize>,
    task_ended: WaitList,
}

/// A running task of a shard; it counts as ended when this is dropped.
pub(super) struct RunningTask(Rc<Shard>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        let background = &self.0.background;
        assert!(background.tasks.get() > 0, "a task of the shard ends once");
        background.tasks.set(background.tasks.get() - 1);
        background.task_ended.wake_all();
    }
}

impl Background {
    pub(super) fn new(budget: Rc<BackgroundBudget>) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Runs a job until the shard stops.
    pub(super) fn run<J: BackgroundJob + 'static>(shard: &Rc<Shard>, job: fn(&Shard) -> &J) {
        let running = shard.clone();
        Self::spawn(shard, async move {
            let (shard, job) = (&running, job(&running));
            loop {
                job.wait_for_work(shard).await;
                let mut step = StepOutcome::More;
                while step == StepOutcome::More {
                    if shard.background.is_stopping() {
                        return;
                    }
                    step = job.step(shard).await;
                }
                if step == StepOutcome::Ended {
                    return;
                }
            }
        });
    }

    /// Spawns a task of the shard.
    pub(super) fn spawn(shard: &Rc<Shard>, task: impl Future<Output = ()> + 'static) {
        let running = Self::begin_task(shard);
        let run = async move {
            task.await;
            drop(running);
        };
        Reactor::current().spawn(run).detach();
    }

    /// Begins a task that a stop of the shard waits for, until the returned guard is dropped.
    pub(super) fn begin_task(shard: &Rc<Shard>) -> RunningTask {
        let background = &shard.background;
        background.tasks.set(background.tasks.get() + 1);
        RunningTask(shard.clone())
    }

    /// Returns true if the shard is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Makes all jobs end after their current step.
    pub(super) fn begin_stop(&self) {
        self.stopping.set(true);
    }

    /// Waits until all tasks have ended.
    pub(super) async fn all_ended(&self) {
        self.task_ended.until(|| (self.tasks.get() == 0).then_some(())).await;
    }
}
