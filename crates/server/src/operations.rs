//! Long-running operations: start, progress, wait.
//!
//! Invariants: an operation runs to its end even if no client waits for it; the results of the last
//! operations stay readable.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};
use api::types::{ImageCopy, Operation, OperationKind, OperationState, OperationStep};

/// Most steps in the log of an operation.
const LOG_MAX: usize = 100;
/// Number of ended operations that stay readable.
const ENDED_MAX: usize = 200;

/// The operations since the start of the daemon.
pub(crate) struct Operations {
    entries: Mutex<Entries>,
    /// The number of changes of all operations.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    closed: bool,
    entries: BTreeMap<u64, OperationEntry>,
}

struct OperationEntry {
    shown: Operation,
    started: Instant,
    cancelled: bool,
}

/// The progress of an operation, reported by its work.
#[derive(Clone)]
pub(crate) struct Progress {
    operations: Arc<Operations>,
    id: u64,
}

impl Operations {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), changes: watch::Sender::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an operation, which runs independently of the caller.
    ///
    /// # Errors
    /// When the daemon is shutting down.
    pub(crate) fn start<F>(
        self: &Arc<Self>,
        kind: OperationKind,
        target: &str,
        work: impl FnOnce(Progress) -> F,
    ) -> Result<Operation>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let shown = self.enter(kind, target)?;
        Ok(self.run(shown, work))
    }

    /// Starts an operation that can be cancelled. Its work must use [`Progress::unless_cancelled`].
    ///
    /// # Errors
    /// When the daemon is shutting down.
    pub(crate) fn start_cancellable<F>(
        self: &Arc<Self>,
        kind: OperationKind,
        target: &str,
        work: impl FnOnce(Progress) -> F,
    ) -> Result<Operation>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let id = self.enter(kind, target)?.id;
        self.change(id, |entry| entry.shown.cancellable = true);
        let shown = self.get(id)?;
        Ok(self.run(shown, work))
    }

    fn run<F>(self: &Arc<Self>, shown: Operation, work: impl FnOnce(Progress) -> F) -> Operation
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let progress = Progress { operations: self.clone(), id: shown.id };
        // Boxed: the code of a task is compiled once.
        let work: Pin<Box<dyn Future<Output = Result<()>> + Send>> = Box::pin(work(progress.clone()));
        let work = tokio::spawn(work);
        tokio::spawn(async move {
            let result = match work.await {
                Ok(result) => result,
                Err(panic) => {
                    let message = format!("the operation ended because of a bug in the daemon: {panic}");
                    Err(Error::new(ErrorKind::Internal, message)
                        .hint("please report it with the daemon's log"))
                }
            };
            progress.end(result);
        });
        shown
    }

    fn enter(&self, kind: OperationKind, target: &str) -> Result<Operation> {
        let mut entries = self.lock();
        if entries.closed {
            return Err(Error::new(ErrorKind::ShuttingDown, "the daemon is shutting down"));
        }
        entries.next += 1;
        let shown = Operation {
            id: entries.next,
            kind,
            target: target.to_owned(),
            state: OperationState::Running,
            step: "starting".into(),
            log: vec![OperationStep { seconds: 0.0, step: "starting".into() }],
            done: None,
            total: None,
            cancellable: false,
            revision: 0,
            seconds: 0.0,
            error: None,
            image: None,
        };
        let entry = OperationEntry { shown: shown.clone(), started: Instant::now(), cancelled: false };
        entries.entries.insert(shown.id, entry);
        entries.remove_old();
        drop(entries);
        tracing::info!(operation = shown.id, %kind, target, "operation started");
        Ok(shown)
    }

    /// Returns the running operations and the last ended ones, oldest first.
    pub(crate) fn list(&self) -> Vec<Operation> {
        self.lock().entries.values().map(OperationEntry::now).collect()
    }

    /// Returns the running operations and the last `ended` ones that have ended, oldest first.
    pub(crate) fn recent(&self, ended: usize) -> Vec<Operation> {
        let mut all = self.list();
        let has_ended = |operation: &Operation| operation.state != OperationState::Running;
        let mut excess = all.iter().filter(|operation| has_ended(operation)).count().saturating_sub(ended);
        all.retain(|operation| {
            let drop = excess > 0 && has_ended(operation);
            excess -= usize::from(drop);
            !drop
        });
        all
    }

    /// Returns an operation.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn get(&self, id: u64) -> Result<Operation> {
        let entry = self.lock().entries.get(&id).map(OperationEntry::now);
        entry.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no operation {id}"))
                .hint("a restart of the daemon clears the list of operations")
        })
    }

    /// Returns an operation once its revision is above `after`, it has ended, or `timeout` has
    /// passed.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn wait(&self, id: u64, after: u64, timeout: Duration) -> Result<Operation> {
        let mut changes = self.changes.subscribe();
        let changed = async {
            loop {
                let operation = self.get(id)?;
                if operation.revision > after || operation.state != OperationState::Running {
                    return Ok(operation);
                }
                if changes.changed().await.is_err() {
                    return Ok(operation);
                }
            }
        };
        match tokio::time::timeout(timeout, changed).await {
            Ok(result) => result,
            Err(_) => self.get(id),
        }
    }

    /// Requests the end of an operation, which rolls its changes back. Does nothing if it has
    /// ended.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the operation cannot be cancelled.
    pub(crate) fn cancel(&self, id: u64) -> Result<Operation> {
        let operation = self.get(id)?;
        if operation.state != OperationState::Running {
            return Ok(operation);
        }
        if !operation.cancellable {
            let message = format!("operation {id} ({}) cannot be cancelled", operation.kind);
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("imports and exports of images can be cancelled; other operations run to their end"));
        }
        self.change(id, |entry| {
            entry.cancelled = true;
            entry.begin_step("cancelling".into());
        });
        self.get(id)
    }

    /// Refuses new operations, cancels those that can be cancelled, and waits until all have ended.
    pub(crate) async fn close(&self) {
        self.lock().closed = true;
        self.changes.send_modify(|changes| *changes += 1);
        let mut changes = self.changes.subscribe();
        while self.lock().entries.values().any(|entry| entry.shown.state == OperationState::Running) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut OperationEntry)) {
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            change(entry);
            entry.shown.revision += 1;
        }
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl Entries {
    fn remove_old(&mut self) {
        let ended = |entry: &OperationEntry| entry.shown.state != OperationState::Running;
        let excess = self.entries.values().filter(|entry| ended(entry)).count().saturating_sub(ENDED_MAX);
        let old: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| ended(entry)).map(|(id, _)| *id).take(excess).collect();
        for id in old {
            self.entries.remove(&id);
        }
    }
}

