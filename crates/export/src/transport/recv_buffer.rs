//! The receiving half of a connection: messages and payload.
//!
//! Small messages are received many at a time, and the payload of small writes is passed on without
//! a copy. Large payload is received into memory of its own, except for the part that arrived
//! together with its header.
//!
//! Always true: bytes are returned in the order in which they were sent, each once; memory that
//! payload holds is charged to the connection's budget before the next message is read. Must not
//! know the meaning of messages.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Buffer, IoError, IoErrorKind, Reactor, Span};

use super::budget::{Budget, Charge};
use super::link::{Link, LinkRead};
use crate::select::select;

/// The smallest receive size, in bytes.
const CHUNK_MIN: usize = 4 << 10;
/// The largest receive size, in bytes.
const CHUNK_MAX: usize = 512 << 10;
/// Payload of up to this many bytes is passed on without a copy.
const SMALL_PAYLOAD: usize = 128 << 10;
/// Time for a client to close a connection after our last reply.
const LINGER: Duration = Duration::from_secs(1);

/// The receiving half of a connection.
pub(crate) struct RecvBuffer {
    link: Link,
    /// The receive memory. Bytes from `start` to `end` are not consumed yet.
    chunk: Rc<RecvChunk>,
    start: usize,
    end: usize,
    /// Earlier chunks that payload holds, and that are not charged yet.
    retired: Vec<Rc<RecvChunk>>,
    /// The size of the next receive.
    next_size: usize,
    /// A receive into the chunk after `end`. A wait for it can be cancelled and resumed.
    receiving: Option<LinkRead>,
    progress: Rc<Progress>,
}

/// Receive memory. Payload of any size holds the whole chunk.
struct RecvChunk {
    memory: Span,
    /// The charge for a retired chunk that payload holds.
    charge: RefCell<Option<Charge>>,
}

impl RecvChunk {
    fn new(len: usize) -> Rc<Self> {
        Rc::new(Self { memory: Buffer::new(len).span(), charge: RefCell::default() })
    }
}

/// The payload of a message, and the chunk that holds it.
pub(crate) struct Payload {
    pub(crate) data: Span,
    _chunk: Option<Rc<RecvChunk>>,
}

impl Payload {
    /// A payload in memory of its own.
    pub(crate) fn owned(data: Span) -> Self {
        Self { data, _chunk: None }
    }
}

/// The reason why no more bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvError {
    /// The client closed the connection between two messages.
    Closed,
    /// The client closed the connection within a message.
    Truncated,
    /// The connection failed.
    Io(IoError),
}

