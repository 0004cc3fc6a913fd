//! Operations on single objects: put, get, head, delete.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object::{
    BodyReader, Change, Conditions, DeleteObject, Deletion, ObjectInfo, ObjectRef, Outcome, PutObject,
};
use s3s::dto;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::attributes::{self, Attributes, condition, etag, part_number, size, version};
use crate::errors::{internal, unexpected_outcome};
use crate::gateway::{Gateway, now_ms, timestamp};
use crate::receive::BodyClaims;
use crate::send::{PIECE, stream_body, whole_body};

/// The conditions and the range of a read.
struct ReadRequest {
    object: ObjectRef,
    range: Option<dto::Range>,
    part: Option<i32>,
    if_match: Option<dto::ETagCondition>,
    if_none_match: Option<dto::ETagCondition>,
    if_modified_since: Option<dto::Timestamp>,
    if_unmodified_since: Option<dto::Timestamp>,
}

/// An object whose conditions hold.
struct ReadableObject {
    info: ObjectInfo,
    range: Range<u64>,
    /// True if the answer is a part of the object.
    is_partial: bool,
}

impl Gateway {
    pub(crate) async fn put(
        &self,
        request: S3Request<dto::PutObjectInput>,
    ) -> S3Result<S3Response<dto::PutObjectOutput>> {
        let announced = header(&request.headers, "x-amz-trailer");
        let S3Request { input, trailing_headers, .. } = request;
        check_unsupported(
            input.sse_customer_algorithm.is_some(),
            input.ssekms_key_id.is_some() || input.server_side_encryption.is_some(),
            input.object_lock_mode.is_some() || input.object_lock_legal_hold_status.is_some(),
        )?;
        if input.write_offset_bytes.is_some() {
            return Err(s3_error!(
                NotImplemented,
                "PutObject with x-amz-write-offset-bytes is not implemented"
            ));
        }
        let mut all = Attributes::new();
        attributes::add(&mut all, attributes::CONTENT_TYPE, input.content_type);
        attributes::add(&mut all, attributes::CACHE_CONTROL, input.cache_control);
        attributes::add(&mut all, attributes::CONTENT_DISPOSITION, input.content_disposition);
        attributes::add(&mut all, attributes::CONTENT_ENCODING, stored_encoding(input.content_encoding));
        attributes::add(&mut all, attributes::CONTENT_LANGUAGE, input.content_language);
        attributes::add(&mut all, attributes::TAGS, crate::tagging::check_header(input.tagging)?);
        attributes::add_metadata(&mut all, input.metadata, input.expires)?;
        let claims = BodyClaims {
            length: decoded_length(&request.headers).or(input.content_length),
            md5: input.content_md5,
            checksums: [
                input.checksum_crc32,
                input.checksum_crc32c,
                input.checksum_crc64nvme,
                input.checksum_sha1,
                input.checksum_sha256,
            ],
            algorithm: input.checksum_algorithm.map(|algorithm| algorithm.as_str().to_owned()),
            announced,
            trailers: trailing_headers,
        };
        let received = self.receive(input.body, claims).await?;
        all.extend(received.checksums);
        let conditions =
            Conditions { if_match: condition(input.if_match), if_none_match: condition(input.if_none_match) };
        let put = PutObject {
            bucket: input.bucket,
            key: input.key,
            body: received.body,
            etag: received.etag,
            attributes: all,
            conditions,
            now_ms: now_ms(),
        };
        let Outcome::Object(info) = self.commit(Change::Put(put)).await? else {
            return Err(unexpected_outcome());
        };
        Ok(S3Response::new(dto::PutObjectOutput {
            e_tag: etag(&info),
            version_id: version(&info),
            checksum_crc32: attributes::checksum(&info.attributes, "crc32"),
            checksum_crc32c: attributes::checksum(&info.attributes, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&info.attributes, "crc64nvme"),
            checksum_sha1: attributes::checksum(&info.attributes, "sha1"),
            checksum_sha256: attributes::checksum(&info.attributes, "sha256"),
            checksum_type: attributes::checksum_type(&info.attributes),
            ..Default::default()
        }))
    }

