//! The engine's error: a small kind to match on, where it happened, and what caused it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use format::{Address, DriveIndex, FormatError, LayerBlock, LayerId};
use reactor::{IoError, ReactorGone};

/// What went wrong, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The pool has no free segments for new data. Reading, trimming and deleting go on.
    NoSpace,
    /// A drive did not do what it was asked, beyond what the scheme can make up for.
    Io,
    /// Stored bytes do not verify and the other columns cannot give them back.
    Corrupt,
    /// So many drives are lost that the pool takes no more writes until it is opened again.
    PoolFailed,
    /// The pool or volume was closed meanwhile.
    Closed,
    /// An argument makes no sense.
    Invalid,
    /// No such pool, volume or drive.
    NotFound,
    /// The name is taken.
    Exists,
    /// It is in use.
    Busy,
    /// It is a snapshot.
    ReadOnly,
    /// The drives hold no pool, or parts of different ones, or too few of one.
    NotAPool,
    /// The drives hold an older state of the pool than is known of.
    Stale,
    /// Written by another version of the format.
    Version,
}

/// Where something went wrong, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The drive.
    pub drive: Option<DriveIndex>,
    /// The block's address.
    pub address: Option<Address>,
    /// The layer and block.
    pub block: Option<(LayerId, LayerBlock)>,
}

/// An error of the engine. Cheap to clone: one failed record answers many writers.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    place: Place,
    source: Option<Source>,
}

#[derive(Clone, Debug)]
enum Source {
    Io(IoError),
    Format(FormatError),
}

/// What the engine's operations give.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; the message says what was being done, or what to do, in a short clause.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), place: Place::default(), source: None }))
    }

    /// An operation that a drive failed.
    pub fn io(message: impl Into<Cow<'static, str>>, drive: DriveIndex, source: IoError) -> Self {
        let place = Place { drive: Some(drive), ..Place::default() };
        let source = Some(Source::Io(source));
        Self(Arc::new(Inner { kind: ErrorKind::Io, message: message.into(), place, source }))
    }

    /// Stored bytes that do not decode.
    pub fn corrupt(message: impl Into<Cow<'static, str>>, place: Place, source: Option<FormatError>) -> Self {
        let kind = match source {
            Some(FormatError::Version { .. }) => ErrorKind::Version,
            _ => ErrorKind::Corrupt,
        };
        Self(Arc::new(Inner { kind, message: message.into(), place, source: source.map(Source::Format) }))
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where it happened.
    pub fn place(&self) -> Place {
        self.0.place
    }

    /// The same error, with the layer and block that were being accessed.
    #[must_use]
    pub fn at_block(self, layer: LayerId, block: LayerBlock) -> Self {
        let inner = &*self.0;
        let place = Place { block: Some((layer, block)), ..inner.place };
        let source = inner.source.clone();
        Self(Arc::new(Inner { kind: inner.kind, message: inner.message.clone(), place, source }))
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
        if let Some(drive) = inner.place.drive {
            write!(f, ", drive {drive}")?;
        }
        if let Some(address) = inner.place.address {
            write!(f, ", {address}")?;
        }
        if let Some((layer, block)) = inner.place.block {
            write!(f, ", layer {layer} block {block}")?;
        }
        match &inner.source {
            Some(Source::Io(source)) => write!(f, ": {source}"),
            Some(Source::Format(source)) => write!(f, ": {source}"),
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
