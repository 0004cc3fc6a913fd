//! The Security Token Service: `AssumeRoleWithWebIdentity`, at the address of the S3 service.
//!
//! Always true: a response with credentials is sent only after the role store has verified the
//! token; the body of a request is bounded. Must not know: how tokens are verified.

use std::fmt::Write;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use s3s::dto::TimestampFormat;

use crate::request_body::RequestBody;
use crate::request_check::parse_query;
use crate::roles::{IssuedSession, RoleError, RoleErrorKind, RoleRequest, RoleStore};
use crate::times::from_ms;

/// The largest body of a request in bytes: a token and a policy whose characters are escaped.
const BODY_MAX: usize = 32 << 10;
/// The time for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest token of an identity provider in bytes, as in AWS.
const TOKEN_MAX: usize = 20_000;
/// The largest policy of a session in bytes, as in AWS.
const POLICY_MAX: usize = 2048;
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// The name of the only action.
const ACTION: &str = "AssumeRoleWithWebIdentity";
/// The only version.
const VERSION: &str = "2011-06-15";

/// An error of the service: status, code and message.
struct StsError(StatusCode, &'static str, String);

impl StsError {
    fn invalid(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, "ValidationError", message.into())
    }
}

impl From<RoleError> for StsError {
    fn from(error: RoleError) -> Self {
        let (status, code) = match error.kind {
            RoleErrorKind::Invalid => (StatusCode::BAD_REQUEST, "ValidationError"),
            RoleErrorKind::Denied => (StatusCode::FORBIDDEN, "AccessDenied"),
            RoleErrorKind::InvalidToken => (StatusCode::BAD_REQUEST, "InvalidIdentityToken"),
            RoleErrorKind::ExpiredToken => (StatusCode::BAD_REQUEST, "ExpiredTokenException"),
            RoleErrorKind::Unreachable => (StatusCode::BAD_REQUEST, "IDPCommunicationError"),
            RoleErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalFailure"),
        };
        Self(status, code, error.message)
    }
}

/// Escapes and shortens a text of a client for messages.
fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// True for a request without a bucket to the Security Token Service: a form that is posted to the
/// root, except the deletion of several objects, whose content type clients may choose.
pub(crate) fn is_sts<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_form = content_type
        .is_some_and(|value| value.to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded"));
    if request.method() != Method::POST || request.uri().path() != "/" {
        return false;
    }
    let query = parse_query(request.uri().query().unwrap_or_default());
    let has = |wanted: &str| query.iter().any(|(name, _)| name == wanted);
    !has("delete") && (is_form || has("Action"))
}

/// Answers a request to the Security Token Service.
pub(crate) async fn answer(
    roles: Option<&dyn RoleStore>,
    request: Request<RequestBody>,
) -> Response<s3s::Body> {
    let id = request_id();
    let (status, body) = match assume(roles, request).await {
        Ok((role, session_name, session)) => {
            (StatusCode::OK, credentials_document(&role, &session_name, &session, &id))
        }
        Err(error) => {
            tracing::debug!(code = error.1, reason = ?error.2, "a role was not assumed");
            (error.0, error_document(&error, &id))
        }
    };
    let mut response = Response::new(s3s::Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-amzn-requestid", id);
    }
    response
}

async fn assume(
    roles: Option<&dyn RoleStore>,
    request: Request<RequestBody>,
) -> Result<(String, String, IssuedSession), StsError> {
    let request = read_request(request).await?;
    let Some(roles) = roles else { return Err(RoleError::not_authorized().into()) };
    let (role, session_name) = (request.role.clone(), request.session_name.clone());
    Ok((role, session_name, roles.assume(request).await?))
}

/// Reads the parameters in the query and the body of a request.
async fn read_request(request: Request<RequestBody>) -> Result<RoleRequest, StsError> {
    let mut parameters = parse_query(request.uri().query().unwrap_or_default());
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Err(StsError::invalid(format!("the body has more than {BODY_MAX} bytes"))),
        Err(_) => return Err(StsError::invalid("the body did not arrive in time")),
    };
    parameters.extend(parse_query(&String::from_utf8_lossy(&body)));
    parse_request(&parameters)
}