    pub(crate) async fn get(
        &self,
        request: S3Request<dto::GetObjectInput>,
    ) -> S3Result<S3Response<dto::GetObjectOutput>> {
        let input = request.input;
        check_unsupported(input.sse_customer_algorithm.is_some(), false, false)?;
        let read = ReadRequest {
            object: ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id },
            range: input.range,
            part: input.part_number,
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        let (found, body) = self.open_and_read(read).await?;
        let ReadableObject { info, range, is_partial } = found;
        let with_checksums = input.checksum_mode.is_some() && !is_partial;
        let sums = if with_checksums { info.attributes.clone() } else { Attributes::new() };
        let output = dto::GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(body),
            content_length: size(range.end - range.start),
            content_range: is_partial.then(|| content_range(&range, info.size)),
            cache_control: input.response_cache_control.or(attributes::get(&info, attributes::CACHE_CONTROL)),
            content_disposition: input
                .response_content_disposition
                .or(attributes::get(&info, attributes::CONTENT_DISPOSITION)),
            content_encoding: input
                .response_content_encoding
                .or(attributes::get(&info, attributes::CONTENT_ENCODING)),
            content_language: input
                .response_content_language
                .or(attributes::get(&info, attributes::CONTENT_LANGUAGE)),
            content_type: Some(input.response_content_type.unwrap_or_else(|| content_type(&info))),
            expires: input.response_expires.or(attributes::expires(&info)),
            e_tag: etag(&info),
            last_modified: Some(timestamp(info.modified_ms)),
            metadata: attributes::metadata(&info),
            parts_count: input.part_number.and(i32::try_from(info.parts.len().max(1)).ok()),
            tag_count: crate::tagging::count(&info),
            version_id: version(&info),
            checksum_crc32: attributes::checksum(&sums, "crc32"),
            checksum_crc32c: attributes::checksum(&sums, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&sums, "crc64nvme"),
            checksum_sha1: attributes::checksum(&sums, "sha1"),
            checksum_sha256: attributes::checksum(&sums, "sha256"),
            checksum_type: attributes::checksum_type(&sums),
            ..Default::default()
        };
        let mut response = S3Response::new(output);
        if is_partial {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }

    /// Opens an object, checks the request, and reads a short body at once.
    async fn open_and_read(&self, read: ReadRequest) -> S3Result<(ReadableObject, dto::StreamingBlob)> {
        let store = self.store.clone();
        let opened = crate::gateway::blocking(move || -> S3Result<_> {
            let (info, reader) = store.open(&read.object).map_err(crate::errors::convert)?;
            let found = check_read(info, &read)?;
            let length = found.range.end - found.range.start;
            let bytes = if length <= PIECE {
                let length = usize::try_from(length).unwrap_or(0);
                Some(reader.read(found.range.start, length).map_err(crate::errors::convert)?)
            } else {
                None
            };
            Ok((found, reader, bytes))
        });
        let (found, reader, bytes) = opened.await??;
        let body = match bytes {
            Some(bytes) => whole_body(bytes),
            None => stream_body(Arc::<dyn BodyReader>::from(reader), found.range.clone()),
        };
        Ok((found, body))
    }

    pub(crate) async fn head(
        &self,
        request: S3Request<dto::HeadObjectInput>,
    ) -> S3Result<S3Response<dto::HeadObjectOutput>> {
        let input = request.input;
        check_unsupported(input.sse_customer_algorithm.is_some(), false, false)?;
        let read = ReadRequest {
            object: ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id },
            range: input.range,
            part: input.part_number,
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        let object = read.object.clone();
        let info = self.read(move |store| store.object(&object)).await?;
        let ReadableObject { info, range, is_partial } = check_read(info, &read)?;
        let sums = if input.checksum_mode.is_some() { info.attributes.clone() } else { Attributes::new() };
        let output = dto::HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: size(range.end - range.start),
            cache_control: attributes::get(&info, attributes::CACHE_CONTROL),
            content_disposition: attributes::get(&info, attributes::CONTENT_DISPOSITION),
            content_encoding: attributes::get(&info, attributes::CONTENT_ENCODING),
            content_language: attributes::get(&info, attributes::CONTENT_LANGUAGE),
            content_type: Some(content_type(&info)),
            expires: attributes::expires(&info),
            e_tag: etag(&info),
            last_modified: Some(timestamp(info.modified_ms)),
            metadata: attributes::metadata(&info),
            parts_count: input.part_number.and(i32::try_from(info.parts.len().max(1)).ok()),
            version_id: version(&info),
            checksum_crc32: attributes::checksum(&sums, "crc32"),
            checksum_crc32c: attributes::checksum(&sums, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&sums, "crc64nvme"),
            checksum_sha1: attributes::checksum(&sums, "sha1"),
            checksum_sha256: attributes::checksum(&sums, "sha256"),
            checksum_type: attributes::checksum_type(&sums),
            ..Default::default()
        };
        let mut response = S3Response::new(output);
        if is_partial {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }

