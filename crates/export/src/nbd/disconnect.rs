//! The reasons why connections end.
//!
//! Owns the log line about the end of a connection.

use reactor::{IoError, IoErrorKind, Peer};

use super::wire::BadMagic;
use crate::transport::RecvError;

/// The reason why a connection ended. All but the first four are logged as warnings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// The client sent a disconnect request.
    #[error("the client disconnected")]
    Disconnected,
    /// The client closed the connection between two messages.
    #[error("the client closed the connection")]
    Closed,
    /// The server was stopped.
    #[error("the server stopped")]
    Stopped,
    /// The export was removed.
    #[error("the export was removed")]
    Withdrawn,
    /// The client requested an unavailable export by `NBD_OPT_EXPORT_NAME`, which has no error
    /// reply.
    #[error("export {name:?} was refused: {reason}")]
    Refused {
        /// The requested name.
        name: String,
        /// The cause.
        reason: String,
    },
    /// The client violated the protocol.
    #[error("protocol violation: {0}")]
    ProtocolViolation(ProtocolViolation),
    /// The client closed the connection within a message.
    #[error("the client closed the connection within a message")]
    Truncated,
    /// The handshake took too long.
    #[error("handshake timeout")]
    HandshakeTimeout,
    /// The client stalled within a message, or did not read its replies.
    #[error("the client stalled")]
    Stalled,
    /// After a stop or the removal of the export, the last replies could not be sent in time.
    #[error("the last replies could not be sent in time")]
    DrainTimeout,
    /// The client was still in its handshake when another connection needed the slot.
    #[error("displaced in its handshake by another connection")]
    Displaced,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(IoError),
}

/// A violation of the protocol by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// A message has the wrong magic number.
    #[error("a message has the magic number {0:#x}")]
    BadMagic(u64),
    /// The client's flags include unknown bits.
    #[error("unknown client flags: {0:#x}")]
    UnknownFlags(u32),
    /// An option has too much data.
    #[error("an option has {0} bytes of data")]
    OptionLength(u32),
    /// The handshake has too many options.
    #[error("the handshake has too many options")]
    TooManyOptions,
    /// The name of an export is invalid, in an option that has no error reply.
    #[error("invalid name of an export: {0}")]
    BadName(&'static str),
    /// A write has more payload than the advertised maximum.
    #[error("a write has {0} bytes of payload")]
    PayloadLength(u32),
}

impl From<ProtocolViolation> for DisconnectReason {
    fn from(violation: ProtocolViolation) -> Self {
        Self::ProtocolViolation(violation)
    }
}

impl From<BadMagic> for DisconnectReason {
    fn from(bad: BadMagic) -> Self {
        Self::ProtocolViolation(ProtocolViolation::BadMagic(bad.0))
    }
}

impl From<IoError> for DisconnectReason {
    fn from(error: IoError) -> Self {
        match error.kind() {
            IoErrorKind::Closed => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

impl From<RecvError> for DisconnectReason {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Closed,
            RecvError::Truncated => Self::Truncated,
            RecvError::Io(error) => Self::Io(error),
        }
    }
}

impl DisconnectReason {
    /// Returns true if the connection ended in an expected way.
    pub fn is_orderly(&self) -> bool {
        matches!(self, Self::Disconnected | Self::Closed | Self::Stopped | Self::Withdrawn)
    }

    pub(super) fn log(&self, peer: Peer, export: Option<&str>) {
        let export = export.unwrap_or("none");
        if self.is_orderly() {
            tracing::info!(%peer, export, reason = %self, "NBD connection closed");
        } else {
            tracing::warn!(%peer, export, reason = %self, "NBD connection closed");
        }
    }
}
