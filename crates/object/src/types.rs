//! The changes and queries of an object store, and their answers.
//!
//! Attributes and settings are opaque to a store: the protocol above defines their names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::body::Body;
use crate::events::EventRule;

/// Exact counts of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Objects: keys whose current version is not a delete marker.
    pub objects: u64,
    /// Versions that are not current, and delete markers.
    pub versions: u64,
    /// Bytes of all versions.
    pub bytes: u64,
}

/// The versioning of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Versioning {
    /// A put replaces the object.
    #[default]
    Off,
    /// A put adds a version; a delete adds a delete marker.
    Enabled,
    /// A put replaces the version without a number; other versions stay.
    Suspended,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    /// The name.
    pub name: String,
    /// The time of creation in milliseconds since 1970.
    pub created_ms: u64,
    /// The versioning.
    pub versioning: Versioning,
    /// The counts.
    pub counters: Counters,
    /// The largest size of all versions in bytes.
    pub quota: Option<u64>,
    /// Settings of the protocol, by name.
    pub settings: BTreeMap<String, String>,
}

/// The strength of a retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionMode {
    /// Requests with the right to bypass it may delete the version.
    Governance,
    /// No request may delete the version or shorten the retention.
    Compliance,
}

/// The time during which a version cannot be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The strength.
    pub mode: RetentionMode,
    /// The end in milliseconds since 1970.
    pub until_ms: u64,
}

/// The protection of a version from deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLock {
    /// The protection that ends at a time.
    pub retention: Option<Retention>,
    /// The protection that ends when it is removed.
    pub legal_hold: bool,
}

/// An object or a version of one, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The key.
    pub key: String,
    /// The version: a number in hexadecimal digits, or `null`.
    pub version: String,
    /// True for the newest version of its key.
    pub is_latest: bool,
    /// True for a delete marker, which has no body.
    pub is_marker: bool,
    /// The size of the body in bytes.
    pub size: u64,
    /// The ETag, without quotes.
    pub etag: String,
    /// The time of the put in milliseconds since 1970.
    pub modified_ms: u64,
    /// Attributes of the protocol, by name.
    pub attributes: BTreeMap<String, String>,
    /// The sizes of the parts, for an object of a multipart upload.
    pub parts: Vec<u64>,
    /// The protection from deletion.
    pub lock: ObjectLock,
}

/// Conditions on the current object, by ETag. `*` matches any object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The object must exist and have this ETag.
    pub if_match: Option<String>,
    /// The object must not exist, or must have another ETag.
    pub if_none_match: Option<String>,
    /// The object must exist and have this size in bytes.
    pub if_match_size: Option<u64>,
    /// The object must exist and have been put in this second since 1970.
    pub if_match_second: Option<u64>,
}

/// Names an object or a version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The version; `None` for the current one.
    pub version: Option<String>,
}

/// Stores an object.
#[derive(Debug)]
pub struct PutObject {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The body.
    pub body: Body,
    /// The size to show, for a body that is stored in another form; `None` for the length of the
    /// body.
    pub size: Option<u64>,
    /// The ETag, without quotes.
    pub etag: String,
    /// Attributes of the protocol, by name.
    pub attributes: BTreeMap<String, String>,
    /// The protection from deletion.
    pub lock: ObjectLock,
    /// Conditions on the object that is replaced.
    pub conditions: Conditions,
    /// The time in milliseconds since 1970.
    pub now_ms: u64,
}

/// Stores an object that shares the body of another one.
#[derive(Clone, Debug)]
pub struct CopyObject {
    /// The object to copy.
    pub source: ObjectRef,
    /// Conditions on the source.
    pub source_conditions: Conditions,
    /// The bucket of the copy.
    pub bucket: String,
    /// The key of the copy.
    pub key: String,
    /// The attributes of the copy; `None` takes those of the source.
    pub attributes: Option<BTreeMap<String, String>>,
    /// The protection of the copy from deletion.
    pub lock: ObjectLock,
    /// Conditions on the object that is replaced.
    pub conditions: Conditions,
    /// The time in milliseconds since 1970.
    pub now_ms: u64,
}

