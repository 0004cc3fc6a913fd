//! Copies of objects and of ranges of them, without copying data.

use std::ops::Range;
use std::sync::Arc;

use object::{
    Change, ChangeOrigin, Conditions, CopyObject, CopyPart, ObjectInfo, ObjectRef, PIECE_BYTES, PutObject,
    PutPart,
};
use s3s::dto::{self, CopySource};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::{RequestScope, scope};
use crate::attributes::{self, condition, etag, part_number, version};
use crate::checksums::{PART_CHECKSUMS, UPLOAD_ALGORITHM};
use crate::encryption::{self, CustomerKey, Encryption, remove_description};
use crate::errors::convert;
use crate::gateway::{Gateway, blocking, now_ms, timestamp};
use crate::get::plain_reader;
use crate::put::{
    customer_key, encryption_request, grant_headers, header, lock_headers, new_lock, object_headers,
};
use crate::receive::{BodyClaims, BodyForm, ReceivedBody, md5_hex};
use crate::send::stream_body;

/// The largest range whose MD5 is computed, in bytes: the largest part.
const PART_MAX: u64 = 5 << 30;

/// Conditions on the times of the source.
struct SourceTimes {
    modified_since: Option<dto::Timestamp>,
    unmodified_since: Option<dto::Timestamp>,
}

impl Gateway {
    /// Returns the source of a copy, which the caller may read, and its encryption.
    async fn open_source(
        &self,
        scope: &RequestScope,
        source: &ObjectRef,
        customer: &CustomerKey,
    ) -> S3Result<(ObjectInfo, Option<Encryption>)> {
        self.authorize_source(&scope.caller, source).await?;
        let lookup = source.clone();
        let found = self.read(move |store| store.object(&lookup)).await;
        let info = found.map_err(|error| match error.code() {
            s3s::S3ErrorCode::MethodNotAllowed => {
                s3_error!(InvalidRequest, "the source of the copy is a delete marker")
            }
            _ => error,
        })?;
        let encryption = self.service_keys.open(&info.attributes, customer)?;
        Ok((info, encryption))
    }

    /// Reads a range of an object and stores it in another form.
    async fn rewrite(
        &self,
        source: &ObjectRef,
        range: Range<u64>,
        encryption: Option<Encryption>,
        form: BodyForm,
        algorithm: Option<String>,
    ) -> S3Result<ReceivedBody> {
        let (store, lookup) = (self.store.clone(), source.clone());
        let (info, reader) = blocking(move || store.open(&lookup)).await?.map_err(convert)?;
        let reader = plain_reader(Arc::from(reader), &info, encryption.as_ref());
        let claims = BodyClaims {
            length: i64::try_from(range.end - range.start).ok(),
            algorithm,
            ..BodyClaims::default()
        };
        self.receive(Some(stream_body(reader, range)), claims, form).await
    }

