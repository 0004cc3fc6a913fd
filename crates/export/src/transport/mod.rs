//! The parts of a network protocol that do not depend on the protocol: receive buffer, send queue,
//! memory budget, watchdog, listeners, admission and count of connections, completion of split
//! requests, TLS.
//!
//! Always true: the memory of a connection is bounded by its budget; a client that stalls affects
//! its own connection alone.
//!
//! Must not know: messages of any protocol, volumes.

mod admission;
mod budget;
mod completion;
mod link;
mod open_connections;
mod recv_buffer;
mod send_queue;
mod stall_watch;
mod tcp_listeners;
#[cfg(test)]
pub(crate) mod testing;
mod tls;

pub(crate) use admission::{Admission, AdmittedConnection};
pub(crate) use budget::{Budget, Charge, OWN_BYTES};
pub(crate) use completion::{CompletionGroup, CompletionGuard};
pub(crate) use link::{ByteSink, Link};
pub(crate) use open_connections::OpenConnections;
pub(crate) use recv_buffer::{Payload, Progress, RecvBuffer, RecvError};
pub(crate) use send_queue::{QueuedReply, ReplyHead, SendQueue};
pub(crate) use stall_watch::watch_stalls;
pub(crate) use tcp_listeners::{
    ConnectionServer, LocalAddress, Servers, TcpListeners, acquire_all, close_listeners, network_uris,
    release_all,
};
pub(crate) use tls::{TlsError, TlsKey, TlsKeyHash, TlsStream};
