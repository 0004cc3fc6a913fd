//! TLS 1.3 with pre-shared keys on a socket connection.
//!
//! Always true: a session holds up to [`TlsStream::BYTES`] of memory; a peer can send data only
//! after a handshake in which both sides have proven that they know the key. Must not know how keys
//! are chosen, messages of any protocol above TLS.

mod session;
mod stream;

pub(crate) use session::{TlsError, TlsKey, TlsKeyHash};
pub(crate) use stream::TlsStream;
