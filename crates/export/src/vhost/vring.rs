//! A queue as the front end configures it: field by field, then started on its reactor and stopped.
//!
//! Owns the communication between the front end's thread and the reactor. Always true: a stopped
//! queue has completed all its requests.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use reactor::{Handle, Reactor, Remote, Task};

use super::disk::VhostDisk;
use super::queue::{QueueSetup, VirtQueue};
use super::queue_task::{KickEvent, run};
use super::ring::RingAddresses;

/// A queue, started or not.
pub(super) struct Vring<V> {
    pub(super) size: u16,
    pub(super) addresses: Option<RingAddresses>,
    /// The available entry to start from.
    pub(super) base: u16,
    pub(super) call: Option<Arc<OwnedFd>>,
    pub(super) err: Option<Arc<OwnedFd>>,
    pub(super) enabled: bool,
    pub(super) running: Option<Handle<RunningQueue<V>>>,
}

impl<V> Default for Vring<V> {
    fn default() -> Self {
        Self { size: 0, addresses: None, base: 0, call: None, err: None, enabled: false, running: None }
    }
}

/// A started queue, on its reactor.
pub(super) struct RunningQueue<V> {
    pub(super) queue: Rc<VirtQueue<V>>,
    pub(super) kick: Rc<KickEvent>,
    task: RefCell<Option<Task<()>>>,
}

/// An error of starting a queue.
#[derive(Debug, thiserror::Error)]
pub(super) enum VringError {
    #[error("the reactor has shut down")]
    Gone,
    #[error("{0}")]
    Ring(#[from] super::ring::RingError),
    #[error("{0}")]
    Open(#[from] crate::OpenError),
}

impl<V: crate::Volume + 'static> Vring<V> {
    /// Starts the queue on a reactor.
    ///
    /// # Errors
    /// Fails if the rings are not in the guest's memory, or the volume cannot be opened.
    pub(super) fn start<D: VhostDisk<Volume = V>>(
        &mut self,
        disk: &Arc<D>,
        remote: &Remote,
        start: QueueSetup,
        kick: Option<OwnedFd>,
    ) -> Result<(), VringError> {
        let disk = disk.clone();
        let started = run_on_reactor(remote, move || async move {
            let volume = disk.open().await?;
            let queue = VirtQueue::new(start, volume)?;
            let kick = Rc::new(KickEvent::new(disk.platform(), kick));
            let reactor = Reactor::current();
            let task = reactor.spawn(run(queue.clone(), kick.clone(), disk.poll(), disk.coalesce_delay()));
            let running = Rc::new(RunningQueue { queue, kick, task: RefCell::new(Some(task)) });
            Ok::<_, VringError>(Handle::register(&reactor, running))
        });
        self.running = Some(started.ok_or(VringError::Gone)??);
        Ok(())
    }

    /// Stops the queue if it was started, and waits for its requests.
    pub(super) fn stop(&mut self) {
        let Some(handle) = self.running.take() else { return };
        let queue_handle = handle.clone();
        let stopped = run_on_reactor(handle.remote(), move || async move {
            let running = queue_handle.local()?;
            let task = running.task.borrow_mut().take();
            running.queue.stop();
            if let Some(task) = task {
                task.await;
            }
            queue_handle.unregister();
            Some(running.queue.next())
        });
        if let Some(Some(next)) = stopped {
            self.base = next;
        }
    }

    /// Runs `work` with the queue on its reactor, if it was started, and waits for the result.
    pub(super) fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RunningQueue<V>) -> T + Send + 'static,
    ) -> Option<T> {
        let handle = self.running.as_ref()?;
        let queue_handle = handle.clone();
        run_on_reactor(
            handle.remote(),
            move || async move { queue_handle.local().map(|running| work(&running)) },
        )
        .flatten()
    }
}

/// Runs work on a reactor and waits for it on this thread, which is not a reactor's. Returns `None`
/// if the reactor has shut down.
fn run_on_reactor<T, F>(remote: &Remote, work: impl FnOnce() -> F + Send + 'static) -> Option<T>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    assert!(!remote.is_current(), "a reactor waits for itself");
    let (sender, receiver) = mpsc::sync_channel(1);
    let job = move || {
        let work = work();
        let task = async move {
            // The receiver waits, unless its thread panicked.
            let _ = sender.send(work.await);
        };
        Reactor::current().spawn(task).detach();
    };
    remote.post(job).ok()?;
    receiver.recv().ok()
}
