//! The S3 protocol over an object store.
//!
//! Owns the operations, the checks of requests, and the HTTP server. Always true: a request is
//! executed only with a valid signature of version 4 that covers all of its `x-amz-` headers, or
//! without one if the bucket allows that;
//! bodies use bounded memory. Must not know: pools, how objects are stored.

mod access;
mod acl;
mod attributes;
mod buckets;
mod checksums;
mod chunk_limit;
mod config;
mod copies;
mod cors;
mod delete;
mod encryption;
mod errors;
mod events;
mod forms;
mod front;
mod gateway;
mod get;
mod identity;
mod lifecycle;
mod listings;
mod locks;
mod md5_service;
mod multipart;
mod object_attributes;
mod operations;
mod patterns;
mod piece_buffers;
mod policy;
mod policy_conditions;
mod put;
mod receive;
mod request_body;
mod request_check;
mod roles;
mod sealed;
mod send;
mod server;
mod settings;
mod sts;
mod tagging;
mod tags;
mod times;
mod uploads;

pub use events::{event_message, target_arn};
pub use gateway::{EventTargets, KeyStore};
pub use identity::{IdentityPolicy, UserRights};
pub use patterns::is_like as matches_pattern;
pub use roles::{IssuedSession, RoleError, RoleErrorKind, RoleRequest, RoleSession, RoleStore, SessionError};
pub use server::{S3Options, S3Server};
pub use settings::DEFAULT_USER;
