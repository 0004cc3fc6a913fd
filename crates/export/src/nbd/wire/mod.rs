//! The encoding of the NBD protocol.
//!
//! Owns encoding and decoding, as in the protocol's specification (doc/proto.md of the
//! NetworkBlockDevice project; its names are given in comments). Always true: no input makes a
//! decoder panic; the result of a check is within the limits that the check was given. Must not
//! know sockets and volumes.

mod bytes;
mod context;
#[cfg(test)]
mod fuzz;
mod greeting;
mod option;
mod option_error;
mod option_reply;
mod reply;
mod request;
mod strings;
#[cfg(test)]
mod tests;
mod types;

pub(super) use context::ContextQuery;
pub(super) use greeting::{ClientFlags, greeting};
pub(super) use option::{ClientOption, InfoRequest, OptionHeader};
pub(super) use option_error::OptionError;
pub(super) use option_reply::{ExportFacts, OptionReplies, export_name_reply};
pub(super) use reply::{Head, StatusDescriptor, descriptors};
pub(super) use request::{CheckedCommand, ExportLimits, Refusal, RequestHeader};
pub(super) use types::{BadMagic, ByteRange, Cookie, ErrorNumber};
