//! The reactor threads: how many, on which cores, and the platform that each has.
//!
//! Always true: a panic on a reactor thread ends the process at once. What such a thread was in the middle of is unknown,
//! and a storage daemon that goes on with unknown state can destroy what a restart would recover.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use reactor::{Backend, Clock, Handle, Platform, PlatformError, Reactor, ReactorGone, Remote, SystemClock};

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

/// The platform of the reactor that runs on this thread.
///
/// # Panics
/// On any other thread: only our own code asks.
pub(crate) fn platform() -> Rc<Platform> {
    match PLATFORM.with_borrow(Clone::clone) {
        Some(platform) => platform,
        None => panic!("this is no reactor thread"),
    }
}

/// True on a reactor thread.
pub(crate) fn is_reactor_thread() -> bool {
    PLATFORM.with_borrow(Option::is_some)
}

/// Runs `work` with what lives on a reactor, for a caller on another thread.
///
/// # Errors
/// When the reactor has shut down or the resident is gone.
pub(crate) async fn call_resident<T, R, F>(
    home: &Handle<T>,
    work: impl FnOnce(Rc<T>) -> F + Send + 'static,
) -> Result<R, ReactorGone>
where
    T: 'static,
    F: Future<Output = R> + 'static,
    R: Send + 'static,
{
    let inside = home.clone();
    let work = move || async move {
        match inside.local() {
            Some(resident) => Some(work(resident).await),
            None => None,
        }
    };
    home.remote().call(work).await?.ok_or(ReactorGone)
}

/// How the reactor threads are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// One thread each, and the core that it stays on if it has one.
    pub(crate) cores: Vec<Option<usize>>,
    /// How long an idle reactor polls before it sleeps.
    pub(crate) poll: Duration,
    /// How files and sockets are read and written.
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

/// A reactor that did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// No thread to be had.
    #[error("cannot start a thread for a reactor: {0}")]
    Thread(std::io::Error),
    /// The core is not there, or not ours.
    #[error("cannot run on core {core}: {source}")]
    Pin {
        /// Its number.
        core: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// No way to do I/O.
    #[error("{error}: {source}", source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default())]
    Platform {
        /// What the system said.
        error: PlatformError,
    },
}

struct Started {
    remote: Remote,
    backend: Backend,
}

impl Reactors {
    /// Starts the threads, and waits until all of them run.
    ///
    /// # Errors
    /// When one does not start; the others are stopped again.
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

    /// All reactors.
    pub(crate) fn all(&self) -> &[Remote] {
        &self.remotes
    }

    /// How they do I/O.
    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// The reactors in turn, for things that are spread over them.
    pub(crate) fn next(&self) -> Remote {
        match self.next_first().into_iter().next() {
            Some(remote) => remote,
            None => panic!("the daemon runs at least one reactor"),
        }
    }

    /// All reactors, from the one on whose turn it is.
    pub(crate) fn next_first(&self) -> Vec<Remote> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut remotes = self.remotes.clone();
        remotes.rotate_left(turn % self.remotes.len().max(1));
        remotes
    }

    /// Ends the threads, and waits for them. What still runs on them is dropped where it stands.
    pub(crate) fn stop(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let mut handles = Vec::new();
        for thread in threads {
            // A reactor that has ended by itself needs no telling.
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
                // The sender's end is dropped only with the daemon: a stop as well.
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
        Err(mpsc::RecvError) => Err(StartError::Thread(std::io::Error::other("it ended at once"))),
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
    // File systems may lie on what this thread serves: what it allocates must not wait for their pages to be written. Without
    // the privilege to say so it is as with any program.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(backend, clock.clone()).map_err(|error| StartError::Platform { error })?;
    let reactor = Reactor::new(platform.clone(), clock);
    reactor.set_poll_before_sleep(poll);
    PLATFORM.set(Some(platform.clone()));
    Ok((platform, reactor))
}

/// Keeps this thread on one core.
fn pin(core: usize) -> Result<(), StartError> {
    let failed = |source: rustix::io::Errno| StartError::Pin { core, source: source.into() };
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(failed(rustix::io::Errno::INVAL));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(failed)
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
                let tell = move || {
                    assert!(is_reactor_thread());
                    let _ = platform();
                    sender.send(std::thread::current().name().map(str::to_owned)).unwrap();
                };
                remote.post(tell).unwrap();
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
    fn a_core_that_is_not_there_is_named() {
        let error = Reactors::start(&settings(vec![Some(100_000)])).err().unwrap();
        assert!(error.to_string().contains("core 100000"), "{error}");
    }
}
