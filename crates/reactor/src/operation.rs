//! One I/O operation from submission to its end, whichever backend carries it.
//!
//! Owns the decision what a result means: done, failed, or to be continued. Always true: an operation holds the memory
//! that it names; a transfer ends with every byte moved or with an error. Knows nothing of rings and threads.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::iovec::{SpanCursor, Spans};
use crate::{Buffer, IoError, IoErrorKind, IoResult, Span};

/// What is to be done to a file or socket.
pub(crate) enum Operation {
    /// Moves bytes between memory and a file.
    Transfer(Transfer),
    /// Makes a file's completed writes durable.
    Sync,
    /// Changes which of a file's or drive's bytes are backed by storage.
    Allocate(Allocate),
    /// Moves bytes between memory and a stream.
    SocketTransfer(SocketTransfer),
    /// Takes one connection from a listener.
    Accept(Accepted),
    /// Waits until a descriptor is ready.
    Poll(PollFlags),
    /// Hands a device a command of its own, and waits for what it answers. Only rings can.
    Command(Command),
}

/// A command that means something to one kind of device only.
pub(crate) struct Command {
    /// Which.
    pub(crate) number: u32,
    /// What it is told, as the device wants it.
    pub(crate) words: [u8; 16],
    /// What the words name of our memory.
    pub(crate) _memory: Option<Span>,
}

/// Which way bytes go, seen from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// A read or write of a file.
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    /// Where in the file the first byte lies.
    pub(crate) offset: u64,
    pub(crate) cursor: SpanCursor,
    /// Progress counts in multiples of this: direct I/O cannot go on in the middle of a sector.
    unit: usize,
    /// The spans are memory of ours.
    is_bounced: bool,
    bounce: Option<Box<BounceBuffer>>,
}

/// Where the bytes of a read belong that had to go through other memory.
struct BounceBuffer {
    buffer: Buffer,
    into: Spans,
}

/// A change of what is backed by storage.
pub(crate) struct Allocate {
    pub(crate) action: Allocation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Backs the range with storage; its contents stay.
    Reserve,
    /// Gives the range's storage back; it reads as zeros.
    Punch,
    /// Tells a block device that the range is not wanted; falls back to punching.
    Discard,
}

/// A read or write of a stream.
pub(crate) struct SocketTransfer {
    pub(crate) direction: Direction,
    pub(crate) cursor: SpanCursor,
    /// True to go on until every byte is moved; false to end with the first that are.
    pub(crate) whole: bool,
}

/// Where an accepted connection is put.
pub(crate) type Accepted = Arc<Mutex<Option<OwnedFd>>>;

/// What to do with an operation that the system has answered.
#[derive(Debug)]
pub(crate) enum Step {
    /// Hand it to the system again.
    Again,
    /// It has ended.
    Done(IoResult),
}

impl Operation {
    /// Takes in what the system answered: a count (or descriptor), or an error.
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
                // SAFETY: the answer to an accept is a descriptor that belongs to nobody yet.
                let connection = unsafe { OwnedFd::from_raw_fd(count as i32) };
                *accepted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(connection);
                Step::Done(Ok(0))
            }
        }
    }

    /// True for what only the device ends.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self, Self::Command(_))
    }

    fn failed(&mut self, errno: Errno) -> Step {
        match (self, errno) {
            // What it means is known to whoever gave it.
            (Self::Command(_), errno) => Step::Done(Err(errno.into())),
            (_, Errno::INTR | Errno::AGAIN) => Step::Again,
            (Self::Transfer(transfer), Errno::FAULT) => transfer.faulted(),
            (Self::Accept(_), errno) if is_connection_error(errno) => Step::Again,
            (Self::Allocate(allocate), errno) => allocate.failed(errno),
            (_, errno) => Step::Done(Err(errno.into())),
        }
    }
}

/// True for what an accept says of the one connection that it would have given, and not of the listener.
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

    /// A transfer through memory that direct I/O can reach, for spans that it cannot.
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

    /// The system could not reach the memory: a guest's, of which pages were taken away. That is not the drive's failure, so
    /// all of it goes through memory of ours instead. What is copied from there meets the missing pages in this process,
    /// where their owner sees to it.
    fn faulted(&mut self) -> Step {
        if self.is_bounced {
            return Step::Done(Err(Errno::FAULT.into()));
        }
        *self = Self::bounced(self.direction, self.offset, self.cursor.spans(), self.unit);
        Step::Again
    }

    /// Where in the file the next byte lies.
    pub(crate) fn position(&self) -> u64 {
        self.offset + self.cursor.done() as u64
    }

    fn moved(&mut self, count: usize) -> Step {
        let left = self.cursor.total() - self.cursor.done();
        let counted = if count >= left { count } else { count - count % self.unit };
        if counted == 0 {
            return Step::Done(Err(IoError::new(match self.direction {
                // The file ends here, although it did not when it was opened.
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

/// Runs `step(span, part of the whole)` for each span, where `whole` is as long as all spans together.
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
            // A filesystem that cannot promise space is not worth refusing to write to.
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
