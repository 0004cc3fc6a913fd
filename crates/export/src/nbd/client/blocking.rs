//! The client over sockets that block, for threads.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Client, ClientError, Command, Replies, Transport};
use crate::Extent;

/// A socket or pipe that blocks.
pub trait ReadWrite: Read + Write + Send {}
impl<S: Read + Write + Send> ReadWrite for S {}

/// The bytes of a connection that blocks.
pub struct BlockingTransport(Box<dyn ReadWrite>);

impl BlockingTransport {
    /// A transport over this socket.
    pub fn new(socket: impl ReadWrite + 'static) -> Self {
        Self(Box::new(socket))
    }
}

impl Transport for BlockingTransport {
    async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(into)
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// Completes a future over a transport that blocks.
fn complete<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a transport that blocks is never pending"),
    }
}

/// [`Client`] over a socket that blocks. Dropped, it disconnects.
pub struct BlockingClient {
    client: Client<BlockingTransport>,
}

impl BlockingClient {
    /// Opens an export behind a Unix socket. `timeout` is the longest time without an answer.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn connect_unix(
        socket: &Path,
        export: &str,
        replies: Replies,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(timeout))?;
        Self::open(BlockingTransport::new(stream), export, replies)
    }

    /// Opens an export at a TCP address. `timeout` is the longest time without an answer.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn connect_tcp(
        address: SocketAddr,
        export: &str,
        replies: Replies,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Self::open(BlockingTransport::new(stream), export, replies)
    }

    fn open(transport: BlockingTransport, export: &str, replies: Replies) -> Result<Self, ClientError> {
        Ok(Self { client: complete(Client::open(transport, export, replies))? })
    }

    /// Like [`Client::size`].
    pub fn size(&self) -> u64 {
        self.client.size()
    }

    /// Like [`Client::is_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.client.is_read_only()
    }

    /// Like [`Client::read`].
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        complete(self.client.read(offset, into))
    }

    /// Like [`Client::write`].
    ///
    /// # Errors
    /// As [`Client::write`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        complete(self.client.write(offset, data))
    }

    /// Like [`Client::flush`].
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        complete(self.client.flush())
    }

    /// Like [`Client::trim`].
    ///
    /// # Errors
    /// As [`Client::trim`].
    pub fn trim(&mut self, offset: u64, bytes: u32) -> Result<(), ClientError> {
        complete(self.client.trim(offset, bytes))
    }

    /// Like [`Client::extents`].
    ///
    /// # Errors
    /// As [`Client::extents`].
    pub fn extents(&mut self, offset: u64) -> Result<Vec<Extent>, ClientError> {
        complete(self.client.extents(offset))
    }

    /// Like [`Client::submit`].
    ///
    /// # Errors
    /// As [`Client::submit`].
    pub fn submit(
        &mut self,
        command: Command,
        cookie: u64,
        offset: u64,
        bytes: u32,
        data: &[u8],
    ) -> Result<(), ClientError> {
        complete(self.client.submit(command, cookie, offset, bytes, data))
    }

    /// Like [`Client::next_simple_reply`].
    ///
    /// # Errors
    /// As [`Client::next_simple_reply`].
    pub fn next_simple_reply(&mut self) -> Result<u64, ClientError> {
        complete(self.client.next_simple_reply())
    }

    /// Like [`Client::receive`].
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub fn receive(&mut self, into: &mut [u8]) -> Result<(), ClientError> {
        complete(self.client.receive(into))
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        // Without it the server notices the end of the connection anyway.
        let _ = complete(self.client.disconnect());
    }
}
