//! Reads, writes, synchronisation and prefetches of blocks.

use reactor::{Buffer, Span};

use super::super::limits::TRANSFER_MAX;
use super::super::open_units::OpenUnit;
use super::outcome::{ScsiOutcome, sense_of};
use super::request::ScsiRequest;
use super::sense::Sense;
use crate::transport::Payload;
use crate::{Volume, VolumeError, VolumeSource};

/// The bit that makes a write durable (force unit access).
const DURABLE: u8 = 0x08;
/// The bits of protection information, which the target does not have.
const PROTECTION: u8 = 0xe0;

/// A checked range of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitRange {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl<S: VolumeSource> OpenUnit<S> {
    /// The range of a command.
    pub(super) fn range_of(&self, request: &ScsiRequest) -> Result<UnitRange, Sense> {
        let has_flags = request.opcode() >> 5 != 0;
        if has_flags && request.byte(1) & PROTECTION != 0 {
            return Err(Sense::invalid_field(1));
        }
        let range = request.range();
        if range.count == 0 && range.first.saturating_mul(self.volume.sector().into()) > self.volume.size() {
            return Err(Sense::BEYOND_END);
        }
        let bytes = range.bytes(self.volume.sector(), self.volume.size());
        let (offset, length) = bytes.ok_or(Sense::BEYOND_END)?;
        Ok(UnitRange { offset, length })
    }

    /// The range of a command that transfers all of it.
    pub(super) fn transfer_of(&self, request: &ScsiRequest) -> Result<UnitRange, Sense> {
        let range = self.range_of(request)?;
        match range.length <= TRANSFER_MAX.into() {
            true => Ok(range),
            false => Err(Sense::INVALID_FIELD),
        }
    }

    pub(super) fn check_writable(&self) -> Result<(), Sense> {
        if self.volume.read_only() { Err(Sense::WRITE_PROTECTED) } else { Ok(()) }
    }

    pub(super) async fn read(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let range = self.transfer_of(request)?;
        // An initiator that expects less gets no more.
        let sector = u64::from(self.volume.sector());
        let length = range.length.min(u64::from(request.expected).next_multiple_of(sector));
        let data = Buffer::new(length as usize).span();
        if length > 0 {
            checked(self.volume.read(range.offset, &data).await, true)?;
        }
        Ok(ScsiOutcome::Data(data, range.length))
    }

    pub(super) async fn write(
        &self,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        let range = self.transfer_of(request)?;
        self.check_writable()?;
        self.store(range, data.as_ref()).await?;
        let has_flags = request.opcode() >> 5 != 0;
        if has_flags && request.byte(1) & DURABLE != 0 {
            checked(self.volume.flush().await, false)?;
        }
        Ok(ScsiOutcome::Done(range.length))
    }

    /// Writes the data of a command: whole blocks, as far as the initiator has sent them.
    pub(super) async fn store(&self, range: UnitRange, data: Option<&Payload>) -> Result<(), Sense> {
        let sector = self.volume.sector() as usize;
        let sent = data.map_or(0, |payload| payload.data.len());
        let length = (range.length as usize).min(sent / sector * sector);
        if let Some(payload) = data.filter(|_| length > 0) {
            checked(self.volume.write(range.offset, &payload.data.slice(0..length)).await, false)?;
        }
        Ok(())
    }

    pub(super) async fn synchronize(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        self.range_of(request)?;
        checked(self.volume.flush().await, false)?;
        Ok(ScsiOutcome::Done(0))
    }

    pub(super) fn prefetch(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let range = self.range_of(request)?;
        if range.offset < self.volume.size() {
            self.volume.prefetch_hint(range.offset);
        }
        Ok(ScsiOutcome::Done(0))
    }
}

/// The result of a volume as sense data.
pub(super) fn checked(done: Result<(), VolumeError>, is_read: bool) -> Result<(), Sense> {
    done.map_err(|error| {
        tracing::debug!(%error, "a request of a SCSI command failed");
        sense_of(&error, is_read)
    })
}

/// A part of data, if it is long enough.
pub(super) fn part_of(data: Option<&Payload>, from: u64, length: u64) -> Result<Span, Sense> {
    let (from, length) = (from as usize, length as usize);
    let payload = data.filter(|payload| payload.data.len() >= from + length);
    payload.map(|payload| payload.data.slice(from..from + length)).ok_or(Sense::INVALID_FIELD)
}
