//! Why a connection ended.
//!
//! Owns the one line of the log that says so.

use reactor::{IoError, IoErrorKind, Peer};

use super::wire::BadMagic;

/// Why a connection ended. Everything but the first four was worth a warning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The client said goodbye.
    #[error("the client disconnected")]
    Disconnected,
    /// The client closed the connection without a word, but not in the middle of one.
    #[error("the client closed the connection")]
    Left,
    /// The server was told to stop.
    #[error("the server stopped")]
    Stopped,
    /// The export was taken away.
    #[error("the export ended")]
    Withdrawn,
    /// The client asked for an export that it cannot have, in the old way that has no answer for that.
    #[error("export {name:?} was refused: {reason}")]
    Refused {
        /// The name asked for.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The client broke the protocol.
    #[error("the client broke the protocol: {0}")]
    Violation(Violation),
    /// The client closed the connection in the middle of a message.
    #[error("the client closed the connection in the middle of a message")]
    Cut,
    /// The handshake took too long.
    #[error("the handshake took too long")]
    HandshakeTimeout,
    /// The client stopped in the middle of a message, or did not read its replies.
    #[error("the client stalled")]
    Stalled,
    /// The server stopped, or the export was taken away, and the last replies could not be sent in time.
    #[error("the last replies could not be sent in time")]
    Abandoned,
    /// The client was slow in its handshake when there was no room for another connection.
    #[error("it was in its handshake, and another connection needed its place")]
    Displaced,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Failed(IoError),
}

/// What a client did that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message does not begin as one.
    #[error("a message begins with {0:#x}")]
    BadMagic(u64),
    /// The answer to the greeting has unknown flags.
    #[error("it has unknown flags: {0:#x}")]
    UnknownFlags(u32),
    /// An option has absurdly much data.
    #[error("an option has {0} bytes of data")]
    OptionLength(u32),
    /// The handshake has more options than any client has reason to send.
    #[error("the handshake does not come to an end")]
    TooManyOptions,
    /// The name of an export is none, in a place where that cannot be answered.
    #[error("the name of an export is none: {0}")]
    BadName(&'static str),
    /// A write has more payload than was agreed on.
    #[error("a write has {0} bytes of payload")]
    PayloadLength(u32),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<BadMagic> for End {
    fn from(bad: BadMagic) -> Self {
        Self::Violation(Violation::BadMagic(bad.0))
    }
}

impl From<IoError> for End {
    fn from(error: IoError) -> Self {
        match error.kind() {
            IoErrorKind::Closed => Self::Cut,
            _ => Self::Failed(error),
        }
    }
}

impl End {
    /// True if neither side did or met anything out of the ordinary.
    pub fn is_orderly(&self) -> bool {
        matches!(self, Self::Disconnected | Self::Left | Self::Stopped | Self::Withdrawn)
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
