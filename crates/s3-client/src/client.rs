//! The operations on objects.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use rusty_s3::actions::list_objects_v2::ListObjectsV2Response;
use rusty_s3::actions::{
    AbortMultipartUpload, CompleteMultipartUpload, CreateBucket, CreateMultipartUpload, DeleteBucket,
    DeleteObject, DeleteObjects, GetObject, HeadObject, ListObjectsV2, ObjectIdentifier, PutObject,
    UploadPart,
};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use tokio::time::timeout;

use crate::checksum::Checksum;
use crate::connection::{Address, ConnectionPool, Lease, SILENCE_MAX, silent};
use crate::download::{Download, ObjectHead};
use crate::error::{Result, S3Error};

/// Time for which a signature is valid; a request begins at once.
const SIGNATURE_VALID: Duration = Duration::from_secs(900);
/// The largest response that is not the body of an object, in bytes.
const RESPONSE_MAX: usize = 16 << 20;
const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
const CHECKSUM_TYPE: &str = "x-amz-checksum-type";

/// A client of one S3 service. Its requests may run at the same time.
pub struct S3Client {
    pool: Arc<ConnectionPool>,
    region: String,
    credentials: Mutex<Arc<Credentials>>,
}

impl fmt::Debug for S3Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Client").field("address", &self.pool.address).finish_non_exhaustive()
    }
}

/// A query for a page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ListRequest<'a> {
    /// Only keys that begin with this.
    pub prefix: &'a str,
    /// Groups the keys that have this string after the prefix; empty for no groups.
    pub delimiter: &'a str,
    /// Only keys after this one.
    pub after: &'a str,
    /// The token of the page before.
    pub token: Option<&'a str>,
    /// The largest number of entries of the page, up to 1,000.
    pub limit: usize,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects by key.
    pub objects: Vec<ListedObject>,
    /// The groups: prefix and all up to the delimiter.
    pub prefixes: Vec<String>,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The key.
    pub key: String,
    /// The size in bytes.
    pub size: u64,
    /// The ETag with its quotes.
    pub etag: String,
    /// The time of the last change as in RFC 3339.
    pub modified: String,
}

/// A part of a multipart upload.
#[derive(Clone, Debug)]
pub struct UploadedPart {
    /// The ETag.
    pub etag: String,
    /// The checksum of the part.
    pub checksum: Checksum,
}

impl S3Client {
    /// Returns a client. It connects with the first request.
    pub fn new(address: Address, region: impl Into<String>, credentials: Credentials) -> Self {
        Self::with_tls(address, region, credentials, None)
    }

    /// Returns a client that accepts the certificates that `tls` trusts, for an address of HTTPS.
    pub fn with_tls(
        address: Address,
        region: impl Into<String>,
        credentials: Credentials,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Self {
        let pool = Arc::new(ConnectionPool::new(address, tls));
        Self { pool, region: region.into(), credentials: Mutex::new(Arc::new(credentials)) }
    }

    /// Signs later requests with other credentials.
    pub fn set_credentials(&self, credentials: Credentials) {
        *self.credentials.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
    }

    fn credentials(&self) -> Arc<Credentials> {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn bucket(&self, name: &str) -> Result<Bucket> {
        let endpoint = self.pool.address.url();
        let unusable = |error: &dyn fmt::Display| S3Error::Invalid(format!("bucket '{name}': {error}"));
        let endpoint = endpoint.parse().map_err(|error| unusable(&error))?;
        Bucket::new(endpoint, UrlStyle::Path, name.to_owned(), self.region.clone())
            .map_err(|error| unusable(&error))
    }

    /// Creates a bucket.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou` and others of the service.
    pub async fn create_bucket(&self, bucket: &str) -> Result<()> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = CreateBucket::new(&bucket, &credentials);
        self.call(action, Method::PUT, &[], Bytes::new()).await.map(drop)
    }

    /// Deletes an empty bucket.
    ///
    /// # Errors
    /// `BucketNotEmpty` and others of the service.
    pub async fn delete_bucket(&self, bucket: &str) -> Result<()> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = DeleteBucket::new(&bucket, &credentials);
        self.call(action, Method::DELETE, &[], Bytes::new()).await.map(drop)
    }

