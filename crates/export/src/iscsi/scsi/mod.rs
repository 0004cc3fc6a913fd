//! SCSI commands of logical units: block commands (SBC-3), primary commands (SPC-4).
//!
//! Always true: a command is checked before it reaches the volume; a command whose initiator is
//! excluded by a reservation reaches no volume. Must not know messages of iSCSI.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

mod blocks;
mod capacity;
mod compare;
mod execute;
mod inquiry;
mod mode;
mod opcodes;
mod outcome;
mod provisioning;
mod request;
mod reserve;
mod sense;
mod supported_commands;

pub(super) use outcome::ScsiOutcome;
pub(super) use request::{ScsiRequest, scratch_of};
pub(super) use sense::Sense;
