//! A connection as protocols use it: bytes as they are, or within TLS.
//!
//! Always true: without TLS, each operation is one of [`Stream`], without a copy or an allocation
//! of its own.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use reactor::{Io, IoError, Span, Stream};

use super::tls::{TlsError, TlsStream};

/// The sending half of a connection.
pub(crate) trait ByteSink {
    /// Writes every span, in order.
    fn write_all(&self, from: &[Span]) -> impl Future<Output = Result<(), IoError>>;
}

/// A connection. One read and one write may be in progress at a time.
#[derive(Clone)]
pub(crate) enum Link {
    Plain(Rc<Stream>),
    Tls(Rc<TlsStream>),
}

/// A read of available bytes, whose receive has begun. A wait for it can be dropped and resumed.
pub(crate) enum LinkRead {
    Plain(Io),
    Tls { stream: Rc<TlsStream>, into: Span },
}

impl Link {
    /// The socket connection.
    pub(crate) fn stream(&self) -> &Rc<Stream> {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.stream(),
        }
    }

    /// Reads the bytes that are available, up to the length of `into`. Returns their number; 0 at
    /// the end of the stream.
    pub(crate) fn read(&self, into: &Span) -> LinkRead {
        match self {
            Self::Plain(stream) => LinkRead::Plain(stream.read(into)),
            Self::Tls(stream) => {
                stream.begin_read();
                LinkRead::Tls { stream: stream.clone(), into: into.clone() }
            }
        }
    }

    /// Reads until every span is full. Fails as closed if the stream ends first.
    pub(crate) async fn read_exact(&self, into: &[Span]) -> Result<(), IoError> {
        match self {
            Self::Plain(stream) => stream.read_exact(into).await.map(|_| ()),
            Self::Tls(stream) => stream.read_exact(into).await,
        }
    }

    /// The failure of the TLS session, if it has failed. Operations report it as an error of the
    /// connection.
    pub(crate) fn tls_failure(&self) -> Option<TlsError> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.failure(),
        }
    }

    /// Ends the stream in the sending direction.
    pub(crate) async fn shutdown(&self) -> Result<(), IoError> {
        match self {
            Self::Plain(stream) => stream.shutdown(),
            Self::Tls(stream) => stream.shutdown().await,
        }
    }
}

impl From<Rc<Stream>> for Link {
    fn from(stream: Rc<Stream>) -> Self {
        Self::Plain(stream)
    }
}

impl ByteSink for Stream {
    async fn write_all(&self, from: &[Span]) -> Result<(), IoError> {
        Self::write_all(self, from).await.map(|_| ())
    }
}

impl ByteSink for Link {
    async fn write_all(&self, from: &[Span]) -> Result<(), IoError> {
        match self {
            Self::Plain(stream) => ByteSink::write_all(&**stream, from).await,
            Self::Tls(stream) => stream.write_all(from).await,
        }
    }
}

impl LinkRead {
    /// True if the read has ended. Within TLS, true if it may end without a wait: the bytes that
    /// have arrived may be a part of a record.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_done(),
            Self::Tls { stream, .. } => stream.is_ready(),
        }
    }
}

impl Future for LinkRead {
    type Output = Result<usize, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll(context),
            Self::Tls { stream, into } => stream.poll_read(context, into),
        }
    }
}
