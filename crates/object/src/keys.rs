//! The keys of the index's tables. They sort by bucket, then key, then version with the newest
//! first.
//!
//! Numbers are big-endian, so that bytes sort like numbers. Keys of objects have no zero byte, so a
//! zero byte after a key sorts before every longer key.
#![allow(clippy::big_endian_bytes, reason = "bytes of keys sort like numbers")]

/// The bytes after the key in the key of a version or upload.
const SUFFIX: usize = 9;
/// The bytes of a bucket's number.
const BUCKET: usize = 8;

/// The key of a current object. With a prefix or a bound instead of a key: a bound of a range.
pub(crate) fn object_key(bucket: u64, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BUCKET + key.len() + SUFFIX);
    bytes.extend_from_slice(&bucket.to_be_bytes());
    bytes.extend_from_slice(key);
    bytes
}

/// The key of a version that is not current.
pub(crate) fn version_key(bucket: u64, key: &str, sequence: u64) -> Vec<u8> {
    let mut bytes = object_key(bucket, key.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&(!sequence).to_be_bytes());
    bytes
}

/// The key of an upload in the list of its bucket.
pub(crate) fn upload_key(bucket: u64, key: &str, upload: u64) -> Vec<u8> {
    let mut bytes = object_key(bucket, key.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&upload.to_be_bytes());
    bytes
}

/// The key of a part.
pub(crate) fn part_key(upload: u64, number: u16) -> Vec<u8> {
    let mut bytes = upload.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes
}

/// The key of an event in the outbox of a target. Names of targets have no zero byte.
pub(crate) fn event_key(target: &str, number: u64) -> Vec<u8> {
    let mut bytes = target.as_bytes().to_vec();
    bytes.push(0);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes
}

/// The number of the part with this key.
pub(crate) fn part_number(key: &[u8]) -> u16 {
    key.last_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// The number of the upload with this key.
pub(crate) fn upload_number(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The object key in the key of a current object.
pub(crate) fn key_of_object(key: &[u8]) -> &[u8] {
    key.get(BUCKET..).unwrap_or_default()
}

/// The object key in the key of a version or upload.
pub(crate) fn key_of_version(key: &[u8]) -> &[u8] {
    key.len().checked_sub(SUFFIX).and_then(|end| key.get(BUCKET..end)).unwrap_or_default()
}

/// The bound after all versions of a key, and before every other later key.
pub(crate) fn after_key(key: &[u8]) -> Vec<u8> {
    let mut bound = key.to_vec();
    bound.push(1);
    bound
}

/// The bound after all keys with a prefix. UTF-8 has no byte of 255.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut bound = prefix.to_vec();
    match bound.last_mut() {
        Some(last) => *last = last.saturating_add(1),
        None => bound.push(u8::MAX),
    }
    bound
}
