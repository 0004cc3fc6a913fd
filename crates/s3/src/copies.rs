//! Copies of objects and of ranges of them, without copying data.

use std::ops::Range;

use object::{Change, Conditions, CopyObject, CopyPart, ObjectRef, Outcome};
use s3s::dto::{self, CopySource};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::attributes::{self, condition, etag, part_number, version};
use crate::errors::unexpected_outcome;
use crate::gateway::{Gateway, now_ms, timestamp};
use crate::objects::check_unsupported;
use crate::receive::md5_hex;

/// The largest range whose MD5 is computed, in bytes: the largest part.
const PART_MAX: u64 = 5 << 30;
/// The bytes that are hashed at once.
const PIECE: usize = 1 << 20;

impl Gateway {
    pub(crate) async fn copy(
        &self,
        request: S3Request<dto::CopyObjectInput>,
    ) -> S3Result<S3Response<dto::CopyObjectOutput>> {
        let input = request.input;
        check_unsupported(
            input.sse_customer_algorithm.is_some() || input.copy_source_sse_customer_algorithm.is_some(),
            input.ssekms_key_id.is_some() || input.server_side_encryption.is_some(),
            input.object_lock_mode.is_some() || input.object_lock_legal_hold_status.is_some(),
        )?;
        let source = source_of(&input.copy_source)?;
        let is = |directive: Option<&str>| directive.is_some_and(|value| value == "REPLACE");
        let replaces = is(input.metadata_directive.as_ref().map(dto::MetadataDirective::as_str));
        let replaces_tags = is(input.tagging_directive.as_ref().map(dto::TaggingDirective::as_str));
        let is_same = source.bucket == input.bucket && source.key == input.key && source.version.is_none();
        if is_same && !replaces && !replaces_tags {
            return Err(s3_error!(InvalidRequest, "a copy of an object to itself must change its metadata"));
        }
        let lookup = source.clone();
        let info = self.read(move |store| store.object(&lookup)).await?;
        let mut all = info.attributes.clone();
        if replaces {
            all.retain(|name, _| name == attributes::TAGS || name.starts_with(attributes::CHECKSUM));
            attributes::add(&mut all, attributes::CONTENT_TYPE, input.content_type);
            attributes::add(&mut all, attributes::CACHE_CONTROL, input.cache_control);
            attributes::add(&mut all, attributes::CONTENT_DISPOSITION, input.content_disposition);
            attributes::add(&mut all, attributes::CONTENT_ENCODING, input.content_encoding);
            attributes::add(&mut all, attributes::CONTENT_LANGUAGE, input.content_language);
            attributes::add_metadata(&mut all, input.metadata, input.expires)?;
        }
        if replaces_tags {
            all.remove(attributes::TAGS);
            attributes::add(&mut all, attributes::TAGS, crate::tagging::check_header(input.tagging)?);
        }
        // The source must still be the one whose attributes were read.
        let source_conditions = source_conditions(
            &info.etag,
            condition(input.copy_source_if_match),
            condition(input.copy_source_if_none_match),
        )?;
        let copy = CopyObject {
            source,
            source_conditions,
            bucket: input.bucket,
            key: input.key,
            attributes: Some(all),
            conditions: Conditions::default(),
            now_ms: now_ms(),
        };
        let Outcome::Object(copied) = self.commit(Change::Copy(copy)).await? else {
            return Err(unexpected_outcome());
        };
        Ok(S3Response::new(dto::CopyObjectOutput {
            copy_object_result: Some(dto::CopyObjectResult {
                e_tag: etag(&copied),
                last_modified: Some(timestamp(copied.modified_ms)),
                ..Default::default()
            }),
            copy_source_version_id: version(&info),
            version_id: version(&copied),
            ..Default::default()
        }))
    }

    pub(crate) async fn copy_part(
        &self,
        request: S3Request<dto::UploadPartCopyInput>,
    ) -> S3Result<S3Response<dto::UploadPartCopyOutput>> {
        let input = request.input;
        self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let source = source_of(&input.copy_source)?;
        let number = part_number(input.part_number)?;
        let range = input.copy_source_range.as_deref().map(parse_range).transpose()?;
        let (lookup, wanted) = (source.clone(), range.clone());
        let (info, md5) = self.read(move |store| hash_range(store, &lookup, wanted)).await?;
        let source_conditions = source_conditions(
            &info.etag,
            condition(input.copy_source_if_match),
            condition(input.copy_source_if_none_match),
        )?;
        let now_ms = now_ms();
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
        Ok(S3Response::new(dto::UploadPartCopyOutput {
            copy_part_result: Some(dto::CopyPartResult {
                e_tag: Some(dto::ETag::Strong(md5)),
                last_modified: Some(timestamp(now_ms)),
                ..Default::default()
            }),
            copy_source_version_id: version(&info),
            ..Default::default()
        }))
    }
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
        let length = usize::try_from(end - start).unwrap_or(PIECE).min(PIECE);
        md5.update(&reader.read(start, length)?);
        start += length as u64;
    }
    Ok((info, crate::receive::hex(md5.finalize().as_slice())))
}

/// Conditions that hold for the object with this ETag only.
fn source_conditions(
    etag: &str,
    if_match: Option<String>,
    if_none_match: Option<String>,
) -> S3Result<Conditions> {
    if if_match.is_some_and(|wanted| wanted != "*" && wanted != etag) {
        return Err(s3_error!(PreconditionFailed, "the source has another ETag"));
    }
    Ok(Conditions { if_match: Some(etag.to_owned()), if_none_match })
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
