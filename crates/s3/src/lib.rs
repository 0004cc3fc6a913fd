//! The S3 protocol over an object store.
//!
//! Owns the operations, the checks of requests, and the HTTP server. Always true: a request is
//! executed only with a valid signature of version 4 that covers all of its `x-amz-` headers;
//! bodies use bounded memory. Must not know: pools, how objects are stored.

mod attributes;
mod buckets;
mod chunk_limit;
mod copies;
mod errors;
mod gateway;
mod listings;
mod multipart;
mod objects;
mod operations;
mod receive;
mod request_check;
mod send;
mod server;
mod tagging;

pub use gateway::KeyStore;
pub use server::{S3Options, S3Server};
