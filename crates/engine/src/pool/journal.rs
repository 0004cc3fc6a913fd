//! The event log of a pool: writes emitted events and reads them back. Runs on the reactor of shard
//! 0.
//!
//! Invariants: events are numbered without gaps in the order of emission; an event that can be read
//! was written completely. Events emitted shortly before a crash may be missing; nothing depends on
//! them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use format::limits::{BLOCK, EVENT_BLOCKS};
use format::{Event, EventBlock, LayerId};
use futures_util::future::LocalBoxFuture;
use reactor::{Buffer, Handle, Reactor, Semaphore};

use super::Pool;
use crate::error::Result;
use crate::events::Events;
use crate::shard::Shard;

/// The writer and reader of the event log.
pub(crate) struct Journal {
    shard: Rc<Shard>,
    events: Arc<Events>,
    /// The newest block and its number.
    newest: RefCell<(u64, EventBlock)>,
    writing: Rc<Semaphore>,
    stopping: Cell<bool>,
}

impl Journal {
    /// Finds the end of the log.
    ///
    /// # Errors
    /// Errors of map reads.
    pub(crate) async fn load(shard: Rc<Shard>, events: Arc<Events>) -> Result<Rc<Self>> {
        let journal = Self {
            shard,
            events,
            newest: RefCell::new((0, EventBlock { first: 1, events: Vec::new() })),
            writing: Semaphore::new(1),
            stopping: Cell::new(false),
        };
        if let Some(newest) = journal.blocks().await?.pop() {
            journal.newest.replace(newest);
        }
        Ok(Rc::new(journal))
    }

    /// Returns the readable blocks, oldest first.
    async fn blocks(&self) -> Result<Vec<(u64, EventBlock)>> {
        let (mut blocks, mut next) = (Vec::new(), 0);
        while let Some(found) = self.shard.next_stored(LayerId::EVENTS, next, EVENT_BLOCKS).await? {
            next = found + 1;
            let buffer = Buffer::new(BLOCK);
            let read = self.shard.read_layer(LayerId::EVENTS, found, &buffer.span()).await;
            match read
                .map_err(|error| error.to_string())
                .and_then(|()| EventBlock::decode(buffer.as_slice()).map_err(|error| error.to_string()))
            {
                Ok(block) => blocks.push((found, block)),
                // Only the events of this block are lost.
                Err(error) => tracing::warn!(block = found, error, "a block of the event log cannot be read"),
            }
        }
        blocks.sort_by_key(|(_, block)| block.first);
        Ok(blocks)
    }

    /// Starts to write the queued events, from any reactor.
    pub(crate) fn start_write(journal: &Handle<Self>) {
        let journal = journal.clone();
        // A call fails only when the journal is gone, which has written all events by then.
        let write = async move {
            let _ = journal.call(|journal| async move { journal.write_queued().await }).await;
        };
        Reactor::current().spawn(write).detach();
    }

    /// Writes the queued events.
    pub(crate) async fn write_queued(&self) {
        let _writing = self.writing.acquire().await;
        if self.stopping.get() {
            return;
        }
        let queued = self.events.take_queued();
        if queued.is_empty() {
            return;
        }
        let (mut at, mut block) = self.newest.borrow().clone();
        let mut written = Vec::new();
        for event in queued {
            if !block.has_room(event.text.len()) {
                written.push((at, Buffer::copy_of(&block.encode()).span()));
                at = (at + 1) % EVENT_BLOCKS;
                block = EventBlock { first: block.next(), events: Vec::new() };
            }
            block.events.push(event);
        }
        written.push((at, Buffer::copy_of(&block.encode()).span()));
        let stored = match self.shard.change_system(LayerId::EVENTS, &written, &[]).await {
            Ok(()) => self.shard.flush().await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => drop(self.newest.replace((at, block))),
            Err(error) => tracing::warn!(%error, "the event log could not be written"),
        }
    }

    /// Writes the queued events and refuses later ones.
    pub(crate) async fn stop(&self) {
        self.write_queued().await;
        let _writing = self.writing.acquire().await;
        self.stopping.set(true);
    }

    /// Returns the newest events with numbers above `after`, up to `max`, in order.
    async fn read(&self, after: u64, max: usize) -> Result<Vec<(u64, Event)>> {
        self.write_queued().await;
        let mut events = Vec::new();
        for (_, block) in self.blocks().await? {
            events.extend((block.first..).zip(block.events).filter(|(number, _)| *number > after));
        }
        events.drain(..events.len().saturating_sub(max));
        Ok(events)
    }
}

impl Pool {
    /// Emits an event from outside of the engine.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn emit_event<'a>(
        &'a self,
        kind: format::EventKind,
        amount: u64,
        text: &'a str,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let text = text.to_owned();
            let emit = move |journal: Rc<Journal>| async move { journal.events.emit(kind, amount, &text) };
            Ok(self.inner.journal.call(emit).await?)
        })
    }

    /// Returns the newest events of the pool with numbers above `after`, up to `max`, in order and
    /// with their numbers. The pool keeps at least the last 800 events.
    ///
    /// # Errors
    /// When the pool was closed; those of reading the map.
    pub fn events(&self, after: u64, max: usize) -> LocalBoxFuture<'_, Result<Vec<(u64, Event)>>> {
        Box::pin(async move {
            self.inner.journal.call(move |journal| async move { journal.read(after, max).await }).await?
        })
    }
}
