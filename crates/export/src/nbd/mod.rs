//! The network block device protocol, as its public specification has it: fixed newstyle, structured replies, sparse
//! reads and block status, over TCP and Unix sockets.
//!
//! Owns connections: each has one task that reads requests and sends replies, and as many more as there are requests
//! that have to wait for the volume.
//!
//! Always true: whatever a client sends, says too slowly or does not read costs its own connection only, and that one no
//! more than its [`Limits`]; a request that was begun on a volume is finished, whether its client is still there or not;
//! why a connection ended is logged once.
//!
//! Must not know: how a volume stores, who else uses it.

mod admission;
mod budget;
pub mod client;
mod end;
mod execute;
mod frontend;
#[cfg(test)]
mod fuzz;
mod handshake;
mod intake;
mod limits;
mod outbox;
mod read;
mod registry;
mod serve;
mod server;
mod session;
#[cfg(test)]
mod testing;
mod wire;

pub use crate::Stop;
pub use crate::reserve::Reserve;
pub use end::{End, Violation};
pub use frontend::{NbdConfig, NbdFrontend};
pub use limits::Limits;
pub use serve::serve_connection;
pub use server::Server;
