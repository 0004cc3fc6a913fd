//! The copy command: ranges of a namespace are copied within the target, not through the host.
//!
//! Always true: all ranges are checked before the first one is copied.

use std::rc::Rc;

use super::limits::{COPY_MAX, COPY_RANGES};
use super::request::RequestData;
use super::session::NvmeSession;
use super::wire::{LogicalBlocks, NvmeCommand, NvmeStatus, u16_at, u64_at};
use crate::transport::Charge;
use crate::{Volume, VolumeSource};

/// Bytes of a source range of descriptor format 0.
const RANGE_BYTES: usize = 32;

impl<S: VolumeSource> NvmeSession<S> {
    pub(super) async fn copy(
        self: Rc<Self>,
        command: NvmeCommand,
        data: Option<RequestData>,
        charge: Charge,
    ) {
        let status = self.copy_ranges(&command, data).await.err().unwrap_or(NvmeStatus::SUCCESS);
        self.complete(command.id(), status, charge);
    }

    async fn copy_ranges(&self, command: &NvmeCommand, data: Option<RequestData>) -> Result<(), NvmeStatus> {
        let volume = self.volume_of(command)?;
        let (count, format) = (usize::from(command.byte(48)) + 1, command.byte(49) & 15);
        if format != 0 {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        if count > COPY_RANGES {
            return Err(NvmeStatus::COPY_SIZE);
        }
        let data = data.ok_or(NvmeStatus::SGL_LENGTH)?;
        let bytes = data.payload.data.peek(<[u8]>::to_vec);
        drop(data);
        let ranges = bytes.get(..count * RANGE_BYTES).ok_or(NvmeStatus::SGL_LENGTH)?;
        let (sector, size) = (volume.sector(), volume.size());
        let mut sources = Vec::with_capacity(count);
        let mut total = 0;
        for range in ranges.chunks_exact(RANGE_BYTES) {
            let blocks = LogicalBlocks { first: u64_at(range, 8), count: u32::from(u16_at(range, 16)) + 1 };
            let (offset, length) = blocks.bytes(sector, size).ok_or(NvmeStatus::BEYOND_END)?;
            total += length;
            sources.push((offset, length));
        }
        if total > COPY_MAX {
            return Err(NvmeStatus::COPY_SIZE);
        }
        let target = command.long(40).checked_mul(sector.into());
        let end = target.and_then(|target| target.checked_add(total)).filter(|end| *end <= size);
        let (Some(mut target), Some(end)) = (target, end) else { return Err(NvmeStatus::BEYOND_END) };
        if sources.iter().any(|(offset, length)| *offset < end && target < offset + length) {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        for (offset, length) in sources {
            let done = volume.copy_from(&volume, offset, target, length).await;
            self.checked(command, done, false)?;
            target += length;
        }
        self.flush_if_durable(command, &volume).await
    }
}
