//! NVMe over TCP: volumes as namespaces of subsystems, for the initiators of operating systems.
//!
//! Owns subsystems, controllers and connections. Each connection is one queue and has one task that
//! receives commands and sends responses, and one more task for each command that waits for the
//! volume.
//!
//! Always true: a host that misbehaves, stalls or does not read affects its own connections alone,
//! which use no more than their [`NvmeLimits`]; a command that has begun on a volume is finished
//! even if its host is gone; the reason of each disconnect is logged once.
//!
//! Must not know: how a volume stores data, other users of a volume. Source: NVM Express Base
//! Specification 1.4, NVMe over Fabrics 1.1, NVMe TCP Transport Specification 1.1.

mod accept_tls;
mod admin;
mod authenticate;
mod authentication;
mod compare;
mod connection;
mod controller;
mod copy;
mod deferred;
mod direct_replies;
mod disconnect;
mod discovery_listeners;
mod frontend;
mod fused;
#[cfg(test)]
mod fuzz;
mod handshake;
mod host_secrets;
mod inquiry;
mod io;
mod key_checksum;
mod limits;
mod opcodes;
mod open_volumes;
mod pdu_reader;
mod pending;
mod queue_control;
mod queue_identity;
mod registrant;
mod request;
mod reservation_notices;
mod reservations;
mod respond;
mod server;
mod session;
mod shared;
mod target;
mod tls;
mod transfers;
mod wire;

pub use authentication::DhChapSecrets;
pub use discovery_listeners::{DISCOVERY_PORT, NvmeDiscovery};
pub use frontend::{NvmeConfig, NvmeFrontend};
pub use limits::NvmeLimits;
pub use tls::NvmeTlsKey;