/// Deletes an object, or one version of it.
#[derive(Clone, Debug)]
pub struct DeleteObject {
    /// The object or version.
    pub object: ObjectRef,
    /// Conditions on the object.
    pub conditions: Conditions,
    /// Deletes a version in spite of a governance retention.
    pub bypass_governance: bool,
    /// The time in milliseconds since 1970.
    pub now_ms: u64,
}

/// Stores a part of a multipart upload.
#[derive(Debug)]
pub struct PutPart {
    /// The upload.
    pub upload: String,
    /// The number of the part, from 1 to 10,000.
    pub number: u16,
    /// The body.
    pub body: Body,
    /// The size to show, for a body that is stored in another form; `None` for the length of the
    /// body.
    pub size: Option<u64>,
    /// The ETag, without quotes.
    pub etag: String,
    /// Attributes of the protocol, by name.
    pub attributes: BTreeMap<String, String>,
    /// The time in milliseconds since 1970.
    pub now_ms: u64,
}

/// Stores a range of an object as a part of a multipart upload; it shares the object's body.
#[derive(Clone, Debug)]
pub struct CopyPart {
    /// The object to copy.
    pub source: ObjectRef,
    /// Conditions on the source.
    pub source_conditions: Conditions,
    /// The range of the source in bytes; `None` for all of it.
    pub range: Option<std::ops::Range<u64>>,
    /// The upload.
    pub upload: String,
    /// The number of the part, from 1 to 10,000.
    pub number: u16,
    /// The ETag of the part, without quotes.
    pub etag: String,
    /// The time in milliseconds since 1970.
    pub now_ms: u64,
}

/// A change of a store. It is applied completely or not at all.
#[derive(Debug)]
pub enum Change {
    /// Creates a bucket.
    CreateBucket {
        /// The name.
        name: String,
        /// The versioning.
        versioning: Versioning,
        /// Settings of the protocol, by name.
        settings: BTreeMap<String, String>,
        /// The time in milliseconds since 1970.
        now_ms: u64,
    },
    /// Deletes an empty bucket.
    DeleteBucket {
        /// The name.
        name: String,
    },
    /// Sets or removes a setting of a bucket.
    SetBucket {
        /// The bucket.
        bucket: String,
        /// The name of the setting.
        name: String,
        /// The value; `None` removes the setting.
        value: Option<String>,
    },
    /// Replaces the rules for events of a bucket, and the setting that describes them. Each target
    /// gets an event [`crate::EventKind::Test`].
    SetEventRules {
        /// The bucket.
        bucket: String,
        /// The rules.
        rules: Vec<EventRule>,
        /// The name of the setting.
        name: String,
        /// The value; `None` removes the setting.
        value: Option<String>,
        /// The time in milliseconds since 1970.
        now_ms: u64,
    },
    /// Removes the events of a target that its receiver has. Without an outbox of this target, it
    /// has no effect.
    AcknowledgeEvents {
        /// The name of the target.
        target: String,
        /// The number of the last event to remove.
        through: u64,
    },
    /// Removes the outbox of a target with all events and counts.
    DeleteOutbox {
        /// The name of the target.
        target: String,
    },
    /// Sets whether a bucket keeps versions.
    SetVersioning {
        /// The bucket.
        bucket: String,
        /// The new state: not `Off`.
        versioning: Versioning,
    },
    /// Sets or removes the largest size of all versions of a bucket.
    SetQuota {
        /// The bucket.
        bucket: String,
        /// The size in bytes.
        quota: Option<u64>,
    },
    /// Stores an object. Answers with it.
    Put(PutObject),
    /// Copies an object without copying its body. Answers with the copy.
    Copy(CopyObject),
    /// Deletes an object or version.
    Delete(DeleteObject),
    /// Sets or removes an attribute of an object.
    SetAttribute {
        /// The object or version.
        object: ObjectRef,
        /// The name of the attribute.
        name: String,
        /// The value; `None` removes the attribute.
        value: Option<String>,
    },
    /// Sets or removes the retention of a version.
    SetRetention {
        /// The object or version.
        object: ObjectRef,
        /// The retention.
        retention: Option<Retention>,
        /// Shortens or removes a governance retention.
        bypass_governance: bool,
        /// The time in milliseconds since 1970.
        now_ms: u64,
    },
    /// Sets or removes the legal hold of a version.
    SetLegalHold {
        /// The object or version.
        object: ObjectRef,
        /// True to set it.
        legal_hold: bool,
    },
    /// Begins a multipart upload. Answers with its id.
    CreateUpload {
        /// The bucket.
        bucket: String,
        /// The key of the object to be.
        key: String,
        /// Attributes of the object to be.
        attributes: BTreeMap<String, String>,
        /// The time in milliseconds since 1970.
        now_ms: u64,
    },
    /// Stores a part.
    PutPart(PutPart),
    /// Stores a range of an object as a part.
    CopyPart(CopyPart),
    /// Makes an object of the parts of an upload, without copying them. Answers with it.
    CompleteUpload {
        /// The upload.
        upload: String,
        /// Numbers and ETags of the parts, in ascending order.
        parts: Vec<(u16, String)>,
        /// The ETag of the object, without quotes.
        etag: String,
        /// Attributes to add to those of the upload.
        attributes: BTreeMap<String, String>,
        /// The protection from deletion.
        lock: ObjectLock,
        /// The smallest size of all parts but the last one, in bytes.
        part_bytes_min: u64,
        /// Conditions on the object that is replaced.
        conditions: Conditions,
        /// The time in milliseconds since 1970.
        now_ms: u64,
    },
    /// Deletes an upload and its parts.
    AbortUpload {
        /// The upload.
        upload: String,
    },
}