impl From<IoError> for RecvError {
    fn from(error: IoError) -> Self {
        match error.kind() {
            IoErrorKind::Closed => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

/// The progress of one direction of a connection, for the watchdog.
#[derive(Default)]
pub(crate) struct Progress {
    /// A message has begun and is not complete.
    pub(crate) within: Cell<bool>,
    /// Counts partial transfers.
    pub(crate) moved: Cell<u64>,
}

impl Progress {
    /// Returns the count of partial transfers while a message is incomplete, or while the caller
    /// expects one.
    pub(crate) fn stage(&self, is_expecting: bool) -> Option<u64> {
        (self.within.get() || is_expecting).then(|| self.moved.get())
    }

    pub(crate) fn step(&self) {
        self.moved.set(self.moved.get().wrapping_add(1));
    }
}

impl RecvBuffer {
    pub(crate) fn new(link: impl Into<Link>) -> Self {
        Self {
            link: link.into(),
            chunk: RecvChunk::new(CHUNK_MIN),
            start: 0,
            end: 0,
            retired: Vec::new(),
            next_size: CHUNK_MIN,
            receiving: None,
            progress: Rc::default(),
        }
    }

    /// The connection.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the progress, for the watchdog.
    pub(crate) fn progress(&self) -> &Rc<Progress> {
        &self.progress
    }

    /// Charges the connection for retired chunks that payload holds. It waits for the budget, so no
    /// request may be held back meanwhile: others could wait for its share of the reserve.
    pub(crate) async fn settle(&mut self, budget: &Rc<Budget>) {
        while let Some(chunk) = self.retired.last() {
            if Rc::strong_count(chunk) > 1 {
                let charge = budget.charge_bytes(chunk.memory.len()).await;
                chunk.charge.replace(Some(charge));
            }
            self.retired.pop();
        }
    }

    /// True if the next `count` bytes are available without a wait, and no chunk is to be settled.
    pub(crate) fn has(&self, count: usize) -> bool {
        self.available() >= count && self.retired.is_empty()
    }

    /// Returns the first `N` bytes of a message. The client may close the connection instead.
    pub(crate) async fn header<const N: usize>(&mut self) -> Result<[u8; N], RecvError> {
        self.begin(N).await?;
        self.body().await
    }

    /// Returns the first byte of a message, which is not consumed. The client may close the
    /// connection instead.
    pub(crate) async fn first_byte(&mut self) -> Result<u8, RecvError> {
        self.begin(1).await?;
        let mut first = [0];
        self.chunk.memory.copy_to(self.start, &mut first);
        let [byte] = first;
        Ok(byte)
    }

    /// Waits for the beginning of a message, of which `count` bytes are needed first.
    async fn begin(&mut self, count: usize) -> Result<(), RecvError> {
        if self.available() > 0 {
            return Ok(());
        }
        match self.receive(count).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(RecvError::Closed),
            Err(error) if error.kind() == IoErrorKind::Closed => Err(RecvError::Closed),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the bytes that were received and not consumed.
    pub(crate) fn take_unread(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.available()];
        self.chunk.memory.copy_to(self.start, &mut bytes);
        self.consume(bytes.len());
        bytes
    }

    /// Returns the next `N` bytes of a message.
    pub(crate) async fn body<const N: usize>(&mut self) -> Result<[u8; N], RecvError> {
        self.require(N).await?;
        let mut bytes = [0; N];
        self.chunk.memory.copy_to(self.start, &mut bytes);
        self.consume(N);
        Ok(bytes)
    }

    /// Returns a copy of the next `length` bytes of a message, for short data.
    pub(crate) async fn bytes(&mut self, length: usize) -> Result<Vec<u8>, RecvError> {
        self.require(length).await?;
        let mut bytes = vec![0; length];
        self.chunk.memory.copy_to(self.start, &mut bytes);
        self.consume(length);
        Ok(bytes)
    }

    /// Returns the next `length` bytes of a message without a copy.
    pub(crate) async fn payload(&mut self, length: usize) -> Result<Payload, RecvError> {
        if length > SMALL_PAYLOAD {
            return Ok(Payload { data: self.large_payload(length).await?, _chunk: None });
        }
        self.require(length).await?;
        let data = self.chunk.memory.slice(self.start..self.start + length);
        self.consume(length);
        Ok(Payload { data, _chunk: Some(self.chunk.clone()) })
    }

    async fn large_payload(&mut self, length: usize) -> Result<Span, RecvError> {
        let payload = Buffer::new(length).span();
        self.fill(&payload).await?;
        Ok(payload)
    }

    /// Fills `payload` with the next bytes of a message.
    pub(crate) async fn fill(&mut self, payload: &Span) -> Result<(), RecvError> {
        let length = payload.len();
        let buffered = self.available().min(length);
        payload
            .slice(0..buffered)
            .copy_from_span(&self.chunk.memory.slice(self.start..self.start + buffered));
        self.consume(buffered);
        if buffered < length {
            self.progress.within.set(true);
            self.link.read_exact(&[payload.slice(buffered..length)]).await?;
            self.progress.step();
        }
        // Data that arrives together with the next header would have to be copied.
        self.next_size = CHUNK_MIN;
        Ok(())
    }

    /// Skips the next `length` bytes of a message.
    pub(crate) async fn skip(&mut self, length: u64) -> Result<(), RecvError> {
        let mut left = length;
        while left > 0 {
            if self.available() == 0 {
                self.require(1).await?;
            }
            let step = usize::try_from(left).map_or(self.available(), |left| left.min(self.available()));
            self.consume(step);
            left -= step as u64;
        }
        Ok(())
    }

    fn available(&self) -> usize {
        self.end - self.start
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.progress.within.set(false);
    }

    /// Receives until `count` bytes are available, within a message.
    async fn require(&mut self, count: usize) -> Result<(), RecvError> {
        while self.available() < count {
            self.progress.within.set(true);
            if !self.receive(count).await? {
                return Err(RecvError::Truncated);
            }
        }
        Ok(())
    }

    /// Receives available bytes, into a chunk with room for `count` bytes after the consumed ones.
    /// Returns false at the end of the stream.
    async fn receive(&mut self, count: usize) -> Result<bool, IoError> {
        if self.receiving.is_none() {
            self.make_room(count);
            let receive = self.link.read(&self.chunk.memory.slice(self.end..self.chunk.memory.len()));
            let at_once = receive.is_done();
            self.receiving = Some(receive);
            if at_once {
                // A client that sends faster than we read must not starve the others.
                Reactor::current().yield_now().await;
            }
        }
        let Some(receive) = &mut self.receiving else { unreachable!("a receive has just been begun") };
        let received = receive.await;
        self.receiving = None;
        let received = received?;
        self.progress.step();
        self.next_size = adapted_size(self.next_size, received, self.chunk.memory.len() - self.end);
        self.end += received;
        Ok(received > 0)
    }

    /// Shuts down our side of the connection, and waits a limited time for the client to close its
    /// own. Closing the connection at once, with requests unread, would make the kernel drop
    /// replies that the client has not received yet.
    pub(crate) async fn linger(&mut self) {
        let link = self.link.clone();
        let end = async {
            if link.shutdown().await.is_ok() {
                self.discard().await;
            }
        };
        select(end, Reactor::current().sleep(LINGER)).await;
    }

    /// Ends a TLS session in the sending direction, within a limited time: the client learns that
    /// it has received everything. Without TLS, the end of the connection shows the same.
    pub(crate) async fn end_session(&self) {
        if let Link::Tls(stream) = &self.link {
            let _ = select(stream.shutdown(), Reactor::current().sleep(LINGER)).await;
        }
    }

    /// Discards everything until the client closes the connection.
    async fn discard(&mut self) {
        while let Ok(true) = self.receive(1).await {
            self.start = self.end;
        }
    }

    /// Makes room in the chunk for `count` bytes from the first unconsumed one, and for half of the
    /// next receive. Payload that was passed on holds the old chunk.
    fn make_room(&mut self, count: usize) {
        if self.chunk.memory.len() - self.start >= count.max(self.next_size / 2) {
            return;
        }
        let available = self.available();
        let chunk = RecvChunk::new(count.max(self.next_size));
        chunk.memory.slice(0..available).copy_from_span(&self.chunk.memory.slice(self.start..self.end));
        let old = std::mem::replace(&mut self.chunk, chunk);
        if Rc::strong_count(&old) > 1 {
            self.retired.push(old);
        }
        (self.start, self.end) = (0, available);
    }
}

/// Returns the size of the next receive after `received` of at most `room` bytes arrived.
fn adapted_size(current: usize, received: usize, room: usize) -> usize {
    if received == room {
        (2 * current).min(CHUNK_MAX)
    } else if received < current / 4 {
        (current / 2).max(CHUNK_MIN)
    } else {
        current
    }
}

#[cfg(test)]
#[path = "recv_buffer_tests.rs"]
mod tests;
