//! Multipart uploads.

use object::{Change, ChangeOrigin, Conditions, ObjectLock, PartInfo, PutPart, UploadInfo};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::scope;
use crate::acl;
use crate::attributes::{self, Attributes, CHECKSUM_TYPE, condition, etag, part_number, size, version};
use crate::checksums::{self as sums, UPLOAD_ALGORITHM};
use crate::copies::multipart_etag;
use crate::encryption::{self, describe};
use crate::errors::{internal, invalid, unexpected_outcome};
use crate::gateway::{Gateway, now_ms, timestamp};
use crate::lifecycle;
use crate::put::{
    checksums, customer_key, decoded_length, encryption_request, grant_headers, header, lock_headers,
    new_lock, object_headers,
};
use crate::receive::{BodyClaims, BodyForm};

/// The smallest part but the last one, as in S3.
const PART_MIN: u64 = 5 << 20;
/// The largest number of parts of an object, as in S3.
const PARTS_MAX: usize = 10_000;
/// The largest number of parts or uploads in an answer.
const PAGE_MAX: i32 = 1000;
/// The protection of the object to be, in JSON, as an attribute of an upload.
const UPLOAD_LOCK: &str = "upload-lock";

impl Gateway {
    pub(crate) async fn create_upload(
        &self,
        request: S3Request<dto::CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CreateMultipartUploadOutput>> {
        let scope = scope(&request.extensions);
        let bucket = scope.bucket()?.clone();
        let mut input = request.input;
        attributes::check_storage_class(input.storage_class.as_ref())?;
        let lock = new_lock(&bucket, lock_headers!(input), now_ms())?;
        let canned = input.acl.take();
        let canned = canned.as_ref().map(dto::ObjectCannedACL::as_str);
        let list = self.new_object_list(&scope, canned, &grant_headers!(input))?;
        let encryption = self.service_keys.choose(encryption_request!(input), bucket.encryption.as_ref())?;
        let mut all = object_headers!(input).into_attributes()?;
        attributes::add(&mut all, attributes::TAGS, crate::tags::check_header(input.tagging)?);
        attributes::set_access_list(&mut all, &list, bucket.owner());
        let algorithm = input.checksum_algorithm.as_ref().map(dto::ChecksumAlgorithm::as_str);
        sums::begin_upload(&mut all, algorithm, input.checksum_type.as_ref().map(dto::ChecksumType::as_str))?;
        if let Some(encryption) = &encryption {
            encryption.describe(&mut all);
        }
        if lock != ObjectLock::default() {
            all.insert(UPLOAD_LOCK.to_owned(), serde_json::to_string(&lock).map_err(internal)?);
        }
        let sse = describe(&all);
        let checksum_type = all.get(CHECKSUM_TYPE).map(|kind| dto::ChecksumType::from(kind.clone()));
        let change = Change::CreateUpload {
            bucket: input.bucket.clone(),
            key: input.key.clone(),
            attributes: all,
            now_ms: now_ms(),
        };
        let object::Outcome::Upload(id) = self.commit(change).await? else {
            return Err(unexpected_outcome());
        };
        Ok(S3Response::new(dto::CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type,
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            sse_customer_algorithm: sse.customer_algorithm,
            sse_customer_key_md5: sse.customer_md5,
            ..Default::default()
        }))
    }

