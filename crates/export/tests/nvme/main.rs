//! NVMe/TCP over volumes in memory: valid and hostile initiators.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod aborts;
mod atomic;
mod authentication;
mod commands;
mod connections;
mod discovery;
mod hostile;
mod initiator;
mod openssl_tunnel;
mod reconnect;
mod reservations;
mod secrets;
#[path = "../support/store.rs"]
mod store;
#[path = "../support/mod.rs"]
mod support;
mod target;
#[allow(clippy::big_endian_bytes, reason = "the numbers of TLS are big-endian")]
mod tls;
mod tls_client;
#[allow(clippy::big_endian_bytes, reason = "the numbers of TLS are big-endian")]
mod tls_identity;
mod tls_queue;
