//! Why a socket could not be listened on or connected.

use std::fmt;

use rustix::io::Errno;

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetErrorKind {
    /// Another process listens there, or is about to.
    InUse,
    /// A file of that name is no socket.
    NotASocket,
    /// The path is longer than the 107 bytes that a socket's may have.
    PathTooLong,
    /// Nobody listens there.
    Refused,
    /// The path, address or network does not exist here.
    NotFound,
    /// This process may not.
    Denied,
    /// The other end did not answer.
    Unreachable,
    /// Anything else; the source says what.
    Other,
}

/// A socket that could not be listened on or connected.
#[derive(Debug)]
pub struct NetError {
    kind: NetErrorKind,
    address: String,
    operation: &'static str,
    source: std::io::Error,
}

impl NetError {
    pub(super) fn new(errno: Errno, address: impl fmt::Display, operation: &'static str) -> Self {
        use NetErrorKind as Kind;
        let kind = match errno {
            Errno::ADDRINUSE => Kind::InUse,
            Errno::NAMETOOLONG => Kind::PathTooLong,
            Errno::CONNREFUSED => Kind::Refused,
            Errno::NOENT | Errno::NOTDIR | Errno::ADDRNOTAVAIL | Errno::NETUNREACH => Kind::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Kind::Denied,
            Errno::HOSTUNREACH | Errno::TIMEDOUT | Errno::HOSTDOWN => Kind::Unreachable,
            _ => Kind::Other,
        };
        Self { kind, address: address.to_string(), operation, source: errno.into() }
    }

    pub(super) fn with_kind(self, kind: NetErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> NetErrorKind {
        self.kind
    }

    /// The address or path.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.operation, self.address)
    }
}

impl std::error::Error for NetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