impl OperationEntry {
    /// Sets the current step and adds it to the log.
    fn begin_step(&mut self, step: String) {
        let log = &mut self.shown.log;
        if log.len() >= LOG_MAX {
            log.remove(0);
        }
        log.push(OperationStep { seconds: self.started.elapsed().as_secs_f64(), step: step.clone() });
        self.shown.step = step;
    }

    fn now(&self) -> Operation {
        let mut shown = self.shown.clone();
        if shown.state == OperationState::Running {
            shown.seconds = self.started.elapsed().as_secs_f64();
        }
        shown
    }
}

impl Progress {
    /// Sets the current step and clears its progress.
    pub(crate) fn step(&self, step: impl Into<String>) {
        let step = step.into();
        tracing::debug!(operation = self.id, step);
        self.operations.change(self.id, |entry| {
            entry.begin_step(step);
            (entry.shown.done, entry.shown.total) = (None, None);
        });
    }

    /// Returns true once the daemon is shutting down; an operation that only waits ends then.
    pub(crate) fn is_closing(&self) -> bool {
        self.operations.lock().closed
    }

    /// Runs a part of the operation that may be dropped at any time, until it ends or the operation
    /// is cancelled.
    ///
    /// # Errors
    /// The error of the part; `Cancelled`; `ShuttingDown` when the daemon shuts down.
    pub(crate) async fn unless_cancelled<T>(&self, part: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            error = self.cancelled() => Err(error),
            result = part => result,
        }
    }

    /// Refuses to continue an operation that is cancelled.
    ///
    /// # Errors
    /// `Cancelled`; `ShuttingDown` when the daemon shuts down.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        let entries = self.operations.lock();
        if entries.entries.get(&self.id).is_some_and(|entry| entry.cancelled) {
            return Err(Error::new(ErrorKind::Cancelled, "cancelled; all changes were rolled back"));
        }
        if entries.closed {
            let message = "the daemon is shutting down; all changes were rolled back";
            return Err(Error::new(ErrorKind::ShuttingDown, message));
        }
        Ok(())
    }

    /// Returns the number of the operation.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits until the operation is cancelled, and returns the error that says why.
    async fn cancelled(&self) -> Error {
        let mut changes = self.operations.changes.subscribe();
        loop {
            if let Err(error) = self.check_cancelled() {
                return error;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sets the result of a copy of an image.
    pub(crate) fn set_image(&self, image: ImageCopy) {
        self.operations.change(self.id, |entry| entry.shown.image = Some(image));
    }

    /// Sets the progress of the current step.
    pub(crate) fn done(&self, done: u64, total: u64) {
        self.operations.change(self.id, |entry| {
            (entry.shown.done, entry.shown.total) = (Some(done), Some(total));
        });
    }

    fn end(&self, result: Result<()>) {
        self.operations.change(self.id, |entry| {
            let shown = &mut entry.shown;
            shown.seconds = entry.started.elapsed().as_secs_f64();
            shown.cancellable = false;
            let (id, kind, target) = (shown.id, shown.kind, &shown.target);
            match &result {
                Ok(()) => {
                    shown.state = OperationState::Succeeded;
                    tracing::info!(operation = id, %kind, target, seconds = shown.seconds, "operation succeeded");
                }
                Err(error) if error.kind() == ErrorKind::Cancelled => {
                    shown.state = OperationState::Cancelled;
                    tracing::info!(operation = id, %kind, target, "operation cancelled");
                }
                Err(error) => {
                    shown.state = OperationState::Failed;
                    let hint = error.hint_text();
                    if error.kind().is_fault() {
                        tracing::error!(operation = id, %kind, target, %error, hint, "operation failed");
                    } else {
                        tracing::warn!(operation = id, %kind, target, %error, hint, "operation refused");
                    }
                }
            }
            shown.error = result.err().map(Into::into);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> OperationKind {
        OperationKind::PoolOpen
    }

    #[tokio::test]
    async fn wait_reports_progress_and_the_result() {
        let operations = Operations::new();
        let (resume, wait) = tokio::sync::oneshot::channel::<()>();
        let started = operations
            .start(kind(), "fast", |progress| async move {
                progress.step("reading");
                progress.done(1, 2);
                let _ = wait.await;
                Err(Error::new(ErrorKind::Io, "no"))
            })
            .unwrap();
        let mut seen = started.clone();
        while seen.done.is_none() {
            seen = operations.wait(started.id, seen.revision, Duration::from_secs(10)).await.unwrap();
        }
        assert_eq!((seen.step.as_str(), seen.done, seen.total), ("reading", Some(1), Some(2)));
        let steps: Vec<_> = seen.log.iter().map(|step| step.step.as_str()).collect();
        assert_eq!(steps, ["starting", "reading"]);
        let same = operations.wait(started.id, seen.revision, Duration::ZERO).await.unwrap();
        assert_eq!((same.revision, same.state), (seen.revision, OperationState::Running));
        resume.send(()).unwrap();
        let ended = operations.wait(started.id, seen.revision, Duration::from_secs(10)).await.unwrap();
        assert_eq!(ended.state, OperationState::Failed);
        assert_eq!(ended.error.unwrap().kind(), ErrorKind::Io);
        assert_eq!(operations.get(99).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn close_waits_for_running_operations_and_refuses_new_ones() {
        let operations = Operations::new();
        let (resume, wait) = tokio::sync::oneshot::channel::<()>();
        let work = |_| async move { wait.await.map_err(|_| Error::new(ErrorKind::Internal, "dropped")) };
        let running = operations.start(kind(), "fast", work).unwrap();
        let closing = tokio::spawn({
            let operations = operations.clone();
            async move { operations.close().await }
        });
        while operations.start(kind(), "late", |_| async { Ok(()) }).is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        resume.send(()).unwrap();
        closing.await.unwrap();
        assert_eq!(operations.get(running.id).unwrap().state, OperationState::Succeeded);
    }

    #[tokio::test]
    async fn a_cancelled_operation_rolls_back_before_it_ends() {
        let operations = Operations::new();
        let (rolled_back, was_rolled_back) = tokio::sync::oneshot::channel();
        let work = |progress: Progress| async move {
            let result = progress.unless_cancelled(std::future::pending::<Result<()>>()).await;
            rolled_back.send(()).unwrap();
            result
        };
        let running = operations.start_cancellable(OperationKind::ImageImport, "fast/a", work).unwrap();
        assert!(running.cancellable);
        assert_eq!(operations.cancel(running.id).unwrap().state, OperationState::Running);
        let ended = operations.wait(running.id, u64::MAX, Duration::from_secs(10)).await.unwrap();
        assert_eq!((ended.state, ended.cancellable), (OperationState::Cancelled, false));
        assert_eq!(ended.error.unwrap().kind(), ErrorKind::Cancelled);
        was_rolled_back.await.unwrap();
        assert_eq!(operations.cancel(running.id).unwrap().state, OperationState::Cancelled);
    }

    #[tokio::test]
    async fn an_operation_that_cannot_be_cancelled_goes_on() {
        let operations = Operations::new();
        let (resume, wait) = tokio::sync::oneshot::channel::<()>();
        let work = |_| async move { wait.await.map_err(|_| Error::new(ErrorKind::Internal, "dropped")) };
        let running = operations.start(kind(), "fast", work).unwrap();
        assert_eq!(operations.cancel(running.id).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(operations.cancel(99).unwrap_err().kind(), ErrorKind::NotFound);
        resume.send(()).unwrap();
        let ended = operations.wait(running.id, u64::MAX, Duration::from_secs(10)).await.unwrap();
        assert_eq!(ended.state, OperationState::Succeeded);
    }

    #[tokio::test]
    async fn closing_cancels_what_can_be_cancelled() {
        let operations = Operations::new();
        let work = |progress: Progress| async move {
            progress.unless_cancelled(std::future::pending::<Result<()>>()).await
        };
        let running = operations.start_cancellable(OperationKind::ImageExport, "fast/a", work).unwrap();
        operations.close().await;
        let ended = operations.get(running.id).unwrap();
        assert_eq!(ended.state, OperationState::Failed);
        assert_eq!(ended.error.unwrap().kind(), ErrorKind::ShuttingDown);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_old_operations_are_removed() {
        let operations = Operations::new();
        let first = operations.start(kind(), "fast", |_| async { panic!("oh") }).unwrap();
        let ended = operations.wait(first.id, u64::MAX, Duration::from_secs(10)).await.unwrap();
        assert_eq!(ended.error.unwrap().kind(), ErrorKind::Internal);
        for _ in 0..ENDED_MAX + 10 {
            let next = operations.start(kind(), "fast", |_| async { Ok(()) }).unwrap();
            operations.wait(next.id, u64::MAX, Duration::from_secs(10)).await.unwrap();
        }
        assert!(operations.list().len() <= ENDED_MAX + 1);
        assert!(operations.get(first.id).is_err());
    }
}
