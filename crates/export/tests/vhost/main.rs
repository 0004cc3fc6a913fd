//! Tests of the vhost-user-blk back end over real sockets: a front end on the message layer of the
//! `vhost` crate, a guest driver, and a front end that violates the protocol.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod back_end;
mod bad_front_end;
mod bad_guest;
mod front_end;
mod memory;
mod migration;
mod queues;
mod requests;
mod restart;
mod sessions;
#[path = "../../src/vhost/testing.rs"]
mod testing;
