//! TLS 1.3 with pre-shared keys, below the PDUs of a connection.
//!
//! Owns the form of the keys of exports, and the choice of the key for a host by its first message.
//! Always true: no key is in a log or in debug output.
//!
//! Must not know: connections, PDUs, records after the first one.
//!
//! Source: NVMe TCP Transport Specification 1.1, 3.6.1; RFC 8446.

mod choice;
mod client_hello;
mod derive;
#[cfg(test)]
mod fuzz;
mod identity;
mod key;

pub(super) use choice::{KeyRefusal, TlsPeer, choose_key};
pub use key::NvmeTlsKey;
