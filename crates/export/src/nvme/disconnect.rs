//! The reasons why connections end.
//!
//! Owns the log line about the end of a connection.

use reactor::{IoError, IoErrorKind, Peer};

use super::tls::KeyRefusal;
use super::wire::FatalError;
use crate::transport::{Link, RecvError, TlsError};

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueCloseReason {
    /// The host closed the connection between two messages.
    #[error("the host closed the connection")]
    Closed,
    /// The host sent a disconnect command.
    #[error("the host disconnected")]
    Disconnected,
    /// The server was stopped.
    #[error("the server stopped")]
    Stopped,
    /// The controller ended.
    #[error("{0}")]
    Ended(&'static str),
    /// The host sent no command within its keep alive time.
    #[error("no command within the keep alive time")]
    KeepAlive,
    /// The host may not connect.
    #[error("the queue was refused: {0}")]
    Refused(&'static str),
    /// The host cannot begin TLS.
    #[error("TLS was refused with alert {alert}: {0}", alert = .0.alert())]
    TlsRefused(KeyRefusal),
    /// The host reported a fatal error.
    #[error("the host reported a fatal error: status {0}, information {1:#x}")]
    HostTerminated(u16, u32),
    /// The host violated the protocol.
    #[error("protocol violation: {0:?}")]
    Violation(FatalError),
    /// The host sent more commands than its queue has entries.
    #[error("more commands than the queue has entries")]
    TooManyCommands,
    /// The host closed the connection within a message.
    #[error("the host closed the connection within a message")]
    Truncated,
    /// The connection was not opened in time.
    #[error("handshake timeout")]
    HandshakeTimeout,
    /// The host stalled within a message, or did not read its replies.
    #[error("the host stalled")]
    Stalled,
    /// After a stop, the last replies could not be sent in time.
    #[error("the last replies could not be sent in time")]
    DrainTimeout,
    /// The connection was not open yet when another one needed the slot.
    #[error("displaced by another connection")]
    Displaced,
    /// The TLS session failed.
    #[error("TLS failed: {0}")]
    Tls(TlsError),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(IoError),
}

impl From<RecvError> for QueueCloseReason {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Closed,
            RecvError::Truncated => Self::Truncated,
            RecvError::Io(error) => Self::Io(error),
        }
    }
}

impl From<IoError> for QueueCloseReason {
    fn from(error: IoError) -> Self {
        match error.kind() {
            IoErrorKind::Closed => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

impl From<TlsError> for QueueCloseReason {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<FatalError> for QueueCloseReason {
    fn from(error: FatalError) -> Self {
        Self::Violation(error)
    }
}

impl QueueCloseReason {
    /// The reason on this connection: a failure of a TLS session is reported as one of the
    /// connection.
    pub(super) fn within(self, link: &Link) -> Self {
        match (self, link.tls_failure()) {
            (Self::Io(_), Some(failure)) => Self::Tls(failure),
            (reason, _) => reason,
        }
    }

    /// True if the requests in flight are completed and their replies sent.
    pub(super) fn is_orderly(&self) -> bool {
        matches!(self, Self::Closed | Self::Disconnected | Self::Stopped | Self::Ended(_))
    }

    pub(super) fn log(&self, peer: Peer, subsystem: &str, queue: u16) {
        if self.is_orderly() {
            tracing::info!(%peer, subsystem, queue, reason = %self, "NVMe/TCP connection closed");
        } else {
            tracing::warn!(%peer, subsystem, queue, reason = %self, "NVMe/TCP connection closed");
        }
    }
}
