//! TLS 1.3 with pre-shared keys on a socket connection.
//!
//! Always true: the memory of a TLS connection is bounded; bytes of a peer are returned only after
//! the peer has proven that it knows the key. Must not know how keys are chosen, messages of any
//! protocol above TLS.

mod engine;
mod stream;

pub(crate) use engine::{TlsError, TlsKey, TlsKeyHash};
pub(crate) use stream::TlsStream;
