//! HTTP requests of the daemon to other services.
//!
//! Always true: connections, responses and their sizes are bounded; redirects are not followed;
//! plain HTTP goes to this host only, unless the administrator permits another one. Must not know
//! the contents of requests.

use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::client::ServerTrust;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::{Error, ErrorKind};
use crate::request::{path, shown};

/// The largest file with certificates in bytes.
const AUTHORITIES_MAX: usize = 1 << 20;
/// The largest response to a sent document in bytes.
const RESPONSE_MAX: usize = 64 << 10;
/// The metadata service of a cloud whose address is not link-local.
const METADATA_ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// The time for a whole request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The URL of another service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceUrl {
    /// The name in its certificate, for HTTPS.
    tls_name: Option<ServerName<'static>>,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl ServiceUrl {
    /// Reads an URL of HTTPS, or of HTTP on this host.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_with(text, false)
    }

    /// Reads an URL of HTTPS, or of HTTP; with `allow_http` of HTTP to another host too.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub(crate) fn parse_with(text: &str, allow_http: bool) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("it is not an URL ({error})"))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("it does not begin with https://".to_owned()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or("it has no host, or a user name")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_local =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_https && !is_local && !allow_http {
            return Err("plain HTTP is permitted to this host only: use https://".to_owned());
        }
        let name = is_https.then(|| ServerName::try_from(host.clone())).transpose();
        let tls_name = name.map_err(|_| "its host cannot be the name of a certificate".to_owned())?;
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { tls_name, host, port, authority: authority.as_str().to_owned(), path })
    }

    /// The address without path and query, which may contain secrets.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.is_plain() { "http" } else { "https" };
        format!("{scheme}://{}", self.authority)
    }

    /// True for HTTP without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls_name.is_none()
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

/// Returns the settings of TLS: trust in the authorities of a file, or in those of the system.
///
/// # Errors
/// The reason why the file cannot be used.
pub(crate) fn client_config(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let trust = match authorities {
        Some(path) => ServerTrust::Authorities(read_file(path, AUTHORITIES_MAX)?),
        None => ServerTrust::System,
    };
    trust.client_config().map_err(|error| error.to_string())
}

/// Checks a file with the certificates of authorities that a request names.
///
/// # Errors
/// `Invalid` for a relative path, or a file without certificates.
pub(crate) fn check_authorities(file: Option<&str>) -> crate::error::Result<()> {
    let Some(name) = file else { return Ok(()) };
    path(name)?;
    client_config(Some(Path::new(name))).map(drop).map_err(|reason| {
        Error::new(ErrorKind::Invalid, format!("cannot use '{}': {reason}", shown(name)))
            .hint("give a PEM file with the certificates of authorities")
    })
}

/// Reads up to `max` bytes of a regular file. Opening another one, such as a pipe, could block.
///
/// # Errors
/// The reason, with the path.
pub(crate) fn read_file(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(max as u64).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The reason, with the URL, why a document was not received.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The service does not answer, or has no answer at present.
    Unavailable(String),
    /// The service has answered, but not with the document.
    Refused(String),
}

impl FetchError {
    pub(crate) fn into_reason(self) -> String {
        let (Self::Unavailable(reason) | Self::Refused(reason)) = self;
        reason
    }
}

/// Requests a document of up to `max` bytes.
///
/// # Errors
/// `Unavailable` after errors of connections and of the server, `Refused` for other statuses than
/// 200.
pub(crate) async fn get(url: &ServiceUrl, tls: &Arc<ClientConfig>, max: usize) -> Result<Bytes, FetchError> {
    let request = Request::builder().method(Method::GET).header(ACCEPT, "application/json");
    let sent = send(url, tls, request, Bytes::new(), max, true).await;
    let failed = |error: io::Error| FetchError::Unavailable(format!("{url}: {error}"));
    let (status, body) = sent.and_then(|(status, body)| Ok((status, body?))).map_err(failed)?;
    let reason = || format!("{url} answers with the status {status}");
    let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    match status {
        StatusCode::OK => Ok(body),
        _ if status.is_server_error() || is_busy => Err(FetchError::Unavailable(reason())),
        _ => Err(FetchError::Refused(reason())),
    }
}

