//! I/O commands: reads, writes, flushes, zeroing and deallocation.
//!
//! Always true: a command is checked before it reaches the volume; a durable write is flushed
//! before its response.

use std::rc::Rc;

use reactor::{Buffer, Span};

use super::opcodes::{access_of, opcode};
use super::open_volumes::OpenVolume;
use super::request::{ReadyRequest, RequestData};
use super::session::NvmeSession;
use super::wire::{LogicalBlocks, NvmeCommand, NvmeStatus, u32_at, u64_at};
use crate::transport::Charge;
use crate::{Execution, Volume, VolumeError, VolumeErrorKind, VolumeSource};

/// The bit of double word 12 that makes a write durable (force unit access).
const DURABLE: u32 = 1 << 30;
/// The bit of double word 11 of dataset management that deallocates the ranges.
const DEALLOCATE: u32 = 1 << 2;
/// Bytes of a range of dataset management.
const RANGE_BYTES: usize = 16;
/// The namespace id that means all namespaces.
const ALL_NAMESPACES: u32 = u32::MAX;

/// The status for an error of a volume.
pub(super) fn status_of(error: &VolumeError, is_read: bool) -> NvmeStatus {
    match error.kind() {
        VolumeErrorKind::NoSpace => NvmeStatus::CAPACITY,
        VolumeErrorKind::Io if is_read => NvmeStatus::UNREADABLE,
        VolumeErrorKind::Io => NvmeStatus::WRITE_FAULT,
        VolumeErrorKind::Invalid => NvmeStatus::INVALID_FIELD,
        VolumeErrorKind::ReadOnly => NvmeStatus::WRITE_PROTECTED,
        VolumeErrorKind::Closed => NvmeStatus::NOT_READY,
    }
}

