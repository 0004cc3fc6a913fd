//! HTTP/1.1 connections to one service, with TLS or without, kept for the next requests.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::error::{Result, S3Error};

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a byte of the response.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Idle connections that are kept.
const IDLE_MAX: usize = 256;

/// The host and port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host_and_port: String,
    /// The name in the certificate of the service, with HTTPS.
    tls_name: Option<ServerName<'static>>,
}

impl Address {
    /// Reads `http://HOST[:PORT]` or `https://HOST[:PORT]`.
    ///
    /// # Errors
    /// `Invalid` for other texts.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid = || {
            S3Error::Invalid(format!(
                "'{url}' is not the address of an S3 service; use http://HOST:PORT or https://HOST:PORT"
            ))
        };
        let (rest, is_https) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(invalid()),
        };
        let authority = rest.trim_end_matches('/');
        let parsed = authority.parse::<hyper::http::uri::Authority>();
        match parsed {
            Ok(parsed) if !parsed.host().is_empty() && !authority.contains('@') => {
                let host_and_port = match parsed.port() {
                    Some(_) => authority.to_owned(),
                    None => format!("{authority}:{}", if is_https { 443 } else { 80 }),
                };
                let bare = parsed.host().trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = is_https.then(|| ServerName::try_from(bare)).transpose();
                Ok(Self { host_and_port, tls_name: name.map_err(|_| invalid())? })
            }
            _ => Err(invalid()),
        }
    }
}

impl Address {
    /// Returns the URL of the service.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls_name.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.host_and_port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_and_port)
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// The connections to a service.
pub(crate) struct ConnectionPool {
    pub(crate) address: Address,
    /// The settings of connections by HTTPS.
    tls: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<Connection>>,
}

/// A connection in use. It is kept for others by [`ConnectionPool::put_back`], and closed when it
/// is dropped.
pub(crate) struct Lease(Connection);

impl ConnectionPool {
    pub(crate) fn new(address: Address, tls: Option<Arc<ClientConfig>>) -> Self {
        Self { address, tls, idle: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. Returns the head of the response, and the connection that its body uses.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Lease)> {
        let mut request = request;
        // A service closes idle connections: requests that it has not read go to a new connection.
        while let Some(mut connection) = self.take_idle() {
            match respond(connection.try_send_request(request)).await? {
                Ok(response) => return Ok((response, Lease(connection))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut connection = self.connect().await?;
        match respond(connection.try_send_request(request)).await? {
            Ok(response) => Ok((response, Lease(connection))),
            Err(error) => Err(error.into_error().into()),
        }
    }

    /// Keeps a connection whose response was read to its end.
    pub(crate) fn put_back(&self, Lease(connection): Lease) {
        let mut idle = self.lock();
        if !connection.is_closed() && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.lock();
        while let Some(connection) = idle.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Connection> {
        let refused = |source| S3Error::Connect { address: self.address.to_string(), source };
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address.host_and_port)).await;
        let stream = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let Some(name) = self.address.tls_name.clone() else { return open(stream).await };
        let Some(tls) = self.tls.clone() else {
            let message = format!("{}: HTTPS needs trusted certificates", self.address.url());
            return Err(S3Error::Invalid(message));
        };
        let secured = timeout(CONNECT_TIMEOUT, TlsConnector::from(tls).connect(name, stream)).await;
        open(secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(refused)?).await
    }
}

/// Begins HTTP on a stream.
async fn open(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection> {
    let (connection, driver) = handshake(TokioIo::new(stream)).await?;
    // Errors of the connection reach the requests that it carries.
    tokio::spawn(async move { drop(driver.await) });
    Ok(connection)
}

async fn respond<T>(response: impl Future<Output = T>) -> Result<T> {
    timeout(SILENCE_MAX, response).await.map_err(|_| silent())
}

pub(crate) fn silent() -> S3Error {
    S3Error::Timeout(SILENCE_MAX.as_secs())
}
