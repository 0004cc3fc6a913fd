//! I/O commands that compare and verify stored data, and the fused compare and write.
//!
//! Always true: a fused pair changes data only if the whole range was equal, in one atomic step.

use std::rc::Rc;

use reactor::{Buffer, Span};

use super::io::VolumeRange;
use super::opcodes::SCRATCH;
use super::request::{ReadyRequest, RequestData};
use super::session::NvmeSession;
use super::wire::{LogicalBlocks, NvmeCommand, NvmeStatus};
use crate::transport::Charge;
use crate::{Comparison, Volume, VolumeSource};

impl<S: VolumeSource> NvmeSession<S> {
    pub(super) async fn compare(
        self: Rc<Self>,
        command: NvmeCommand,
        data: Option<RequestData>,
        charge: Charge,
    ) {
        let status = self.compare_range(&command, data).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn compare_range(
        &self,
        command: &NvmeCommand,
        data: Option<RequestData>,
    ) -> Result<(), NvmeStatus> {
        let data = data.ok_or(NvmeStatus::SGL_LENGTH)?;
        let expected = &data.payload.data;
        let range = self.transfer_of(command, expected.len())?;
        let is_equal = |at: usize, stored: &Span| {
            let expected = expected.slice(at..at + stored.len());
            stored.peek(|stored| expected.peek(|expected| stored == expected))
        };
        self.read_parts(command, &range, is_equal).await
    }

    /// Reads a range in parts, until `check` refuses one. Its arguments are the place of the part
    /// within the range, and the part.
    async fn read_parts(
        &self,
        command: &NvmeCommand,
        range: &VolumeRange<S::Volume>,
        check: impl Fn(usize, &Span) -> bool,
    ) -> Result<(), NvmeStatus> {
        let buffer = Buffer::new(range.length.min(SCRATCH) as usize).span();
        let mut at = 0;
        while at < range.length {
            let part = buffer.slice(0..(range.length - at).min(SCRATCH) as usize);
            let done = range.volume.read(range.offset + at, &part).await;
            self.checked(command, done, true)?;
            if !check(at as usize, &part) {
                return Err(NvmeStatus::COMPARE);
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    pub(super) async fn verify(self: Rc<Self>, command: NvmeCommand, charge: Charge) {
        let status = self.verify_range(&command).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    /// Reads a range and discards the data: the volume checks the data that it reads.
    async fn verify_range(&self, command: &NvmeCommand) -> Result<(), NvmeStatus> {
        let range = self.range_of(command)?;
        self.read_parts(command, &range, |_, _| true).await
    }

    /// Begins a fused compare and write.
    pub(super) fn execute_fused(self: &Rc<Self>, compare: ReadyRequest, write: ReadyRequest) {
        let session = self.clone();
        self.run_command(async move || session.compare_and_write(compare, write).await);
    }

    async fn compare_and_write(self: Rc<Self>, compare: ReadyRequest, write: ReadyRequest) {
        let done = self.swap_range(&compare, &write).await;
        let (first, second) = match done {
            Ok(()) => (NvmeStatus::SUCCESS, NvmeStatus::SUCCESS),
            Err(FusedFailure::Compare(status)) => (status, NvmeStatus::FAILED_FUSED),
            Err(FusedFailure::Write(status)) => (NvmeStatus::FAILED_FUSED, status),
        };
        self.complete(compare.command.id(), first, compare.charge);
        self.complete(write.command.id(), second, write.charge);
    }

    async fn swap_range(&self, compare: &ReadyRequest, write: &ReadyRequest) -> Result<(), FusedFailure> {
        let (expected, data) = match (&compare.data, &write.data) {
            (Some(expected), Some(data)) => (&expected.payload.data, &data.payload.data),
            (None, _) => return Err(FusedFailure::Compare(NvmeStatus::SGL_LENGTH)),
            (_, None) => return Err(FusedFailure::Write(NvmeStatus::SGL_LENGTH)),
        };
        let range = self.transfer_of(&compare.command, expected.len()).map_err(FusedFailure::Compare)?;
        let same = LogicalBlocks::of(&compare.command) == LogicalBlocks::of(&write.command)
            && compare.command.namespace() == write.command.namespace();
        if !same || expected.len() != data.len() {
            return Err(FusedFailure::Write(NvmeStatus::INVALID_FIELD));
        }
        // The comparison is a read, which a reservation may admit although it excludes the write.
        self.volume_of(&write.command).map_err(FusedFailure::Write)?;
        if !range.volume.atomic_limits().covers(range.offset, range.length) {
            return Err(FusedFailure::Compare(NvmeStatus::ATOMIC_UNIT));
        }
        let done = range.volume.compare_and_write(range.offset, expected, data).await;
        let mut differs = false;
        let done = done.map(|comparison| differs = comparison != Comparison::Written);
        self.checked(&write.command, done, false).map_err(FusedFailure::Write)?;
        if differs {
            return Err(FusedFailure::Compare(NvmeStatus::COMPARE));
        }
        self.flush_if_durable(&write.command, &range.volume).await.map_err(FusedFailure::Write)
    }
}

/// The command of a fused pair that failed; the other one is aborted.
enum FusedFailure {
    Compare(NvmeStatus),
    Write(NvmeStatus),
}