/// A checked range of a volume.
pub(super) struct VolumeRange<V> {
    pub(super) volume: OpenVolume<V>,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl<S: VolumeSource> NvmeSession<S> {
    /// Begins an I/O command.
    pub(super) fn execute_io(self: &Rc<Self>, request: ReadyRequest) {
        let (session, ReadyRequest { command, charge, data }) = (self.clone(), request);
        match command.opcode() {
            opcode::READ => self.run_command(async move || session.read(command, charge).await),
            opcode::WRITE => self.run_command(async move || session.write(command, data, charge).await),
            opcode::FLUSH => self.run_command(async move || session.flush(command, charge).await),
            opcode::WRITE_ZEROES => {
                self.run_command(async move || session.write_zeroes(command, charge).await);
            }
            opcode::DATASET_MANAGEMENT => {
                self.run_command(async move || session.manage_dataset(command, data, charge).await);
            }
            opcode::COMPARE => self.run_command(async move || session.compare(command, data, charge).await),
            opcode::VERIFY => self.run_command(async move || session.verify(command, charge).await),
            opcode::COPY => self.run_command(async move || session.copy(command, data, charge).await),
            opcode::RESERVATION_REGISTER | opcode::RESERVATION_ACQUIRE | opcode::RESERVATION_RELEASE => {
                // Not a command that a preemption waits for: it may be that preemption.
                self.spawn(session.change_reservation(command, data, charge));
            }
            opcode::RESERVATION_REPORT => self.report_reservation(&command, charge),
            _ => self.complete(command.id(), NvmeStatus::INVALID_OPCODE, charge),
        }
    }

    /// Begins a command on a volume.
    pub(super) fn run_command(self: &Rc<Self>, work: impl AsyncFnOnce() + 'static) {
        let running = self.identity.control.running();
        // A future that is created within another one is not moved.
        self.spawn(async move {
            work().await;
            drop(running);
        });
    }

    /// The volume of a command, unless a reservation excludes the host.
    pub(super) fn volume_of(&self, command: &NvmeCommand) -> Result<OpenVolume<S::Volume>, NvmeStatus> {
        self.admitted_volume(command, command.namespace())
    }

    fn admitted_volume(&self, command: &NvmeCommand, id: u32) -> Result<OpenVolume<S::Volume>, NvmeStatus> {
        let volume = self.volumes.get(&self.identity, id).ok_or(NvmeStatus::INVALID_NAMESPACE)?;
        match volume.reservations.admits(&self.identity.controller.registrant, access_of(command)) {
            true => Ok(volume),
            false => Err(NvmeStatus::RESERVATION_CONFLICT),
        }
    }

    /// The range of a command.
    pub(super) fn range_of(&self, command: &NvmeCommand) -> Result<VolumeRange<S::Volume>, NvmeStatus> {
        let volume = self.volume_of(command)?;
        let range = LogicalBlocks::of(command).bytes(volume.sector(), volume.size());
        let (offset, length) = range.ok_or(NvmeStatus::BEYOND_END)?;
        Ok(VolumeRange { volume, offset, length })
    }

    /// The range of a command that transfers all of it. `available`: the bytes of its data.
    pub(super) fn transfer_of(
        &self,
        command: &NvmeCommand,
        available: usize,
    ) -> Result<VolumeRange<S::Volume>, NvmeStatus> {
        let range = self.range_of(command)?;
        match range.length == available as u64 {
            true => Ok(range),
            false => Err(NvmeStatus::SGL_LENGTH),
        }
    }

    async fn read(self: Rc<Self>, command: NvmeCommand, charge: Charge) {
        match self.read_range(&command).await {
            Ok(data) => self.complete_data(command.id(), data, charge),
            Err(status) => self.complete(command.id(), status, charge),
        }
    }

    async fn read_range(&self, command: &NvmeCommand) -> Result<Span, NvmeStatus> {
        let range = self.transfer_of(command, command.data().length() as usize)?;
        let data = Buffer::new(range.length as usize).span();
        if range.volume.may_defer() {
            // Boxed, to keep the future of other reads small.
            let abort = self.identity.control.deferred.add(command.id());
            let done = Box::pin(range.volume.read_unless(range.offset, &data, abort)).await;
            return self.executed(command, done, true).map(|()| data);
        }
        let done = range.volume.read(range.offset, &data).await;
        self.checked(command, done, true)?;
        Ok(data)
    }

    async fn write(self: Rc<Self>, command: NvmeCommand, data: Option<RequestData>, charge: Charge) {
        let status = self.write_range(&command, data).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn write_range(&self, command: &NvmeCommand, data: Option<RequestData>) -> Result<(), NvmeStatus> {
        let data = data.ok_or(NvmeStatus::SGL_LENGTH)?;
        let range = self.transfer_of(command, data.payload.data.len())?;
        if range.volume.may_defer() {
            let abort = self.identity.control.deferred.add(command.id());
            let write = range.volume.write_unless(range.offset, &data.payload.data, abort);
            let done = Box::pin(write).await;
            self.executed(command, done, false)?;
        } else {
            let done = range.volume.write(range.offset, &data.payload.data).await;
            self.checked(command, done, false)?;
        }
        drop(data);
        self.flush_if_durable(command, &range.volume).await
    }

    pub(super) async fn flush_if_durable(
        &self,
        command: &NvmeCommand,
        volume: &OpenVolume<S::Volume>,
    ) -> Result<(), NvmeStatus> {
        if command.word(12) & DURABLE == 0 {
            return Ok(());
        }
        let done = volume.flush().await;
        self.checked(command, done, false)
    }

    async fn flush(self: Rc<Self>, command: NvmeCommand, charge: Charge) {
        let status = self.flush_volumes(&command).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn flush_volumes(&self, command: &NvmeCommand) -> Result<(), NvmeStatus> {
        if command.namespace() != ALL_NAMESPACES {
            let done = self.volume_of(command)?.flush().await;
            return self.checked(command, done, false);
        }
        let subsystem = self.identity.subsystem.as_ref().ok_or(NvmeStatus::INVALID_NAMESPACE)?;
        for namespace in subsystem.namespaces(&self.identity.controller.host.name) {
            let done = self.admitted_volume(command, namespace.id)?.flush().await;
            self.checked(command, done, false)?;
        }
        Ok(())
    }

    async fn write_zeroes(self: Rc<Self>, command: NvmeCommand, charge: Charge) {
        let status = self.zero_range(&command).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn zero_range(&self, command: &NvmeCommand) -> Result<(), NvmeStatus> {
        let range = self.range_of(command)?;
        let done = range.volume.write_zeroes(range.offset, range.length).await;
        self.checked(command, done, false)?;
        self.flush_if_durable(command, &range.volume).await
    }

    async fn manage_dataset(self: Rc<Self>, command: NvmeCommand, data: Option<RequestData>, charge: Charge) {
        let status = self.deallocate(&command, data).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn deallocate(&self, command: &NvmeCommand, data: Option<RequestData>) -> Result<(), NvmeStatus> {
        let volume = self.volume_of(command)?;
        let count = usize::from(command.byte(40)) + 1;
        let data = data.ok_or(NvmeStatus::SGL_LENGTH)?;
        let bytes = data.payload.data.peek(<[u8]>::to_vec);
        drop(data);
        let ranges = bytes.get(..count * RANGE_BYTES).ok_or(NvmeStatus::SGL_LENGTH)?;
        // All ranges are checked before the first one is discarded.
        let mut checked = Vec::with_capacity(count);
        for range in ranges.chunks_exact(RANGE_BYTES) {
            let blocks = LogicalBlocks { first: u64_at(range, 8), count: u32_at(range, 4) };
            let range = blocks.bytes(volume.sector(), volume.size()).ok_or(NvmeStatus::BEYOND_END)?;
            checked.push(range);
        }
        if command.word(11) & DEALLOCATE == 0 {
            // The other attributes are hints.
            return Ok(());
        }
        if volume.read_only() {
            return Err(NvmeStatus::WRITE_PROTECTED);
        }
        for (offset, length) in checked.into_iter().filter(|(_, length)| *length > 0) {
            // Deallocated blocks read as zeros, as the namespace reports.
            let done = volume.write_zeroes(offset, length).await;
            self.checked(command, done, false)?;
        }
        Ok(())
    }

    /// The status for the result of an operation that could be aborted.
    fn executed(
        &self,
        command: &NvmeCommand,
        done: Result<Execution, VolumeError>,
        is_read: bool,
    ) -> Result<(), NvmeStatus> {
        match done {
            Ok(Execution::Aborted) => Err(NvmeStatus::ABORTED),
            done => self.checked(command, done.map(|_| ()), is_read),
        }
    }

    /// The status for the result of a volume.
    pub(super) fn checked(
        &self,
        command: &NvmeCommand,
        done: Result<(), VolumeError>,
        is_read: bool,
    ) -> Result<(), NvmeStatus> {
        done.map_err(|error| {
            let (subsystem, namespace) = (self.identity.name(), command.namespace());
            tracing::debug!(subsystem, namespace, opcode = command.opcode(), %error, "command failed");
            status_of(&error, is_read)
        })
    }
}
