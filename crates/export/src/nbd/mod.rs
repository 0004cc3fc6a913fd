//! The network block device protocol (NBD): fixed newstyle, structured replies, sparse reads and
//! block status, over TCP and Unix sockets.
//!
//! Owns connections. Each connection has one task that receives requests and sends replies, and one
//! more task for each request that waits for the volume.
//!
//! Always true: a client that misbehaves, stalls or does not read affects its own connection alone,
//! which uses no more than its [`Limits`]; a request that has begun on a volume is finished even if
//! its client is gone; the reason of each disconnect is logged once.
//!
//! Must not know: how a volume stores data, other users of a volume.

pub mod client;
mod connection;
mod disconnect;
mod execute;
mod frontend;
#[cfg(test)]
mod fuzz;
mod handshake;
mod limits;
mod read;
mod registry;
mod server;
mod session;
mod wire;

pub use crate::Stop;
pub use crate::reserve::Reserve;
pub use connection::serve_connection;
pub use disconnect::{DisconnectReason, ProtocolViolation};
pub use frontend::{NbdConfig, NbdFrontend};
pub use limits::Limits;
pub use server::NbdServer;
