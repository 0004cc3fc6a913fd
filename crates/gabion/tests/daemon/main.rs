//! The real daemon as a child process, driven by the real command line, on file drives.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod bad_input;
mod commands;
mod config;
mod corruption;
mod crash;
mod drives;
mod exports;
mod harness;
mod nbd;
mod pools;
mod restart;
mod root;
mod volumes;
