//! Reads of objects: bodies, ranges, parts, and headers alone.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object::{BodyReader, ObjectInfo, ObjectRef, RetentionMode};
use s3s::dto;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::access::scope;
use crate::attributes::{self, Attributes, etag, part_number, size, version};
use crate::encryption::{self, CustomerKey, Encryption};
use crate::errors::convert;
use crate::gateway::{Gateway, blocking, timestamp};
use crate::lifecycle;
use crate::put::{customer_key, header};
use crate::sealed::SealedReader;
use crate::send::{SENT_PIECE, stream_body, whole_body};
use crate::times::from_ms;

/// The conditions and the range of a read.
struct ReadRequest {
    object: ObjectRef,
    range: Option<dto::Range>,
    part: Option<i32>,
    if_match: Option<dto::ETagCondition>,
    if_none_match: Option<dto::ETagCondition>,
    if_modified_since: Option<dto::Timestamp>,
    if_unmodified_since: Option<dto::Timestamp>,
    customer: CustomerKey,
}

/// An object whose conditions hold.
struct ReadableObject {
    info: ObjectInfo,
    range: Range<u64>,
    /// True if the answer is a part of the object.
    is_partial: bool,
    encryption: Option<Encryption>,
}

/// Collects the conditions and the range of an input.
macro_rules! read_request {
    ($input:ident) => {
        ReadRequest {
            object: ObjectRef {
                bucket: $input.bucket.clone(),
                key: $input.key.clone(),
                version: $input.version_id.take(),
            },
            range: $input.range.take(),
            part: $input.part_number,
            if_match: $input.if_match.take(),
            if_none_match: $input.if_none_match.take(),
            if_modified_since: $input.if_modified_since.take(),
            if_unmodified_since: $input.if_unmodified_since.take(),
            customer: customer_key(
                $input.sse_customer_algorithm.take(),
                $input.sse_customer_key.take(),
                $input.sse_customer_key_md5.take(),
            ),
        }
    };
}

/// Fills the fields that the answers to reads of bodies and of headers share.
macro_rules! read_output {
    ($kind:ident, $info:expr, $sums:expr, $bucket:expr, $gateway:expr, { $($rest:tt)* }) => {{
        let sse = encryption::describe(&$info.attributes);
        let retention = $info.lock.retention;
        let hold = if $info.lock.legal_hold { "ON" } else { "OFF" };
        dto::$kind {
            accept_ranges: Some("bytes".to_owned()),
            e_tag: etag(&$info),
            expiration: lifecycle::expiration_header(&$bucket, &$info, $gateway.lifecycle_day),
            last_modified: Some(timestamp($info.modified_ms)),
            metadata: attributes::metadata(&$info),
            version_id: version(&$info, $bucket.info.versioning),
            website_redirect_location: attributes::get(&$info, attributes::REDIRECT),
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            sse_customer_algorithm: sse.customer_algorithm,
            sse_customer_key_md5: sse.customer_md5,
            object_lock_mode: retention.map(|retention| dto::ObjectLockMode::from_static(mode_name(retention.mode))),
            object_lock_retain_until_date: retention.map(|retention| from_ms(retention.until_ms)),
            object_lock_legal_hold_status: ($bucket.lock.is_some())
                .then(|| dto::ObjectLockLegalHoldStatus::from(hold.to_owned())),
            checksum_crc32: attributes::checksum(&$sums, "crc32"),
            checksum_crc32c: attributes::checksum(&$sums, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&$sums, "crc64nvme"),
            checksum_sha1: attributes::checksum(&$sums, "sha1"),
            checksum_sha256: attributes::checksum(&$sums, "sha256"),
            checksum_type: attributes::checksum_type(&$sums),
            $($rest)*
            ..Default::default()
        }
    }};
}

/// The name of a mode in requests and answers.
pub(crate) fn mode_name(mode: RetentionMode) -> &'static str {
    match mode {
        RetentionMode::Governance => "GOVERNANCE",
        RetentionMode::Compliance => "COMPLIANCE",
    }
}

