//! The thread that computes for Diffie-Hellman exchanges.
//!
//! A computation takes milliseconds, and hosts cause it before they are authenticated: on a reactor
//! it would delay the requests of others. Always true: one thread computes for all reactors, so
//! that a flood of exchanges uses up to one CPU; its queue is limited by the number of connections.

use std::sync::{Mutex, PoisonError, mpsc};

use futures_channel::oneshot;

use super::exchange::{DhResult, DhTask};

/// A computation and the place for its result.
type Job = (DhTask, oneshot::Sender<DhResult>);

/// Computes the result of a task on the thread. `None` if there is no thread.
pub(in crate::nvme) async fn compute(task: DhTask) -> Option<DhResult> {
    let (sender, receiver) = oneshot::channel();
    queue((task, sender))?;
    receiver.await.ok()
}

/// Queues a computation. The thread starts with the first one.
fn queue(job: Job) -> Option<()> {
    static THREAD: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let jobs = match thread.take() {
        Some(jobs) => jobs,
        None => start()?,
    };
    let sent = jobs.send(job).is_ok();
    // A thread that has ended is replaced.
    *thread = sent.then_some(jobs);
    sent.then_some(())
}

fn start() -> Option<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let run = move || {
        for (task, result) in jobs {
            // A connection that was closed needs no result.
            if !result.is_canceled() {
                let _ = result.send(task.run());
            }
        }
    };
    let started = std::thread::Builder::new().name("dh-chap".into()).spawn(run);
    match started {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "cannot start the thread for Diffie-Hellman exchanges");
            None
        }
    }
}
