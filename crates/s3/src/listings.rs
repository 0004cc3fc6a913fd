//! Listings of objects and versions.

use object::{ListPage, ListQuery, ObjectInfo};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::scope;
use crate::acl;
use crate::attributes::{etag, size};
use crate::errors::invalid;
use crate::gateway::{Gateway, timestamp};
use crate::request_check::parse_query;

/// The largest number of entries in an answer.
const PAGE_MAX: i32 = 1000;

impl Gateway {
    pub(crate) async fn list_v2(
        &self,
        request: S3Request<dto::ListObjectsV2Input>,
    ) -> S3Result<S3Response<dto::ListObjectsV2Output>> {
        let owner = scope(&request.extensions).bucket()?.owner().to_owned();
        check_unordered(&request.uri, request.input.delimiter.as_ref())?;
        let input = request.input;
        let encodes = encodes(input.encoding_type.as_ref())?;
        let after = match &input.continuation_token {
            Some(token) if !token.is_empty() => read_token(token)?,
            _ => input.start_after.clone().unwrap_or_default(),
        };
        let max_keys = page_size(input.max_keys)?;
        let page = self.list(&input.bucket, &input.prefix, &input.delimiter, after, max_keys).await?;
        let count = page.entries.len() + page.prefixes.len();
        let owner = input.fetch_owner.unwrap_or(false).then_some(owner.as_str());
        Ok(S3Response::new(dto::ListObjectsV2Output {
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_deref().map(write_token),
            contents: Some(page.entries.into_iter().map(|info| describe(info, encodes, owner)).collect()),
            common_prefixes: Some(groups(page.prefixes, encodes)),
            name: Some(input.bucket),
            prefix: Some(encoded(input.prefix.unwrap_or_default(), encodes)),
            delimiter: shown_delimiter(input.delimiter, encodes),
            start_after: input.start_after.map(|after| encoded(after, encodes)),
            max_keys: Some(max_keys),
            continuation_token: input.continuation_token,
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }

    pub(crate) async fn list_v1(
        &self,
        request: S3Request<dto::ListObjectsInput>,
    ) -> S3Result<S3Response<dto::ListObjectsOutput>> {
        let owner = scope(&request.extensions).bucket()?.owner().to_owned();
        check_unordered(&request.uri, request.input.delimiter.as_ref())?;
        let input = request.input;
        let encodes = encodes(input.encoding_type.as_ref())?;
        let after = input.marker.clone().unwrap_or_default();
        let max_keys = page_size(input.max_keys)?;
        let page = self.list(&input.bucket, &input.prefix, &input.delimiter, after, max_keys).await?;
        Ok(S3Response::new(dto::ListObjectsOutput {
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.map(|next| encoded(next, encodes)),
            contents: Some(
                page.entries.into_iter().map(|info| describe(info, encodes, Some(&owner))).collect(),
            ),
            common_prefixes: Some(groups(page.prefixes, encodes)),
            name: Some(input.bucket),
            prefix: Some(encoded(input.prefix.unwrap_or_default(), encodes)),
            delimiter: shown_delimiter(input.delimiter, encodes),
            marker: Some(encoded(input.marker.unwrap_or_default(), encodes)),
            max_keys: Some(max_keys),
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }

    async fn list(
        &self,
        bucket: &str,
        prefix: &Option<String>,
        delimiter: &Option<String>,
        after: String,
        max_keys: i32,
    ) -> S3Result<ListPage<ObjectInfo>> {
        let query = ListQuery {
            bucket: bucket.to_owned(),
            prefix: prefix.clone().unwrap_or_default(),
            delimiter: delimiter.clone().unwrap_or_default(),
            after,
            after_version: None,
            limit: usize::try_from(max_keys).unwrap_or(0),
        };
        self.read(move |store| store.list(&query)).await
    }

    pub(crate) async fn list_versions(
        &self,
        request: S3Request<dto::ListObjectVersionsInput>,
    ) -> S3Result<S3Response<dto::ListObjectVersionsOutput>> {
        let owner = scope(&request.extensions).bucket()?.owner().to_owned();
        let input = request.input;
        let encodes = encodes(input.encoding_type.as_ref())?;
        let max_keys = page_size(input.max_keys)?;
        if input.version_id_marker.is_some() && input.key_marker.is_none() {
            return Err(invalid("a version-id-marker needs a key-marker".to_owned()));
        }
        let query = ListQuery {
            bucket: input.bucket.clone(),
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: input.key_marker.clone().unwrap_or_default(),
            after_version: input.version_id_marker.clone(),
            limit: usize::try_from(max_keys).unwrap_or(0),
        };
        let page = self.read(move |store| store.list_versions(&query)).await?;
        let last = page.entries.last().filter(|last| page.next.as_ref() == Some(&last.key));
        let next_version = last.map(|last| last.version.clone());
        let (markers, versions): (Vec<_>, Vec<_>) = page.entries.into_iter().partition(|info| info.is_marker);
        Ok(S3Response::new(dto::ListObjectVersionsOutput {
            is_truncated: Some(page.next.is_some()),
            next_key_marker: page.next.map(|next| encoded(next, encodes)),
            next_version_id_marker: next_version,
            versions: Some(
                versions.into_iter().map(|info| describe_version(info, encodes, &owner)).collect(),
            ),
            delete_markers: Some(
                markers.into_iter().map(|info| describe_marker(info, encodes, &owner)).collect(),
            ),
            common_prefixes: Some(groups(page.prefixes, encodes)),
            name: Some(input.bucket),
            prefix: Some(encoded(input.prefix.unwrap_or_default(), encodes)),
            delimiter: shown_delimiter(input.delimiter, encodes),
            key_marker: Some(encoded(input.key_marker.unwrap_or_default(), encodes)),
            version_id_marker: input.version_id_marker,
            max_keys: Some(max_keys),
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }
}

/// Refuses unordered listings with groups, which have no order to skip by.
fn check_unordered(uri: &hyper::Uri, delimiter: Option<&String>) -> S3Result<()> {
    let query = parse_query(uri.query().unwrap_or_default());
    let is_unordered = query.iter().any(|(name, value)| name == "allow-unordered" && value == "true");
    if is_unordered && delimiter.is_some_and(|delimiter| !delimiter.is_empty()) {
        return Err(invalid("an unordered listing has no delimiter".to_owned()));
    }
    Ok(())
}

fn shown_delimiter(delimiter: Option<String>, encodes: bool) -> Option<String> {
    delimiter.filter(|delimiter| !delimiter.is_empty()).map(|delimiter| encoded(delimiter, encodes))
}

/// The largest number of entries of an answer.
///
/// # Errors
/// `InvalidArgument` for a negative number.
pub(crate) fn page_size(wanted: Option<i32>) -> S3Result<i32> {
    match wanted.unwrap_or(PAGE_MAX) {
        negative if negative < 0 => Err(invalid(format!("max-keys {negative} is negative"))),
        wanted => Ok(wanted.min(PAGE_MAX)),
    }
}

/// True if keys of the answer are to be percent-encoded.
///
/// # Errors
/// `InvalidArgument` for an unknown encoding.
pub(crate) fn encodes(encoding: Option<&dto::EncodingType>) -> S3Result<bool> {
    match encoding.map(dto::EncodingType::as_str) {
        None => Ok(false),
        Some("url") => Ok(true),
        Some(other) => Err(s3_error!(InvalidArgument, "the encoding type '{other}' is unknown: use 'url'")),
    }
}

/// True for a character of URLs without a meaning of its own, by RFC 3986.
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// A key for answers, percent-encoded if the client wants that.
pub(crate) fn encoded(text: String, encodes: bool) -> String {
    if !encodes {
        return text;
    }
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            _ if byte == b'/' || is_unreserved(byte) => result.push(char::from(byte)),
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

/// A continuation token: the last key in base64, so that clients pass any key on unchanged.
pub(crate) fn write_token(key: &str) -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(key)
}

/// The key in a continuation token.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn read_token(token: &str) -> S3Result<String> {
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token);
    let key = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| invalid("the continuation token is invalid".to_owned()))
}

/// Groups of keys for answers.
pub(crate) fn groups(prefixes: Vec<String>, encodes: bool) -> Vec<dto::CommonPrefix> {
    let group = |prefix| dto::CommonPrefix { prefix: Some(encoded(prefix, encodes)) };
    prefixes.into_iter().map(group).collect()
}

fn describe(info: ObjectInfo, encodes: bool, owner: Option<&str>) -> dto::Object {
    dto::Object {
        owner: owner.map(acl::owner),
        e_tag: etag(&info),
        last_modified: Some(timestamp(info.modified_ms)),
        size: size(info.size),
        storage_class: Some(dto::ObjectStorageClass::from_static(dto::ObjectStorageClass::STANDARD)),
        key: Some(encoded(info.key, encodes)),
        ..Default::default()
    }
}

fn describe_version(info: ObjectInfo, encodes: bool, owner: &str) -> dto::ObjectVersion {
    dto::ObjectVersion {
        owner: Some(acl::owner(owner)),
        e_tag: etag(&info),
        is_latest: Some(info.is_latest),
        last_modified: Some(timestamp(info.modified_ms)),
        size: size(info.size),
        storage_class: Some(dto::ObjectVersionStorageClass::from_static(
            dto::ObjectVersionStorageClass::STANDARD,
        )),
        version_id: Some(info.version),
        key: Some(encoded(info.key, encodes)),
        ..Default::default()
    }
}

fn describe_marker(info: ObjectInfo, encodes: bool, owner: &str) -> dto::DeleteMarkerEntry {
    dto::DeleteMarkerEntry {
        owner: Some(acl::owner(owner)),
        is_latest: Some(info.is_latest),
        last_modified: Some(timestamp(info.modified_ms)),
        version_id: Some(info.version),
        key: Some(encoded(info.key, encodes)),
    }
}
