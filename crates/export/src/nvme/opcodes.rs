//! The opcodes of commands, and the memory that I/O commands use.

use super::wire::NvmeCommand;
use crate::reservation::AccessKind;

/// The opcode of fabrics commands.
pub(super) const FABRICS: u8 = 0x7f;

/// Opcodes of I/O commands.
pub(super) mod opcode {
    pub(in crate::nvme) const FLUSH: u8 = 0x00;
    pub(in crate::nvme) const WRITE: u8 = 0x01;
    pub(in crate::nvme) const READ: u8 = 0x02;
    pub(in crate::nvme) const COMPARE: u8 = 0x05;
    pub(in crate::nvme) const WRITE_ZEROES: u8 = 0x08;
    pub(in crate::nvme) const DATASET_MANAGEMENT: u8 = 0x09;
    pub(in crate::nvme) const VERIFY: u8 = 0x0c;
    pub(in crate::nvme) const RESERVATION_REGISTER: u8 = 0x0d;
    pub(in crate::nvme) const RESERVATION_REPORT: u8 = 0x0e;
    pub(in crate::nvme) const RESERVATION_ACQUIRE: u8 = 0x11;
    pub(in crate::nvme) const RESERVATION_RELEASE: u8 = 0x15;
    pub(in crate::nvme) const COPY: u8 = 0x19;
}

/// The effect of a command that reservations restrict.
pub(super) fn access_of(command: &NvmeCommand) -> AccessKind {
    match command.opcode() {
        opcode::READ | opcode::COMPARE | opcode::VERIFY => AccessKind::Read,
        _ => AccessKind::Write,
    }
}

/// The most bytes of memory that a command uses beside its data.
pub(super) const SCRATCH: u64 = 256 << 10;

/// The most bytes of memory in which the volume holds the data of one copy.
const COPY_MEMORY: usize = 4 << 20;

/// The bytes of memory that a command uses beside its data.
pub(super) fn scratch_of(command: &NvmeCommand) -> usize {
    match command.opcode() {
        opcode::COMPARE | opcode::VERIFY => SCRATCH as usize,
        opcode::COPY => COPY_MEMORY,
        _ => 0,
    }
}
