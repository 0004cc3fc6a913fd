//! Client of S3 services: requests signed by `rusty-s3`, sent by `hyper`.
//!
//! Owns the connections to one service. Always true: a request is sent once, and its caller decides
//! on a retry; a body that is shorter than announced is an error. Must not know: pools, the
//! daemon's API, files.

mod checksum;
mod client;
mod connection;
mod download;
mod error;

pub use checksum::Checksum;
pub use client::{ListPage, ListRequest, ListedObject, S3Client, UploadedPart};
pub use connection::Address;
pub use download::{Download, ObjectHead};
pub use error::{Result, S3Error};
pub use rusty_s3::Credentials;

#[cfg(test)]
mod tests;