    /// Puts an object. The service verifies the checksum before the object becomes visible. Returns
    /// the ETag.
    ///
    /// # Errors
    /// Errors of the service.
    pub async fn put_object(
        &self,
        bucket: &str,
        key: &str,
        body: Bytes,
        checksum: &Checksum,
    ) -> Result<String> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = PutObject::new(&bucket, Some(&credentials), checked(key)?);
        let (response, _) = self.call(action, Method::PUT, &[(CHECKSUM, checksum.to_base64())], body).await?;
        etag_of(&response)
    }

    /// Opens an object, or a range of it in bytes; with `etag`, only if it still has this ETag.
    ///
    /// # Errors
    /// `NoSuchKey`, `PreconditionFailed` and others of the service.
    pub async fn get_object(
        &self,
        bucket: &str,
        key: &str,
        range: Option<Range<u64>>,
        etag: Option<&str>,
    ) -> Result<Download> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = GetObject::new(&bucket, Some(&credentials), checked(key)?);
        let mut headers = vec![("x-amz-checksum-mode", "ENABLED".to_owned())];
        if let Some(range) = range {
            headers.push(("range", format!("bytes={}-{}", range.start, range.end.saturating_sub(1))));
        }
        headers.extend(etag.map(|etag| ("if-match", etag.to_owned())));
        let (response, lease) = self.send(action, Method::GET, &headers, Bytes::new()).await?;
        Download::new(response, lease, self.pool.clone())
    }

    /// Returns the headers of an object.
    ///
    /// # Errors
    /// `NoSuchKey` and others of the service; its messages are missing here, as `HEAD` has no body.
    pub async fn head_object(&self, bucket: &str, key: &str) -> Result<ObjectHead> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = HeadObject::new(&bucket, Some(&credentials), checked(key)?);
        let headers = [("x-amz-checksum-mode", "ENABLED".to_owned())];
        let (response, lease) = self.send(action, Method::HEAD, &headers, Bytes::new()).await?;
        self.pool.put_back(lease);
        ObjectHead::of(response.headers())
    }

    /// Deletes an object. Succeeds if there is none.
    ///
    /// # Errors
    /// Errors of the service.
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<()> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = DeleteObject::new(&bucket, Some(&credentials), checked(key)?);
        self.call(action, Method::DELETE, &[], Bytes::new()).await.map(drop)
    }

    /// Deletes up to 1,000 objects. Returns the keys that could not be deleted, with the reasons.
    ///
    /// # Errors
    /// Errors of the service.
    pub async fn delete_objects(&self, bucket: &str, keys: &[String]) -> Result<Vec<(String, String)>> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let named: Vec<_> = keys.iter().cloned().map(ObjectIdentifier::new).collect();
        let mut action = DeleteObjects::new(&bucket, Some(&credentials), named.iter());
        action.set_quiet(true);
        let (body, md5) = action.clone().body_with_md5();
        let headers = [("content-md5", md5)];
        let (_, text) = self.call(action, Method::POST, &headers, body.into()).await?;
        delete_errors(&text)
    }

    /// Lists a page of the objects of a bucket by key.
    ///
    /// # Errors
    /// `NoSuchBucket` and others of the service.
    pub async fn list(&self, bucket: &str, request: &ListRequest<'_>) -> Result<ListPage> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let mut action = ListObjectsV2::new(&bucket, Some(&credentials));
        action.with_max_keys(request.limit.clamp(1, 1000));
        for (name, value) in [
            ("prefix", request.prefix),
            ("delimiter", request.delimiter),
            ("start-after", request.after),
            ("continuation-token", request.token.unwrap_or_default()),
        ] {
            if !value.is_empty() {
                action.query_mut().insert(name, value);
            }
        }
        let (_, text) = self.call(action, Method::GET, &[], Bytes::new()).await?;
        let page: ListObjectsV2Response =
            ListObjectsV2::parse_response(&text).map_err(|error| unreadable(&error))?;
        let describe = |object: rusty_s3::actions::list_objects_v2::ListObjectsContent| ListedObject {
            key: object.key,
            size: object.size.unwrap_or_default(),
            etag: object.etag.unwrap_or_default(),
            modified: object.last_modified.unwrap_or_default(),
        };
        Ok(ListPage {
            objects: page.contents.into_iter().map(describe).collect(),
            prefixes: page.common_prefixes.into_iter().map(|group| group.prefix).collect(),
            next: page.next_continuation_token,
        })
    }

    /// Returns the ids of up to 1,000 uploads in progress.
    ///
    /// # Errors
    /// `NoSuchBucket` and others of the service.
    pub async fn uploads(&self, bucket: &str) -> Result<Vec<String>> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        // The library has no action for this one: another query of the bucket.
        let mut action = ListObjectsV2::new(&bucket, Some(&credentials));
        action.query_mut().remove("list-type");
        action.query_mut().insert("uploads", "");
        let (_, text) = self.call(action, Method::GET, &[], Bytes::new()).await?;
        let ids = text.split("<UploadId>").skip(1);
        Ok(ids.filter_map(|rest| rest.split_once("</UploadId>")).map(|(id, _)| id.to_owned()).collect())
    }

    /// Begins a multipart upload. Returns its id.
    ///
    /// # Errors
    /// `NoSuchBucket` and others of the service.
    pub async fn create_upload(&self, bucket: &str, key: &str) -> Result<String> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = CreateMultipartUpload::new(&bucket, Some(&credentials), checked(key)?);
        let headers =
            [("x-amz-checksum-algorithm", "CRC64NVME".to_owned()), (CHECKSUM_TYPE, "FULL_OBJECT".to_owned())];
        let (_, text) = self.call(action, Method::POST, &headers, Bytes::new()).await?;
        let created = CreateMultipartUpload::parse_response(&text).map_err(|error| unreadable(&error))?;
        Ok(created.upload_id().to_owned())
    }

    /// Uploads a part, by its number from 1 on.
    ///
    /// # Errors
    /// `NoSuchUpload` and others of the service.
    pub async fn upload_part(
        &self,
        (bucket, key, upload): (&str, &str, &str),
        number: u16,
        body: Bytes,
    ) -> Result<UploadedPart> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let checksum = Checksum::of(&body);
        let action = UploadPart::new(&bucket, Some(&credentials), checked(key)?, number, upload);
        let headers = [(CHECKSUM, checksum.to_base64())];
        let (response, _) = self.call(action, Method::PUT, &headers, body).await?;
        Ok(UploadedPart { etag: etag_of(&response)?, checksum })
    }

    /// Joins the parts 1, 2, ... to the object. The service compares the checksum of all parts
    /// before the object becomes visible.
    ///
    /// # Errors
    /// `NoSuchUpload` and others of the service.
    pub async fn complete_upload(
        &self,
        (bucket, key, upload): (&str, &str, &str),
        parts: &[UploadedPart],
    ) -> Result<()> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let mut whole = Checksum::default();
        parts.iter().for_each(|part| whole.append(&part.checksum));
        let etags = parts.iter().map(|part| part.etag.as_str());
        let action = CompleteMultipartUpload::new(&bucket, Some(&credentials), checked(key)?, upload, etags);
        let body = action.clone().body();
        let headers = [(CHECKSUM, whole.to_base64()), (CHECKSUM_TYPE, "FULL_OBJECT".to_owned())];
        let (_, text) = self.call(action, Method::POST, &headers, body.into()).await?;
        // S3 may report an error after the status 200.
        match text.contains("<CompleteMultipartUploadResult") {
            true => Ok(()),
            false => Err(refused(200, &text)),
        }
    }

    /// Ends an upload and frees its parts.
    ///
    /// # Errors
    /// `NoSuchUpload` and others of the service.
    pub async fn abort_upload(&self, (bucket, key, upload): (&str, &str, &str)) -> Result<()> {
        let (bucket, credentials) = (self.bucket(bucket)?, self.credentials());
        let action = AbortMultipartUpload::new(&bucket, Some(&credentials), checked(key)?, upload);
        self.call(action, Method::DELETE, &[], Bytes::new()).await.map(drop)
    }

    /// Sends a request and reads its response as text.
    async fn call<'a>(
        &self,
        action: impl S3Action<'a>,
        method: Method,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<(hyper::HeaderMap, String)> {
        let (response, lease) = self.send(action, method, headers, body).await?;
        let (head, body) = response.into_parts();
        let text = read_text(body).await?;
        self.pool.put_back(lease);
        Ok((head.headers, text))
    }

    /// Sends a request. Returns the response if it is a success.
    async fn send<'a>(
        &self,
        mut action: impl S3Action<'a>,
        method: Method,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<(Response<Incoming>, Lease)> {
        for (name, value) in headers {
            action.headers_mut().insert(*name, Cow::Owned(value.clone()));
        }
        let url = action.sign(SIGNATURE_VALID);
        let target = url.as_str().get(url.origin().ascii_serialization().len()..).unwrap_or("/");
        let mut request = Request::builder().method(method.clone()).uri(target);
        // As it is signed: without the port of the protocol.
        let host = url.host_str().unwrap_or_default();
        request = request.header("host", url.port().map_or(host.into(), |port| format!("{host}:{port}")));
        if method != Method::GET && method != Method::HEAD {
            request = request.header("content-length", body.len());
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| S3Error::Invalid(error.to_string()))?;
        let (response, lease) = self.pool.send(request).await?;
        if response.status().is_success() {
            return Ok((response, lease));
        }
        let status = response.status().as_u16();
        let text = read_text(response.into_body()).await?;
        self.pool.put_back(lease);
        Err(refused(status, &text))
    }
}