impl Change {
    /// True for a change of a bucket or its settings.
    pub(crate) fn is_of_bucket(&self) -> bool {
        matches!(
            self,
            Self::CreateBucket { .. }
                | Self::DeleteBucket { .. }
                | Self::SetBucket { .. }
                | Self::SetEventRules { .. }
                | Self::SetVersioning { .. }
                | Self::SetQuota { .. }
        )
    }
}

/// The effect of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// The version that was deleted or created; `None` if there was nothing to delete.
    pub version: Option<String>,
    /// True if the deleted or created version is a delete marker.
    pub is_marker: bool,
}

/// The answer to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change is applied.
    Done,
    /// The object that was stored.
    Object(ObjectInfo),
    /// The effect of a deletion.
    Deleted(Deletion),
    /// The id of the new upload.
    Upload(String),
}

/// A listing of objects, versions or uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// The bucket.
    pub bucket: String,
    /// Only keys that start with this.
    pub prefix: String,
    /// Groups the keys that have this string after the prefix; empty for no groups.
    pub delimiter: String,
    /// Only keys and groups after this one.
    pub after: String,
    /// With versions: only versions of the key `after` that follow this one, and later keys.
    pub after_version: Option<String>,
    /// The largest number of keys and groups.
    pub limit: usize,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage<T> {
    /// The entries in order.
    pub entries: Vec<T>,
    /// The groups: prefix and all up to the delimiter.
    pub prefixes: Vec<String>,
    /// The key or group to continue after, if there may be more.
    pub next: Option<String>,
}

impl<T> Default for ListPage<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), prefixes: Vec::new(), next: None }
    }
}

/// A multipart upload in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// The id.
    pub id: String,
    /// The bucket.
    pub bucket: String,
    /// The key of the object to be.
    pub key: String,
    /// Attributes of the object to be.
    pub attributes: BTreeMap<String, String>,
    /// The time of its beginning in milliseconds since 1970.
    pub created_ms: u64,
}

/// A part of a multipart upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// The number.
    pub number: u16,
    /// The size in bytes.
    pub size: u64,
    /// The ETag, without quotes.
    pub etag: String,
    /// The time of the put in milliseconds since 1970.
    pub modified_ms: u64,
    /// Attributes of the protocol, by name.
    pub attributes: BTreeMap<String, String>,
}