impl Gateway {
    pub(crate) async fn get(
        &self,
        request: S3Request<dto::GetObjectInput>,
    ) -> S3Result<S3Response<dto::GetObjectOutput>> {
        let scope = scope(&request.extensions);
        let bucket = scope.bucket()?.clone();
        check_encryption_header(&request.headers)?;
        let mut input = request.input;
        let overrides = input.response_cache_control.is_some()
            || input.response_content_disposition.is_some()
            || input.response_content_encoding.is_some()
            || input.response_content_language.is_some()
            || input.response_content_type.is_some()
            || input.response_expires.is_some();
        if overrides && scope.caller.user.is_none() {
            return Err(s3_error!(
                InvalidRequest,
                "an anonymous request cannot override headers of the answer"
            ));
        }
        let part = input.part_number;
        let (found, body) = self.open_and_read(read_request!(input)).await?;
        let ReadableObject { info, range, is_partial, .. } = found;
        let with_checksums = input.checksum_mode.is_some() && !is_partial;
        let sums = if with_checksums { info.attributes.clone() } else { Attributes::new() };
        let stored = |name| attributes::get(&info, name);
        let output = read_output!(GetObjectOutput, info, sums, bucket, self, {
            body: Some(body),
            content_length: size(range.end - range.start),
            content_range: is_partial.then(|| content_range(&range, info.size)),
            cache_control: input.response_cache_control.or(stored(attributes::CACHE_CONTROL)),
            content_disposition: input.response_content_disposition.or(stored(attributes::CONTENT_DISPOSITION)),
            content_encoding: input.response_content_encoding.or(stored(attributes::CONTENT_ENCODING)),
            content_language: input.response_content_language.or(stored(attributes::CONTENT_LANGUAGE)),
            content_type: Some(input.response_content_type.unwrap_or_else(|| content_type(&info))),
            expires: input.response_expires.or(attributes::expires(&info)),
            parts_count: part.and(i32::try_from(info.parts.len().max(1)).ok()),
            tag_count: crate::tags::count(&info),
        });
        let mut response = S3Response::new(output);
        if is_partial {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }

    /// Opens an object, checks the request, and reads a short body at once.
    async fn open_and_read(&self, read: ReadRequest) -> S3Result<(ReadableObject, dto::StreamingBlob)> {
        let (store, keys) = (self.store.clone(), self.service_keys.clone());
        let opened = blocking(move || -> S3Result<_> {
            let (info, reader) = store.open(&read.object).map_err(convert)?;
            let encryption = keys.open(&info.attributes, &read.customer)?;
            let found = check_read(info, &read, encryption)?;
            let reader = plain_reader(Arc::from(reader), &found.info, found.encryption.as_ref());
            let length = found.range.end - found.range.start;
            let bytes = if length <= SENT_PIECE {
                let length = usize::try_from(length).unwrap_or(0);
                Some(reader.read(found.range.start, length).map_err(convert)?)
            } else {
                None
            };
            Ok((found, reader, bytes))
        });
        let (found, reader, bytes) = opened.await??;
        let body = match bytes {
            Some(bytes) => whole_body(bytes),
            None => stream_body(reader, found.range.clone()),
        };
        Ok((found, body))
    }

    pub(crate) async fn head(
        &self,
        request: S3Request<dto::HeadObjectInput>,
    ) -> S3Result<S3Response<dto::HeadObjectOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        check_encryption_header(&request.headers)?;
        let mut input = request.input;
        let part = input.part_number;
        let read = read_request!(input);
        let object = read.object.clone();
        let info = self.read(move |store| store.object(&object)).await?;
        let encryption = self.service_keys.open(&info.attributes, &read.customer)?;
        let ReadableObject { info, range, is_partial, .. } = check_read(info, &read, encryption)?;
        let sums = if input.checksum_mode.is_some() { info.attributes.clone() } else { Attributes::new() };
        let stored = |name| attributes::get(&info, name);
        let output = read_output!(HeadObjectOutput, info, sums, bucket, self, {
            content_length: size(range.end - range.start),
            content_range: is_partial.then(|| content_range(&range, info.size)),
            cache_control: stored(attributes::CACHE_CONTROL),
            content_disposition: stored(attributes::CONTENT_DISPOSITION),
            content_encoding: stored(attributes::CONTENT_ENCODING),
            content_language: stored(attributes::CONTENT_LANGUAGE),
            content_type: Some(content_type(&info)),
            expires: attributes::expires(&info),
            parts_count: part.and(i32::try_from(info.parts.len().max(1)).ok()),
        });
        let mut response = S3Response::new(output);
        if is_partial {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }
}

/// Returns a reader of the body before encryption.
pub(crate) fn plain_reader(
    reader: Arc<dyn BodyReader>,
    info: &ObjectInfo,
    encryption: Option<&Encryption>,
) -> Arc<dyn BodyReader> {
    let Some(encryption) = encryption else { return reader };
    let parts = if info.parts.is_empty() { vec![info.size] } else { info.parts.clone() };
    Arc::new(SealedReader::new(reader, encryption.root.clone(), parts))
}

/// Refuses the header that chooses an encryption on reads, as S3 does.
fn check_encryption_header(headers: &hyper::HeaderMap) -> S3Result<()> {
    match header(headers, "x-amz-server-side-encryption") {
        Some(_) => Err(s3_error!(InvalidArgument, "x-amz-server-side-encryption is not a header of reads")),
        None => Ok(()),
    }
}

/// Checks the conditions of a read, and resolves its range.
fn check_read(
    info: ObjectInfo,
    read: &ReadRequest,
    encryption: Option<Encryption>,
) -> S3Result<ReadableObject> {
    let matches = |condition: &dto::ETagCondition| match condition {
        dto::ETagCondition::Any => true,
        dto::ETagCondition::ETag(etag) => etag.value() == info.etag,
    };
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(info.modified_ms / 1000);
    let modified = dto::Timestamp::from(modified);
    let is_unmodified = |since: &dto::Timestamp| modified <= *since;
    match (&read.if_match, &read.if_unmodified_since) {
        (Some(condition), _) if !matches(condition) => return Err(s3_error!(PreconditionFailed)),
        (None, Some(since)) if !is_unmodified(since) => return Err(s3_error!(PreconditionFailed)),
        _ => {}
    }
    let is_known = match (&read.if_none_match, &read.if_modified_since) {
        (Some(condition), _) => matches(condition),
        (None, Some(since)) => is_unmodified(since),
        _ => false,
    };
    if is_known {
        return Err(not_modified(&info));
    }
    let range = match (&read.range, read.part) {
        (Some(_), Some(_)) => {
            return Err(s3_error!(InvalidRequest, "a request has either a range or a part number"));
        }
        (Some(range), None) => match range.check(info.size) {
            Ok(range) => Some(range),
            Err(_) => return Err(not_satisfiable(info.size)),
        },
        (None, Some(number)) => part_range(&info, number)?,
        (None, None) => None,
    };
    let is_partial = range.is_some();
    let range = range.unwrap_or(0..info.size);
    Ok(ReadableObject { info, range, is_partial, encryption })
}

/// The bytes of a part of an object.
fn part_range(info: &ObjectInfo, number: i32) -> S3Result<Option<Range<u64>>> {
    let index = usize::from(part_number(number)?) - 1;
    if info.parts.is_empty() && index == 0 {
        return Ok(None);
    }
    let Some(size) = info.parts.get(index) else {
        return Err(s3_error!(InvalidPart, "the object has no part {number}"));
    };
    let start: u64 = info.parts.iter().take(index).sum();
    Ok(Some(start..start + size))
}

/// The answer to a client that has the object; it carries the ETag.
fn not_modified(info: &ObjectInfo) -> S3Error {
    let mut error = s3_error!(NotModified);
    let mut headers = hyper::HeaderMap::new();
    if let Ok(value) = format!("\"{}\"", info.etag).parse() {
        headers.insert(hyper::header::ETAG, value);
    }
    error.set_headers(headers);
    error
}

fn not_satisfiable(size: u64) -> S3Error {
    let mut error = s3_error!(InvalidRange, "the range is beyond the end of the object at {size}");
    let mut headers = hyper::HeaderMap::new();
    if let Ok(value) = format!("bytes */{size}").parse() {
        headers.insert(hyper::header::CONTENT_RANGE, value);
    }
    error.set_headers(headers);
    error
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1))
}

fn content_type(info: &ObjectInfo) -> String {
    attributes::get(info, attributes::CONTENT_TYPE).unwrap_or_else(|| "binary/octet-stream".to_owned())
}
