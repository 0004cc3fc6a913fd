//! iSCSI over volumes in memory: valid and hostile initiators.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

mod commands;
mod hostile;
mod initiator;
mod login;
mod random;
mod reservations;
mod sessions;
#[path = "../support/store.rs"]
mod store;
#[path = "../support/mod.rs"]
mod support;
mod target;
mod tasks;
mod transfers;