    pub(crate) async fn delete(
        &self,
        request: S3Request<dto::DeleteObjectInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectOutput>> {
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let conditions = Conditions { if_match: condition(input.if_match), if_none_match: None };
        let deletion = self.delete_one(object, conditions).await?;
        Ok(S3Response::new(dto::DeleteObjectOutput {
            delete_marker: deletion.is_marker.then_some(true),
            version_id: deletion.version.filter(|version| version != "null"),
            ..Default::default()
        }))
    }

    async fn delete_one(&self, object: ObjectRef, conditions: Conditions) -> S3Result<Deletion> {
        let delete = DeleteObject { object, conditions, now_ms: now_ms() };
        match self.commit(Change::Delete(delete)).await? {
            Outcome::Deleted(deletion) => Ok(deletion),
            _ => Err(unexpected_outcome()),
        }
    }

    pub(crate) async fn delete_many(
        &self,
        request: S3Request<dto::DeleteObjectsInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectsOutput>> {
        let dto::DeleteObjectsInput { bucket, delete, .. } = request.input;
        if delete.objects.len() > 1000 {
            return Err(s3_error!(MalformedXML, "the request names more than 1000 objects"));
        }
        let name = bucket.clone();
        self.read(move |store| store.bucket(&name)).await?;
        let is_quiet = delete.quiet.unwrap_or(false);
        // All changes are queued before the first answer is awaited: they share commits.
        let pending: Vec<_> = delete
            .objects
            .into_iter()
            .map(|each| {
                let (key, version) = (each.key, each.version_id);
                let object = ObjectRef { bucket: bucket.clone(), key: key.clone(), version: version.clone() };
                let if_match = each.e_tag.map(dto::ETag::into_value);
                let conditions = Conditions { if_match, if_none_match: None };
                let delete = DeleteObject { object, conditions, now_ms: now_ms() };
                (key, version, self.store.commit(Change::Delete(delete)))
            })
            .collect();
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (key, version, pending) in pending {
            match pending.await.map_err(crate::errors::convert) {
                Ok(Outcome::Deleted(_)) if is_quiet => {}
                Ok(Outcome::Deleted(Deletion { version: found, is_marker })) => {
                    let found = found.filter(|found| found != "null");
                    deleted.push(dto::DeletedObject {
                        key: Some(key),
                        delete_marker: is_marker.then_some(true),
                        delete_marker_version_id: found.filter(|_| is_marker),
                        version_id: version,
                    });
                }
                Ok(_) => return Err(unexpected_outcome()),
                Err(error) => errors.push(dto::Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    version_id: version,
                }),
            }
        }
        Ok(S3Response::new(dto::DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            ..Default::default()
        }))
    }
}

/// Checks the conditions of a read, and resolves its range.
fn check_read(info: ObjectInfo, read: &ReadRequest) -> S3Result<ReadableObject> {
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
        return Err(s3_error!(NotModified));
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
    Ok(ReadableObject { info, range, is_partial })
}

/// The bytes of a part of an object.
fn part_range(info: &ObjectInfo, number: i32) -> S3Result<Option<Range<u64>>> {
    let index = usize::from(part_number(number)?) - 1;
    if info.parts.is_empty() && index == 0 {
        return Ok(None);
    }
    let Some(size) = info.parts.get(index) else {
        return Err(s3_error!(InvalidRange, "the object has no part {number}"));
    };
    let start: u64 = info.parts.iter().take(index).sum();
    Ok(Some(start..start + size))
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

/// The encoding of the object itself, without that of the upload.
pub(crate) fn stored_encoding(encoding: Option<String>) -> Option<String> {
    let encoding = encoding?;
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|each| !each.eq_ignore_ascii_case("aws-chunked")).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// The length of a body that is sent in chunks.
pub(crate) fn decoded_length(headers: &hyper::HeaderMap) -> Option<i64> {
    header(headers, "x-amz-decoded-content-length")?.parse().ok()
}

pub(crate) fn header(headers: &hyper::HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Refuses features that would otherwise be ignored.
pub(crate) fn check_unsupported(customer_key: bool, server_key: bool, lock: bool) -> S3Result<()> {
    if customer_key || server_key {
        return Err(s3_error!(NotImplemented, "server-side encryption is not implemented"));
    }
    if lock {
        return Err(s3_error!(NotImplemented, "object lock is not implemented"));
    }
    Ok(())
}
