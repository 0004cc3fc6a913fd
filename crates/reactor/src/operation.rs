//! One I/O operation from submission to completion, independent of the backend.
//!
//! Decides whether a result completes the operation, fails it, or requires it to be continued.
//! Invariants: an operation holds its memory; a transfer ends with every byte moved or with an
//! error. Does not know rings and threads.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::iovec::{SpanCursor, Spans};
use crate::{Buffer, IoError, IoErrorKind, IoResult, Span};

/// An operation on a file or socket.
pub(crate) enum Operation {
    /// Moves bytes between memory and a file.
    Transfer(Transfer),
    /// Makes completed writes to a file durable.
    Sync,
    /// Allocates or frees the storage behind a range of a file or drive.
    Allocate(Allocate),
    /// Moves bytes between memory and a socket.
    SocketTransfer(SocketTransfer),
    /// Accepts one connection from a listener.
    Accept(Accepted),
    /// Waits until a descriptor is ready.
    Poll(PollFlags),
    /// Sends a device-specific command. Rings only.
    Command(Command),
}

/// A device-specific command.
pub(crate) struct Command {
    /// The command code.
    pub(crate) number: u32,
    /// The command's payload, in the device's format.
    pub(crate) words: [u8; 16],
    /// The memory that the payload refers to.
    pub(crate) _memory: Option<Span>,
}

/// Direction of a transfer, as seen from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// A read or write of a file.
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    /// File offset of the first byte.
    pub(crate) offset: u64,
    pub(crate) cursor: SpanCursor,
    /// Progress counts in multiples of this: direct I/O cannot resume within a sector.
    unit: usize,
    /// True if the spans are bounce buffers of this process.
    is_bounced: bool,
    bounce: Option<Box<BounceBuffer>>,
}

/// The bounce buffer of a read, and the destination of its bytes.
struct BounceBuffer {
    buffer: Buffer,
    into: Spans,
}

/// A change to the storage behind a range.
pub(crate) struct Allocate {
    pub(crate) action: Allocation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Allocates storage for the range and keeps its contents.
    Reserve,
    /// Frees the storage of the range, which then reads as zeros.
    Punch,
    /// Discards the range on a block device; falls back to punching a hole.
    Discard,
}

/// A read or write of a socket.
pub(crate) struct SocketTransfer {
    pub(crate) direction: Direction,
    pub(crate) cursor: SpanCursor,
    /// True to transfer every byte; false to complete with the first bytes transferred.
    pub(crate) whole: bool,
}

/// The slot that receives an accepted connection.
pub(crate) type Accepted = Arc<Mutex<Option<OwnedFd>>>;

/// The next step of an operation after a result of the system.
#[derive(Debug)]
pub(crate) enum Step {
    /// Submit the rest.
    Again,
    /// The operation has ended.
    Done(IoResult),
}

impl Operation {
    /// Processes a result of the system: a byte count, a descriptor, or an error.
    pub(crate) fn advance(&mut self, result: Result<usize, Errno>) -> Step {
        let count = match result {
            Ok(count) => count,
            Err(errno) => return self.failed(errno),
        };
        match self {
            Self::Transfer(transfer) => transfer.moved(count),
            Self::SocketTransfer(transfer) => transfer.moved(count),
            Self::Sync | Self::Allocate(_) | Self::Poll(_) => Step::Done(Ok(0)),
            Self::Command(_) => Step::Done(Ok(count)),
            Self::Accept(accepted) => {
                // SAFETY: the result of an accept is a new descriptor without another owner.
                let connection = unsafe { OwnedFd::from_raw_fd(count as i32) };
                *accepted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(connection);
                Step::Done(Ok(0))
            }
        }
    }

