//! The basic header segment of an initiator's message.

use super::bytes::{u16_at, u32_at, u64_at};

/// Bytes of the basic header segment.
pub(in crate::iscsi) const HEADER_BYTES: usize = 48;
/// The tag that means none.
pub(in crate::iscsi) const NO_TAG: u32 = u32::MAX;

/// The kind of an initiator's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) enum InitiatorOpcode {
    Ping,
    Command,
    TaskManagement,
    Login,
    Text,
    Data,
    Logout,
    /// A request for lost messages, which this target never asks for.
    Snack,
    Unknown,
}

/// A task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) enum TaskFunction {
    AbortTask,
    AbortTaskSet,
    ClearContingentAllegiance,
    ClearTaskSet,
    UnitReset,
    WarmReset,
    ColdReset,
    Other,
}

/// The header of an initiator's message. The accessors return fields; no field is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct InitiatorHeader([u8; HEADER_BYTES]);

/// The lengths of the parts of a message, after its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct HeaderFrame {
    /// Bytes of additional header segments.
    pub(in crate::iscsi) additional: usize,
    /// Bytes of data, without padding.
    pub(in crate::iscsi) data: usize,
    /// Bytes that pad the data to words.
    pub(in crate::iscsi) padding: usize,
}

impl InitiatorHeader {
    pub(in crate::iscsi) fn new(bytes: [u8; HEADER_BYTES]) -> Self {
        Self(bytes)
    }

    pub(in crate::iscsi) fn bytes(&self) -> &[u8; HEADER_BYTES] {
        &self.0
    }

    pub(in crate::iscsi) fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    pub(in crate::iscsi) fn opcode(&self) -> InitiatorOpcode {
        match self.byte(0) & 0x3f {
            0x00 => InitiatorOpcode::Ping,
            0x01 => InitiatorOpcode::Command,
            0x02 => InitiatorOpcode::TaskManagement,
            0x03 => InitiatorOpcode::Login,
            0x04 => InitiatorOpcode::Text,
            0x05 => InitiatorOpcode::Data,
            0x06 => InitiatorOpcode::Logout,
            0x10 => InitiatorOpcode::Snack,
            _ => InitiatorOpcode::Unknown,
        }
    }

    /// True for delivery ahead of the order of commands.
    pub(in crate::iscsi) fn is_immediate(&self) -> bool {
        self.byte(0) & 0x40 != 0
    }

    /// The flag of the last message of a sequence.
    pub(in crate::iscsi) fn is_final(&self) -> bool {
        self.byte(1) & 0x80 != 0
    }

    /// True for a command that reads.
    pub(in crate::iscsi) fn reads(&self) -> bool {
        self.byte(1) & 0x40 != 0
    }

    /// True for a command that writes; for a login or text request, true if more text follows.
    pub(in crate::iscsi) fn writes(&self) -> bool {
        self.byte(1) & 0x20 != 0
    }

    /// True if the text of a login or text request continues in the next one.
    pub(in crate::iscsi) fn continues(&self) -> bool {
        self.byte(1) & 0x40 != 0
    }

    pub(in crate::iscsi) fn frame(&self) -> HeaderFrame {
        let [_, high, middle, low] = u32_at(&self.0, 4).to_be_bytes();
        let data = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let additional = usize::from(self.byte(4)) * 4;
        HeaderFrame { additional, data, padding: data.next_multiple_of(4) - data }
    }

    /// The logical unit of single-level addressing; `None` for other forms.
    pub(in crate::iscsi) fn unit(&self) -> Option<u16> {
        let number = u64_at(&self.0, 8);
        let (first, rest) = ((number >> 48) as u16, number << 16);
        match (first >> 14, rest) {
            // Peripheral addressing of bus 0, and flat addressing.
            (0, 0) if first >> 8 == 0 => Some(first),
            (1, 0) => Some(first & 0x3fff),
            _ => None,
        }
    }

    /// The eight bytes that address a logical unit.
    pub(in crate::iscsi) fn unit_field(&self) -> u64 {
        u64_at(&self.0, 8)
    }

    /// The tag of the initiator's task.
    pub(in crate::iscsi) fn tag(&self) -> u32 {
        u32_at(&self.0, 16)
    }

    /// The tag that the target assigned, of data, text and pings.
    pub(in crate::iscsi) fn target_tag(&self) -> u32 {
        u32_at(&self.0, 20)
    }

    /// The bytes that a command transfers.
    pub(in crate::iscsi) fn expected_length(&self) -> u32 {
        u32_at(&self.0, 20)
    }

    /// The number of the command.
    pub(in crate::iscsi) fn command_number(&self) -> u32 {
        u32_at(&self.0, 24)
    }

    /// The command descriptor block.
    pub(in crate::iscsi) fn command_block(&self) -> [u8; 16] {
        self.0.last_chunk().copied().unwrap_or_default()
    }

    /// The task management function.
    pub(in crate::iscsi) fn function(&self) -> TaskFunction {
        match self.byte(1) & 0x7f {
            1 => TaskFunction::AbortTask,
            2 => TaskFunction::AbortTaskSet,
            3 => TaskFunction::ClearContingentAllegiance,
            4 => TaskFunction::ClearTaskSet,
            5 => TaskFunction::UnitReset,
            6 => TaskFunction::WarmReset,
            7 => TaskFunction::ColdReset,
            _ => TaskFunction::Other,
        }
    }

    /// The task that a task management function names.
    pub(in crate::iscsi) fn referenced_tag(&self) -> u32 {
        u32_at(&self.0, 20)
    }

    /// The number of a message with data within its sequence.
    pub(in crate::iscsi) fn data_number(&self) -> u32 {
        u32_at(&self.0, 36)
    }

    /// The byte of the command's data at which a message's data begins.
    pub(in crate::iscsi) fn data_offset(&self) -> u32 {
        u32_at(&self.0, 40)
    }

    /// The current and the next stage of a login request, and whether it asks for the next one.
    pub(in crate::iscsi) fn stages(&self) -> (u8, u8, bool) {
        let flags = self.byte(1);
        (flags >> 2 & 3, flags & 3, flags & 0x80 != 0)
    }

    /// The initiator's part of the session identifier.
    pub(in crate::iscsi) fn session(&self) -> [u8; 6] {
        let number = u64_at(&self.0, 8).to_be_bytes();
        number.first_chunk().copied().unwrap_or_default()
    }

    /// The target's part of the session identifier; 0 for a new session.
    pub(in crate::iscsi) fn session_handle(&self) -> u16 {
        u16_at(&self.0, 14)
    }

    /// The id of the connection within its session.
    pub(in crate::iscsi) fn connection(&self) -> u16 {
        u16_at(&self.0, 20)
    }
}
