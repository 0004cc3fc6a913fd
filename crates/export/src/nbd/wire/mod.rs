//! The NBD protocol as bytes: what can be said, and nothing about who says it when.
//!
//! Owns encoding and decoding, after the protocol's specification (doc/proto.md of the NetworkBlockDevice project; its
//! names are given beside ours). Always true: no bytes make a decoder panic; what comes out of a check is within every
//! limit that the check was given. Must not know sockets and volumes.

mod bytes;
mod context;
#[cfg(test)]
mod fuzz;
mod greeting;
mod option;
mod option_reply;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(super) use context::ContextQuery;
pub(super) use greeting::{ClientFlags, greeting};
pub(super) use option::{ClientOption, InfoRequest, OptionHeader};
pub(super) use option_reply::{ExportFacts, OptionError, OptionReplies, export_name_reply};
pub(super) use reply::{Descriptor, ErrorNumber, HEAD_MAX, Head, descriptors};
pub(super) use request::{Command, Cookie, Range, Refusal, RequestHeader, Terms};

/// The message was not one of this protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadMagic(pub(super) u64);

/// The most bytes that a string may have.
pub(super) const STRING_MAX: usize = 4096;
