//! Commands on the space of a volume: UNMAP, WRITE SAME, GET LBA STATUS.

use reactor::{Buffer, Span};

use super::super::limits::SCRATCH;
use super::super::open_units::OpenUnit;
use super::super::wire::{WideWriter, u16_at, u32_at, u64_at};
use super::blocks::{UnitRange, checked, part_of};
use super::opcodes::opcode;
use super::outcome::{ScsiOutcome, sense_of};
use super::request::{BlockRange, ScsiRequest};
use super::sense::Sense;
use crate::transport::Payload;
use crate::{Volume, VolumeSource};

/// The most ranges of UNMAP.
pub(super) const UNMAP_RANGES: u32 = 256;
/// The most bytes of UNMAP, of all ranges.
pub(super) const UNMAP_MAX: u64 = 512 << 20;
/// The most bytes of WRITE SAME.
pub(super) const SAME_MAX: u64 = 16 << 20;

/// Bytes of a range of UNMAP, and of the header of its list.
const RANGE_BYTES: usize = 16;
const LIST_HEADER: usize = 8;

impl<S: VolumeSource> OpenUnit<S> {
    pub(super) async fn unmap(
        &self,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        let length = usize::from(request.short(7));
        if request.byte(1) & 1 != 0 {
            // Blocks are not anchored.
            return Err(Sense::invalid_field(1));
        }
        if length == 0 {
            return Ok(ScsiOutcome::Done(0));
        }
        if length < LIST_HEADER {
            return Err(Sense::LIST_LENGTH);
        }
        let list = part_of(data.as_ref(), 0, length as u64)?.peek(<[u8]>::to_vec);
        drop(data);
        let ranges = self.unmap_ranges(&list)?;
        self.check_writable()?;
        for UnitRange { offset, length } in ranges {
            // Unmapped blocks read as zeros, as the unit reports.
            checked(self.volume.write_zeroes(offset, length).await, false)?;
        }
        Ok(ScsiOutcome::Done(length as u64))
    }

    /// The ranges of a list, all checked.
    fn unmap_ranges(&self, list: &[u8]) -> Result<Vec<UnitRange>, Sense> {
        let descriptors = list.get(LIST_HEADER..).unwrap_or(&[]);
        let length = usize::from(u16_at(list, 2)).min(descriptors.len());
        let descriptors = descriptors.get(..length).unwrap_or(&[]).chunks_exact(RANGE_BYTES);
        if descriptors.len() > UNMAP_RANGES as usize {
            return Err(Sense::INVALID_LIST);
        }
        let (mut ranges, mut total) = (Vec::new(), 0);
        for descriptor in descriptors {
            let blocks = BlockRange { first: u64_at(descriptor, 0), count: u32_at(descriptor, 8).into() };
            let bytes = blocks.bytes(self.volume.sector(), self.volume.size());
            let (offset, length) = bytes.ok_or(Sense::BEYOND_END)?;
            total += length;
            if length > 0 {
                ranges.push(UnitRange { offset, length });
            }
        }
        if total > UNMAP_MAX { Err(Sense::INVALID_LIST) } else { Ok(ranges) }
    }

    pub(super) async fn write_same(
        &self,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        const UNMAP: u8 = 0x08;
        const ANCHOR: u8 = 0x10;
        const NO_DATA: u8 = 0x01;
        let flags = request.byte(1);
        let has_no_data = request.opcode() == opcode::WRITE_SAME_16 && flags & NO_DATA != 0;
        let range = self.range_of(request)?;
        if flags & ANCHOR != 0 || has_no_data && flags & UNMAP == 0 {
            return Err(Sense::invalid_field(1));
        }
        // A length of zero does not mean the rest of the unit, as the unit reports.
        if range.length == 0 || range.length > SAME_MAX {
            return Err(Sense::invalid_field(if request.opcode() == opcode::WRITE_SAME_16 { 10 } else { 7 }));
        }
        let sector = u64::from(self.volume.sector());
        let wanted = if has_no_data { 0 } else { sector };
        if u64::from(request.expected) != wanted {
            return Err(Sense::INVALID_FIELD);
        }
        self.check_writable()?;
        let block = (!has_no_data).then(|| part_of(data.as_ref(), 0, sector)).transpose()?;
        let is_zero =
            block.as_ref().is_none_or(|block| block.peek(|block| block.iter().all(|byte| *byte == 0)));
        match block.filter(|_| !is_zero) {
            None => checked(self.volume.write_zeroes(range.offset, range.length).await, false)?,
            Some(block) => self.fill(range, &block).await?,
        }
        Ok(ScsiOutcome::Done(wanted))
    }

    /// Fills a range with copies of a block.
    async fn fill(&self, range: UnitRange, block: &Span) -> Result<(), Sense> {
        let part = range.length.min(SCRATCH);
        let pattern = block.peek(|block| block.repeat(part as usize / block.len()));
        let buffer = Buffer::copy_of(&pattern).span();
        let mut at = 0;
        while at < range.length {
            let length = part.min(range.length - at);
            let part = buffer.slice(0..length as usize);
            checked(self.volume.write(range.offset + at, &part).await, false)?;
            at += length;
        }
        Ok(())
    }

    pub(super) async fn get_lba_status(&self, request: &ScsiRequest) -> Result<ScsiOutcome, Sense> {
        let (first, allocated) = (request.long(2), request.word(10));
        let (sector, size) = (u64::from(self.volume.sector()), self.volume.size());
        let offset = first.checked_mul(sector).filter(|offset| *offset < size).ok_or(Sense::BEYOND_END)?;
        let extents = self.volume.extents(offset, size - offset).await;
        let extents = extents.map_err(|error| sense_of(&error, true))?;
        let room = (allocated as usize).saturating_sub(LIST_HEADER) / RANGE_BYTES;
        let mut list: Vec<(u64, u64, bool)> = Vec::new();
        let mut next = first;
        for extent in extents {
            let mut blocks = extent.length / sector;
            match list.last_mut() {
                Some((_, count, data)) if *data == extent.data => *count += blocks,
                _ => list.push((next, blocks, extent.data)),
            }
            next += std::mem::take(&mut blocks);
        }
        let mut data = WideWriter::new(LIST_HEADER);
        for (first, count, is_mapped) in list.into_iter().take(room.max(1)) {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let mut descriptor = WideWriter::new(RANGE_BYTES);
            descriptor.u64(0, first).u32(8, count).u8(12, u8::from(!is_mapped));
            data.append(descriptor.finish());
            if count == u32::MAX {
                // The rest would not follow without a gap.
                break;
            }
        }
        let length = data.len() as u32 - 4;
        Ok(ScsiOutcome::bytes(data.u32(0, length).finish(), allocated))
    }
}
