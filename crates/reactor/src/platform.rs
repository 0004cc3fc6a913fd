//! The I/O backend of one reactor: io_uring, or threads if the system refuses it.
//!
//! Chooses between the two. Invariant: every operation behaves the same on both. Drives and sockets
//! are opened on a platform and do not know its backend.

use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::event::PollFlags;

use crate::operation::Operation;
use crate::target::{BoundFile, LockedFile, Target};
use crate::threads::Threads;
use crate::ticket::Ticket;
use crate::uring::Uring;
use crate::{Clock, Driver, Instant, Io, IoError, IoResult, WakeHandle};

/// Entries of a ring's submission queue; the completion queue is four times as large.
const RING_ENTRIES: u32 = 512;

/// The backend for a reactor's I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// io_uring if the system permits it, threads otherwise.
    #[default]
    Auto,
    /// io_uring only; fails without it.
    Uring,
    /// A few blocking threads for files, and poll(2) for sockets.
    Threads,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Uring => "io_uring",
            Self::Threads => "threads",
        })
    }
}

/// A name that matches no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown I/O backend {0:?}: expected auto, io_uring or threads")]
pub struct UnknownBackend(String);

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let found =
            [Self::Auto, Self::Uring, Self::Threads].into_iter().find(|backend| backend.to_string() == name);
        found.ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

/// The system permits no backend for I/O.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {backend} I/O")]
pub struct PlatformError {
    /// The backend that failed to start.
    pub backend: Backend,
    source: std::io::Error,
}

/// The [`Driver`] of a reactor with real I/O, on which drives and sockets are opened. Belongs to
/// the thread that made it.
///
/// Dropping it waits for the operations in the kernel, which may still access their memory.
pub struct Platform {
    system: System,
}

enum System {
    Uring(Rc<Uring>),
    Threads(Threads),
}

impl Platform {
    /// Returns the platform of this thread's reactor. `clock` must be the system's: sleep times are
    /// measured by it.
    ///
    /// # Errors
    /// When the system refuses the backend; with [`Backend::Auto`] only when it refuses both.
    pub fn new(backend: Backend, clock: Rc<dyn Clock>) -> Result<Rc<Self>, PlatformError> {
        Self::with_ring_entries(backend, clock, RING_ENTRIES)
    }

    pub(crate) fn with_ring_entries(
        backend: Backend,
        clock: Rc<dyn Clock>,
        entries: u32,
    ) -> Result<Rc<Self>, PlatformError> {
        let failed = |backend| move |source| PlatformError { backend, source };
        let system = match backend {
            Backend::Uring => System::Uring(Uring::open(entries, clock).map_err(failed(backend))?),
            Backend::Threads => System::Threads(Threads::start(clock).map_err(failed(backend))?),
            Backend::Auto => match Uring::open(entries, clock.clone()) {
                Ok(uring) => System::Uring(uring),
                Err(refusal) => {
                    tracing::info!(%refusal, "io_uring is not available: using threads for file I/O");
                    System::Threads(Threads::start(clock).map_err(failed(Backend::Threads))?)
                }
            },
        };
        Ok(Rc::new(Self { system }))
    }

    /// Returns a platform on a ring that a test has set up.
    #[cfg(test)]
    pub(crate) fn on_ring(uring: Rc<Uring>) -> Rc<Self> {
        Rc::new(Self { system: System::Uring(uring) })
    }

    /// Returns the backend in use, never [`Backend::Auto`].
    pub fn backend(&self) -> Backend {
        match &self.system {
            System::Uring(_) => Backend::Uring,
            System::Threads(_) => Backend::Threads,
        }
    }

    /// Waits until `descriptor` can be read without blocking (or has failed): an eventfd, a
    /// signalfd, a socket.
    ///
    /// # Errors
    /// If the kernel cannot poll this descriptor.
    pub async fn readable(self: &Rc<Self>, descriptor: &Arc<OwnedFd>) -> Result<(), IoError> {
        self.ready(descriptor, PollFlags::IN).await
    }

    /// Waits until `descriptor` is ready for one of `events`.
    pub(crate) async fn ready(
        self: &Rc<Self>,
        descriptor: &Arc<OwnedFd>,
        events: PollFlags,
    ) -> Result<(), IoError> {
        let target = Target::Descriptor(descriptor.clone());
        self.submit_cancellable(target, Operation::Poll(events)).await.map(|_| ())
    }

    /// Sets a socket to blocking or non-blocking mode, as the backend requires.
    pub(crate) fn prepare_socket(&self, socket: impl AsFd) -> Result<(), IoError> {
        // A ring waits for a blocking socket without blocking a thread, but fails at once with
        // EAGAIN on a non-blocking one.
        let blocks = matches!(self.system, System::Uring(_));
        Ok(rustix::io::ioctl_fionbio(socket, !blocks)?)
    }

    /// Returns a file in the form that this platform's operations use.
    pub(crate) fn bind(&self, file: Arc<LockedFile>, is_synchronous: bool) -> BoundFile {
        match &self.system {
            System::Uring(uring) => uring.bind(file, is_synchronous),
            System::Threads(_) => BoundFile { file, slot: None, is_synchronous },
        }
    }

    /// Starts an operation. It runs to its end even if the future is dropped.
    pub(crate) fn submit(&self, target: Target, operation: Operation) -> Io {
        self.start(target, operation).0
    }

    /// Starts an operation that is cancelled when its future is dropped.
    pub(crate) fn submit_cancellable(self: &Rc<Self>, target: Target, operation: Operation) -> Cancellable {
        let (io, ticket) = self.start(target, operation);
        Cancellable { io, ticket, platform: self.clone() }
    }

    fn start(&self, target: Target, operation: Operation) -> (Io, Ticket) {
        match &self.system {
            System::Uring(uring) => uring.submit(target, operation),
            System::Threads(threads) => threads.submit(target, operation),
        }
    }

    fn cancel(&self, ticket: Ticket) {
        match &self.system {
            System::Uring(uring) => uring.cancel(ticket),
            System::Threads(threads) => threads.cancel(ticket),
        }
    }
}

impl Driver for Platform {
    fn poll(&self) -> bool {
        match &self.system {
            System::Uring(uring) => uring.poll(),
            System::Threads(threads) => threads.poll(),
        }
    }

    fn poll_before_sleep(&self) -> bool {
        match &self.system {
            System::Uring(uring) => uring.poll_before_sleep(),
            System::Threads(threads) => threads.poll_before_sleep(),
        }
    }

    fn sleep(&self, until: Option<Instant>) {
        match &self.system {
            System::Uring(uring) => uring.sleep(until),
            System::Threads(threads) => threads.sleep(until),
        }
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        match &self.system {
            System::Uring(uring) => uring.wake_handle(),
            System::Threads(threads) => threads.wake_handle(),
        }
    }
}

/// An operation that is cancelled when its future is dropped.
pub(crate) struct Cancellable {
    io: Io,
    ticket: Ticket,
    platform: Rc<Platform>,
}

impl Future for Cancellable {
    type Output = IoResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult> {
        Pin::new(&mut self.io).poll(context)
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        if self.io.is_pending() {
            self.platform.cancel(self.ticket);
        }
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;
