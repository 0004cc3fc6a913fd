//! Commands that compare stored data: VERIFY, WRITE AND VERIFY, COMPARE AND WRITE.

use reactor::{Buffer, Span};

use super::super::limits::SCRATCH;
use super::super::open_units::OpenUnit;
use super::blocks::{UnitRange, checked, part_of};
use super::outcome::{ScsiOutcome, sense_of};
use super::request::{BlockRange, ScsiRequest};
use super::sense::Sense;
use crate::transport::Payload;
use crate::{Comparison, Volume, VolumeSource};

/// The most blocks of COMPARE AND WRITE, which has one byte for their number.
pub(super) const SWAP_BLOCKS: u32 = 255;

/// The data that stored data is compared with (byte check).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteCheck {
    /// None: the volume checks the data that it reads.
    None,
    /// The data of the command.
    Whole,
    /// One block of data, which every block equals.
    Repeated,
}

fn byte_check(request: &ScsiRequest) -> Result<ByteCheck, Sense> {
    match request.byte(1) >> 1 & 3 {
        0 => Ok(ByteCheck::None),
        1 => Ok(ByteCheck::Whole),
        3 => Ok(ByteCheck::Repeated),
        _ => Err(Sense::invalid_field(1)),
    }
}

impl<S: VolumeSource> OpenUnit<S> {
    pub(super) async fn verify(
        &self,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        let (range, check) = (self.transfer_of(request)?, byte_check(request)?);
        if range.length == 0 {
            // No data is transferred.
            return Ok(ScsiOutcome::Done(0));
        }
        match check {
            ByteCheck::None => {
                self.read_parts(range, |_, _| None).await?;
                Ok(ScsiOutcome::Done(0))
            }
            ByteCheck::Whole => {
                let expected = part_of(data.as_ref(), 0, range.length)?;
                self.compare(range, &expected).await?;
                Ok(ScsiOutcome::Done(range.length))
            }
            ByteCheck::Repeated => {
                let sector = u64::from(self.volume.sector());
                let block = part_of(data.as_ref(), 0, sector)?;
                let differs = |_, stored: &Span| {
                    block.peek(|block| {
                        let is_other = |stored: &[u8]| stored != block;
                        stored.peek(|stored| stored.chunks(block.len()).position(is_other))
                    })
                };
                self.read_parts(range, differs).await?;
                Ok(ScsiOutcome::Done(sector))
            }
        }
    }

    pub(super) async fn write_and_verify(
        &self,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        let (range, check) = (self.transfer_of(request)?, byte_check(request)?);
        if check == ByteCheck::Repeated {
            return Err(Sense::invalid_field(1));
        }
        self.check_writable()?;
        if range.length == 0 {
            return Ok(ScsiOutcome::Done(0));
        }
        self.store(range, data.as_ref()).await?;
        checked(self.volume.flush().await, false)?;
        let sent = data.as_ref().map_or(0, |payload| payload.data.len() as u64);
        let stored = UnitRange { length: range.length.min(sent), ..range };
        match check {
            ByteCheck::Whole => {
                let expected = part_of(data.as_ref(), 0, stored.length)?;
                self.compare(stored, &expected).await?;
            }
            _ => self.read_parts(stored, |_, _| None).await?,
        }
        Ok(ScsiOutcome::Done(range.length))
    }

    /// Compares a range with data.
    async fn compare(&self, range: UnitRange, expected: &Span) -> Result<(), Sense> {
        let differs = |at: usize, stored: &Span| {
            let expected = expected.slice(at..at + stored.len());
            stored.peek(|stored| {
                expected.peek(|expected| stored.iter().zip(expected).position(|(one, other)| one != other))
            })
        };
        self.read_parts(range, differs).await
    }

    /// Reads a range in parts, until `differs` returns the first byte that differs. Its arguments
    /// are the place of the part within the range, and the part.
    async fn read_parts(
        &self,
        range: UnitRange,
        differs: impl Fn(usize, &Span) -> Option<usize>,
    ) -> Result<(), Sense> {
        let buffer = Buffer::new(range.length.min(SCRATCH) as usize).span();
        let mut at = 0;
        while at < range.length {
            let part = buffer.slice(0..(range.length - at).min(SCRATCH) as usize);
            checked(self.volume.read(range.offset + at, &part).await, true)?;
            if let Some(index) = differs(at as usize, &part) {
                return Err(Sense::miscompare(at + index as u64));
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    pub(super) async fn compare_and_write(
        &self,
        request: &ScsiRequest,
        data: Option<Payload>,
    ) -> Result<ScsiOutcome, Sense> {
        const PROTECTION: u8 = 0xe0;
        const DURABLE: u8 = 0x08;
        if request.byte(1) & PROTECTION != 0 {
            return Err(Sense::invalid_field(1));
        }
        let (sector, size) = (self.volume.sector(), self.volume.size());
        let blocks = BlockRange { first: request.long(2), count: request.byte(13).into() };
        let (offset, length) = blocks.bytes(sector, size).ok_or(Sense::BEYOND_END)?;
        if u64::from(self.swap_blocks()) < blocks.count {
            return Err(Sense::invalid_field(13));
        }
        self.check_writable()?;
        if u64::from(request.expected) != 2 * length {
            return Err(Sense::invalid_field(13));
        }
        if length == 0 {
            return Ok(ScsiOutcome::Done(0));
        }
        let expected = part_of(data.as_ref(), 0, length)?;
        let new = part_of(data.as_ref(), length, length)?;
        let compared = self.volume.compare_and_write(offset, &expected, &new).await;
        match compared.map_err(|error| sense_of(&error, false))? {
            Comparison::Written => {}
            Comparison::Differs { at } => return Err(Sense::miscompare(at)),
        }
        if request.byte(1) & DURABLE != 0 {
            checked(self.volume.flush().await, false)?;
        }
        Ok(ScsiOutcome::Done(2 * length))
    }

    /// The most blocks of COMPARE AND WRITE.
    pub(super) fn swap_blocks(&self) -> u32 {
        (self.volume.atomic_limits().bytes / self.volume.sector()).min(SWAP_BLOCKS)
    }
}
