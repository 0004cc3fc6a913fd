//! Parses the request of a descriptor chain: the header and status of virtio 1.2, section 5.2.6.
//!
//! Always true: nothing is assumed about the division of header, data and status into descriptors.
//! Results refer only to memory of the guest and whole sectors within the volume. Pure functions.

use super::chain::Chain;
use super::limits::{RANGE_SECTORS_MAX, RANGES_MAX, REQUEST_BYTES_MAX};
use super::memory::{GuestMemory, GuestSegment, GuestSegments};

/// Bytes of a request's header.
const HEADER: u32 = 16;
/// Bytes of one range of a discard.
const RANGE: u32 = 16;
/// The unit of offsets in bytes, for any block size.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a device's serial number.
pub(super) const ID_BYTES: usize = 20;

const KIND_IN: u32 = 0;
const KIND_OUT: u32 = 1;
const KIND_FLUSH: u32 = 4;
const KIND_GET_ID: u32 = 8;
const KIND_DISCARD: u32 = 11;
const KIND_WRITE_ZEROES: u32 = 13;

/// The flag of a range that may be unmapped when it is zeroed.
const UNMAP: u32 = 1;

/// The result of a request, as its status byte encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BlkStatus {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// The limits that a request is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceLimits {
    /// Current size of the volume in bytes.
    pub(super) size: u64,
    /// Unit of offsets and lengths in bytes.
    pub(super) sector: u32,
    pub(super) read_only: bool,
}

/// The operation of a request. Offsets and lengths are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlkOperation {
    Read { offset: u64, into: GuestSegments, len: u64 },
    Write { offset: u64, from: GuestSegments, len: u64 },
    Flush,
    Discard(Vec<BlkRange>),
    WriteZeroes(Vec<BlkRange>),
    Id { into: GuestSegments, len: u64 },
}

/// A range of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlkRange {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct BlkRequest {
    /// The operation, or the status that refuses it.
    pub(super) operation: Result<BlkOperation, BlkStatus>,
    /// Location of the status byte.
    pub(super) status: GuestSegment,
}

impl BlkRequest {
    /// Parses a request. Returns `None` if there is no place for a status, so that nothing can be
    /// reported.
    pub(super) fn parse(chain: &mut Chain, memory: &GuestMemory, limits: &DeviceLimits) -> Option<Self> {
        let status = take_last_byte(&mut chain.writable)?;
        let operation = parse(chain, memory, limits);
        Some(Self { operation, status })
    }
}

fn parse(chain: &mut Chain, memory: &GuestMemory, limits: &DeviceLimits) -> Result<BlkOperation, BlkStatus> {
    let header: [u8; HEADER as usize] = take_bytes(&mut chain.readable, memory).ok_or(BlkStatus::IoError)?;
    let (kind, _, sector) = split_16(header);
    match kind {
        KIND_IN => {
            let (offset, len) = limits.span(sector, &chain.writable)?;
            Ok(BlkOperation::Read { offset, into: std::mem::take(&mut chain.writable), len })
        }
        KIND_OUT => {
            limits.check_writable()?;
            let (offset, len) = limits.span(sector, &chain.readable)?;
            Ok(BlkOperation::Write { offset, from: std::mem::take(&mut chain.readable), len })
        }
        KIND_FLUSH => Ok(BlkOperation::Flush),
        KIND_GET_ID => {
            let into = std::mem::take(&mut chain.writable);
            let len = total(&into);
            if len == 0 { Err(BlkStatus::IoError) } else { Ok(BlkOperation::Id { into, len }) }
        }
        // Discarded ranges may keep their bytes or not, so the unmap flag has no meaning there.
        KIND_DISCARD => Ok(BlkOperation::Discard(ranges(chain, memory, limits, 0)?)),
        KIND_WRITE_ZEROES => Ok(BlkOperation::WriteZeroes(ranges(chain, memory, limits, UNMAP)?)),
        _ => Err(BlkStatus::Unsupported),
    }
}

impl DeviceLimits {
    fn check_writable(&self) -> Result<(), BlkStatus> {
        if self.read_only { Err(BlkStatus::IoError) } else { Ok(()) }
    }

