//! What a connection sends: replies, each written whole, as many at a time as are ready.
//!
//! Owns the queues of replies and the sending half of a connection's stream. Replies with much data have a queue of their
//! own, from which each send takes something, so that they neither hold the others up nor are held up by them.
//!
//! Always true: one send is in flight at a time; the replies of a queue are sent in the order in which they were pushed;
//! what a reply was charged for is given back when it has been sent or never will be.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;

use reactor::{Buffer, IoError, Notify, Span, Stream};

use super::budget::Charge;
use super::intake::Movement;
use super::wire::{HEAD_MAX, Head};

/// The most replies of one send. Their heads fill a page.
const REPLIES_MAX: usize = 4096 / HEAD_MAX;
/// A send takes no more replies once it has this many bytes of data.
const BYTES_MAX: usize = 256 << 10;

/// A reply, or a part of one that may be sent by itself.
pub(super) struct Reply {
    head: Head,
    /// What follows the head.
    payload: Option<Span>,
    /// Given back once the reply has been sent.
    charge: Option<Charge>,
}

impl Reply {
    /// A part of a reply, with others to follow.
    pub(super) fn part(head: Head) -> Self {
        Self { head, payload: None, charge: None }
    }

    /// A reply, or the last part of one: with it, the request is done.
    pub(super) fn last(head: Head, charge: Charge) -> Self {
        Self { head, payload: None, charge: Some(charge) }
    }

    /// The same with `payload` behind it.
    pub(super) fn with(self, payload: Span) -> Self {
        Self { payload: Some(payload), ..self }
    }
}

/// Replies on their way to the client.
#[derive(Default)]
pub(super) struct Outbox {
    queues: RefCell<Queues>,
    /// Nobody will send what is pushed.
    closed: Cell<bool>,
    /// The sender has nothing to do.
    idle: Cell<bool>,
    pushed: Notify,
    movement: Movement,
}

impl Outbox {
    /// For a watchdog.
    pub(super) fn movement(&self) -> &Movement {
        &self.movement
    }

    /// Queues a reply that is sent soon.
    pub(super) fn push(&self, reply: Reply) {
        self.push_to(reply, |queues| &mut queues.small);
    }

    /// Queues a reply with much data, or any part of a reply whose parts must keep their order.
    pub(super) fn push_bulk(&self, reply: Reply) {
        self.push_to(reply, |queues| &mut queues.bulk);
    }

    fn push_to(&self, reply: Reply, queue: impl FnOnce(&mut Queues) -> &mut VecDeque<Reply>) {
        if self.closed.get() {
            return;
        }
        queue(&mut self.queues.borrow_mut()).push_back(reply);
        if self.idle.take() {
            self.pushed.notify();
        }
    }

    /// Forgets every reply that is queued and will be.
    pub(super) fn close(&self) {
        self.closed.set(true);
        let forgotten = self.queues.take();
        drop(forgotten);
    }

    /// Sends replies as they come.
    pub(super) async fn send_all(&self, stream: &Stream) -> Result<Infallible, IoError> {
        let mut batch = Batch::default();
        loop {
            self.send_queued(stream, &mut batch).await?;
            self.idle.set(true);
            self.pushed.notified().await;
        }
    }

    async fn send_queued(&self, stream: &Stream, batch: &mut Batch) -> Result<(), IoError> {
        while batch.fill(&mut self.queues.borrow_mut()) {
            self.movement.within.set(true);
            let sent = stream.write_all(&batch.spans).await;
            self.movement.within.set(false);
            self.movement.step();
            batch.clear();
            sent?;
        }
        Ok(())
    }
}

/// Replies that wait to be sent.
#[derive(Default)]
struct Queues {
    small: VecDeque<Reply>,
    bulk: VecDeque<Reply>,
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.bulk.is_empty()
    }
}

/// What is sent at once.
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

    /// Takes replies from the queues: small ones as far as there is room, but always one of the others. False if there
    /// were none.
    fn fill(&mut self, queues: &mut Queues) -> bool {
        if queues.is_empty() {
            return false;
        }
        let mut heads = Heads::new();
        let room_for_small = REPLIES_MAX - usize::from(!queues.bulk.is_empty());
        while self.replies < room_for_small && self.bytes < BYTES_MAX {
            let Some(reply) = queues.small.pop_front() else { break };
            self.append(reply, &mut heads);
        }
        let mut owed = true;
        while self.replies < REPLIES_MAX && (owed || self.bytes < BYTES_MAX) {
            let Some(reply) = queues.bulk.pop_front() else { break };
            self.append(reply, &mut heads);
            owed = false;
        }
        if !heads.is_cut() {
            self.spans.push(heads.cut());
        }
        true
    }

    fn append(&mut self, reply: Reply, heads: &mut Heads) {
        let Reply { head, payload, charge } = reply;
        self.replies += 1;
        heads.append(head.as_bytes());
        self.charges.extend(charge);
        if let Some(payload) = payload {
            self.bytes += payload.len();
            self.spans.push(heads.cut());
            self.spans.push(payload);
        }
    }
}

/// Heads of replies, one after the other. Neighbours without payload between them are sent as one run.
struct Heads {
    memory: Span,
    /// The run that is being filled.
    start: usize,
    end: usize,
}

impl Heads {
    fn new() -> Self {
        Self { memory: Buffer::new(REPLIES_MAX * HEAD_MAX).span(), start: 0, end: 0 }
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
#[path = "outbox_tests.rs"]
mod tests;
