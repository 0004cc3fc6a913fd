//! The NBD server over real sockets: with a driver of raw messages, and with common clients.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

mod client;
mod commands;
mod extents;
mod handshake;
mod hostile;
mod in_flight;
mod log;
mod real_clients;
mod server;
mod shutdown;
