//! Data of writes that does not come with the command: sent without a request up to the first
//! burst, then on request.
//!
//! A write waits until the memory for its data is available before its data is requested. The task
//! that receives messages never waits for this memory: otherwise it could not receive the data of
//! the writes that hold it.
//!
//! Always true: the bytes of a write arrive in order, each once; a write has one request for data
//! at a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use reactor::{Buffer, Notify, Span};
use slab::Slab;

use super::scsi::ScsiRequest;
use super::tasks::Task;
use super::wire::{InitiatorHeader, NO_TAG};
use crate::transport::{Budget, Charge};

/// A write whose data is not complete.
pub(super) struct WriteTransfer {
    pub(super) task: Rc<Task>,
    pub(super) request: ScsiRequest,
    /// Released once the response has been sent.
    pub(super) charge: Charge,
    /// The memory for the requested data; none before it is granted.
    pub(super) window: Option<Charge>,
    /// The bytes of the command's data.
    pub(super) length: u32,
    /// The memory: of the whole data, or of the first burst.
    memory: Span,
    received: u32,
    /// The end of the current burst.
    burst_end: u32,
    /// The number of the next message of the current burst.
    data_number: u32,
    /// The number of the next request for data.
    pub(super) request_number: u32,
}

/// A request for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataRequest {
    pub(super) tag: u32,
    pub(super) unit: u64,
    pub(super) target_tag: u32,
    pub(super) number: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// A message with data that its write does not expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnexpectedData;

/// The next step after a message with data.
pub(super) enum TransferStep {
    /// More messages follow.
    Wait,
    /// The initiator is asked for more data.
    Request(DataRequest),
    /// The data is complete.
    Complete(Box<WriteTransfer>, Span),
}

/// The writes of one session whose data is not complete.
pub(super) struct WriteTransfers {
    /// Limits the bytes that were requested and are not written yet.
    window: Rc<Budget>,
    burst_max: u32,
    /// Writes that receive their first burst, by tag.
    first: RefCell<BTreeMap<u32, WriteTransfer>>,
    /// Writes that wait for memory.
    waiting: RefCell<VecDeque<WriteTransfer>>,
    queued: Notify,
    granted: RefCell<Slab<Option<WriteTransfer>>>,
}

impl WriteTransfer {
    /// A write of `length` bytes, of which `head` came with the command. `first`: the bytes that
    /// the initiator sends without a request, including `head`.
    pub(super) fn new(
        task: Rc<Task>,
        request: ScsiRequest,
        charge: Charge,
        length: u32,
        head: &Span,
        first: u32,
    ) -> Self {
        let received = head.len() as u32;
        let memory = Buffer::new(first.max(received) as usize).span();
        memory.slice(0..head.len()).copy_from_span(head);
        Self {
            task,
            request,
            charge,
            window: None,
            length,
            memory,
            received,
            burst_end: first,
            data_number: 0,
            request_number: 0,
        }
    }

    /// Moves the received bytes to memory for the whole data.
    fn grow(&mut self) {
        let memory = Buffer::new(self.length as usize).span();
        let received = self.received as usize;
        memory.slice(0..received).copy_from_span(&self.memory.slice(0..received));
        self.memory = memory;
    }

    /// Begins the next burst.
    fn next_request(&mut self, target_tag: u32, burst_max: u32) -> DataRequest {
        let length = burst_max.min(self.length - self.received);
        (self.burst_end, self.data_number) = (self.received + length, 0);
        let number = self.request_number;
        self.request_number += 1;
        let (tag, unit) = (self.task.tag, self.task.unit_field);
        DataRequest { tag, unit, target_tag, number, offset: self.received, length }
    }

    /// Accepts a message. Returns the memory for its data.
    fn accept(&mut self, header: &InitiatorHeader, length: usize) -> Result<Span, UnexpectedData> {
        let length = u32::try_from(length).map_err(|_| UnexpectedData)?;
        let end = header.data_offset().checked_add(length).filter(|end| *end <= self.burst_end);
        let end = end.ok_or(UnexpectedData)?;
        if header.data_offset() != self.received || header.data_number() != self.data_number {
            return Err(UnexpectedData);
        }
        let part = self.memory.slice(self.received as usize..end as usize);
        (self.received, self.data_number) = (end, self.data_number + 1);
        Ok(part)
    }
}

impl WriteTransfers {
    pub(super) fn new(window: Rc<Budget>, burst_max: u32) -> Self {
        let (first, waiting, queued, granted) = Default::default();
        Self { window, burst_max, first, waiting, queued, granted }
    }

    /// Adds a write that receives its first burst.
    pub(super) fn receive_first(&self, transfer: WriteTransfer) {
        self.first.borrow_mut().insert(transfer.task.tag, transfer);
    }

    /// Queues a write whose further data is requested once there is memory.
    pub(super) fn push(&self, transfer: WriteTransfer) {
        self.waiting.borrow_mut().push_back(transfer);
        self.queued.notify();
    }

