//! The values of the index's tables.
//!
//! An object's value is a summary, which listings read, and then the details.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::conditions::ObjectState;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::segment::BodySegment;
use crate::types::{BucketInfo, ObjectInfo, ObjectLock};

/// A bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BucketRecord {
    /// The number, which is never used again.
    pub(crate) number: u64,
    /// Name, settings and counts.
    pub(crate) info: BucketInfo,
}

/// The part of a version that listings show.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VersionSummary {
    /// Orders the versions of a key.
    pub(crate) sequence: u64,
    /// True for the version `null`.
    pub(crate) is_null: bool,
    /// True for a delete marker.
    pub(crate) is_marker: bool,
    pub(crate) size: u64,
    pub(crate) modified_ms: u64,
    pub(crate) etag: String,
}

/// The part of a version that only requests for it need.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct VersionDetail {
    pub(crate) attributes: BTreeMap<String, String>,
    /// The sizes of the parts, for an object of a multipart upload.
    pub(crate) parts: Vec<u64>,
    pub(crate) lock: ObjectLock,
    pub(crate) body: Vec<BodySegment>,
}

/// A version of an object.
#[derive(Clone, Debug)]
pub(crate) struct VersionRecord {
    pub(crate) summary: VersionSummary,
    pub(crate) detail: VersionDetail,
}

/// A multipart upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UploadRecord {
    pub(crate) bucket: u64,
    pub(crate) bucket_name: String,
    pub(crate) key: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) created_ms: u64,
}

/// A part of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) modified_ms: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) body: Vec<BodySegment>,
}

impl VersionSummary {
    /// The summary of a new version with a body, before it has a number.
    pub(crate) fn new(size: u64, etag: String, modified_ms: u64) -> Self {
        Self { sequence: 0, is_null: false, is_marker: false, size, modified_ms, etag }
    }

    /// The state for conditions.
    pub(crate) fn state(&self) -> ObjectState<'_> {
        ObjectState { etag: &self.etag, size: self.size, modified_ms: self.modified_ms }
    }

    /// The version as clients name it.
    pub(crate) fn version(&self) -> String {
        if self.is_null { NULL.to_owned() } else { format!("{:016x}", self.sequence) }
    }
}

/// The name of the version that a put stores in a bucket without versions.
pub(crate) const NULL: &str = "null";

impl VersionRecord {
    /// Encodes the record.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = encode(&self.summary)?;
        bytes.extend_from_slice(&encode(&self.detail)?);
        Ok(bytes)
    }

    /// Decodes a record.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let (summary, rest) = postcard::take_from_bytes(bytes).map_err(corrupt)?;
        Ok(Self { summary, detail: decode(rest)? })
    }

    /// Decodes the summary of a record.
    pub(crate) fn decode_summary(bytes: &[u8]) -> Result<VersionSummary> {
        Ok(postcard::take_from_bytes(bytes).map_err(corrupt)?.0)
    }

    /// The record for callers.
    pub(crate) fn info(&self, key: &str, is_latest: bool) -> ObjectInfo {
        let attributes = self.detail.attributes.clone();
        ObjectInfo {
            attributes,
            parts: self.detail.parts.clone(),
            lock: self.detail.lock,
            ..summary_info(&self.summary, key, is_latest)
        }
    }
}

/// A summary for callers: an object without its details.
pub(crate) fn summary_info(summary: &VersionSummary, key: &str, is_latest: bool) -> ObjectInfo {
    ObjectInfo {
        key: key.to_owned(),
        version: summary.version(),
        is_latest,
        is_marker: summary.is_marker,
        size: summary.size,
        etag: summary.etag.clone(),
        modified_ms: summary.modified_ms,
        attributes: BTreeMap::new(),
        parts: Vec::new(),
        lock: ObjectLock::default(),
    }
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(corrupt)
}

/// Decodes a value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(corrupt)
}

fn corrupt(error: postcard::Error) -> ObjectError {
    ObjectError::new(ObjectErrorKind::Io, format!("the index of the object store is damaged: {error}"))
}