    /// True for operations that only the device can end.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self, Self::Command(_))
    }

    fn failed(&mut self, errno: Errno) -> Step {
        match (self, errno) {
            // Only the issuer knows the meaning of the device's error codes.
            (Self::Command(_), errno) => Step::Done(Err(errno.into())),
            (_, Errno::INTR | Errno::AGAIN) => Step::Again,
            (Self::Transfer(transfer), Errno::FAULT) => transfer.faulted(),
            (Self::Accept(_), errno) if is_connection_error(errno) => Step::Again,
            (Self::Allocate(allocate), errno) => allocate.failed(errno),
            (_, errno) => Step::Done(Err(errno.into())),
        }
    }
}

/// True for errors of an accept that concern the connection and not the listener.
fn is_connection_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
    )
}

impl Transfer {
    pub(crate) fn new(direction: Direction, offset: u64, spans: &[Span], unit: usize) -> Self {
        Self { direction, offset, cursor: SpanCursor::new(spans), unit, is_bounced: false, bounce: None }
    }

    /// Returns a transfer through a bounce buffer, for spans that direct I/O cannot access.
    pub(crate) fn bounced(direction: Direction, offset: u64, spans: &[Span], unit: usize) -> Self {
        let buffer = Buffer::new(spans.iter().map(Span::len).sum());
        let reachable = buffer.span();
        if direction == Direction::Out {
            copy(spans, &reachable, |span, part| part.copy_from_span(span));
        }
        let cursor = SpanCursor::new(&[reachable]);
        let into = spans.iter().cloned().collect();
        let bounce = (direction == Direction::In).then(|| Box::new(BounceBuffer { buffer, into }));
        Self { direction, offset, cursor, unit, is_bounced: true, bounce }
    }

    /// Retries the transfer through a bounce buffer: the kernel could not access the memory because
    /// some pages of a guest's memory are missing, which is not the drive's failure. Copying from
    /// or to the bounce buffer then faults in this process, where the memory's owner handles the
    /// missing pages.
    fn faulted(&mut self) -> Step {
        if self.is_bounced {
            return Step::Done(Err(Errno::FAULT.into()));
        }
        *self = Self::bounced(self.direction, self.offset, self.cursor.spans(), self.unit);
        Step::Again
    }

    /// Returns the file offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.offset + self.cursor.done() as u64
    }

    fn moved(&mut self, count: usize) -> Step {
        let left = self.cursor.total() - self.cursor.done();
        let counted = if count >= left { count } else { count - count % self.unit };
        if counted == 0 {
            return Step::Done(Err(IoError::new(match self.direction {
                // The file was truncated after it was opened.
                Direction::In => IoErrorKind::OutOfRange,
                Direction::Out => IoErrorKind::Other,
            })));
        }
        self.cursor.advance(counted);
        if !self.cursor.is_complete() {
            return Step::Again;
        }
        if let Some(bounce) = self.bounce.take() {
            copy(&bounce.into, &bounce.buffer.span(), |span, part| span.copy_from_span(part));
        }
        Step::Done(Ok(self.cursor.total()))
    }
}

/// Runs `step(span, part of the whole)` for each span, where `whole` is as long as all spans
/// together.
fn copy(spans: &[Span], whole: &Span, step: impl Fn(&Span, &Span)) {
    let mut at = 0;
    for span in spans {
        step(span, &whole.slice(at..at + span.len()));
        at += span.len();
    }
}

impl Allocate {
    fn failed(&mut self, errno: Errno) -> Step {
        let unknown = matches!(errno, Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS);
        match self.action {
            Allocation::Discard if unknown => {
                self.action = Allocation::Punch;
                Step::Again
            }
            // A file system that cannot preallocate is used without a reservation.
            Allocation::Reserve if errno == Errno::OPNOTSUPP => Step::Done(Ok(0)),
            _ => Step::Done(Err(errno.into())),
        }
    }
}

impl SocketTransfer {
    fn moved(&mut self, count: usize) -> Step {
        if count == 0 && self.whole {
            return Step::Done(Err(IoError::new(IoErrorKind::Closed)));
        }
        self.cursor.advance(count);
        if self.whole && !self.cursor.is_complete() {
            return Step::Again;
        }
        Step::Done(Ok(self.cursor.done()))
    }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
