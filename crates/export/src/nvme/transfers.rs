//! Data that a host sends on request: writes whose data does not fit into their capsule.
//!
//! A transfer waits until the memory for its data is available, is then requested from the host,
//! and is complete when all bytes have arrived. The task that receives PDUs never waits for this
//! memory: otherwise it could not receive the data of the transfers that hold it.
//!
//! Always true: the bytes of a transfer arrive in order, each once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use reactor::{Buffer, Notify, Span};
use slab::Slab;

use super::pending::PendingCommand;
use super::wire::{FatalError, HostData};
use crate::transport::{Budget, Charge};

/// The transfers of one connection.
pub(super) struct Transfers {
    /// Limits the bytes that were requested and are not written yet.
    window: Rc<Budget>,
    waiting: RefCell<VecDeque<QueuedTransfer>>,
    queued: Notify,
    granted: RefCell<Slab<Option<HostTransfer>>>,
}

/// A transfer that waits for memory.
struct QueuedTransfer {
    request: PendingCommand,
    length: u32,
    /// Bytes of memory that the request uses beside its data.
    scratch: usize,
}

/// A transfer that was requested from the host.
pub(super) struct HostTransfer {
    pub(super) request: PendingCommand,
    /// Released once the data was written.
    pub(super) charge: Charge,
    length: u32,
    received: u32,
    /// The memory, if the data arrives in several PDUs.
    memory: Option<Span>,
    /// The digests of all parts were right.
    pub(super) is_intact: bool,
}

/// A transfer that the host is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GrantedTransfer {
    pub(super) command: u16,
    pub(super) tag: u16,
    pub(super) length: u32,
}

/// The place of a part of a transfer.
pub(super) enum TransferPart {
    /// The part is the whole transfer.
    Whole,
    /// A part of the transfer's memory.
    Within(Span),
}

impl Transfers {
    pub(super) fn new(window: Rc<Budget>) -> Self {
        let (waiting, queued, granted) = Default::default();
        Self { window, waiting, queued, granted }
    }

    /// Queues a request whose `length` bytes of data the host will send. It uses `scratch` bytes of
    /// memory beside them.
    pub(super) fn push(&self, request: PendingCommand, length: u32, scratch: usize) {
        self.waiting.borrow_mut().push_back(QueuedTransfer { request, length, scratch });
        self.queued.notify();
    }

    /// Removes a request whose data was not requested from the host yet.
    pub(super) fn abort(&self, command: u16) -> Option<PendingCommand> {
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.iter().position(|transfer| transfer.request.command.id() == command)?;
        waiting.remove(at).map(|transfer| transfer.request)
    }

    /// Waits for a request and memory for its data.
    pub(super) async fn grant(&self) -> GrantedTransfer {
        let QueuedTransfer { request, length, scratch } = loop {
            let next = self.waiting.borrow_mut().pop_front();
            match next {
                Some(next) => break next,
                None => self.queued.notified().await,
            }
        };
        let charge = self.window.charge_bytes(length as usize + scratch).await;
        let command = request.command.id();
        let transfer = HostTransfer { request, charge, length, received: 0, memory: None, is_intact: true };
        let tag = self.granted.borrow_mut().insert(Some(transfer));
        // Fewer transfers than the queue has entries.
        let tag = u16::try_from(tag).unwrap_or(u16::MAX);
        GrantedTransfer { command, tag, length }
    }

    /// Takes the transfer of a PDU, to receive its data: it is put back, or finished.
    pub(super) fn take(
        &self,
        header: &HostData,
        last: bool,
    ) -> Result<(HostTransfer, TransferPart), FatalError> {
        let mut granted = self.granted.borrow_mut();
        let slot = granted.get_mut(header.tag.into()).ok_or(FatalError::HeaderField(10))?;
        let mut transfer = slot.take().ok_or(FatalError::HeaderField(10))?;
        if transfer.request.command.id() != header.command {
            return Err(FatalError::HeaderField(8));
        }
        let end = header.offset.checked_add(header.length).filter(|end| *end <= transfer.length);
        let end = end.ok_or(FatalError::OutOfRange)?;
        if header.offset != transfer.received || last != (end == transfer.length) {
            return Err(FatalError::Sequence);
        }
        transfer.received = end;
        if header.offset == 0 && last {
            return Ok((transfer, TransferPart::Whole));
        }
        let memory = transfer.memory.get_or_insert_with(|| Buffer::new(transfer.length as usize).span());
        let part = memory.slice(header.offset as usize..end as usize);
        Ok((transfer, TransferPart::Within(part)))
    }

    /// Puts a transfer back after a part, or returns it with its memory if it is complete.
    pub(super) fn put_back(&self, tag: u16, transfer: HostTransfer) -> Option<(HostTransfer, Option<Span>)> {
        let mut granted = self.granted.borrow_mut();
        if transfer.received == transfer.length {
            granted.remove(tag.into());
            let memory = transfer.memory.clone();
            return Some((transfer, memory));
        }
        if let Some(slot) = granted.get_mut(tag.into()) {
            *slot = Some(transfer);
        }
        None
    }

    /// True if the host was asked for data that has not arrived.
    pub(super) fn is_expecting(&self) -> bool {
        !self.granted.borrow().is_empty()
    }

    /// Forgets all transfers: their data will not arrive.
    pub(super) fn clear(&self) {
        let forgotten = (self.waiting.take(), self.granted.take());
        drop(forgotten);
    }
}
