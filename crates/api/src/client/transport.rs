//! Connections to the daemon.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::https::RemoteServer;
use crate::error::{Error, ErrorKind, Result};

/// Pause between attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Pause between attempts while the daemon's queue of connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// The address of a daemon and the way to connect to it.
#[derive(Clone, Debug)]
pub enum Transport {
    /// HTTP over a Unix socket.
    Unix(PathBuf),
    /// HTTPS, with a token.
    Https(RemoteServer),
}

/// A connection to the daemon.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Transport {
    /// Connects. Waits up to `start_wait` for a daemon that does not listen yet, and without a
    /// limit while its queue of connections is full, because the kernel does not signal free
    /// places.
    ///
    /// # Errors
    /// `Unreachable` or `Denied`.
    pub(super) async fn connect(&self, start_wait: Duration) -> Result<Box<dyn Connection>> {
        let deadline = Instant::now() + start_wait;
        loop {
            match self.try_connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(QUEUE_PAUSE).await;
                }
                Err(error) if is_absent(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(self.unreachable(&error)),
            }
        }
    }

    async fn try_connect(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Https(server) => Ok(Box::new(server.connect().await?)),
        }
    }

    /// Returns the value of the header `Host`.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "gabion".to_owned(),
            Self::Https(server) => server.host(),
        }
    }

    /// Returns the value of the header `Authorization`, if requests have one.
    pub(super) fn authorization(&self) -> Option<String> {
        match self {
            Self::Unix(_) => None,
            Self::Https(server) => server.authorization(),
        }
    }

    fn unreachable(&self, error: &io::Error) -> Error {
        if let Self::Https(server) = self {
            return unreachable_server(server, error);
        }
        match error.kind() {
            _ if is_absent(error) => Error::new(
                ErrorKind::Unreachable,
                format!("no daemon is serving on {self}"),
            )
            .hint(
                "start it with 'systemctl start gabion' or 'gabion serve', or name its socket with --socket",
            ),
            io::ErrorKind::PermissionDenied => {
                Error::new(ErrorKind::Denied, format!("permission to connect to {self} denied"))
                    .hint("run the command as the daemon's user, usually root: 'sudo gabion ...'")
            }
            _ => {
                Error::new(ErrorKind::Unreachable, format!("cannot connect to the daemon on {self}: {error}"))
            }
        }
    }

    /// Returns the error for a connection that ended before the response.
    pub(super) fn disconnected(&self, error: &dyn fmt::Display) -> Error {
        let message = format!("the daemon on {self} closed the connection before its response: {error}");
        Error::new(ErrorKind::Unreachable, message).hint("see the daemon's log: 'journalctl -u gabion'")
    }

    /// Returns the error for a response that did not arrive in time.
    pub(super) fn timed_out(&self, timeout: Duration) -> Error {
        let message = format!("the daemon on {self} did not respond within {} s", timeout.as_secs());
        Error::new(ErrorKind::Unreachable, message).hint("see the daemon's log: 'journalctl -u gabion'")
    }
}

fn unreachable_server(server: &RemoteServer, error: &io::Error) -> Error {
    let message = format!("cannot connect to {server}: {error}");
    let refused = Error::new(ErrorKind::Unreachable, message);
    match error.kind() {
        // TLS errors have this kind.
        io::ErrorKind::InvalidData => refused.hint(
            "for a self-signed certificate, give its fingerprint, which the daemon prints in its log, with --fingerprint",
        ),
        _ => refused.hint("check the address, and api.listen in the configuration of the daemon"),
    }
}

/// Returns true if no process listens on the address.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Https(server) => server.fmt(f),
        }
    }
}
