//! The I/O commands of the target, and the memory that they use.

use super::wire::NvmeCommand;

/// Opcodes of I/O commands.
pub(super) mod opcode {
    pub(in crate::nvme) const FLUSH: u8 = 0x00;
    pub(in crate::nvme) const WRITE: u8 = 0x01;
    pub(in crate::nvme) const READ: u8 = 0x02;
    pub(in crate::nvme) const COMPARE: u8 = 0x05;
    pub(in crate::nvme) const WRITE_ZEROES: u8 = 0x08;
    pub(in crate::nvme) const DATASET_MANAGEMENT: u8 = 0x09;
    pub(in crate::nvme) const VERIFY: u8 = 0x0c;
}

/// The most bytes of memory that a command uses beside its data.
pub(super) const SCRATCH: u64 = 256 << 10;

/// The bytes of memory that a command uses beside its data.
pub(super) fn scratch_of(command: &NvmeCommand) -> usize {
    match command.opcode() {
        opcode::COMPARE | opcode::VERIFY => SCRATCH as usize,
        _ => 0,
    }
}
