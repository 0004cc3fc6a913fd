//! Formatting of S3 services, buckets and access keys.

use api::Size;
use api::types::{AccessKey, Bucket, S3Service, S3State};
use serde::Serialize;

use super::table::table;

/// Formats the pools that serve S3 as a table.
pub(crate) fn s3_services(services: &[S3Service]) -> String {
    if services.is_empty() {
        return "no pool serves S3; 'gabion s3 start POOL --listen 127.0.0.1:9000' starts it".into();
    }
    let row = |service: &S3Service| {
        let state = match (service.state, &service.reason) {
            (S3State::Active, _) => "active".to_owned(),
            (S3State::Waiting, Some(reason)) => format!("waiting: {reason}"),
            (S3State::Waiting, None) => "waiting".to_owned(),
        };
        let address = format!("{}://{}", service.scheme(), service.listen);
        vec![service.pool.clone(), address, service.region.clone(), state]
    };
    table(&["POOL", "ADDRESS", "REGION", "STATE"], services.iter().map(row))
}

/// Formats buckets as a table.
pub(crate) fn buckets(buckets: &[Bucket]) -> String {
    if buckets.is_empty() {
        return "no buckets; 'gabion bucket create POOL/BUCKET' creates one".into();
    }
    let row = |bucket: &Bucket| {
        vec![
            bucket.name.clone(),
            bucket.objects.to_string(),
            bucket.versions.map_or_else(|| "-".to_owned(), |versions| versions.to_string()),
            Size(bucket.bytes).to_string(),
            bucket.quota.map_or_else(|| "-".to_owned(), |quota| Size(quota).to_string()),
            bucket.versioning.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    table(&["BUCKET", ">OBJECTS", ">OLD VERSIONS", ">SIZE", ">QUOTA", "VERSIONING"], buckets.iter().map(row))
}

/// Formats a bucket.
pub(crate) fn bucket(bucket: &Bucket) -> String {
    buckets(std::slice::from_ref(bucket))
}

/// A list of objects.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ObjectList {
    /// The objects and groups by key.
    pub(crate) objects: Vec<ObjectRow>,
    /// The key after which the rest follows, if there may be more.
    pub(crate) next: Option<String>,
}

/// An object of a list, or a group of keys, which has only a key.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ObjectRow {
    pub(crate) key: String,
    pub(crate) size: Option<u64>,
    /// The time of the last change as in RFC 3339.
    pub(crate) modified: Option<String>,
    pub(crate) etag: Option<String>,
}

/// Formats objects as a table.
pub(crate) fn objects(objects: &[ObjectRow]) -> String {
    if objects.is_empty() {
        return "no objects".into();
    }
    let time = |text: &String| text.parse().ok().map(super::time::timestamp);
    let row = |object: &ObjectRow| {
        let modified = object.modified.as_ref().and_then(time);
        vec![object.key.clone(), super::size(object.size), modified.unwrap_or_else(|| "-".into())]
    };
    table(&["KEY", ">SIZE", "MODIFIED"], objects.iter().map(row))
}

/// Formats a new access key with its secret.
pub(crate) fn new_key(key: &AccessKey) -> String {
    let secret = key.secret.as_deref().unwrap_or_default();
    format!("access key  {}\nsecret key  {secret}", key.access_key)
}

/// Formats access keys as a table.
pub(crate) fn access_keys(keys: &[AccessKey]) -> String {
    if keys.is_empty() {
        return "no access keys; 'gabion key create' creates one".into();
    }
    let row = |key: &AccessKey| {
        let expires = key.expires.map_or_else(|| "-".to_owned(), super::time::utc);
        let created = key.created.map_or_else(|| "-".to_owned(), super::time::utc);
        vec![key.access_key.clone(), key.user.clone(), created, expires]
    };
    table(&["ACCESS KEY", "USER", "CREATED", "EXPIRES"], keys.iter().map(row))
}