    /// Returns an upload, which must belong to a key.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(crate) async fn check_upload(&self, upload: &str, bucket: &str, key: &str) -> S3Result<UploadInfo> {
        let id = upload.to_owned();
        let found = self.read(move |store| store.upload(&id)).await?;
        if found.bucket == bucket && found.key == key {
            return Ok(found);
        }
        Err(s3_error!(NoSuchUpload, "the upload belongs to another object"))
    }

    pub(crate) async fn put_part(
        &self,
        request: S3Request<dto::UploadPartInput>,
    ) -> S3Result<S3Response<dto::UploadPartOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let announced = header(&request.headers, "x-amz-trailer");
        let S3Request { mut input, trailing_headers, headers, .. } = request;
        let number = part_number(input.part_number)?;
        let upload = self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let customer = customer_key(
            input.sse_customer_algorithm.take(),
            input.sse_customer_key.take(),
            input.sse_customer_key_md5.take(),
        );
        let encryption = self.service_keys.open(&upload.attributes, &customer)?;
        let wanted = input.checksum_algorithm.take().map(|algorithm| algorithm.as_str().to_owned());
        let claims = BodyClaims {
            length: decoded_length(&headers).or(input.content_length),
            md5: input.content_md5.take(),
            checksums: checksums!(input),
            algorithm: upload.attributes.get(UPLOAD_ALGORITHM).cloned().or(wanted),
            announced,
            trailers: trailing_headers,
        };
        let form = BodyForm { encryption, has_fast_etag: bucket.has_fast_etags };
        let received = self.receive(input.body, claims, form).await?;
        let sse = encryption::describe(&upload.attributes);
        let output = dto::UploadPartOutput {
            e_tag: Some(dto::ETag::Strong(received.etag.clone())),
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            sse_customer_algorithm: sse.customer_algorithm,
            sse_customer_key_md5: sse.customer_md5,
            checksum_crc32: attributes::checksum(&received.checksums, "crc32"),
            checksum_crc32c: attributes::checksum(&received.checksums, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&received.checksums, "crc64nvme"),
            checksum_sha1: attributes::checksum(&received.checksums, "sha1"),
            checksum_sha256: attributes::checksum(&received.checksums, "sha256"),
            ..Default::default()
        };
        let part = PutPart {
            upload: input.upload_id,
            number,
            body: received.body,
            size: Some(received.size),
            etag: received.etag,
            attributes: received.checksums,
            now_ms: now_ms(),
        };
        self.commit(Change::PutPart(part)).await?;
        Ok(S3Response::new(output))
    }

    pub(crate) async fn complete_upload(
        &self,
        request: S3Request<dto::CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CompleteMultipartUploadOutput>> {
        let scope = scope(&request.extensions);
        let bucket = scope.bucket()?.clone();
        let input = request.input;
        let upload = self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let id = input.upload_id.clone();
        let stored = self.read(move |store| store.parts(&id, 0, PARTS_MAX)).await?;
        let chosen = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        if chosen.is_empty() {
            return Err(s3_error!(MalformedXML, "the list of parts is empty"));
        }
        let mut parts = Vec::with_capacity(chosen.len());
        let mut infos = Vec::with_capacity(chosen.len());
        for part in chosen {
            let number = part.part_number.ok_or_else(|| s3_error!(MalformedXML, "a part has no number"))?;
            let number = part_number(number)?;
            let info = stored.binary_search_by_key(&number, |part| part.number).ok();
            let info = info.and_then(|index| stored.get(index));
            let info = info.ok_or_else(|| s3_error!(InvalidPart, "part {number} was not uploaded"))?;
            check_part(&part, info)?;
            let etag = part.e_tag.ok_or_else(|| s3_error!(MalformedXML, "a part has no ETag"))?;
            parts.push((number, etag.into_value()));
            infos.push(info);
        }
        let added = sums::complete_upload(&upload.attributes, &infos)?;
        let claims = [
            ("crc32", input.checksum_crc32),
            ("crc32c", input.checksum_crc32c),
            ("crc64nvme", input.checksum_crc64nvme),
            ("sha1", input.checksum_sha1),
            ("sha256", input.checksum_sha256),
        ];
        for (name, claimed) in claims {
            let found = attributes::checksum(&added, name);
            if let (Some(claimed), Some(found)) = (claimed, found)
                && claimed.split('-').next() != found.split('-').next()
            {
                return Err(s3_error!(BadDigest, "the object does not match x-amz-checksum-{name}"));
            }
        }
        let total: u64 = infos.iter().map(|part| part.size).sum();
        if input.mpu_object_size.is_some_and(|wanted| u64::try_from(wanted) != Ok(total)) {
            return Err(s3_error!(InvalidRequest, "the object has {total} bytes, not those of its header"));
        }
        let lock = upload.attributes.get(UPLOAD_LOCK).and_then(|text| serde_json::from_str(text).ok());
        let change = Change::CompleteUpload {
            upload: input.upload_id,
            etag: multipart_etag(&parts),
            parts,
            attributes: added,
            lock: lock.unwrap_or_default(),
            part_bytes_min: PART_MIN,
            conditions: Conditions {
                if_match: condition(input.if_match),
                if_none_match: condition(input.if_none_match),
                ..Conditions::default()
            },
            now_ms: now_ms(),
        };
        let source = scope.caller.source(ChangeOrigin::Request);
        let info = self.commit_object(change, source).await?;
        let sse = encryption::describe(&info.attributes);
        Ok(S3Response::new(dto::CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: etag(&info),
            version_id: version(&info, bucket.info.versioning),
            expiration: lifecycle::expiration_header(&bucket, &info, self.lifecycle_day),
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            checksum_crc32: attributes::checksum(&info.attributes, "crc32"),
            checksum_crc32c: attributes::checksum(&info.attributes, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&info.attributes, "crc64nvme"),
            checksum_sha1: attributes::checksum(&info.attributes, "sha1"),
            checksum_sha256: attributes::checksum(&info.attributes, "sha256"),
            checksum_type: attributes::checksum_type(&info.attributes),
            ..Default::default()
        }))
    }

    pub(crate) async fn abort_upload(
        &self,
        request: S3Request<dto::AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::AbortMultipartUploadOutput>> {
        let input = request.input;
        self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        self.commit(Change::AbortUpload { upload: input.upload_id }).await?;
        Ok(S3Response::new(dto::AbortMultipartUploadOutput::default()))
    }

    pub(crate) async fn list_parts(
        &self,
        request: S3Request<dto::ListPartsInput>,
    ) -> S3Result<S3Response<dto::ListPartsOutput>> {
        let bucket = scope(&request.extensions).bucket()?.clone();
        let input = request.input;
        let upload = self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let after = input.part_number_marker.unwrap_or(0);
        let max = match input.max_parts.unwrap_or(PAGE_MAX) {
            negative if negative < 0 => return Err(invalid(format!("max-parts {negative} is negative"))),
            max => max.min(PAGE_MAX),
        };
        let (id, from) = (input.upload_id.clone(), u16::try_from(after.max(0)).unwrap_or(u16::MAX));
        let limit = usize::try_from(max).unwrap_or(0);
        let mut page = self.read(move |store| store.parts(&id, from, limit + 1)).await?;
        let is_truncated = page.len() > limit;
        page.truncate(limit);
        let owner = attributes::access_list(&upload.attributes, bucket.owner()).owner;
        let initiator = dto::Initiator { display_name: Some(owner.clone()), id: Some(owner.clone()) };
        let algorithm = upload.attributes.get(UPLOAD_ALGORITHM).map(|name| name.to_ascii_uppercase());
        Ok(S3Response::new(dto::ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(max),
            part_number_marker: Some(after),
            is_truncated: Some(is_truncated),
            next_part_number_marker: page.last().map(|part| i32::from(part.number)),
            parts: Some(page.into_iter().map(describe_part).collect()),
            owner: Some(acl::owner(&owner)),
            initiator: Some(initiator),
            storage_class: Some(dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
            checksum_algorithm: algorithm.map(dto::ChecksumAlgorithm::from),
            checksum_type: upload
                .attributes
                .get(CHECKSUM_TYPE)
                .map(|kind| dto::ChecksumType::from(kind.clone())),
            ..Default::default()
        }))
    }
}

