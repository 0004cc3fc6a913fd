//! What a connection sends: replies, each written whole, as many at a time as are ready.
//!
//! Owns the queue of replies and the sending half of a connection's stream.
//!
//! Always true: one send is in flight at a time; replies are sent in the order in which they were pushed; what a reply
//! was charged for is given back when it has been sent or never will be.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;

use reactor::{Buffer, IoError, Notify, Span, Stream};

use super::budget::Charge;
use super::intake::Movement;
use super::wire::{HEAD_MAX, Head};

/// The most replies of one send. Their heads fill a page.
const REPLIES_MAX: usize = 4096 / HEAD_MAX;
/// A send takes no more replies once it has this many bytes.
const BYTES_MAX: usize = 256 << 10;

/// A reply, or a part of one that may be sent by itself.
pub(super) struct Reply {
    pub(super) head: Head,
    /// What follows the head.
    pub(super) payload: Option<Span>,
    /// Given back once the reply has been sent.
    pub(super) charge: Option<Charge>,
}

/// Replies on their way to the client.
#[derive(Default)]
pub(super) struct Outbox {
    queue: RefCell<VecDeque<Reply>>,
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

    /// Queues a reply.
    pub(super) fn push(&self, reply: Reply) {
        if self.closed.get() {
            return;
        }
        self.queue.borrow_mut().push_back(reply);
        if self.idle.take() {
            self.pushed.notify();
        }
    }

    /// Forgets every reply that is queued and will be.
    pub(super) fn close(&self) {
        self.closed.set(true);
        let forgotten = self.queue.take();
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
        while batch.fill(&mut self.queue.borrow_mut()) {
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

/// What is sent at once.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    charges: Vec<Charge>,
}

impl Batch {
    fn clear(&mut self) {
        self.spans.clear();
        self.charges.clear();
    }

    /// Takes replies from the queue. False if there were none.
    fn fill(&mut self, queue: &mut VecDeque<Reply>) -> bool {
        if queue.is_empty() {
            return false;
        }
        let mut heads = Heads::new();
        let mut bytes = 0;
        for _ in 0..REPLIES_MAX {
            if bytes >= BYTES_MAX {
                break;
            }
            let Some(Reply { head, payload, charge }) = queue.pop_front() else { break };
            heads.append(head.as_bytes());
            self.charges.extend(charge);
            if let Some(payload) = payload {
                bytes += payload.len();
                self.spans.push(heads.cut());
                self.spans.push(payload);
            }
        }
        if !heads.is_cut() {
            self.spans.push(heads.cut());
        }
        true
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
