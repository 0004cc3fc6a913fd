//! HTTPS listeners.
//!
//! Invariants: a client that does not complete the TLS handshake occupies a place for ten seconds
//! at most and delays no other client; the number of connections is bounded by [`super::places`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::bind::{bind_tcp, bound_addresses};
use super::places::{CONNECTIONS_MAX, IDLE_MAX, IdleLimit, SenderPlace, SenderPlaces};
use crate::certificate::CertificateStore;
use crate::error::Result;

/// Longest time of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failure to accept a connection, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bound addresses for HTTPS.
pub(crate) struct RemoteSockets(Vec<TcpListener>);

impl RemoteSockets {
    /// Binds the addresses.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub(crate) async fn bind(addresses: &[SocketAddr]) -> Result<Self> {
        Ok(Self(bind_tcp(addresses, "the API", "--api-listen").await?))
    }

    /// Returns the addresses with their ports.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        bound_addresses(&self.0)
    }

    /// Returns the listeners, which use the certificate and look for its changes.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub(crate) fn listen(self, certificate: &Arc<CertificateStore>) -> Result<Vec<TlsListener>> {
        let acceptor = TlsAcceptor::from(certificate.serve()?);
        let places = Places { all: Arc::new(Semaphore::new(CONNECTIONS_MAX)), senders: Arc::default() };
        let listener = |tcp| TlsListener::new(tcp, acceptor.clone(), places.clone());
        Ok(self.0.into_iter().map(listener).collect())
    }
}

/// The places of all listeners.
#[derive(Clone)]
struct Places {
    all: Arc<Semaphore>,
    senders: Arc<SenderPlaces>,
}

/// A listener that returns connections after the TLS handshake.
pub(crate) struct TlsListener {
    accepted: mpsc::Receiver<(TlsConnection, SocketAddr)>,
    address: io::Result<SocketAddr>,
}

impl TlsListener {
    fn new(listener: TcpListener, acceptor: TlsAcceptor, places: Places) -> Self {
        let (sender, accepted) = mpsc::channel(1);
        let address = listener.local_addr();
        tokio::spawn(accept_all(listener, acceptor, places, sender));
        Self { accepted, address }
    }
}

/// Accepts connections until the listener is dropped.
async fn accept_all(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    places: Places,
    sender: mpsc::Sender<(TlsConnection, SocketAddr)>,
) {
    loop {
        // The semaphore is never closed.
        let Ok(permit) = places.all.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = places.senders.take(address.ip()) else {
            tracing::debug!(%address, "too many connections of this sender");
            continue;
        };
        let (handshake, sender) = (acceptor.accept(stream), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                Ok(Ok(stream)) => {
                    let idle = IdleLimit::start(IDLE_MAX);
                    let connection = TlsConnection { stream, idle, _permit: permit, _place: place };
                    // An error means that the server is shutting down.
                    let _ = sender.send((connection, address)).await;
                }
                Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TlsConnection, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task that accepts ends only after this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address.as_ref().copied().map_err(|error| io::Error::new(error.kind(), error.to_string()))
    }
}

/// A TLS connection that holds one of the places for connections.
pub(crate) struct TlsConnection {
    stream: TlsStream<TcpStream>,
    idle: IdleLimit,
    _permit: OwnedSemaphorePermit,
    _place: SenderPlace,
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.idle.check(cx, read)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.idle.check(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
