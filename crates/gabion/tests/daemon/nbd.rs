//! The NBD client of `export`, with results that are easy to compare.

use std::net::SocketAddr;
use std::path::Path;

use export::nbd::client::{BlockingClient, ClientError, Replies};
pub(crate) use test_support::pattern;

use super::harness::DEADLINE;

/// The error number of a failed connection.
const CONNECTION_FAILED: u32 = u32::MAX;

/// An open export.
pub(crate) struct Client {
    client: BlockingClient,
    pub(crate) size: u64,
    pub(crate) read_only: bool,
}

impl Client {
    /// Connects to an export. The error is a text.
    pub(crate) fn connect(socket: &Path, export: &str) -> Result<Self, String> {
        Self::new(BlockingClient::connect_unix(socket, export, Replies::Simple, DEADLINE))
    }

    /// Opens an export over TCP.
    pub(crate) fn connect_tcp(address: SocketAddr, export: &str) -> Result<Self, String> {
        Self::new(BlockingClient::connect_tcp(address, export, Replies::Simple, DEADLINE))
    }

    fn new(client: Result<BlockingClient, ClientError>) -> Result<Self, String> {
        let client = client.map_err(|error| error.to_string())?;
        Ok(Self { size: client.size(), read_only: client.is_read_only(), client })
    }

    /// Writes bytes. The error is the number sent by the server.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.client.write(offset, data).map_err(number)
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        let mut data = vec![0; length];
        self.client.read(offset, &mut data).map_err(number)?;
        Ok(data)
    }

    pub(crate) fn flush(&mut self) -> Result<(), u32> {
        self.client.flush().map_err(number)
    }

    pub(crate) fn trim(&mut self, offset: u64, length: usize) -> Result<(), u32> {
        self.client.trim(offset, length as u32).map_err(number)
    }
}

fn number(error: ClientError) -> u32 {
    error.server_error().unwrap_or(CONNECTION_FAILED)
}
