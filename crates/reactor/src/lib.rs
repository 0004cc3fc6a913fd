//! The I/O runtime of one thread: executor, drives, sockets, clock and messages.
//!
//! Owns the single-threaded [`Reactor`], its event source ([`Driver`]), memory for I/O ([`Buffer`],
//! [`Span`]), the [`Drive`] trait and its real implementations, and calls to other reactors
//! ([`Remote`]).
//!
//! Invariants: a task runs only on the thread of its reactor; the memory of an operation in flight
//! stays allocated until the operation ends, even if its future is dropped; an idle reactor sleeps
//! in the kernel.
//!
//! Does not know pools, records, volumes or exports.

mod adaptive_poll;
mod buffer;
mod call;
mod call_object;
mod clock;
mod coalescer;
mod command;
mod completion;
mod drive;
mod driver;
mod error;
mod event;
mod executor;
mod file;
mod fixed_slot;
mod iovec;
mod memory;
mod message;
mod net;
mod objects;
mod operation;
mod perform;
mod platform;
mod prefetch;
mod remote;
mod shared;
mod size_class;
mod sleep;
mod stream;
mod sync;
mod target;
#[cfg(test)]
mod testing;
mod threads;
mod ticket;
mod timer;
mod uring;

pub use adaptive_poll::AdaptivePoll;
pub use buffer::{Buffer, Span};
pub use call::ReactorGone;
pub use call_object::call_object;
pub use clock::{Clock, Instant, SystemClock};
pub use coalescer::Coalescer;
pub use command::{LONG_COMMAND_BYTES, run_long_command};
pub use completion::{Completer, Io, IoResult, completion};
pub use drive::{Drive, DriveProperties};
pub use driver::{Driver, WakeHandle};
pub use error::{IoError, IoErrorKind};
pub use executor::{BoxedTask, Reactor, Task, Yield};
pub use file::{
    DriveHandle, DriveOptions, FileDrive, OpenDriveError, OpenDriveErrorKind, create_file,
    is_open_for_writing,
};
pub use memory::{Memory, MemoryDrive};
pub use net::{
    Access, DetachedStream, Listener, NetError, NetErrorKind, Peer, SocketFile, Stream, bind_unix,
};
pub use platform::{Backend, Platform, PlatformError, UnknownBackend};
pub use prefetch::prefetch;
pub use remote::{Handle, ParkDriver, Remote};
pub use size_class::ALIGNMENT;
pub use sleep::{Sleep, UnpolledSleep};
pub use sync::{Gate, LocalReceiver, LocalSender, Notify, Permit, Semaphore, WaitList, local_oneshot};