    /// Returns offset and length of a read or write.
    fn span(&self, sector: u64, segments: &GuestSegments) -> Result<(u64, u64), BlkStatus> {
        let len = total(segments);
        if len > REQUEST_BYTES_MAX {
            return Err(BlkStatus::IoError);
        }
        let BlkRange { offset, len } = self.range(sector, len)?;
        Ok((offset, len))
    }

    /// Checks that the range is within the volume and consists of whole sectors, at least one.
    fn range(&self, sector: u64, len: u64) -> Result<BlkRange, BlkStatus> {
        let offset = sector.checked_mul(SECTOR).ok_or(BlkStatus::IoError)?;
        let end = offset.checked_add(len).ok_or(BlkStatus::IoError)?;
        let unit = u64::from(self.sector);
        let whole = offset.is_multiple_of(unit) && len.is_multiple_of(unit);
        if len == 0 || !whole || end > self.size {
            return Err(BlkStatus::IoError);
        }
        Ok(BlkRange { offset, len })
    }
}

/// Parses the ranges of a discard or write-zeroes request, with the allowed flags.
fn ranges(
    chain: &mut Chain,
    memory: &GuestMemory,
    limits: &DeviceLimits,
    flags_known: u32,
) -> Result<Vec<BlkRange>, BlkStatus> {
    limits.check_writable()?;
    let bytes = total(&chain.readable);
    if !bytes.is_multiple_of(RANGE.into()) || !(1..=RANGES_MAX.into()).contains(&(bytes / u64::from(RANGE))) {
        return Err(BlkStatus::IoError);
    }
    let mut ranges = Vec::new();
    while let Some(range) = take_bytes::<{ RANGE as usize }>(&mut chain.readable, memory) {
        let (sector, sectors, flags) = split_range(range);
        if flags & !flags_known != 0 {
            return Err(BlkStatus::Unsupported);
        }
        if sectors > RANGE_SECTORS_MAX {
            return Err(BlkStatus::IoError);
        }
        ranges.push(limits.range(sector, u64::from(sectors) * SECTOR)?);
    }
    Ok(ranges)
}

/// Returns the total length of segments in bytes.
pub(super) fn total(segments: &GuestSegments) -> u64 {
    segments.iter().map(|segment| u64::from(segment.len)).sum()
}

/// Removes the last byte and returns it as a segment.
fn take_last_byte(segments: &mut GuestSegments) -> Option<GuestSegment> {
    loop {
        let last = segments.pop()?;
        if let Some(rest) = last.len.checked_sub(1) {
            let (rest, byte) = last.split(rest);
            if rest.len > 0 {
                segments.push(rest);
            }
            return Some(byte);
        }
    }
}

/// Removes the first `N` bytes and returns them. Returns `None` if there are fewer.
fn take_bytes<const N: usize>(segments: &mut GuestSegments, memory: &GuestMemory) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut done = 0;
    let mut used = 0;
    while done < N {
        let segment = segments.get_mut(used)?;
        let now = segment.len.min(u32::try_from(N - done).ok()?);
        let (first, rest) = segment.split(now);
        if !memory.read(&first, bytes.get_mut(done..done + now as usize)?) {
            return None;
        }
        done += now as usize;
        *segment = rest;
        used += usize::from(rest.len == 0);
    }
    segments.drain(..used);
    Some(bytes)
}

/// Splits a header into kind, reserved field and sector.
#[allow(clippy::cast_possible_truncation, reason = "the parts of a header, in their order")]
fn split_16(bytes: [u8; 16]) -> (u32, u32, u64) {
    let number = u128::from_le_bytes(bytes);
    (number as u32, (number >> 32) as u32, (number >> 64) as u64)
}

/// Splits a range into sector, number of sectors and flags.
#[allow(clippy::cast_possible_truncation, reason = "the parts of a range, in their order")]
fn split_range(bytes: [u8; 16]) -> (u64, u32, u32) {
    let number = u128::from_le_bytes(bytes);
    (number as u64, (number >> 64) as u32, (number >> 96) as u32)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
