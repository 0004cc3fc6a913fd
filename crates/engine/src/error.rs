//! The engine's error: a kind to match on, a message, a location and a cause.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use format::{Address, DriveIndex, FormatError, LayerBlock, LayerId};
use reactor::{IoError, ReactorGone};

/// The kind of an error, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The pool has no free segments for new data. Reads, trims and deletions are still possible.
    NoSpace,
    /// A drive failed an operation, beyond the redundancy of the scheme.
    Io,
    /// Stored bytes fail verification and cannot be reconstructed from the other columns.
    Corrupt,
    /// Too many drives have failed: the pool accepts no writes until it is opened again.
    PoolFailed,
    /// The pool or volume was closed in the meantime.
    Closed,
    /// An argument is invalid.
    Invalid,
    /// The pool, volume or drive does not exist.
    NotFound,
    /// The name is already in use.
    Exists,
    /// The object is in use.
    Busy,
    /// The object is a snapshot.
    ReadOnly,
    /// The drives hold no pool, parts of different pools, or too few drives of a pool.
    NotAPool,
    /// The drives hold an older state of the pool than the newest known one.
    Stale,
    /// Written by another version of the format.
    Version,
}

/// The location of an error, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The drive.
    pub drive: Option<DriveIndex>,
    /// The block's address.
    pub address: Option<Address>,
    /// The layer and block.
    pub block: Option<(LayerId, LayerBlock)>,
}

/// An error of the engine. Cheap to clone: the failure of one record is returned to many writers.
#[derive(Clone)]
pub struct Error(Arc<ErrorInner>);

#[derive(Debug)]
struct ErrorInner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    location: ErrorLocation,
    source: Option<ErrorSource>,
}

#[derive(Clone, Debug)]
enum ErrorSource {
    Io(IoError),
    Format(FormatError),
}

/// The result of an operation of the engine.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`. The message names the failed operation or the remedy, in a short clause.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let location = ErrorLocation::default();
        Self(Arc::new(ErrorInner { kind, message: message.into(), location, source: None }))
    }

    /// An operation that a drive failed.
    pub fn io(message: impl Into<Cow<'static, str>>, drive: DriveIndex, source: IoError) -> Self {
        let location = ErrorLocation { drive: Some(drive), ..ErrorLocation::default() };
        let source = Some(ErrorSource::Io(source));
        Self(Arc::new(ErrorInner { kind: ErrorKind::Io, message: message.into(), location, source }))
    }

    /// Stored bytes that cannot be decoded.
    pub fn corrupt(
        message: impl Into<Cow<'static, str>>,
        location: ErrorLocation,
        source: Option<FormatError>,
    ) -> Self {
        let kind = match source {
            Some(FormatError::Version { .. }) => ErrorKind::Version,
            _ => ErrorKind::Corrupt,
        };
        let source = source.map(ErrorSource::Format);
        Self(Arc::new(ErrorInner { kind, message: message.into(), location, source }))
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the location.
    pub fn location(&self) -> ErrorLocation {
        self.0.location
    }

    /// Returns the same error with the layer and block that were being accessed.
    #[must_use]
    pub fn at_block(self, layer: LayerId, block: LayerBlock) -> Self {
        let inner = &*self.0;
        let location = ErrorLocation { block: Some((layer, block)), ..inner.location };
        let source = inner.source.clone();
        Self(Arc::new(ErrorInner { kind: inner.kind, message: inner.message.clone(), location, source }))
    }
}

impl From<ReactorGone> for Error {
    fn from(_: ReactorGone) -> Self {
        Self::new(ErrorKind::Closed, "the pool was closed")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.message)?;
        if let Some(drive) = inner.location.drive {
            write!(f, ", drive {drive}")?;
        }
        if let Some(address) = inner.location.address {
            write!(f, ", {address}")?;
        }
        if let Some((layer, block)) = inner.location.block {
            write!(f, ", layer {layer} block {block}")?;
        }
        match &inner.source {
            Some(ErrorSource::Io(source)) => write!(f, ": {source}"),
            Some(ErrorSource::Format(source)) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}