    pub(crate) async fn copy(
        &self,
        request: S3Request<dto::CopyObjectInput>,
    ) -> S3Result<S3Response<dto::CopyObjectOutput>> {
        let scope = scope(&request.extensions);
        let bucket = scope.bucket()?.clone();
        let mut input = request.input;
        attributes::check_storage_class(input.storage_class.as_ref())?;
        let lock = new_lock(&bucket, lock_headers!(input), now_ms())?;
        let source = source_of(&input.copy_source)?;
        let is = |directive: Option<&str>| directive.is_some_and(|value| value == "REPLACE");
        let replaces = is(input.metadata_directive.as_ref().map(dto::MetadataDirective::as_str));
        let replaces_tags = is(input.tagging_directive.as_ref().map(dto::TaggingDirective::as_str));
        let customer = customer_key(
            input.copy_source_sse_customer_algorithm.take(),
            input.copy_source_sse_customer_key.take(),
            input.copy_source_sse_customer_key_md5.take(),
        );
        let (info, source_encryption) = self.open_source(&scope, &source, &customer).await?;
        let chosen = encryption_request!(input);
        let changes_encryption = chosen.customer.is_some() || chosen.algorithm.is_some();
        let encryption = self.service_keys.choose(chosen, bucket.encryption.as_ref())?;
        let is_same = source.bucket == input.bucket && source.key == input.key && source.version.is_none();
        if is_same && !replaces && !replaces_tags && !changes_encryption {
            return Err(s3_error!(
                InvalidRequest,
                "a copy of an object to itself must change its metadata, tags or encryption"
            ));
        }
        let times = SourceTimes {
            modified_since: input.copy_source_if_modified_since.take(),
            unmodified_since: input.copy_source_if_unmodified_since.take(),
        };
        let source_conditions = source_conditions(
            &info,
            condition(input.copy_source_if_match.take()),
            condition(input.copy_source_if_none_match.take()),
            &times,
        )?;
        let canned = input.acl.take();
        let canned = canned.as_ref().map(dto::ObjectCannedACL::as_str);
        let list = self.new_object_list(&scope, canned, &grant_headers!(input))?;
        let mut all = info.attributes.clone();
        if replaces {
            all.retain(|name, _| {
                name == attributes::TAGS
                    || name.starts_with(attributes::CHECKSUM)
                    || [attributes::CHECKSUM_TYPE, PART_CHECKSUMS].contains(&name.as_str())
            });
            all.extend(object_headers!(input).into_attributes()?);
        }
        if replaces_tags {
            all.remove(attributes::TAGS);
            attributes::add(&mut all, attributes::TAGS, crate::tags::check_header(input.tagging.take())?);
        }
        all.remove(attributes::ACL);
        attributes::set_access_list(&mut all, &list, bucket.owner());
        remove_description(&mut all);
        if let Some(encryption) = &encryption {
            encryption.describe(&mut all);
        }
        let conditions = Conditions {
            if_match: header(&request.headers, "if-match").map(unquoted),
            if_none_match: header(&request.headers, "if-none-match").map(unquoted),
            ..Conditions::default()
        };
        let algorithm =
            input.checksum_algorithm.take().map(|algorithm| algorithm.as_str().to_ascii_lowercase());
        let lacks = |name: &String| !all.contains_key(&format!("{}{name}", attributes::CHECKSUM));
        let needs_checksum = algorithm.as_ref().is_some_and(lacks);
        let same_key = source_encryption.as_ref().map(|found| (&found.root.key, &found.root.context))
            == encryption.as_ref().map(|found| (&found.root.key, &found.root.context));
        let change = if same_key && !needs_checksum {
            Change::Copy(CopyObject {
                source,
                source_conditions,
                bucket: input.bucket,
                key: input.key,
                attributes: Some(all),
                lock,
                conditions,
                now_ms: now_ms(),
            })
        } else {
            let form = BodyForm { encryption, has_fast_etag: bucket.has_fast_etags };
            let body = self.rewrite(&source, 0..info.size, source_encryption, form, algorithm).await?;
            if !body.checksums.is_empty() {
                let is_sum = |name: &str| name.starts_with(attributes::CHECKSUM) || name == PART_CHECKSUMS;
                all.retain(|name, _| !is_sum(name) && name != attributes::CHECKSUM_TYPE);
                all.extend(body.checksums);
            }
            Change::Put(PutObject {
                bucket: input.bucket,
                key: input.key,
                body: body.body,
                size: Some(body.size),
                etag: body.etag,
                attributes: all,
                lock,
                conditions,
                now_ms: now_ms(),
            })
        };
        let copied = self.commit_object(change, scope.caller.source(ChangeOrigin::Copy)).await?;
        let sse = encryption::describe(&copied.attributes);
        let sums = &copied.attributes;
        let versioned = info.version != "null";
        Ok(S3Response::new(dto::CopyObjectOutput {
            copy_object_result: Some(dto::CopyObjectResult {
                e_tag: etag(&copied),
                last_modified: Some(timestamp(copied.modified_ms)),
                checksum_crc32: attributes::checksum(sums, "crc32"),
                checksum_crc32c: attributes::checksum(sums, "crc32c"),
                checksum_crc64nvme: attributes::checksum(sums, "crc64nvme"),
                checksum_sha1: attributes::checksum(sums, "sha1"),
                checksum_sha256: attributes::checksum(sums, "sha256"),
                checksum_type: attributes::checksum_type(sums),
            }),
            copy_source_version_id: versioned.then_some(info.version),
            version_id: version(&copied, bucket.info.versioning),
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            sse_customer_algorithm: sse.customer_algorithm,
            sse_customer_key_md5: sse.customer_md5,
            ..Default::default()
        }))
    }