    /// Waits for a write and memory for its data.
    pub(super) async fn grant(&self) -> DataRequest {
        loop {
            let length = self.waiting.borrow().front().map(|transfer| transfer.length);
            let Some(length) = length else {
                self.queued.notified().await;
                continue;
            };
            let charge = self.window.charge_bytes(length as usize).await;
            // The write may have been aborted meanwhile.
            let next = self.waiting.borrow_mut().pop_front_if(|next| next.length <= length);
            let Some(mut transfer) = next else { continue };
            transfer.window = Some(charge);
            transfer.grow();
            let mut granted = self.granted.borrow_mut();
            let entry = granted.vacant_entry();
            // Fewer writes than the window has commands.
            let target_tag = u32::try_from(entry.key()).unwrap_or(NO_TAG);
            let request = transfer.next_request(target_tag, self.burst_max);
            entry.insert(Some(transfer));
            return request;
        }
    }

    /// Takes the write of a message with `length` bytes of data, and the memory for them. `None` if
    /// there is no such write: it may have been aborted.
    pub(super) fn take(
        &self,
        header: &InitiatorHeader,
        length: usize,
    ) -> Result<Option<(WriteTransfer, Span)>, Box<WriteTransfer>> {
        let transfer = match header.target_tag() {
            NO_TAG => self.first.borrow_mut().remove(&header.tag()),
            tag => {
                let mut granted = self.granted.borrow_mut();
                let key = usize::try_from(tag).unwrap_or(usize::MAX);
                let slot = granted.get_mut(key);
                slot.and_then(|slot| slot.take_if(|transfer| transfer.task.tag == header.tag()))
            }
        };
        let Some(mut transfer) = transfer else { return Ok(None) };
        match transfer.accept(header, length) {
            Ok(part) => Ok(Some((transfer, part))),
            Err(UnexpectedData) => {
                self.forget(header);
                Err(Box::new(transfer))
            }
        }
    }

    /// Removes the slot of a write that is taken and does not return.
    pub(super) fn forget(&self, header: &InitiatorHeader) {
        if header.target_tag() != NO_TAG {
            let key = usize::try_from(header.target_tag()).unwrap_or(usize::MAX);
            self.granted.borrow_mut().try_remove(key);
        }
    }

    /// Puts a write back after a message.
    ///
    /// # Errors
    /// The write, if the message ends its burst too early or too late.
    pub(super) fn put_back(
        &self,
        header: &InitiatorHeader,
        mut transfer: WriteTransfer,
    ) -> Result<TransferStep, Box<WriteTransfer>> {
        let is_burst_end = transfer.received == transfer.burst_end;
        let is_complete = transfer.received == transfer.length;
        let target_tag = header.target_tag();
        if target_tag == NO_TAG {
            return Ok(match (is_complete, header.is_final() || is_burst_end) {
                (true, _) => complete(transfer),
                (false, true) => {
                    self.push(transfer);
                    TransferStep::Wait
                }
                (false, false) => {
                    self.receive_first(transfer);
                    TransferStep::Wait
                }
            });
        }
        if header.is_final() != is_burst_end {
            self.forget(header);
            return Err(Box::new(transfer));
        }
        let mut granted = self.granted.borrow_mut();
        let key = usize::try_from(target_tag).unwrap_or(usize::MAX);
        if is_complete {
            granted.try_remove(key);
            return Ok(complete(transfer));
        }
        let step = match is_burst_end {
            true => TransferStep::Request(transfer.next_request(target_tag, self.burst_max)),
            false => TransferStep::Wait,
        };
        if let Some(slot) = granted.get_mut(key) {
            *slot = Some(transfer);
        }
        Ok(step)
    }

    /// True if the initiator was asked for data that has not arrived, or owes its first burst.
    pub(super) fn is_expecting(&self) -> bool {
        !self.granted.borrow().is_empty() || !self.first.borrow().is_empty()
    }

    /// Removes the writes of aborted tasks. Returns their tasks.
    pub(super) fn remove_aborted(&self) -> Vec<Rc<Task>> {
        let mut removed = Vec::new();
        let mut check = |transfer: &WriteTransfer| {
            let is_aborted = transfer.task.is_aborted();
            if is_aborted {
                removed.push(transfer.task.clone());
            }
            !is_aborted
        };
        self.first.borrow_mut().retain(|_, transfer| check(transfer));
        self.waiting.borrow_mut().retain(&mut check);
        self.granted.borrow_mut().retain(|_, slot| slot.as_ref().is_none_or(&mut check));
        removed
    }

    /// Forgets all writes: their data will not arrive. Returns their tasks.
    pub(super) fn clear(&self) -> Vec<Rc<Task>> {
        let (first, waiting, granted) = (self.first.take(), self.waiting.take(), self.granted.take());
        let granted = granted.into_iter().filter_map(|(_, transfer)| transfer);
        first.into_values().chain(waiting).chain(granted).map(|transfer| transfer.task).collect()
    }
}

fn complete(transfer: WriteTransfer) -> TransferStep {
    let memory = transfer.memory.clone();
    TransferStep::Complete(Box::new(transfer), memory)
}
