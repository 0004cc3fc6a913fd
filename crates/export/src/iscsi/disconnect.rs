//! The reasons why connections end.
//!
//! Owns the log line about the end of a connection.

use reactor::{IoError, IoErrorKind, Peer};

use super::wire::LoginStatus;
use crate::transport::RecvError;

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionCloseReason {
    /// The initiator closed the connection between two messages.
    #[error("the initiator closed the connection")]
    Closed,
    /// The initiator logged out.
    #[error("the initiator logged out")]
    LoggedOut,
    /// The server was stopped.
    #[error("the server stopped")]
    Stopped,
    /// The session was ended by the target.
    #[error("{0}")]
    Ended(&'static str),
    /// The login was refused.
    #[error("the login was refused: {1} (status {status:02x}{detail:02x})", status = .0.0, detail = .0.1)]
    Refused(LoginStatus, &'static str),
    /// The initiator violated the protocol.
    #[error("protocol violation: {0}")]
    Violation(&'static str),
    /// A header digest is wrong: the place of the next message is unknown.
    #[error("a header digest is wrong")]
    HeaderDigest,
    /// A data digest is wrong.
    #[error("a data digest is wrong")]
    DataDigest,
    /// The initiator closed the connection within a message.
    #[error("the initiator closed the connection within a message")]
    Truncated,
    /// The login was not completed in time.
    #[error("login timeout")]
    LoginTimeout,
    /// The initiator stalled within a message, or did not read its replies.
    #[error("the initiator stalled")]
    Stalled,
    /// The initiator did not answer a ping.
    #[error("the initiator is silent")]
    Silent,
    /// After a stop, the last replies could not be sent in time.
    #[error("the last replies could not be sent in time")]
    DrainTimeout,
    /// The login was not completed yet when another connection needed the slot.
    #[error("displaced by another connection")]
    Displaced,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(IoError),
}

impl From<RecvError> for SessionCloseReason {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Closed,
            RecvError::Truncated => Self::Truncated,
            RecvError::Io(error) => Self::Io(error),
        }
    }
}

impl From<IoError> for SessionCloseReason {
    fn from(error: IoError) -> Self {
        match error.kind() {
            IoErrorKind::Closed => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

impl SessionCloseReason {
    /// True if the requests in flight are completed and their replies sent.
    pub(super) fn is_orderly(&self) -> bool {
        matches!(self, Self::Closed | Self::LoggedOut | Self::Stopped | Self::Ended(_))
    }

    pub(super) fn log(&self, peer: Peer, target: &str, initiator: &str) {
        if self.is_orderly() {
            tracing::info!(%peer, target_name = target, initiator, reason = %self, "iSCSI connection closed");
        } else {
            tracing::warn!(%peer, target_name = target, initiator, reason = %self, "iSCSI connection closed");
        }
    }
}