    pub(crate) async fn copy_part(
        &self,
        request: S3Request<dto::UploadPartCopyInput>,
    ) -> S3Result<S3Response<dto::UploadPartCopyOutput>> {
        let scope = scope(&request.extensions);
        let bucket = scope.bucket()?.clone();
        let mut input = request.input;
        let upload = self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let source = source_of(&input.copy_source)?;
        let number = part_number(input.part_number)?;
        let range = input.copy_source_range.as_deref().map(parse_range).transpose()?;
        let source_customer = customer_key(
            input.copy_source_sse_customer_algorithm.take(),
            input.copy_source_sse_customer_key.take(),
            input.copy_source_sse_customer_key_md5.take(),
        );
        let (info, source_encryption) = self.open_source(&scope, &source, &source_customer).await?;
        let customer = customer_key(
            input.sse_customer_algorithm.take(),
            input.sse_customer_key.take(),
            input.sse_customer_key_md5.take(),
        );
        let encryption = self.service_keys.open(&upload.attributes, &customer)?;
        if range.as_ref().is_some_and(|range| range.end > info.size) {
            return Err(s3_error!(
                InvalidRange,
                "the range is beyond the end of the source at {}",
                info.size
            ));
        }
        let times = SourceTimes {
            modified_since: input.copy_source_if_modified_since.take(),
            unmodified_since: input.copy_source_if_unmodified_since.take(),
        };
        let source_conditions = source_conditions(
            &info,
            condition(input.copy_source_if_match.take()),
            condition(input.copy_source_if_none_match.take()),
            &times,
        )?;
        let now_ms = now_ms();
        let algorithm = upload.attributes.get(UPLOAD_ALGORITHM).cloned();
        let shares = source_encryption.is_none() && encryption.is_none() && algorithm.is_none();
        let (etag, sums) = if shares {
            let (lookup, wanted) = (source.clone(), range.clone());
            let (_, md5) = self.read(move |store| hash_range(store, &lookup, wanted)).await?;
            let part = CopyPart {
                source,
                source_conditions,
                range,
                upload: input.upload_id,
                number,
                etag: md5.clone(),
                now_ms,
            };
            self.commit(Change::CopyPart(part)).await?;
            (md5, attributes::Attributes::new())
        } else {
            let range = range.unwrap_or(0..info.size);
            let form = BodyForm { encryption, has_fast_etag: bucket.has_fast_etags };
            let body = self.rewrite(&source, range, source_encryption, form, algorithm).await?;
            let (etag, sums) = (body.etag.clone(), body.checksums.clone());
            let part = PutPart {
                upload: input.upload_id,
                number,
                body: body.body,
                size: Some(body.size),
                etag: body.etag,
                attributes: body.checksums,
                now_ms,
            };
            self.commit(Change::PutPart(part)).await?;
            (etag, sums)
        };
        let sse = encryption::describe(&upload.attributes);
        let versioned = info.version != "null";
        Ok(S3Response::new(dto::UploadPartCopyOutput {
            copy_part_result: Some(dto::CopyPartResult {
                e_tag: Some(dto::ETag::Strong(etag)),
                last_modified: Some(timestamp(now_ms)),
                checksum_crc32: attributes::checksum(&sums, "crc32"),
                checksum_crc32c: attributes::checksum(&sums, "crc32c"),
                checksum_crc64nvme: attributes::checksum(&sums, "crc64nvme"),
                checksum_sha1: attributes::checksum(&sums, "sha1"),
                checksum_sha256: attributes::checksum(&sums, "sha256"),
            }),
            copy_source_version_id: versioned.then_some(info.version),
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            sse_customer_algorithm: sse.customer_algorithm,
            sse_customer_key_md5: sse.customer_md5,
            ..Default::default()
        }))
    }
}

