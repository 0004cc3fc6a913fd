//! Puts of objects, also by HTML forms, and the attributes that all new objects have.

use object::{Change, ChangeOrigin, Conditions, ObjectLock, PutObject, Retention, RetentionMode};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::access::{RequestScope, scope};
use crate::acl::{AccessList, GrantHeaders};
use crate::attributes::{self, Attributes, condition, etag, version};
use crate::encryption::{self, CustomerKey};
use crate::gateway::{Gateway, now_ms};
use crate::lifecycle;
use crate::receive::{BodyClaims, BodyForm};
use crate::settings::BucketSettings;
use crate::times::to_ms;

/// The headers of a request that describe a new object.
#[derive(Default)]
pub(crate) struct ObjectHeaders {
    pub(crate) content_type: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) redirect: Option<String>,
    pub(crate) metadata: Option<dto::Metadata>,
    pub(crate) expires: Option<dto::Timestamp>,
}

impl ObjectHeaders {
    /// The headers as attributes.
    ///
    /// # Errors
    /// `MetadataTooLarge`.
    pub(crate) fn into_attributes(self) -> S3Result<Attributes> {
        let mut all = Attributes::new();
        attributes::add(&mut all, attributes::CONTENT_TYPE, self.content_type);
        attributes::add(&mut all, attributes::CACHE_CONTROL, self.cache_control);
        attributes::add(&mut all, attributes::CONTENT_DISPOSITION, self.content_disposition);
        attributes::add(&mut all, attributes::CONTENT_ENCODING, stored_encoding(self.content_encoding));
        attributes::add(&mut all, attributes::CONTENT_LANGUAGE, self.content_language);
        attributes::add(&mut all, attributes::REDIRECT, self.redirect);
        attributes::add_metadata(&mut all, self.metadata, self.expires)?;
        Ok(all)
    }
}

/// Collects the headers of an input that describe a new object.
macro_rules! object_headers {
    ($input:ident) => {
        crate::put::ObjectHeaders {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            redirect: $input.website_redirect_location.take(),
            metadata: $input.metadata.take(),
            expires: $input.expires.take(),
        }
    };
}

/// Collects the headers of an input that choose an encryption.
macro_rules! encryption_request {
    ($input:ident) => {
        crate::encryption::EncryptionRequest {
            customer: crate::encryption::CustomerKey {
                algorithm: $input.sse_customer_algorithm.take(),
                key: $input.sse_customer_key.take(),
                md5: $input.sse_customer_key_md5.take(),
            },
            algorithm: $input.server_side_encryption.take(),
            key_id: $input.ssekms_key_id.take(),
        }
    };
}

/// Collects the grants of an input for an object.
macro_rules! grant_headers {
    ($input:ident) => {
        crate::acl::GrantHeaders {
            full: $input.grant_full_control.take(),
            read: $input.grant_read.take(),
            write: None,
            read_acl: $input.grant_read_acp.take(),
            write_acl: $input.grant_write_acp.take(),
        }
    };
}

/// Collects the checksums of an input.
macro_rules! checksums {
    ($input:ident) => {
        [
            $input.checksum_crc32.take(),
            $input.checksum_crc32c.take(),
            $input.checksum_crc64nvme.take(),
            $input.checksum_sha1.take(),
            $input.checksum_sha256.take(),
        ]
    };
}

/// Returns the headers of object lock of an input: mode, end, legal hold.
macro_rules! lock_headers {
    ($input:ident) => {
        (
            $input.object_lock_mode.take().map(|mode| mode.as_str().to_owned()),
            $input.object_lock_retain_until_date.take(),
            $input.object_lock_legal_hold_status.take().map(|status| status.as_str().to_owned()),
        )
    };
}

pub(crate) use {checksums, encryption_request, grant_headers, lock_headers, object_headers};

/// Mode, end and legal hold in the headers of a request.
pub(crate) type LockHeaders = (Option<String>, Option<dto::Timestamp>, Option<String>);

impl Gateway {
    /// Returns the access list of a new object.
    ///
    /// # Errors
    /// For an invalid list, or one that the bucket refuses.
    pub(crate) fn new_object_list(
        &self,
        scope: &RequestScope,
        canned: Option<&str>,
        grants: &GrantHeaders,
    ) -> S3Result<AccessList> {
        let bucket = scope.bucket()?;
        let owner = if bucket.is_owner_enforced { bucket.owner() } else { scope.caller.owner() };
        if canned.is_some() && grants.is_some() {
            return Err(s3_error!(InvalidRequest, "a request has either a canned ACL or grants"));
        }
        if bucket.is_owner_enforced
            && (grants.is_some() || canned.is_some_and(|name| name != "bucket-owner-full-control"))
        {
            return Err(s3_error!(AccessControlListNotSupported, "the bucket does not allow ACLs"));
        }
        let list = if grants.is_some() {
            AccessList::of_headers(grants, owner, &|user| self.keys.has_user(user))?
        } else {
            AccessList::canned(canned.unwrap_or("private"), owner, bucket.owner())?
        };
        if bucket.public_access.block_acls && list.is_public() {
            return Err(s3_error!(AccessDenied, "the block of public access refuses public ACLs"));
        }
        Ok(list)
    }

