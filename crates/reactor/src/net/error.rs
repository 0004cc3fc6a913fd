//! Errors of listening on or connecting a socket.

use std::fmt;

use rustix::io::Errno;

/// The kinds of failure that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetErrorKind {
    /// Another process listens at this address, or is about to.
    InUse,
    /// The path exists and is not a socket.
    NotASocket,
    /// The path exceeds the 107 bytes of a socket address.
    PathTooLong,
    /// No process listens at this address.
    Refused,
    /// The path, address or network does not exist here.
    NotFound,
    /// This process lacks the permission.
    Denied,
    /// The peer did not respond.
    Unreachable,
    /// Any other failure; see the source.
    Other,
}

/// A socket that could not listen or connect.
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

    /// Returns the kind, for control flow.
    pub fn kind(&self) -> NetErrorKind {
        self.kind
    }

    /// Returns the address or path.
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