/// An ETag of a header without its quotes.
fn unquoted(etag: String) -> String {
    etag.trim().trim_matches('"').to_owned()
}

/// Returns an object and the MD5 of a range of it.
fn hash_range(
    store: &dyn object::ObjectStore,
    source: &ObjectRef,
    range: Option<Range<u64>>,
) -> object::Result<(object::ObjectInfo, String)> {
    use s3s::crypto::{Checksum, Md5};
    let (info, reader) = store.open(source)?;
    let Range { mut start, end } = range.unwrap_or(0..info.size);
    if start == 0 && end == info.size && !info.etag.contains('-') {
        let etag = info.etag.clone();
        return Ok((info, etag));
    }
    let end = end.min(info.size).min(start.saturating_add(PART_MAX));
    let mut md5 = Md5::new();
    while start < end {
        let length = usize::try_from(end - start).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        md5.update(&reader.read(start, length)?);
        start += length as u64;
    }
    Ok((info, crate::receive::hex(md5.finalize().as_slice())))
}

/// Conditions that hold for the object with this ETag only: the source must still be the one whose
/// attributes were read.
fn source_conditions(
    info: &ObjectInfo,
    if_match: Option<String>,
    if_none_match: Option<String>,
    times: &SourceTimes,
) -> S3Result<Conditions> {
    let etag = info.etag.as_str();
    let modified = timestamp(info.modified_ms);
    let matches = |wanted: &String| wanted == "*" || wanted == etag;
    let is_changed = match (&if_match, &times.unmodified_since) {
        (Some(wanted), _) => !matches(wanted),
        (None, Some(since)) => modified > *since,
        _ => false,
    };
    let is_known = match (&if_none_match, &times.modified_since) {
        (Some(unwanted), _) => matches(unwanted),
        (None, Some(since)) => modified <= *since,
        _ => false,
    };
    if is_changed || is_known {
        return Err(s3_error!(PreconditionFailed, "a condition on the source of the copy does not hold"));
    }
    Ok(Conditions { if_match: Some(etag.to_owned()), ..Conditions::default() })
}

fn source_of(source: &CopySource) -> S3Result<ObjectRef> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => Ok(ObjectRef {
            bucket: bucket.to_string(),
            key: key.to_string(),
            version: version_id.as_ref().map(ToString::to_string),
        }),
        _ => Err(s3_error!(NotImplemented, "copies from access points are not implemented")),
    }
}

/// Parses `bytes=first-last`.
fn parse_range(text: &str) -> S3Result<Range<u64>> {
    let parsed = text.strip_prefix("bytes=").and_then(|rest| rest.split_once('-'));
    let parsed = parsed.and_then(|(first, last)| Some((first.parse().ok()?, last.parse::<u64>().ok()?)));
    match parsed {
        Some((first, last)) if first <= last && last < u64::MAX => Ok(first..last + 1),
        _ => Err(s3_error!(InvalidArgument, "x-amz-copy-source-range must have the form bytes=first-last")),
    }
}

/// The ETag of an object of several parts.
pub(crate) fn multipart_etag(parts: &[(u16, String)]) -> String {
    let mut bytes = Vec::with_capacity(parts.len() * 16);
    for (_, etag) in parts {
        for pair in etag.as_bytes().chunks(2) {
            let digit = |at: usize| pair.get(at).and_then(|byte| char::from(*byte).to_digit(16)).unwrap_or(0);
            bytes.push(u8::try_from(digit(0) * 16 + digit(1)).unwrap_or(0));
        }
    }
    format!("{}-{}", md5_hex(&bytes), parts.len())
}