/// Checks the checksums that a request to complete an upload names for a part.
fn check_part(part: &dto::CompletedPart, info: &PartInfo) -> S3Result<()> {
    let claims = [
        ("crc32", &part.checksum_crc32),
        ("crc32c", &part.checksum_crc32c),
        ("crc64nvme", &part.checksum_crc64nvme),
        ("sha1", &part.checksum_sha1),
        ("sha256", &part.checksum_sha256),
    ];
    for (name, claimed) in claims {
        if let Some(claimed) = claimed
            && attributes::checksum(&info.attributes, name).is_some_and(|found| found != *claimed)
        {
            return Err(s3_error!(InvalidPart, "part {} has another checksum {name}", info.number));
        }
    }
    Ok(())
}

fn describe_part(part: PartInfo) -> dto::Part {
    let all: &Attributes = &part.attributes;
    dto::Part {
        part_number: Some(i32::from(part.number)),
        size: size(part.size),
        last_modified: Some(timestamp(part.modified_ms)),
        checksum_crc32: attributes::checksum(all, "crc32"),
        checksum_crc32c: attributes::checksum(all, "crc32c"),
        checksum_crc64nvme: attributes::checksum(all, "crc64nvme"),
        checksum_sha1: attributes::checksum(all, "sha1"),
        checksum_sha256: attributes::checksum(all, "sha256"),
        e_tag: Some(dto::ETag::Strong(part.etag)),
    }
}