    pub(crate) async fn put(
        &self,
        request: S3Request<dto::PutObjectInput>,
    ) -> S3Result<S3Response<dto::PutObjectOutput>> {
        let scope = scope(&request.extensions);
        let announced = header(&request.headers, "x-amz-trailer");
        let decoded = decoded_length(&request.headers);
        // The protocol library makes a put of the fields of a form.
        let is_form = request.method == hyper::Method::POST;
        let origin = if is_form { ChangeOrigin::Form } else { ChangeOrigin::Request };
        let S3Request { mut input, trailing_headers, .. } = request;
        let bucket = scope.bucket()?.clone();
        if input.write_offset_bytes.is_some() {
            return Err(s3_error!(
                NotImplemented,
                "PutObject with x-amz-write-offset-bytes is not implemented"
            ));
        }
        attributes::check_storage_class(input.storage_class.as_ref())?;
        let lock = new_lock(&bucket, lock_headers!(input), now_ms())?;
        let canned = input.acl.take();
        let list = self.new_object_list(
            &scope,
            canned.as_ref().map(dto::ObjectCannedACL::as_str),
            &grant_headers!(input),
        )?;
        let encryption = self.service_keys.choose(encryption_request!(input), bucket.encryption.as_ref())?;
        let mut all = object_headers!(input).into_attributes()?;
        attributes::add(&mut all, attributes::TAGS, crate::tags::check_header(input.tagging)?);
        attributes::set_access_list(&mut all, &list, bucket.owner());
        if let Some(encryption) = &encryption {
            encryption.describe(&mut all);
        }
        let claims = BodyClaims {
            length: decoded.or(input.content_length),
            md5: input.content_md5.take(),
            checksums: checksums!(input),
            algorithm: input.checksum_algorithm.map(|algorithm| algorithm.as_str().to_owned()),
            announced,
            trailers: trailing_headers,
        };
        let form = BodyForm { encryption, has_fast_etag: bucket.has_fast_etags };
        let received = self.receive(input.body, claims, form).await?;
        all.extend(received.checksums);
        let conditions = Conditions {
            if_match: condition(input.if_match),
            if_none_match: condition(input.if_none_match),
            ..Conditions::default()
        };
        let put = PutObject {
            bucket: input.bucket,
            key: input.key,
            body: received.body,
            size: Some(received.size),
            etag: received.etag,
            attributes: all,
            lock,
            conditions,
            now_ms: now_ms(),
        };
        let info = self.commit_object(Change::Put(put), scope.caller.source(origin)).await?;
        let sse = encryption::describe(&info.attributes);
        Ok(S3Response::new(dto::PutObjectOutput {
            e_tag: etag(&info),
            version_id: version(&info, bucket.info.versioning),
            expiration: lifecycle::expiration_header(&bucket, &info, self.lifecycle_day),
            server_side_encryption: sse.algorithm,
            ssekms_key_id: sse.key_id,
            sse_customer_algorithm: sse.customer_algorithm,
            sse_customer_key_md5: sse.customer_md5,
            checksum_crc32: attributes::checksum(&info.attributes, "crc32"),
            checksum_crc32c: attributes::checksum(&info.attributes, "crc32c"),
            checksum_crc64nvme: attributes::checksum(&info.attributes, "crc64nvme"),
            checksum_sha1: attributes::checksum(&info.attributes, "sha1"),
            checksum_sha256: attributes::checksum(&info.attributes, "sha256"),
            checksum_type: attributes::checksum_type(&info.attributes),
            ..Default::default()
        }))
    }
}

/// Returns the protection of a new object: that of the request, or else the default of the bucket.
///
/// # Errors
/// For headers that contradict each other; in a bucket without object lock.
pub(crate) fn new_lock(bucket: &BucketSettings, headers: LockHeaders, now_ms: u64) -> S3Result<ObjectLock> {
    let (mode, until, hold) = headers;
    let has_headers = mode.is_some() || until.is_some() || hold.is_some();
    let Some(config) = &bucket.lock else {
        if has_headers {
            return Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"));
        }
        return Ok(ObjectLock::default());
    };
    let retention = match (mode, until) {
        (None, None) => config.retention(now_ms),
        (Some(mode), Some(until)) => Some(retention(&mode, &until, now_ms)?),
        _ => {
            return Err(s3_error!(InvalidArgument, "a retention needs a mode and an end"));
        }
    };
    let legal_hold = match hold.as_deref() {
        None | Some("OFF") => false,
        Some("ON") => true,
        Some(_) => return Err(s3_error!(InvalidArgument, "the legal hold must be ON or OFF")),
    };
    Ok(ObjectLock { retention, legal_hold })
}

/// Returns the retention of a request.
///
/// # Errors
/// For an unknown mode, or an end in the past.
pub(crate) fn retention(mode: &str, until: &dto::Timestamp, now_ms: u64) -> S3Result<Retention> {
    let mode = match mode {
        "GOVERNANCE" => RetentionMode::Governance,
        "COMPLIANCE" => RetentionMode::Compliance,
        _ => return Err(s3_error!(MalformedXML, "the mode must be GOVERNANCE or COMPLIANCE")),
    };
    let until_ms = to_ms(until);
    if until_ms <= now_ms {
        return Err(s3_error!(InvalidArgument, "the end of the retention is in the past"));
    }
    Ok(Retention { mode, until_ms })
}

/// The encoding of the object itself, without that of the upload.
pub(crate) fn stored_encoding(encoding: Option<String>) -> Option<String> {
    let encoding = encoding?;
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|each| !each.eq_ignore_ascii_case("aws-chunked")).collect();
    let kept: Vec<&str> = kept.into_iter().filter(|each| !each.is_empty()).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// The length of a body that is sent in chunks.
pub(crate) fn decoded_length(headers: &hyper::HeaderMap) -> Option<i64> {
    header(headers, "x-amz-decoded-content-length")?.parse().ok()
}

pub(crate) fn header(headers: &hyper::HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The key of the client for reading an object.
pub(crate) fn customer_key(
    algorithm: Option<String>,
    key: Option<String>,
    md5: Option<String>,
) -> CustomerKey {
    CustomerKey { algorithm, key, md5 }
}
