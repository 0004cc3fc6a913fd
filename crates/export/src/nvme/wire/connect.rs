//! The command by which a host opens a queue.

use super::bytes::{array_at, text_at, u16_at};
use super::command::NvmeCommand;

/// Bytes of the data of a connect command.
pub(in crate::nvme) const CONNECT_BYTES: usize = 1024;
/// Bytes of the field of a name (NQN).
const NAME_FIELD: usize = 256;
/// The most bytes of a name (NQN).
pub(in crate::nvme) const NAME_MAX: usize = 223;

/// The controller of a host that has none yet.
pub(in crate::nvme) const ANY_CONTROLLER: u16 = 0xffff;

/// A field that is invalid: its place, for the result of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum ConnectField {
    /// A byte of the command.
    Command(u16),
    /// A byte of the data.
    Data(u16),
}

impl ConnectField {
    pub(in crate::nvme) const QUEUE: Self = Self::Command(42);
    pub(in crate::nvme) const SIZE: Self = Self::Command(44);
    pub(in crate::nvme) const CONTROLLER: Self = Self::Data(16);
    pub(in crate::nvme) const SUBSYSTEM: Self = Self::Data(256);
    pub(in crate::nvme) const HOST: Self = Self::Data(512);

    /// The result of a refused command.
    pub(in crate::nvme) fn result(self) -> u64 {
        match self {
            Self::Command(at) => at.into(),
            Self::Data(at) => u64::from(at) | 1 << 16,
        }
    }
}

/// A connect command with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct ConnectRequest {
    /// The queue: 0 is the admin queue.
    pub(in crate::nvme) queue: u16,
    /// Entries of the submission queue.
    pub(in crate::nvme) entries: u32,
    /// The controller does not report the head of the submission queue.
    pub(in crate::nvme) no_flow_control: bool,
    /// Time without commands after which the controller closes the connection, in ms; 0 for none.
    pub(in crate::nvme) keep_alive: u32,
    pub(in crate::nvme) host_id: [u8; 16],
    pub(in crate::nvme) controller: u16,
    pub(in crate::nvme) subsystem: String,
    pub(in crate::nvme) host: String,
}

impl ConnectRequest {
    /// The format of the command; only 0 is defined.
    pub(in crate::nvme) fn format(command: &NvmeCommand) -> u16 {
        command.short(40)
    }

    pub(in crate::nvme) fn decode(
        command: &NvmeCommand,
        data: &[u8; CONNECT_BYTES],
    ) -> Result<Self, ConnectField> {
        let entries = u32::from(command.short(44)) + 1;
        if entries < 2 {
            return Err(ConnectField::SIZE);
        }
        let name = |at: usize, field| {
            let name = text_at(data, at, NAME_FIELD).filter(|name| is_name(name));
            name.map(str::to_owned).ok_or(field)
        };
        Ok(Self {
            queue: command.short(42),
            entries,
            no_flow_control: command.byte(46) & 1 << 2 != 0,
            keep_alive: command.word(12),
            host_id: array_at(data, 0),
            controller: u16_at(data, 16),
            subsystem: name(256, ConnectField::SUBSYSTEM)?,
            host: name(512, ConnectField::HOST)?,
        })
    }
}

/// True if a text has the form of a name (NQN).
pub(in crate::nvme) fn is_name(name: &str) -> bool {
    name.starts_with("nqn.") && name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}
