//! Errors of object stores.

use std::fmt;

/// A result of an object store.
pub type Result<T> = std::result::Result<T, ObjectError>;

/// The reason why a call failed, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectErrorKind {
    /// There is no bucket of this name.
    NoSuchBucket,
    /// A bucket of this name exists.
    BucketExists,
    /// The bucket holds objects, versions or uploads.
    BucketNotEmpty,
    /// There is no object of this key.
    NoSuchKey,
    /// The object has no such version.
    NoSuchVersion,
    /// There is no such multipart upload.
    NoSuchUpload,
    /// A part of a multipart upload is missing or has another ETag.
    InvalidPart,
    /// The parts are not in ascending order.
    InvalidPartOrder,
    /// A part other than the last one is smaller than the minimum.
    PartTooSmall,
    /// The named version is a delete marker.
    DeleteMarker,
    /// The version is protected from deletion.
    Locked,
    /// The bucket would exceed its quota.
    QuotaExceeded,
    /// A condition of the request does not hold.
    PreconditionFailed,
    /// The request is invalid.
    Invalid,
    /// The pool has no space for new data.
    NoSpace,
    /// The data could not be read or stored.
    Io,
    /// The store is closed.
    Closed,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ObjectError {
    kind: ObjectErrorKind,
    message: String,
}

impl ObjectError {
    /// An error with a message for people.
    pub fn new(kind: ObjectErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> ObjectErrorKind {
        self.kind
    }

    pub(crate) fn no_bucket(name: &str) -> Self {
        Self::new(ObjectErrorKind::NoSuchBucket, format!("there is no bucket '{name}'"))
    }

    pub(crate) fn no_key(key: &str) -> Self {
        Self::new(ObjectErrorKind::NoSuchKey, format!("there is no object '{key}'"))
    }

    pub(crate) fn no_version(key: &str, version: &str) -> Self {
        Self::new(ObjectErrorKind::NoSuchVersion, format!("object '{key}' has no version '{version}'"))
    }

    pub(crate) fn is_marker(key: &str) -> Self {
        Self::new(ObjectErrorKind::DeleteMarker, format!("the version of object '{key}' is a delete marker"))
    }

    pub(crate) fn locked(key: &str) -> Self {
        Self::new(ObjectErrorKind::Locked, format!("object '{key}' is protected by object lock"))
    }

    pub(crate) fn over_quota(bucket: &str, quota: u64) -> Self {
        let message = format!("bucket '{bucket}' would exceed its quota of {quota} bytes");
        Self::new(ObjectErrorKind::QuotaExceeded, message)
    }

    pub(crate) fn no_upload(upload: &str) -> Self {
        Self::new(ObjectErrorKind::NoSuchUpload, format!("there is no multipart upload '{upload}'"))
    }
}

impl From<std::io::Error> for ObjectError {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull => ObjectErrorKind::NoSpace,
            _ => ObjectErrorKind::Io,
        };
        Self::new(kind, error)
    }
}
