//! Multipart uploads.

use object::{Change, Conditions, Outcome, PartInfo, PutPart, UploadInfo};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::attributes::{self, Attributes, condition, etag, part_number, size, version};
use crate::copies::multipart_etag;
use crate::errors::unexpected_outcome;
use crate::gateway::{Gateway, now_ms, timestamp};
use crate::objects::{check_unsupported, decoded_length, header, stored_encoding};
use crate::receive::BodyClaims;

/// The smallest part but the last one, as in S3.
const PART_MIN: u64 = 5 << 20;
/// The largest number of parts or uploads in an answer.
const PAGE_MAX: i32 = 1000;

impl Gateway {
    pub(crate) async fn create_upload(
        &self,
        request: S3Request<dto::CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CreateMultipartUploadOutput>> {
        let input = request.input;
        check_unsupported(
            input.sse_customer_algorithm.is_some(),
            input.ssekms_key_id.is_some() || input.server_side_encryption.is_some(),
            input.object_lock_mode.is_some() || input.object_lock_legal_hold_status.is_some(),
        )?;
        let mut all = Attributes::new();
        attributes::add(&mut all, attributes::CONTENT_TYPE, input.content_type);
        attributes::add(&mut all, attributes::CACHE_CONTROL, input.cache_control);
        attributes::add(&mut all, attributes::CONTENT_DISPOSITION, input.content_disposition);
        attributes::add(&mut all, attributes::CONTENT_ENCODING, stored_encoding(input.content_encoding));
        attributes::add(&mut all, attributes::CONTENT_LANGUAGE, input.content_language);
        attributes::add(&mut all, attributes::TAGS, crate::tagging::check_header(input.tagging)?);
        attributes::add_metadata(&mut all, input.metadata, input.expires)?;
        let change = Change::CreateUpload {
            bucket: input.bucket.clone(),
            key: input.key.clone(),
            attributes: all,
            now_ms: now_ms(),
        };
        let Outcome::Upload(id) = self.commit(change).await? else { return Err(unexpected_outcome()) };
        Ok(S3Response::new(dto::CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..Default::default()
        }))
    }

    /// Checks that an upload belongs to a key.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(crate) async fn check_upload(
        &self,
        upload: &str,
        bucket: &str,
        key: &str,
    ) -> S3Result<(UploadInfo, Vec<PartInfo>)> {
        let id = upload.to_owned();
        let found = self.read(move |store| store.upload(&id)).await?;
        if found.0.bucket == bucket && found.0.key == key {
            return Ok(found);
        }
        Err(s3_error!(NoSuchUpload, "the upload belongs to another object"))
    }

    pub(crate) async fn put_part(
        &self,
        request: S3Request<dto::UploadPartInput>,
    ) -> S3Result<S3Response<dto::UploadPartOutput>> {
        let announced = header(&request.headers, "x-amz-trailer");
        let S3Request { input, trailing_headers, headers, .. } = request;
        check_unsupported(input.sse_customer_algorithm.is_some(), false, false)?;
        let number = part_number(input.part_number)?;
        self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let claims = BodyClaims {
            length: decoded_length(&headers).or(input.content_length),
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
        let output = dto::UploadPartOutput {
            e_tag: Some(dto::ETag::Strong(received.etag.clone())),
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
        let input = request.input;
        self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let chosen = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let mut parts = Vec::with_capacity(chosen.len());
        for part in chosen {
            let number = part.part_number.ok_or_else(|| s3_error!(MalformedXML, "a part has no number"))?;
            let etag = part.e_tag.ok_or_else(|| s3_error!(MalformedXML, "a part has no ETag"))?;
            parts.push((part_number(number)?, etag.into_value()));
        }
        let change = Change::CompleteUpload {
            upload: input.upload_id,
            etag: multipart_etag(&parts),
            parts,
            attributes: Attributes::new(),
            part_bytes_min: PART_MIN,
            conditions: Conditions {
                if_match: condition(input.if_match),
                if_none_match: condition(input.if_none_match),
            },
            now_ms: now_ms(),
        };
        let Outcome::Object(info) = self.commit(change).await? else { return Err(unexpected_outcome()) };
        Ok(S3Response::new(dto::CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: etag(&info),
            version_id: version(&info),
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
        let input = request.input;
        let (_, parts) = self.check_upload(&input.upload_id, &input.bucket, &input.key).await?;
        let after = input.part_number_marker.unwrap_or(0);
        let max = input.max_parts.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
        let mut rest = parts.into_iter().filter(|part| i32::from(part.number) > after);
        let page: Vec<PartInfo> = rest.by_ref().take(usize::try_from(max).unwrap_or(0)).collect();
        let is_truncated = rest.next().is_some();
        Ok(S3Response::new(dto::ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(max),
            part_number_marker: Some(after),
            is_truncated: Some(is_truncated),
            next_part_number_marker: page.last().map(|part| i32::from(part.number)),
            parts: Some(page.into_iter().map(describe_part).collect()),
            ..Default::default()
        }))
    }

    pub(crate) async fn list_uploads(
        &self,
        request: S3Request<dto::ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<dto::ListMultipartUploadsOutput>> {
        let input = request.input;
        let bucket = input.bucket.clone();
        let all = self.read(move |store| store.uploads(&bucket)).await?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let marker = (input.key_marker.clone().unwrap_or_default(), input.upload_id_marker.clone());
        let max = input.max_uploads.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
        let is_after = |upload: &UploadInfo| match &marker.1 {
            Some(id) => (&upload.key, &upload.id) > (&marker.0, id),
            None => marker.0.is_empty() || upload.key > marker.0,
        };
        let mut rest =
            all.into_iter().filter(|upload| upload.key.starts_with(&prefix) && is_after(upload)).peekable();
        let page: Vec<UploadInfo> = rest.by_ref().take(usize::try_from(max).unwrap_or(0)).collect();
        let is_truncated = rest.peek().is_some();
        let last = page.last().filter(|_| is_truncated);
        Ok(S3Response::new(dto::ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: input.prefix,
            key_marker: input.key_marker,
            upload_id_marker: input.upload_id_marker,
            max_uploads: Some(max),
            is_truncated: Some(is_truncated),
            next_key_marker: last.map(|upload| upload.key.clone()),
            next_upload_id_marker: last.map(|upload| upload.id.clone()),
            uploads: Some(page.into_iter().map(describe_upload).collect()),
            ..Default::default()
        }))
    }
}

fn describe_part(part: PartInfo) -> dto::Part {
    dto::Part {
        part_number: Some(i32::from(part.number)),
        size: size(part.size),
        last_modified: Some(timestamp(part.modified_ms)),
        checksum_crc32: attributes::checksum(&part.attributes, "crc32"),
        checksum_crc32c: attributes::checksum(&part.attributes, "crc32c"),
        checksum_crc64nvme: attributes::checksum(&part.attributes, "crc64nvme"),
        checksum_sha1: attributes::checksum(&part.attributes, "sha1"),
        checksum_sha256: attributes::checksum(&part.attributes, "sha256"),
        e_tag: Some(dto::ETag::Strong(part.etag)),
    }
}

fn describe_upload(upload: UploadInfo) -> dto::MultipartUpload {
    dto::MultipartUpload {
        key: Some(upload.key),
        upload_id: Some(upload.id),
        initiated: Some(timestamp(upload.created_ms)),
        ..Default::default()
    }
}