/// Returns a key that an URL can carry.
fn checked(key: &str) -> Result<&str> {
    if key.split('/').any(|segment| matches!(segment, "." | "..")) {
        let message = format!("key '{key}' has a segment '.' or '..', which HTTP clients remove");
        return Err(S3Error::Invalid(message));
    }
    Ok(key)
}

async fn read_text(body: Incoming) -> Result<String> {
    let body = http_body_util::Limited::new(body, RESPONSE_MAX);
    let body = timeout(SILENCE_MAX, body.collect()).await.map_err(|_| silent())?;
    let bytes = body.map_err(|error| S3Error::Response(error.to_string()))?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn etag_of(headers: &hyper::HeaderMap) -> Result<String> {
    let etag = headers.get("etag").and_then(|etag| etag.to_str().ok());
    Ok(etag.ok_or_else(|| S3Error::Response("an object without an ETag".into()))?.to_owned())
}

fn unreadable(error: &dyn fmt::Display) -> S3Error {
    S3Error::Response(error.to_string())
}

/// Reads the errors of a deletion of several objects. The namespace of the elements differs between
/// services, and the library accepts one only.
fn delete_errors(text: &str) -> Result<Vec<(String, String)>> {
    if !text.contains("<DeleteResult") {
        return Err(S3Error::Response("the result of a deletion has another form".into()));
    }
    let element = |of: &str, name: &str| {
        let (_, rest) = of.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| unescaped(value))
    };
    let errors = text.split("<Error>").skip(1).filter_map(|rest| Some(rest.split_once("</Error>")?.0));
    let read = |error: &str| {
        let reason = element(error, "Message").or_else(|| element(error, "Code"));
        (element(error, "Key").unwrap_or_default(), reason.unwrap_or_else(|| "unknown".into()))
    };
    Ok(errors.map(read).collect())
}

