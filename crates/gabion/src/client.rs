//! The API's client: HTTP over the daemon's Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use api::types::ErrorResponse;
use api::{Error, ErrorKind};
use tokio::net::UnixStream;

/// Longest time for an answer: nothing that the API does at once takes long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pause before the next try while the daemon's queue of connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// A daemon, by its socket.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// The daemon that serves on `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Asks for something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Has something made or done.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Has something changed.
    pub(crate) async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// Has something set.
    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Has something taken away.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::DELETE, path, None::<&()>).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let body =
            body.map(serde_json::to_vec).transpose().context("writing the request")?.unwrap_or_default();
        let answer = tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await;
        let (status, body) = match answer {
            Ok(answer) => answer?,
            Err(_) => return Err(self.silent().into()),
        };
        if status.is_success() {
            let text: &[u8] = if body.is_empty() { b"null" } else { &body };
            return serde_json::from_slice(text).with_context(|| {
                format!(
                    "the daemon's answer is not understood: is it of another release? ('{} {path}')",
                    status.as_u16()
                )
            });
        }
        match serde_json::from_slice::<ErrorResponse>(&body) {
            Ok(answer) => Err(answer.error.into()),
            Err(_) => {
                let message = format!("the daemon answered {status} with something that is not understood");
                Err(Error::new(ErrorKind::Internal, message).hint("is it of another release?").into())
            }
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes)> {
        let stream = self.connect().await.map_err(|error| unreachable_daemon(&self.socket, &error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.lost(&error))?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "gabion")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .context("making the request")?;
        let response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| self.lost(&error))?.to_bytes();
        connection.abort();
        Ok((status, body))
    }

    /// Connects. While the daemon's queue of connections is full, it is tried again: the kernel does not say when it no longer
    /// is.
    async fn connect(&self) -> io::Result<UnixStream> {
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(QUEUE_PAUSE).await
                }
                result => return result,
            }
        }
    }

    fn lost(&self, error: &hyper::Error) -> Error {
        let message = format!("the daemon on {} went away: {error}", self.socket.display());
        Error::new(ErrorKind::Io, message).hint("its log says why: 'journalctl -u gabion'")
    }

    fn silent(&self) -> Error {
        let seconds = PATIENCE.as_secs();
        let message = format!("the daemon on {} did not answer within {seconds} s", self.socket.display());
        Error::new(ErrorKind::Io, message).hint("its log says what it does: 'journalctl -u gabion'")
    }
}

fn unreachable_daemon(socket: &Path, error: &io::Error) -> Error {
    let place = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::new(ErrorKind::NotFound, format!("no daemon is serving on {place}")).hint(
                "start it with 'systemctl start gabion' or 'gabion serve', or say where it is with --socket",
            )
        }
        io::ErrorKind::PermissionDenied => {
            Error::new(ErrorKind::Denied, format!("not allowed to use {place}"))
                .hint("run this as the daemon's user, which is usually root: 'sudo gabion ...'")
        }
        _ => Error::new(ErrorKind::Io, format!("cannot reach the daemon on {place}: {error}")),
    }
}

/// A name as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded: String = name
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    // A lone dot or two would be taken for a step in the path.
    if encoded.bytes().all(|byte| byte == b'.') { encoded.replace('.', "%2E") } else { encoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_segment() {
        for (name, encoded) in
            [("fast", "fast"), ("a/b", "a%2Fb"), ("..", "%2E%2E"), ("ü ?", "%C3%BC%20%3F"), ("a.b", "a.b")]
        {
            assert_eq!(segment(name), encoded);
        }
    }

    #[tokio::test]
    async fn a_daemon_whose_queue_of_connections_is_full_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("gabion.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // The kernel lets one more in than it is told.
        rustix::net::listen(&listener, 0).unwrap();
        listener.set_nonblocking(true).unwrap();
        let _first = UnixStream::connect(&path).await.unwrap();
        let refused = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let client = Client::new(path);
        let connecting = tokio::spawn(async move { client.connect().await });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!connecting.is_finished(), "it was tried while there was no room");
        listener.accept().unwrap();
        assert!(connecting.await.unwrap().is_ok());
    }
}