fn parse_request(parameters: &[(String, String)]) -> Result<RoleRequest, StsError> {
    let optional = |name: &str| {
        parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|v| !v.is_empty())
    };
    let required = |name: &'static str| {
        let missing = || StsError::invalid(format!("the parameter {name} is missing"));
        optional(name).ok_or_else(missing)
    };
    match optional("Action") {
        Some(ACTION) => {}
        other => {
            let action = shown(other.unwrap_or_default());
            let message = format!("the action '{action}' is not supported: use {ACTION}");
            return Err(StsError(StatusCode::BAD_REQUEST, "InvalidAction", message));
        }
    }
    for (name, value) in parameters {
        let is_known = [
            "Action",
            "Version",
            "RoleArn",
            "RoleSessionName",
            "WebIdentityToken",
            "DurationSeconds",
            "Policy",
        ];
        if !is_known.contains(&name.as_str()) {
            return Err(StsError::invalid(format!("the parameter {} is not supported", shown(name))));
        }
        // An empty policy that is ignored would give more rights than the client wants.
        if value.is_empty() {
            return Err(StsError::invalid(format!("the parameter {name} is empty: leave it out")));
        }
        if parameters.iter().filter(|(other, _)| other == name).count() > 1 {
            return Err(StsError::invalid(format!("the parameter {name} is repeated")));
        }
    }
    if let Some(version) = optional("Version").filter(|version| *version != VERSION) {
        let version = shown(version);
        return Err(StsError::invalid(format!("the version '{version}' is not supported: use {VERSION}")));
    }
    let arn = required("RoleArn")?;
    let role = role_of_arn(arn).ok_or_else(|| {
        StsError::invalid(format!("'{}' is not a role: use arn:aws:iam:::role/NAME", shown(arn)))
    })?;
    let session_name = required("RoleSessionName")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    if !(2..=64).contains(&session_name.len()) || !session_name.bytes().all(is_plain) {
        let message = "RoleSessionName must have 2 to 64 letters, digits and characters of '_+=,.@-'";
        return Err(StsError::invalid(message));
    }
    let token = required("WebIdentityToken")?;
    if token.len() > TOKEN_MAX {
        return Err(StsError::invalid(format!("WebIdentityToken has more than {TOKEN_MAX} bytes")));
    }
    let policy = optional("Policy");
    if policy.is_some_and(|policy| policy.len() > POLICY_MAX) {
        return Err(StsError::invalid(format!("Policy has more than {POLICY_MAX} bytes")));
    }
    let duration_s = optional("DurationSeconds")
        .map(str::parse::<u64>)
        .transpose()
        .map_err(|_| StsError::invalid("DurationSeconds is not a number of seconds"))?;
    Ok(RoleRequest {
        role: role.to_owned(),
        session_name: session_name.to_owned(),
        token: token.to_owned(),
        duration_s,
        policy: policy.map(str::to_owned),
    })
}

/// The name of the role in `arn:aws:iam:::role/NAME`, in which an account may be named too.
fn role_of_arn(arn: &str) -> Option<&str> {
    let (_, name) = arn.strip_prefix("arn:aws:iam::")?.split_once(":role/")?;
    (!name.is_empty()).then_some(name)
}

fn credentials_document(role: &str, session_name: &str, session: &IssuedSession, id: &str) -> String {
    let mut expiration = Vec::new();
    // A time of this century can be written.
    let _ = from_ms(session.expires * 1000).format(TimestampFormat::DateTime, &mut expiration);
    let mut xml = String::new();
    let elements = [
        ("SubjectFromWebIdentityToken", session.subject.as_str()),
        ("Audience", &session.audience),
        ("Provider", &session.issuer),
    ];
    let credentials = [
        ("AccessKeyId", session.access_key.as_str()),
        ("SecretAccessKey", &session.secret),
        ("SessionToken", &session.token),
        ("Expiration", std::str::from_utf8(&expiration).unwrap_or_default()),
    ];
    let arn = format!("arn:aws:sts:::assumed-role/{role}/{session_name}");
    let user = [("Arn", arn.as_str()), ("AssumedRoleId", &format!("{role}:{session_name}"))];
    let _ = write!(xml, "<{ACTION}Response xmlns=\"{NAMESPACE}\"><{ACTION}Result>");
    write_elements(&mut xml, &elements);
    xml.push_str("<AssumedRoleUser>");
    write_elements(&mut xml, &user);
    xml.push_str("</AssumedRoleUser><Credentials>");
    write_elements(&mut xml, &credentials);
    let _ = write!(xml, "</Credentials></{ACTION}Result><ResponseMetadata>");
    write_elements(&mut xml, &[("RequestId", id)]);
    let _ = write!(xml, "</ResponseMetadata></{ACTION}Response>");
    xml
}

fn error_document(StsError(status, code, message): &StsError, id: &str) -> String {
    let kind = if status.is_server_error() { "Receiver" } else { "Sender" };
    let mut xml = format!("<ErrorResponse xmlns=\"{NAMESPACE}\"><Error>");
    write_elements(&mut xml, &[("Type", kind), ("Code", code), ("Message", message)]);
    xml.push_str("</Error>");
    write_elements(&mut xml, &[("RequestId", id)]);
    xml.push_str("</ErrorResponse>");
    xml
}

fn write_elements(xml: &mut String, elements: &[(&str, &str)]) {
    for (name, text) in elements {
        let _ = write!(xml, "<{name}>");
        for character in text.chars() {
            match character {
                '&' => xml.push_str("&amp;"),
                '<' => xml.push_str("&lt;"),
                '>' => xml.push_str("&gt;"),
                // Not a character of XML 1.0, and not in a valid parameter.
                control if control.is_control() => xml.push('?'),
                other => xml.push(other),
            }
        }
        let _ = write!(xml, "</{name}>");
    }
}

/// A random name of a request.
fn request_id() -> String {
    let mut bytes = [0; 16];
    // The name is for people only: zeros do no harm.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[path = "sts_tests.rs"]
mod tests;