/// Reads the error of a response.
fn refused(status: u16, text: &str) -> S3Error {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| unescaped(value))
    };
    let by_status = || match status {
        404 => "NoSuchKey".to_owned(),
        412 => "PreconditionFailed".to_owned(),
        _ => format!("HTTP status {status}"),
    };
    let code = element("Code").unwrap_or_else(by_status);
    let message = element("Message").unwrap_or_else(|| "the S3 service refused the request".into());
    S3Error::Refused { status, code, message }
}

fn unescaped(text: &str) -> String {
    let replaced = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    replaced.replace("&apos;", "'").replace("&#39;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_deletions_are_read_in_any_namespace() {
        for namespace in ["", " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""] {
            let none = format!("<?xml version=\"1.0\"?><DeleteResult{namespace}></DeleteResult>");
            assert!(delete_errors(&none).unwrap().is_empty());
            let one =
                "<Error><Key>a&amp;b</Key><Code>AccessDenied</Code><Message>it is locked</Message></Error>";
            let all = format!(
                "<DeleteResult{namespace}>{one}<Error><Key>c</Key><Code>X</Code></Error></DeleteResult>"
            );
            let read = |key: &str, reason: &str| (key.to_owned(), reason.to_owned());
            assert_eq!(delete_errors(&all).unwrap(), [read("a&b", "it is locked"), read("c", "X")]);
        }
        assert!(delete_errors("<html></html>").is_err());
    }
}
