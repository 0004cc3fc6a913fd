//! HTTP requests of the daemon to other services.
//!
//! Always true: connections, responses and their sizes are bounded; redirects are not followed;
//! plain HTTP goes to this host only. Must not know the contents of requests.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::client::ServerTrust;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The largest file with certificates in bytes.
const AUTHORITIES_MAX: usize = 1 << 20;
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
        let uri: Uri = text.parse().map_err(|error| format!("it is not an URL ({error})"))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("it does not begin with https://".to_owned()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or("it has no host, or a user name")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_local = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_https && !is_local {
            return Err("plain HTTP is permitted to this host only: use https://".to_owned());
        }
        let name = is_https.then(|| ServerName::try_from(host.clone())).transpose();
        let tls_name = name.map_err(|_| "its host cannot be the name of a certificate".to_owned())?;
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { tls_name, host, port, authority: authority.as_str().to_owned(), path })
    }

    /// True for HTTP without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls_name.is_none()
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain() { "http" } else { "https" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
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
    let sent = send(url, tls, request, Bytes::new(), max).await;
    let (status, body) = sent.map_err(FetchError::Unavailable)?;
    let reason = || format!("{url} answers with the status {status}");
    let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    match status {
        StatusCode::OK => Ok(body),
        _ if status.is_server_error() || is_busy => Err(FetchError::Unavailable(reason())),
        _ => Err(FetchError::Refused(reason())),
    }
}

/// Sends a request and returns the status and body of the response.
async fn send(
    url: &ServiceUrl,
    tls: &Arc<ClientConfig>,
    request: hyper::http::request::Builder,
    body: Bytes,
    max: usize,
) -> Result<(StatusCode, Bytes), String> {
    let request = request
        .uri(&url.path)
        .header(HOST, &url.authority)
        .header(USER_AGENT, concat!("gabion/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|error| format!("{url}: {error}"))?;
    let exchange = async {
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
        match url.tls_name.clone() {
            None => exchange(stream, request, max).await,
            Some(name) => {
                let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
                exchange(stream, request, max).await
            }
        }
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(result) => result.map_err(|error| format!("{url}: {error}")),
        Err(_) => Err(format!("{url} does not answer within {} s", TIMEOUT.as_secs())),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    max: usize,
) -> io::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Errors of the connection reach the request. The task ends with it, because the sender is
    // dropped.
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), max).collect().await.map_err(io::Error::other);
    driver.abort();
    Ok((status, body?.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
