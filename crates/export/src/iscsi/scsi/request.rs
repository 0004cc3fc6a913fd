//! A SCSI command as received: its command descriptor block, and the range of blocks in it.

use super::super::limits::{SCRATCH, TRANSFER_MAX};
use super::super::wire::{InitiatorHeader, u16_at, u32_at, u64_at};
use super::opcodes::opcode;

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct ScsiRequest {
    pub(in crate::iscsi) block: [u8; 16],
    /// The logical unit; `None` if it is addressed in an unknown form.
    pub(in crate::iscsi) unit: Option<u16>,
    /// The bytes that the initiator sends or expects.
    pub(in crate::iscsi) expected: u32,
}

/// A range of blocks of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRange {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl ScsiRequest {
    pub(in crate::iscsi) fn of(header: &InitiatorHeader) -> Self {
        let expected = if header.reads() || header.writes() { header.expected_length() } else { 0 };
        Self { block: header.command_block(), unit: header.unit(), expected }
    }

    pub(super) fn opcode(&self) -> u8 {
        self.byte(0)
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.block.get(at).copied().unwrap_or(0)
    }

    pub(super) fn short(&self, at: usize) -> u16 {
        u16_at(&self.block, at)
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        u32_at(&self.block, at)
    }

    pub(super) fn long(&self, at: usize) -> u64 {
        u64_at(&self.block, at)
    }

    /// The range of a command on blocks, by the length of its descriptor block.
    pub(super) fn range(&self) -> BlockRange {
        match self.opcode() >> 5 {
            0 => {
                let count = match self.byte(4) {
                    0 => 256,
                    count => count.into(),
                };
                BlockRange { first: (self.word(0) & 0x1f_ffff).into(), count }
            }
            1 | 2 => BlockRange { first: self.word(2).into(), count: self.short(7).into() },
            5 => BlockRange { first: self.word(2).into(), count: self.word(6).into() },
            _ => BlockRange { first: self.long(2), count: self.word(10).into() },
        }
    }

    /// True if the command has more data than the target accepts.
    pub(in crate::iscsi) fn is_too_long(&self) -> bool {
        self.expected > TRANSFER_MAX
    }

    /// The bytes of memory for the data of a command that reads.
    pub(in crate::iscsi) fn memory(&self) -> usize {
        self.expected.min(TRANSFER_MAX) as usize
    }
}

impl BlockRange {
    /// The range in bytes, if it lies within `size` bytes.
    pub(super) fn bytes(self, sector: u32, size: u64) -> Option<(u64, u64)> {
        let offset = self.first.checked_mul(sector.into())?;
        let length = self.count.checked_mul(sector.into())?;
        let end = offset.checked_add(length)?;
        (end <= size).then_some((offset, length))
    }
}

/// The bytes of memory that a command uses beside its data.
pub(in crate::iscsi) fn scratch_of(request: &ScsiRequest) -> usize {
    match request.opcode() {
        opcode::VERIFY_10
        | opcode::VERIFY_12
        | opcode::VERIFY_16
        | opcode::WRITE_VERIFY_10
        | opcode::WRITE_VERIFY_12
        | opcode::WRITE_VERIFY_16
        | opcode::WRITE_SAME_10
        | opcode::WRITE_SAME_16 => SCRATCH as usize,
        _ => 0,
    }
}
