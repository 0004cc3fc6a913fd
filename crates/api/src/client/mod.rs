//! The client of the API: HTTP over the daemon's Unix socket, or HTTPS, with a typed method for
//! each endpoint.
//!
//! Invariant: every failure is an [`Error`] with a kind, a message that names the daemon or the
//! object, and a hint where one is known; the daemon's own errors are returned unchanged.
//!
//! A new connection is made for each request, by [`transport`].

mod calls;
mod https;
#[cfg(test)]
mod tests;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use https::{RemoteServer, ServerTrust};
pub use transport::Transport;

use crate::error::{Error, ErrorKind, Result};
use crate::paths::{Endpoint, Method, Query, percent_encode};
use crate::types::{ErrorResponse, Operation, OperationQuery, OperationState};

/// Longest time for a response. Long-running work is an operation: the response comes at its start.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for which the client waits for a daemon that is starting.
const START_WAIT: Duration = Duration::from_secs(2);
/// Longest time that the daemon delays a response while an operation does not change, in seconds.
const OPERATION_WAIT: u64 = 1;

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    start_wait: Duration,
}

impl Client {
    /// Returns a client of the daemon that serves on Unix socket `path`. It waits up to two seconds
    /// for a daemon that is starting.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self { transport: Transport::Unix(path.into()), start_wait: START_WAIT }
    }

    /// Returns a client of a remote daemon.
    pub fn https(server: RemoteServer) -> Self {
        Self { transport: Transport::Https(server), start_wait: Duration::ZERO }
    }

    /// Returns the host of a remote daemon, with brackets for an IPv6 address.
    pub fn server_host(&self) -> Option<&str> {
        match &self.transport {
            Transport::Unix(_) => None,
            Transport::Https(server) => Some(server.host_name()),
        }
    }

    /// Returns the client with another time to wait for a daemon that is starting.
    #[must_use]
    pub fn start_wait(self, start_wait: Duration) -> Self {
        Self { start_wait, ..self }
    }

    /// Waits for the end of an operation, and calls `progress` with each of its states.
    ///
    /// # Errors
    /// The error of the operation if it failed.
    pub async fn wait(
        &self,
        operation: Operation,
        mut progress: impl FnMut(&Operation),
    ) -> Result<Operation> {
        let mut current = operation;
        while current.state == OperationState::Running {
            progress(&current);
            let query = OperationQuery { after: Some(current.revision), wait: Some(OPERATION_WAIT) };
            current = self.get_operation(current.id, &query).await?;
        }
        match (current.state, current.error.take()) {
            (OperationState::Succeeded, _) => Ok(current),
            (_, Some(error)) => Err(error),
            (_, None) => Err(Error::new(ErrorKind::Internal, format!("{} failed", current.kind))),
        }
    }

    /// Calls an endpoint, with `names` for the placeholders in its path.
    async fn call<Q, B, R>(
        &self,
        endpoint: &Endpoint<Q, B, R>,
        names: &[&str],
        query: &Q,
        body: &B,
    ) -> Result<R>
    where
        Q: Query,
        B: Serialize,
        R: DeserializeOwned,
    {
        let target = endpoint.with(names) + &query_string(query)?;
        let body = serde_json::to_vec(body).map_err(cannot_encode)?;
        // The value of an empty body, (), is null in JSON.
        let body = if body == b"null" { Vec::new() } else { body };
        let exchange = self.exchange(endpoint.method, &target, body);
        let response = tokio::time::timeout(RESPONSE_TIMEOUT + self.start_wait, exchange).await;
        let (status, body) = response.unwrap_or_else(|_| Err(self.transport.timed_out(RESPONSE_TIMEOUT)))?;
        decode(status, &body)
    }

    async fn exchange(&self, method: Method, target: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes)> {
        let stream = self.transport.connect(self.start_wait).await?;
        let disconnected = |error: hyper::Error| self.transport.disconnected(&error);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(disconnected)?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(http_method(method))
            .uri(target)
            .header(HOST, self.transport.host())
            .header(CONTENT_TYPE, "application/json");
        let request = match self.transport.authorization() {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        };
        let request = request.body(Full::new(Bytes::from(body))).map_err(cannot_encode)?;
        let response = sender.send_request(request).await.map_err(disconnected)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(disconnected)?.to_bytes();
        connection.abort();
        Ok((status, body))
    }
}

/// Returns the value or the error in a response.
fn decode<R: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<R> {
    if status.is_success() {
        let text = if body.is_empty() { b"null" } else { body };
        return serde_json::from_slice(text)
            .map_err(|error| incompatible(format!("unexpected response of the daemon: {error}")));
    }
    match serde_json::from_slice::<ErrorResponse>(body) {
        Ok(response) => Err(response.error),
        Err(_) => Err(incompatible(format!("unexpected response of the daemon: status {status}"))),
    }
}

fn incompatible(message: String) -> Error {
    Error::new(ErrorKind::Internal, message)
        .hint("the daemon may be of another release: compare 'gabion version' with the daemon's log")
}

fn cannot_encode(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot encode the request: {error}"))
}

/// Returns the query with its question mark; empty if there are no parameters.
fn query_string(query: &impl Query) -> Result<String> {
    let serde_json::Value::Object(fields) = serde_json::to_value(query).map_err(cannot_encode)? else {
        return Ok(String::new());
    };
    let mut pairs = Vec::new();
    for (name, value) in fields {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => pairs.push(format!("{name}={}", percent_encode(&text))),
            other => pairs.push(format!("{name}={other}")),
        }
    }
    Ok(if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) })
}

fn http_method(method: Method) -> hyper::Method {
    match method {
        Method::Get => hyper::Method::GET,
        Method::Post => hyper::Method::POST,
        Method::Put => hyper::Method::PUT,
        Method::Patch => hyper::Method::PATCH,
        Method::Delete => hyper::Method::DELETE,
    }
}
