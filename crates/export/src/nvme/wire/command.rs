//! Commands: the entries of submission queues, as received.

use super::bytes::{u8_at, u16_at, u32_at, u64_at};

/// Bytes of a command.
pub(in crate::nvme) const COMMAND_BYTES: usize = 64;

/// A command as received. The accessors return fields; no field is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct NvmeCommand([u8; COMMAND_BYTES]);

/// The place of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum DataLocation {
    /// The data follows the command in its capsule; its offset there and its length.
    Capsule { offset: u64, length: u32 },
    /// The data is transferred by PDUs of its own; its length.
    Transport { length: u32 },
    /// The descriptor has a type that fabrics do not use.
    Unsupported,
}

/// The part of a fused operation that a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum Fuse {
    None,
    First,
    Second,
    Reserved,
}

impl DataLocation {
    /// The bytes of data that the host sends or expects.
    pub(in crate::nvme) fn length(self) -> u32 {
        match self {
            Self::Capsule { length, .. } | Self::Transport { length } => length,
            Self::Unsupported => 0,
        }
    }
}

impl NvmeCommand {
    pub(in crate::nvme) fn new(bytes: [u8; COMMAND_BYTES]) -> Self {
        Self(bytes)
    }

    pub(in crate::nvme) fn opcode(&self) -> u8 {
        u8_at(&self.0, 0)
    }

    /// The part of a fused operation that the command is.
    pub(in crate::nvme) fn fuse(&self) -> Fuse {
        match u8_at(&self.0, 1) & 3 {
            0 => Fuse::None,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    pub(in crate::nvme) fn id(&self) -> u16 {
        u16_at(&self.0, 2)
    }

    /// The type of a command of fabrics.
    pub(in crate::nvme) fn fabrics_type(&self) -> u8 {
        u8_at(&self.0, 4)
    }

    pub(in crate::nvme) fn namespace(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    pub(in crate::nvme) fn data(&self) -> DataLocation {
        let (address, length) = (u64_at(&self.0, 24), u32_at(&self.0, 32));
        match u8_at(&self.0, 39) {
            0x01 => DataLocation::Capsule { offset: address, length },
            0x5a => DataLocation::Transport { length },
            _ => DataLocation::Unsupported,
        }
    }

    /// Double word `number`, from 10 to 15, of the command.
    pub(in crate::nvme) fn word(&self, number: usize) -> u32 {
        u32_at(&self.0, 4 * number)
    }

    pub(in crate::nvme) fn byte(&self, at: usize) -> u8 {
        u8_at(&self.0, at)
    }

    pub(in crate::nvme) fn short(&self, at: usize) -> u16 {
        u16_at(&self.0, at)
    }

    pub(in crate::nvme) fn long(&self, at: usize) -> u64 {
        u64_at(&self.0, at)
    }
}

/// The number of blocks and the first block of a command on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct LogicalBlocks {
    pub(in crate::nvme) first: u64,
    pub(in crate::nvme) count: u32,
}

impl LogicalBlocks {
    /// The range of a read, write, compare, verify or write of zeros.
    pub(in crate::nvme) fn of(command: &NvmeCommand) -> Self {
        Self { first: command.long(40), count: u32::from(command.short(48)) + 1 }
    }

    /// The range in bytes, if it lies within `size` bytes.
    pub(in crate::nvme) fn bytes(&self, sector: u32, size: u64) -> Option<(u64, u64)> {
        let offset = self.first.checked_mul(sector.into())?;
        let length = u64::from(self.count) * u64::from(sector);
        let end = offset.checked_add(length)?;
        (end <= size).then_some((offset, length))
    }
}