/// Sends a JSON document to a receiver, whose body of the response does not matter.
///
/// # Errors
/// The reason, without the path of the URL, which may contain secrets.
pub(crate) async fn post(
    url: &ServiceUrl,
    tls: &Arc<ClientConfig>,
    token: Option<&str>,
    document: Bytes,
    allow_link_local: bool,
) -> Result<(), String> {
    let mut request = Request::builder().method(Method::POST).header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| "the token has characters that no header may have".to_owned())?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let origin = url.origin();
    let sent = send(url, tls, request, document, RESPONSE_MAX, allow_link_local).await;
    match sent.map_err(|error| format!("{origin}: {error}"))?.0 {
        status if status.is_success() => Ok(()),
        status => Err(format!("{origin} answers with the status {status}")),
    }
}

/// True for an address that only the host or its cloud uses: link-local ones, and those of metadata
/// services.
fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA_ADDRESS,
    }
}

/// Connects to the host of an URL. The resolved addresses are checked, whatever the name.
async fn connect(url: &ServiceUrl, allow_link_local: bool) -> io::Result<TcpStream> {
    let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await?;
    let (refused, addresses): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.partition(|address| !allow_link_local && is_link_local(address.ip()));
    match (addresses.is_empty(), refused.first()) {
        (true, Some(address)) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("its address {} is link-local, such as that of a metadata service", address.ip()),
        )),
        _ => TcpStream::connect(addresses.as_slice()).await,
    }
}

/// Sends a request and returns the status and body of the response.
async fn send(
    url: &ServiceUrl,
    tls: &Arc<ClientConfig>,
    request: hyper::http::request::Builder,
    body: Bytes,
    max: usize,
    allow_link_local: bool,
) -> io::Result<(StatusCode, io::Result<Bytes>)> {
    let request = request
        .uri(&url.path)
        .header(HOST, &url.authority)
        .header(USER_AGENT, concat!("gabion/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(io::Error::other)?;
    let exchange = async {
        let stream = connect(url, allow_link_local).await?;
        match url.tls_name.clone() {
            None => exchange(stream, request, max).await,
            Some(name) => {
                let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
                exchange(stream, request, max).await
            }
        }
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(result) => result,
        Err(_) => {
            let message = format!("no answer within {} s", TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    max: usize,
) -> io::Result<(StatusCode, io::Result<Bytes>)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Errors of the connection reach the request. The task ends with it, because the sender is
    // dropped.
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), max).collect().await.map_err(io::Error::other);
    driver.abort();
    Ok((status, body.map(|body| body.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_metadata_services_are_link_local() {
        for (address, expected) in [
            ("169.254.169.254", true),
            ("::ffff:169.254.169.254", true),
            ("fe80::1", true),
            ("fd00:ec2::254", true),
            ("fd00:ec2::255", false),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("::1", false),
        ] {
            assert_eq!(is_link_local(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn link_local_receivers_are_refused_before_a_connection() {
        let tls = client_config(None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = ServiceUrl::parse_with("http://169.254.169.254/latest", true).unwrap();
        let refused = runtime.block_on(post(&url, &tls, None, Bytes::new(), false)).unwrap_err();
        let expected = "http://169.254.169.254: its address 169.254.169.254 is link-local";
        assert!(refused.starts_with(expected), "{refused}");
    }

    #[test]
    fn plain_http_goes_to_this_host_only() {
        for (url, reason) in [
            ("https://login.example.org/realm", ""),
            ("https://[2001:db8::1]:8443", ""),
            ("http://127.0.0.1:8080/x?y=1", ""),
            ("http://localhost/", ""),
            ("http://[::1]:80/", ""),
            ("http://login.example.org/", "this host only"),
            ("http://127.0.0.1.example.org/", "this host only"),
            ("http://localhost@example.org/", "user name"),
            ("ftp://a/", "https://"),
            ("login.example.org", "https://"),
            ("https://", "not an URL"),
        ] {
            match ServiceUrl::parse(url) {
                Ok(_) => assert_eq!(reason, "", "{url}"),
                Err(error) => assert!(!reason.is_empty() && error.contains(reason), "{url}: {error}"),
            }
        }
        let url = ServiceUrl::parse("https://a.b:1/c?d").unwrap();
        assert_eq!((url.port, url.path.as_str(), url.to_string().as_str()), (1, "/c?d", "https://a.b:1/c?d"));
    }
}
