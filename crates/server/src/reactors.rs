//! The reactor threads: their number, their cores and the platform of each.
//!
//! Invariant: a panic on a reactor thread aborts the process. The state of that thread is unknown,
//! and a storage daemon that continues with unknown state can destroy data that a restart would
//! recover.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
pub(crate) use reactor::call_object;
use reactor::{Backend, Clock, Platform, PlatformError, Reactor, Remote, SystemClock};

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

/// Returns the platform of the reactor on this thread.
///
/// # Panics
/// On any other thread, which only a bug can cause.
pub(crate) fn platform() -> Rc<Platform> {
    match PLATFORM.with_borrow(Clone::clone) {
        Some(platform) => platform,
        None => panic!("not a reactor thread"),
    }
}

/// Returns true on a reactor thread.
pub(crate) fn is_reactor_thread() -> bool {
    PLATFORM.with_borrow(Option::is_some)
}

/// The settings of the reactor threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// One entry per thread: the core that the thread is pinned to, if any.
    pub(crate) cores: Vec<Option<usize>>,
    /// Time that an idle reactor polls before it sleeps.
    pub(crate) poll: Duration,
    /// The I/O backend.
    pub(crate) backend: Backend,
}

/// The reactor threads.
pub(crate) struct Reactors {
    remotes: Vec<Remote>,
    backend: Backend,
    threads: Mutex<Vec<Thread>>,
    next: AtomicUsize,
}

struct Thread {
    stop: oneshot::Sender<()>,
    handle: JoinHandle<()>,
}

/// A failure to start a reactor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The thread cannot be created.
    #[error("cannot start a reactor thread: {0}")]
    Thread(std::io::Error),
    /// The core does not exist, or the process may not use it.
    #[error("cannot pin a reactor to core {core}: {source}")]
    Pin {
        /// The number of the core.
        core: usize,
        /// The error of the system.
        source: std::io::Error,
    },
    /// No I/O backend is available.
    #[error("{error}: {source}", source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default())]
    Platform {
        /// The error of the platform.
        error: PlatformError,
    },
}

struct Started {
    remote: Remote,
    backend: Backend,
}

impl Reactors {
    /// Starts the threads and waits until all of them run.
    ///
    /// # Errors
    /// When a thread does not start; the other threads are stopped then.
    pub(crate) fn start(settings: &Settings) -> Result<Self, StartError> {
        let mut reactors = Self {
            remotes: Vec::new(),
            backend: settings.backend,
            threads: Mutex::default(),
            next: AtomicUsize::new(0),
        };
        for (index, core) in settings.cores.iter().enumerate() {
            match start_thread(index, *core, settings) {
                Ok((thread, started)) => {
                    reactors.threads.get_mut().unwrap_or_else(PoisonError::into_inner).push(thread);
                    reactors.remotes.push(started.remote);
                    reactors.backend = started.backend;
                }
                Err(error) => {
                    reactors.stop();
                    return Err(error);
                }
            }
        }
        Ok(reactors)
    }

    /// Returns all reactors.
    pub(crate) fn all(&self) -> &[Remote] {
        &self.remotes
    }

    /// Returns the I/O backend of the reactors.
    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the reactors in rotation, to spread objects over them.
    pub(crate) fn next(&self) -> Remote {
        match self.next_first().into_iter().next() {
            Some(remote) => remote,
            None => panic!("the daemon runs at least one reactor"),
        }
    }

    /// Returns all reactors, beginning with the next one of the rotation.
    pub(crate) fn next_first(&self) -> Vec<Remote> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let mut remotes = self.remotes.clone();
        remotes.rotate_left(next % self.remotes.len().max(1));
        remotes
    }

    /// Stops the threads and joins them. Tasks that still run on them are dropped.
    pub(crate) fn stop(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let mut handles = Vec::new();
        for thread in threads {
            // An error means that the reactor has ended already.
            let _ = thread.stop.send(());
            handles.push(thread.handle);
        }
        for handle in handles {
            if handle.join().is_err() {
                tracing::error!("a reactor thread panicked");
            }
        }
    }
}

fn start_thread(
    index: usize,
    core: Option<usize>,
    settings: &Settings,
) -> Result<(Thread, Started), StartError> {
    let (stop, stopped) = oneshot::channel();
    let (sender, receiver) = mpsc::channel();
    let (poll, backend) = (settings.poll, settings.backend);
    let builder = std::thread::Builder::new().name(format!("reactor-{index}"));
    let handle = builder
        .spawn(move || match start_here(core, poll, backend) {
            Ok((platform, reactor)) => {
                let started = Started { remote: reactor.remote(), backend: platform.backend() };
                let _ = sender.send(Ok(started));
                // A dropped sender also stops the reactor.
                let _ = reactor.run(stopped);
                reactor.shut_down();
                PLATFORM.set(None);
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        })
        .map_err(StartError::Thread)?;
    let thread = Thread { stop, handle };
    match receiver.recv() {
        Ok(Ok(started)) => Ok((thread, started)),
        Ok(Err(error)) => Err(error),
        Err(mpsc::RecvError) => {
            Err(StartError::Thread(std::io::Error::other("the thread ended during its start")))
        }
    }
}

fn start_here(
    core: Option<usize>,
    poll: Duration,
    backend: Backend,
) -> Result<(Rc<Platform>, Reactor), StartError> {
    if let Some(core) = core {
        pin(core)?;
    }
    // The host may mount file systems on the volumes that this thread serves. A memory allocation
    // here must not wait for writeback to them, which would deadlock (PR_SET_IO_FLUSHER). Without
    // the privilege for it, the thread runs without this protection.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(backend, clock.clone()).map_err(|error| StartError::Platform { error })?;
    let reactor = Reactor::new(platform.clone(), clock);
    reactor.set_poll_before_sleep(poll);
    PLATFORM.set(Some(platform.clone()));
    Ok((platform, reactor))
}

/// Pins this thread to a core.
fn pin(core: usize) -> Result<(), StartError> {
    let error = |source: rustix::io::Errno| StartError::Pin { core, source: source.into() };
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(error(rustix::io::Errno::INVAL));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cores: Vec<Option<usize>>) -> Settings {
        Settings { cores, poll: Duration::ZERO, backend: Backend::Auto }
    }

    #[test]
    fn each_reactor_has_a_thread_and_a_platform() {
        let reactors = Reactors::start(&settings(vec![None, None])).unwrap();
        let names: Vec<_> = reactors
            .all()
            .iter()
            .map(|remote| {
                let (sender, receiver) = mpsc::channel();
                let send_name = move || {
                    assert!(is_reactor_thread());
                    let _ = platform();
                    sender.send(std::thread::current().name().map(str::to_owned)).unwrap();
                };
                remote.post(send_name).unwrap();
                receiver.recv().unwrap().unwrap()
            })
            .collect();
        assert_eq!(names, ["reactor-0", "reactor-1"]);
        assert_eq!(reactors.next_first().len(), 2);
        assert!(!is_reactor_thread());
        reactors.stop();
        assert!(reactors.next().post(|| ()).is_err());
    }

    #[test]
    fn a_missing_core_is_reported_by_number() {
        let error = Reactors::start(&settings(vec![Some(100_000)])).err().unwrap();
        assert!(error.to_string().contains("core 100000"), "{error}");
    }
}
