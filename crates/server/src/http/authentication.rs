//! Authentication, roles and the audit log of requests.
//!
//! Invariants: a remote request reaches a handler only with a valid token or session, except the
//! beginning of a session and the files of the console; a session changes something only with the
//! CSRF header; every authenticated request that may change something is recorded.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use api::paths;
use api::types::{Identity, Role};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::audit::{AuditNote, AuditedRequest};
use super::extract::read_small_body;
use super::sender::Sender;
use crate::access::{check_role, unauthenticated};
use crate::error::{Error, ErrorKind, Result};
use crate::services::Services;

/// Name of the cookie of a session. Browsers accept the prefix only from this host over HTTPS.
pub(super) const SESSION_COOKIE: &str = "__Host-gabion_session";
/// Header that proves that a request was sent by the console's own page.
const CSRF_HEADER: &str = "x-csrf-token";

/// Identifies the client of each request, and records changes.
pub(super) async fn authenticate(
    State(services): State<Arc<Services>>,
    ConnectInfo(sender): ConnectInfo<Sender>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let identity = match identify(&services, sender, request.headers(), &method) {
        Ok(identity) => Some(identity),
        Err(_) if is_public(&method, &path) => None,
        Err(error) => return protect(error.into_response()),
    };
    if let Some(identity) = &identity {
        request.extensions_mut().insert(identity.clone());
        request = match read_small_body(request).await {
            Ok(request) => request,
            Err(error) => return protect(error.into_response()),
        };
    }
    let note = AuditNote::default();
    request.extensions_mut().insert(note.clone());
    let response = next.run(request).await;
    // The beginning of a session has an identity only in its response.
    let identity = identity.or_else(|| response.extensions().get::<Identity>().cloned());
    if let Some(identity) = identity.filter(|_| is_audited(&method, &path)) {
        AuditedRequest { method, path, sender, note }.record(&services, identity, &response);
    }
    protect(response)
}

/// Adds the headers that keep responses out of caches and from being interpreted as another type.
fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns true for requests that may change something. The input of a console follows its opening,
/// which is recorded.
fn is_audited(method: &Method, path: &str) -> bool {
    let is_input = path.starts_with("/v1/machines/") && path.ends_with("/input");
    !is_safe(method) && !is_input
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// Returns true for requests that need no identity: the beginning of a session, and the console.
fn is_public(method: &Method, path: &str) -> bool {
    let is_session = *method == Method::POST && path == paths::CREATE_SESSION.path;
    let is_data = path == super::metrics::METRICS || path == "/v1" || path.starts_with("/v1/");
    is_session || is_safe(method) && !is_data
}

fn identify(services: &Services, sender: Sender, headers: &HeaderMap, method: &Method) -> Result<Identity> {
    let address = match sender {
        // The permissions of the socket are the proof.
        Sender::Local(user) => {
            let name = user.map_or_else(|| "local".to_owned(), |user| format!("local user {user}"));
            return Ok(Identity { name, role: Role::Admin, csrf_token: None });
        }
        Sender::Remote(address) => address.ip(),
    };
    if let Some(token) = bearer(headers) {
        return services.access.by_token(token, address);
    }
    let cookie = cookie(headers).ok_or_else(|| unauthenticated("the request has no token"))?;
    let identity = services.access.by_cookie(cookie, address)?;
    let csrf = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    if !is_safe(method) && csrf != identity.csrf_token.as_deref() {
        let message = "the request has a session cookie but not its X-CSRF-Token header";
        return Err(Error::new(ErrorKind::Forbidden, message)
            .hint("GET /v1/access/self returns the value of the header"));
    }
    Ok(identity)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the value of the session's cookie.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION_COOKIE).map(|(_, value)| value)
}

/// Returns the address for the limit on failed attempts. Local senders share one.
pub(super) fn limited_address(sender: Sender) -> IpAddr {
    sender.address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Lets a request pass if its client has the role.
pub(super) async fn require(role: Role, request: Request, next: Next) -> Response {
    let checked = match request.extensions().get::<Identity>() {
        Some(identity) => check_role(identity, role),
        None => Err(unauthenticated("the request has no token")),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_console_and_the_beginning_of_a_session_are_public() {
        let session = paths::CREATE_SESSION.path;
        for (method, path, public) in [
            (Method::GET, "/", true),
            (Method::GET, "/assets/a.js", true),
            (Method::POST, "/", false),
            (Method::POST, session, true),
            (Method::DELETE, session, false),
            (Method::GET, "/v1/pools", false),
            (Method::GET, "/v1", false),
            (Method::GET, "/metrics", false),
        ] {
            assert_eq!(is_public(&method, path), public, "{method} {path}");
        }
        for row in paths::ALL.iter().filter(|row| row.path != session) {
            assert!(!is_public(&Method::GET, row.path), "{}", row.path);
        }
    }

    #[test]
    fn tokens_and_cookies_are_found_in_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!((bearer(&headers), cookie(&headers)), (None, None));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("bearer  abc"));
        headers.append(COOKIE, HeaderValue::from_static("a=b; __Host-gabion_session=xyz"));
        assert_eq!((bearer(&headers), cookie(&headers)), (Some("abc"), Some("xyz")));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic abc"));
        assert_eq!(bearer(&headers), None);
    }
}
