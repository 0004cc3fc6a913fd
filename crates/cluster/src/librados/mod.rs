//! The client libraries of Ceph, loaded at run time.
//!
//! Owns the bindings to `librados`. Always true: the program runs without the
//! libraries; their absence is an error that names the packages.

mod client;
mod library;

pub(crate) use client::{RadosClient, RadosOptions};
