//! The sending half of a connection: replies, batched.
//!
//! Owns the queues of replies. Replies with much data have a queue of their own, from which each
//! send takes at least one, so that small and large replies do not delay each other.
//!
//! Always true: one send is in flight at a time; the replies of a queue are sent in order; the
//! charge of a reply is released when it has been sent or is discarded.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;

use reactor::{Buffer, IoError, Notify, Span};

use super::budget::Charge;
use super::link::ByteSink;
use super::recv_buffer::Progress;

/// The most bytes of a [`ReplyHead`].
pub(crate) const HEAD_MAX: usize = 64;
/// A send takes no more replies once it has this many.
const REPLIES_MAX: usize = 128;
/// The most parts of a message.
const PARTS_MAX: usize = 3;
/// A send takes no more replies once it has this many bytes of data.
const BYTES_MAX: usize = 256 << 10;

/// The bytes of a reply before its payload.
#[derive(Clone, Copy)]
pub(crate) struct ReplyHead {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl ReplyHead {
    /// A copy of `bytes`.
    ///
    /// # Panics
    /// If they exceed [`HEAD_MAX`].
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut head = Self { bytes: [0; HEAD_MAX], len: 0 };
        head.append(bytes);
        head
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they exceed [`HEAD_MAX`] together with the others.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => panic!("the head of a reply is longer than {HEAD_MAX} bytes"),
        }
        self.len += bytes.len();
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// A reply, or a part of a reply that may be sent alone.
pub(crate) struct QueuedReply {
    head: ReplyHead,
    /// The data after the head.
    payload: Option<Span>,
    /// Released once the reply has been sent.
    charge: Option<Charge>,
    /// The next reply of the queue continues the same message: nothing may come between.
    continues: bool,
}

impl QueuedReply {
    /// Creates a part of a reply that is not the last one.
    pub(crate) fn part(head: impl Into<ReplyHead>) -> Self {
        Self { head: head.into(), payload: None, charge: None, continues: false }
    }

    /// Creates a reply, or the last part of one, which completes the request.
    pub(crate) fn last(head: impl Into<ReplyHead>, charge: Charge) -> Self {
        Self { head: head.into(), payload: None, charge: Some(charge), continues: false }
    }

    /// Marks the reply as the beginning of a message that the next reply of the same queue
    /// continues. A message has up to three such parts.
    pub(crate) fn continued(self) -> Self {
        Self { continues: true, ..self }
    }

    /// Adds a payload.
    pub(crate) fn with(self, payload: Span) -> Self {
        Self { payload: Some(payload), ..self }
    }
}

/// The replies of a connection.
#[derive(Default)]
pub(crate) struct SendQueue {
    queues: RefCell<Queues>,
    /// Replies are discarded.
    closed: Cell<bool>,
    /// The sender waits for replies.
    idle: Cell<bool>,
    pushed: Notify,
    progress: Progress,
}

impl SendQueue {
    /// Returns the progress, for the watchdog.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Queues a small reply.
    pub(crate) fn push(&self, reply: QueuedReply) {
        self.push_to(reply, |queues| &mut queues.small);
    }

    /// Queues a reply with much data, or a part of a reply whose parts must keep their order.
    pub(crate) fn push_bulk(&self, reply: QueuedReply) {
        self.push_to(reply, |queues| &mut queues.bulk);
    }

    fn push_to(&self, reply: QueuedReply, queue: impl FnOnce(&mut Queues) -> &mut VecDeque<QueuedReply>) {
        if self.closed.get() {
            return;
        }
        queue(&mut self.queues.borrow_mut()).push_back(reply);
        if self.idle.take() {
            self.pushed.notify();
        }
    }

    /// Discards all queued and later replies.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let forgotten = self.queues.take();
        drop(forgotten);
    }

    /// Sends replies until the connection fails.
    pub(crate) async fn send_all(&self, sink: &impl ByteSink) -> Result<Infallible, IoError> {
        let mut batch = Batch::default();
        loop {
            self.send_queued(sink, &mut batch).await?;
            self.idle.set(true);
            self.pushed.notified().await;
        }
    }

    async fn send_queued(&self, sink: &impl ByteSink, batch: &mut Batch) -> Result<(), IoError> {
        while batch.fill(&mut self.queues.borrow_mut()) {
            self.progress.within.set(true);
            let sent = sink.write_all(&batch.spans).await;
            self.progress.within.set(false);
            self.progress.step();
            batch.clear();
            sent?;
        }
        Ok(())
    }
}

/// The queued replies.
#[derive(Default)]
struct Queues {
    small: VecDeque<QueuedReply>,
    bulk: VecDeque<QueuedReply>,
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.bulk.is_empty()
    }
}

/// The replies of one send.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    charges: Vec<Charge>,
    replies: usize,
    bytes: usize,
}

impl Batch {
    fn clear(&mut self) {
        self.spans.clear();
        self.charges.clear();
        (self.replies, self.bytes) = (0, 0);
    }

    /// Takes replies from the queues: as many small ones as fit, and at least one bulk reply.
    /// Returns false if both queues are empty.
    fn fill(&mut self, queues: &mut Queues) -> bool {
        if queues.is_empty() {
            return false;
        }
        let mut heads = Heads::new();
        let room_for_small = REPLIES_MAX - usize::from(!queues.bulk.is_empty());
        let mut continues = false;
        while continues || self.replies < room_for_small && self.bytes < BYTES_MAX {
            let Some(reply) = queues.small.pop_front() else { break };
            continues = reply.continues;
            self.append(reply, &mut heads);
        }
        let (mut owed, mut continues) = (true, false);
        while continues || self.replies < REPLIES_MAX && (owed || self.bytes < BYTES_MAX) {
            let Some(reply) = queues.bulk.pop_front() else { break };
            continues = reply.continues;
            self.append(reply, &mut heads);
            owed = false;
        }
        if !heads.is_cut() {
            self.spans.push(heads.cut());
        }
        true
    }

    fn append(&mut self, reply: QueuedReply, heads: &mut Heads) {
        let QueuedReply { head, payload, charge, .. } = reply;
        self.replies += 1;
        heads.append(head.as_bytes());
        self.charges.extend(charge);
        if let Some(payload) = payload {
            self.bytes += payload.len();
            if !heads.is_cut() {
                self.spans.push(heads.cut());
            }
            self.spans.push(payload);
        }
    }
}

/// The heads of the replies of a batch. Adjacent heads without payload between them are sent as one
/// run.
struct Heads {
    memory: Span,
    /// The current run.
    start: usize,
    end: usize,
}

impl Heads {
    fn new() -> Self {
        Self { memory: Buffer::new((REPLIES_MAX + 2 * PARTS_MAX) * HEAD_MAX).span(), start: 0, end: 0 }
    }

    fn append(&mut self, head: &[u8]) {
        self.memory.copy_from(self.end, head);
        self.end += head.len();
    }

    fn cut(&mut self) -> Span {
        let run = self.memory.slice(self.start..self.end);
        self.start = self.end;
        run
    }

    fn is_cut(&self) -> bool {
        self.start == self.end
    }
}

#[cfg(test)]
#[path = "send_queue_tests.rs"]
mod tests;
