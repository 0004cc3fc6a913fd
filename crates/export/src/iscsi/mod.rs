//! iSCSI: volumes as logical units of targets, for the initiators of operating systems.
//!
//! Owns targets, sessions and connections. A session has one connection, which lives on one reactor
//! and has one task that receives commands and sends responses, and one more task for each command
//! that waits for the volume.
//!
//! Always true: an initiator that misbehaves, stalls or does not read affects its own session
//! alone, which uses no more than its [`IscsiLimits`]; a command that has begun on a volume is
//! finished even if its initiator is gone; the reason of each disconnect is logged once.
//!
//! Must not know: how a volume stores data, other users of a volume. Source: RFC 7143 (iSCSI),
//! SAM-5, SPC-4, SBC-3.

mod chap;
mod connection;
mod control;
mod disconnect;
mod frontend;
#[cfg(test)]
mod fuzz;
mod limits;
mod login;
mod management;
mod nexus;
mod open_units;
mod parameters;
mod pdu_reader;
mod respond;
mod scsi;
mod server;
mod session;
mod shared;
mod target;
mod tasks;
mod transfers;
mod wire;

pub use chap::{CHAP_SECRET_MIN, ChapAccount};
pub use frontend::{IscsiConfig, IscsiFrontend};
pub use limits::IscsiLimits;
