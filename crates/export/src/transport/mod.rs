//! The parts of a network protocol that do not depend on the protocol: receive buffer, send queue,
//! memory budget, listeners and admission of connections, completion of split requests.
//!
//! Always true: the memory of a connection is bounded by its budget; a client that stalls affects
//! its own connection alone.
//!
//! Must not know: messages of any protocol, volumes.

mod admission;
mod budget;
mod completion;
mod recv_buffer;
mod send_queue;
mod tcp_listeners;
#[cfg(test)]
mod testing;

pub(crate) use admission::{Admission, AdmittedConnection};
pub(crate) use budget::{Budget, Charge, OWN_BYTES};
pub(crate) use completion::{CompletionGroup, CompletionGuard};
pub(crate) use recv_buffer::{Payload, Progress, RecvBuffer, RecvError};
pub(crate) use send_queue::{QueuedReply, ReplyHead, SendQueue};
pub(crate) use tcp_listeners::{
    ConnectionServer, LocalAddress, Servers, TcpListeners, acquire_all, close_listeners, network_uris,
    release_all,
};
