//! The first steps of a request: its checks, cross-origin rules, and limits, before the protocol
//! library sees it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use s3s::host::{S3Host, VirtualHost};
use s3s::service::S3Service;
use s3s::{HttpError, S3Error, S3Result, s3_error};
use tokio::sync::Semaphore;

use crate::access::PeerAddress;
use crate::chunk_limit::ChunkLimit;
use crate::cors::{self, OriginRequest};
use crate::gateway::Gateway;
use crate::request_body::RequestBody;
use crate::request_check::{check_request, decode_path};
use crate::sts;

/// Finds the bucket in the host of a request: the labels before the domain of the service.
pub(crate) struct BucketHost {
    pub(crate) domain: Option<String>,
}

/// The bucket that a host names below a domain.
fn bucket_of_host<'h>(host: &'h str, domain: &str) -> Option<&'h str> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix(domain)?.strip_suffix('.')
}

impl S3Host for BucketHost {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(host);
        let bucket = self.domain.as_deref().and_then(|domain| bucket_of_host(host, domain));
        Ok(match bucket {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

/// Checks requests and passes them on to the protocol library.
#[derive(Clone)]
pub(crate) struct FrontService {
    pub(crate) service: S3Service,
    pub(crate) gateway: Gateway,
    pub(crate) region: Arc<str>,
    pub(crate) domain: Option<Arc<str>>,
    /// Limits uploads by forms, which the protocol library holds in memory.
    pub(crate) forms: Arc<Semaphore>,
}

type Answer = Result<Response<s3s::Body>, HttpError>;

fn refuse(error: S3Error) -> Answer {
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

impl FrontService {
    /// Answers a request.
    pub(crate) async fn call(&self, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        let (parts, body) = request.into_parts();
        let expects = parts.headers.contains_key(header::EXPECT);
        // No `100 Continue` is sent for an empty body.
        let is_empty = body.is_end_stream();
        let (body, is_read) = RequestBody::new(body);
        let mut answer = self.answer(Request::from_parts(parts, body), peer).await?;
        // botocore takes an answer without `100 Continue` to a request that expects it for the
        // answer to the next request of the connection too.
        let is_first = expects && (is_empty || !answer.status().is_success());
        if is_first || !is_read.load(Ordering::Acquire) {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer)
    }

    async fn answer(&self, mut request: Request<RequestBody>, peer: SocketAddr) -> Answer {
        if self.bucket_of(request.headers()).is_none() && sts::is_sts(&request) {
            return Ok(sts::answer(self.gateway.roles.as_deref(), request).await);
        }
        if let Err(error) = check_request(&request, &self.region) {
            return refuse(error);
        }
        request.extensions_mut().insert(PeerAddress(peer));
        let origin = OriginRequest::new(request.method(), request.headers());
        let cross_origin = match &origin {
            Some(origin) => self.cross_origin_headers(&request, origin).await,
            None => None,
        };
        if request.method() == Method::OPTIONS {
            return preflight(origin.is_some(), cross_origin);
        }
        let mut answer = self.execute(request).await?;
        if let Some(headers) = cross_origin {
            answer.headers_mut().extend(headers);
        }
        Ok(answer)
    }

    /// The bucket in the host of a request.
    fn bucket_of<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        bucket_of_host(headers.get(header::HOST)?.to_str().ok()?, self.domain.as_deref()?)
    }

    async fn execute(&self, request: Request<RequestBody>) -> Answer {
        let text =
            |name: &str| request.headers().get(name).map(|value| value.as_bytes().to_ascii_lowercase());
        let is_signed_stream = text("x-amz-content-sha256")
            .is_some_and(|value| value.starts_with(b"streaming-aws4-hmac-sha256-payload"));
        let is_form = request.method() == Method::POST
            && text("content-type")
                .is_some_and(|value| value.trim_ascii().starts_with(b"multipart/form-data"));
        let _permit = match is_form {
            true => Some(self.forms.acquire().await.map_err(|error| HttpError::new(Box::new(error)))?),
            false => None,
        };
        let request = request.map(s3s::Body::http_body);
        let request = match is_signed_stream {
            true => request.map(|body| s3s::Body::http_body(ChunkLimit::new(body))),
            false => request,
        };
        self.service.call(request).await
    }

    /// The headers that the rules of the bucket give to an answer.
    async fn cross_origin_headers(
        &self,
        request: &Request<RequestBody>,
        origin: &OriginRequest,
    ) -> Option<HeaderMap> {
        let bucket = match self.bucket_of(request.headers()) {
            Some(bucket) => bucket.to_owned(),
            None => decode_path(request.uri().path().trim_start_matches('/').split('/').next()?),
        };
        let settings = self.gateway.settings(&bucket).await.ok()?;
        origin.answer(settings.cors.as_ref()?)
    }
}

/// The answer to a preflight request.
fn preflight(has_origin: bool, headers: Option<HeaderMap>) -> Answer {
    if !has_origin {
        let message = "Insufficient information. Origin request header needed.";
        return refuse(s3_error!(InvalidRequest, "{message}"));
    }
    let Some(headers) = headers else { return refuse(cors::forbidden()) };
    let mut answer = Response::new(s3s::Body::empty());
    *answer.status_mut() = StatusCode::OK;
    answer.headers_mut().extend(headers);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_before_the_domain_are_the_bucket() {
        for (host, bucket) in [
            ("photos.s3.example:9000", Some("photos")),
            ("a.b.s3.example", Some("a.b")),
            ("s3.example", None),
            ("xs3.example", None),
            ("other.example", None),
        ] {
            assert_eq!(bucket_of_host(host, "s3.example"), bucket, "{host}");
        }
    }
}
