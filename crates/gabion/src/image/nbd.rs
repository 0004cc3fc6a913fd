//! The NBD client of copies: its addresses, and its connections over tokio's sockets.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::paths::encode_segment;
use export::Extent;
use export::nbd::client::{Client, ClientError, Replies, Transport};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The address of an export.
#[derive(Clone, Debug)]
pub(crate) enum NbdEndpoint {
    /// On a Unix socket.
    Socket { path: PathBuf, export: String },
    /// At a TCP address.
    Address { address: String, export: String },
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

struct TokioTransport(Box<dyn Socket>);

impl Transport for TokioTransport {
    async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(into).await.map(drop)
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }
}

/// A connection to an export, with one request in flight.
pub(super) struct Connection {
    client: Client<TokioTransport>,
}

impl NbdEndpoint {
    fn export(&self) -> &str {
        match self {
            Self::Socket { export, .. } | Self::Address { export, .. } => export,
        }
    }

    /// Returns the URI of the export, for other programs.
    pub(super) fn uri(&self) -> String {
        let export = self.export().split('/').map(encode_segment).collect::<Vec<_>>().join("/");
        match self {
            Self::Socket { path, .. } => {
                let path =
                    path.to_string_lossy().split('/').map(encode_segment).collect::<Vec<_>>().join("/");
                format!("nbd+unix:///{export}?socket={path}")
            }
            Self::Address { address, .. } => format!("nbd://{address}/{export}"),
        }
    }

    /// Connects, with structured replies and block status.
    ///
    /// # Errors
    /// If nothing listens there, or the export does not exist.
    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let connect = async {
            let socket: Box<dyn Socket> = match self {
                Self::Socket { path, .. } => Box::new(UnixStream::connect(path).await?),
                Self::Address { address, .. } => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
            };
            Client::open(TokioTransport(socket), self.export(), Replies::Structured).await
        };
        Ok(Connection { client: with_timeout(connect).await? })
    }
}

/// Runs a request with a timeout.
async fn with_timeout<T>(work: impl Future<Output = Result<T, ClientError>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {TIMEOUT:?}"));
    Ok(tokio::time::timeout(TIMEOUT, work).await.map_err(late)??)
}

impl Connection {
    /// Returns the size of the export in bytes.
    pub(super) fn size(&self) -> u64 {
        self.client.size()
    }

    /// Calls [`Client::read`] with a timeout.
    pub(super) async fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        with_timeout(self.client.read(offset, into)).await
    }

    /// Calls [`Client::write`] with a timeout.
    pub(super) async fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        with_timeout(self.client.write(offset, data)).await
    }

    /// Calls [`Client::flush`] with a timeout.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        with_timeout(self.client.flush()).await
    }

    /// Calls [`Client::extents`] with a timeout.
    pub(super) async fn extents(&mut self, offset: u64) -> io::Result<Vec<Extent>> {
        with_timeout(self.client.extents(offset)).await
    }
}
