//! The threads that run blocking file operations.
//!
//! Owns the queues to and from the threads. Invariant: a submitted operation returns with its
//! memory, or is dropped with the pool; a sleeping reactor is woken for it. Does not know sockets.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crossbeam_queue::SegQueue;

use crate::event::Event;
use crate::operation::{Operation, Step};
use crate::perform::perform;
use crate::target::LockedFile;
use crate::{IoResult, WakeHandle};

/// A file operation queued for a thread.
pub(super) struct Job {
    pub(super) key: usize,
    pub(super) file: Arc<LockedFile>,
    pub(super) operation: Operation,
}

/// A completed file operation.
pub(super) struct CompletedJob {
    pub(super) key: usize,
    pub(super) file: Arc<LockedFile>,
    pub(super) operation: Operation,
    pub(super) result: IoResult,
}

/// The threads of one reactor.
pub(super) struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

struct PoolShared {
    queue: Mutex<JobQueue>,
    changed: Condvar,
    finished: SegQueue<CompletedJob>,
    /// True while the reactor sleeps or is about to.
    asleep: AtomicBool,
    event: Arc<Event>,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Pool {
    pub(super) fn start(threads: usize, event: Arc<Event>) -> std::io::Result<Self> {
        let shared = Arc::new(PoolShared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            finished: SegQueue::new(),
            asleep: AtomicBool::new(false),
            event,
        });
        let mut pool = Self { shared, threads: Vec::new() };
        for index in 0..threads {
            let shared = pool.shared.clone();
            let name = format!("file-io-{index}");
            pool.threads.push(std::thread::Builder::new().name(name).spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    pub(super) fn push(&self, job: Job) {
        self.shared.lock().jobs.push_back(job);
        self.shared.changed.notify_one();
    }

    pub(super) fn take_finished(&self) -> Option<CompletedJob> {
        self.shared.finished.pop()
    }

    /// Announces that the reactor is about to sleep. False if it must not, because an operation has
    /// completed.
    pub(super) fn fall_asleep(&self) -> bool {
        self.shared.asleep.store(true, Ordering::Release);
        // Pairs with the fence in `PoolShared::finish`: either this thread sees the completion, or
        // the other thread sees it asleep.
        fence(Ordering::SeqCst);
        self.shared.finished.is_empty()
    }

    pub(super) fn wake_up(&self) {
        self.shared.asleep.store(false, Ordering::Release);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let unstarted = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        self.shared.changed.notify_all();
        drop(unstarted);
        for thread in self.threads.drain(..) {
            // A panic has already been reported.
            let _ = thread.join();
        }
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let Job { key, file, mut operation } = job;
            let result = loop {
                match operation.advance(perform(file.as_fd(), &operation)) {
                    Step::Again => {}
                    Step::Done(result) => break result,
                }
            };
            self.finish(CompletedJob { key, file, operation, result });
        }
    }

    fn next(&self) -> Option<Job> {
        let queue = self.changed.wait_while(self.lock(), |queue| queue.jobs.is_empty() && !queue.closed);
        queue.unwrap_or_else(|poisoned| poisoned.into_inner()).jobs.pop_front()
    }

    fn finish(&self, finished: CompletedJob) {
        self.finished.push(finished);
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.event.wake();
        }
    }
}
