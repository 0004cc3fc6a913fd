//! Headers of objects as attributes of the store.

use std::collections::BTreeMap;

use object::{ObjectInfo, Versioning};
use s3s::dto::{ChecksumType, ETag, ETagCondition, Metadata, StorageClass, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};

use crate::acl::AccessList;
use crate::errors::invalid;
use crate::times::http_date;

/// Attributes by name.
pub(crate) type Attributes = BTreeMap<String, String>;

pub(crate) const CONTENT_TYPE: &str = "content-type";
pub(crate) const CACHE_CONTROL: &str = "cache-control";
pub(crate) const CONTENT_DISPOSITION: &str = "content-disposition";
pub(crate) const CONTENT_ENCODING: &str = "content-encoding";
pub(crate) const CONTENT_LANGUAGE: &str = "content-language";
const EXPIRES: &str = "expires";
pub(crate) const REDIRECT: &str = "website-redirect-location";
/// The access list in JSON, if it is not that of an object which the bucket's owner put.
pub(crate) const ACL: &str = "acl";
/// The tags, as in the query of a URL.
pub(crate) const TAGS: &str = "tags";
/// Starts the name of user metadata.
const META: &str = "meta:";
/// Starts the name of a checksum.
pub(crate) const CHECKSUM: &str = "checksum:";
/// The type of the checksums.
pub(crate) const CHECKSUM_TYPE: &str = "checksum-type";
/// The largest user metadata in bytes, as in S3.
const METADATA_MAX: usize = 2048;

/// Adds an attribute that a request has.
pub(crate) fn add(attributes: &mut Attributes, name: &str, value: Option<String>) {
    if let Some(value) = value {
        attributes.insert(name.to_owned(), value);
    }
}

/// Adds user metadata and the expiry.
///
/// # Errors
/// For more than 2 KiB of metadata.
pub(crate) fn add_metadata(
    attributes: &mut Attributes,
    metadata: Option<Metadata>,
    expires: Option<Timestamp>,
) -> S3Result<()> {
    let metadata = metadata.unwrap_or_default();
    if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_MAX {
        return Err(s3_error!(MetadataTooLarge, "the metadata has more than {METADATA_MAX} bytes"));
    }
    attributes.extend(metadata.into_iter().map(|(name, value)| (format!("{META}{name}"), value)));
    add(attributes, EXPIRES, expires.as_ref().and_then(http_date));
    Ok(())
}

/// The access list of an object.
pub(crate) fn access_list(attributes: &Attributes, bucket_owner: &str) -> AccessList {
    let stored = attributes.get(ACL).and_then(|text| serde_json::from_str(text).ok());
    stored.unwrap_or_else(|| AccessList::private(bucket_owner))
}

/// Sets the access list of an object.
pub(crate) fn set_access_list(attributes: &mut Attributes, list: &AccessList, bucket_owner: &str) {
    if *list == AccessList::private(bucket_owner) {
        attributes.remove(ACL);
    } else if let Ok(text) = serde_json::to_string(list) {
        attributes.insert(ACL.to_owned(), text);
    }
}

/// Checks the storage class of a request. There is one class.
///
/// # Errors
/// `InvalidStorageClass`.
pub(crate) fn check_storage_class(class: Option<&StorageClass>) -> S3Result<()> {
    match class.map(StorageClass::as_str) {
        None | Some(StorageClass::STANDARD | StorageClass::REDUCED_REDUNDANCY) => Ok(()),
        Some(other) => {
            Err(s3_error!(InvalidStorageClass, "the storage class '{other}' does not exist: use STANDARD"))
        }
    }
}

/// The user metadata of an object.
pub(crate) fn metadata(info: &ObjectInfo) -> Option<Metadata> {
    let metadata: Metadata = info
        .attributes
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(META)?.to_owned(), value.clone())))
        .collect();
    (!metadata.is_empty()).then_some(metadata)
}

/// The expiry of an object for caches.
pub(crate) fn expires(info: &ObjectInfo) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, info.attributes.get(EXPIRES)?).ok()
}

/// An attribute of an object.
pub(crate) fn get(info: &ObjectInfo, name: &str) -> Option<String> {
    info.attributes.get(name).cloned()
}

/// A checksum of an object in base64.
pub(crate) fn checksum(attributes: &Attributes, algorithm: &str) -> Option<String> {
    attributes.get(&format!("{CHECKSUM}{algorithm}")).cloned()
}

/// The type of the checksums of an object, if it has any.
pub(crate) fn checksum_type(attributes: &Attributes) -> Option<ChecksumType> {
    let has_checksum = attributes.keys().any(|name| name.starts_with(CHECKSUM));
    let kind = attributes.get(CHECKSUM_TYPE).map_or(ChecksumType::FULL_OBJECT, String::as_str);
    has_checksum.then(|| ChecksumType::from(kind.to_owned()))
}

/// An ETag for answers.
pub(crate) fn etag(info: &ObjectInfo) -> Option<ETag> {
    Some(ETag::Strong(info.etag.clone()))
}

/// The version for answers, if the bucket keeps versions.
pub(crate) fn version(info: &ObjectInfo, versioning: Versioning) -> Option<String> {
    (versioning != Versioning::Off || info.version != "null").then(|| info.version.clone())
}

/// The ETag of a condition, for the store.
pub(crate) fn condition(condition: Option<ETagCondition>) -> Option<String> {
    Some(match condition? {
        ETagCondition::Any => "*".to_owned(),
        ETagCondition::ETag(etag) => etag.into_value(),
    })
}

/// A number of bytes for answers.
pub(crate) fn size(bytes: u64) -> Option<i64> {
    i64::try_from(bytes).ok()
}

/// The number of a part.
///
/// # Errors
/// When it is out of range.
pub(crate) fn part_number(number: i32) -> S3Result<u16> {
    let checked = u16::try_from(number).ok().filter(|number| (1..=10_000).contains(number));
    checked.ok_or_else(|| invalid(format!("part number {number} is out of range: 1 to 10000")))
}
