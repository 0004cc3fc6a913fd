//! Checks of requests before the protocol library sees them.
//!
//! Always true: a request that passes is signed by version 4 for this region and service, and its
//! signature covers all of its `x-amz-` headers. Without that, the holder of a presigned URL could
//! add a header, and turn an upload into a copy of another object.

use hyper::Request;
use s3s::{S3Error, s3_error};

/// The largest validity of a presigned URL in seconds, as in S3.
const EXPIRY_MAX: u64 = 7 * 24 * 3600;
/// The headers that a signature covers by their effect.
const COVERED: [&str; 1] = ["x-amz-content-sha256"];

/// Checks a request.
///
/// # Errors
/// The S3 error for a request that must not be executed.
pub(crate) fn check_request<B>(request: &Request<B>, region: &str) -> Result<(), S3Error> {
    let query = parse_query(request.uri().query().unwrap_or_default());
    let parameter = |name: &str| {
        query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    };
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let authorization = header("authorization");
    let is_version_2 = authorization.is_some_and(|value| value.trim_start().starts_with("AWS "))
        || parameter("Signature").is_some()
        || parameter("AWSAccessKeyId").is_some();
    if is_version_2 {
        return Err(s3_error!(InvalidRequest, "signatures of version 2 are refused: use AWS4-HMAC-SHA256"));
    }
    if authorization.is_some() && parameter("X-Amz-Signature").is_some() {
        return Err(s3_error!(InvalidRequest, "the request has two signatures: in a header and in the URL"));
    }
    if let Some(authorization) = authorization {
        let field = |name: &str| {
            let rest = authorization.split_once(name)?.1;
            Some(rest.split([',', ' ']).next().unwrap_or_default())
        };
        check_scope(field("Credential=").unwrap_or_default(), region)?;
        check_signed_headers(request, field("SignedHeaders=").unwrap_or_default())?;
    } else if parameter("X-Amz-Signature").is_some() {
        check_scope(parameter("X-Amz-Credential").unwrap_or_default(), region)?;
        check_signed_headers(request, parameter("X-Amz-SignedHeaders").unwrap_or_default())?;
        let expiry = parameter("X-Amz-Expires").and_then(|value| value.parse::<u64>().ok());
        if expiry.is_none_or(|seconds| seconds == 0 || seconds > EXPIRY_MAX) {
            return Err(s3_error!(
                AuthorizationQueryParametersError,
                "X-Amz-Expires must be a number of seconds from 1 to {EXPIRY_MAX}"
            ));
        }
    }
    Ok(())
}

/// Checks the scope of a credential: key/date/region/s3/aws4_request.
fn check_scope(credential: &str, region: &str) -> Result<(), S3Error> {
    let mut fields = credential.rsplit('/');
    let (end, service, found) = (fields.next(), fields.next(), fields.next());
    if end != Some("aws4_request") || service != Some("s3") {
        return Err(s3_error!(
            AuthorizationHeaderMalformed,
            "the scope of the credential must end with {region}/s3/aws4_request"
        ));
    }
    if found != Some(region) {
        let shown: String = found.unwrap_or_default().chars().take(40).collect();
        return Err(s3_error!(
            AuthorizationHeaderMalformed,
            "the region '{shown}' is wrong; expecting '{region}'"
        ));
    }
    Ok(())
}

/// Refuses `x-amz-` headers that the signature does not cover, and repeated ones.
fn check_signed_headers<B>(request: &Request<B>, signed: &str) -> Result<(), S3Error> {
    for name in request.headers().keys().map(hyper::header::HeaderName::as_str) {
        if !name.starts_with("x-amz-") {
            continue;
        }
        if request.headers().get_all(name).iter().count() > 1 {
            return Err(s3_error!(InvalidRequest, "the header {name} is repeated"));
        }
        if !COVERED.contains(&name) && !signed.split(';').any(|other| other.eq_ignore_ascii_case(name)) {
            return Err(s3_error!(AccessDenied, "the header {name} is not signed"));
        }
    }
    Ok(())
}

/// The parameters of a query, decoded.
pub(crate) fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Decodes the percent encoding of a query, in which a plus stands for a space.
pub(crate) fn decode(text: &str) -> String {
    decode_path(&text.replace('+', " "))
}

/// Decodes the percent encoding.
pub(crate) fn decode_path(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
#[path = "request_check_tests.rs"]
mod tests;
