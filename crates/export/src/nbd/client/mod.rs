//! An NBD client: for copies of images, loads and tests. The only one of the workspace.
//!
//! Owns the client's half of the protocol: fixed newstyle, structured replies, `base:allocation`
//! (the NBD project's doc/proto.md; its names are given beside ours). Always true: a server's
//! answers take bounded memory, and a read that succeeds has filled every byte of its buffer.
//!
//! Must not know: the server, sockets ([`Transport`] has them), files.
#![allow(clippy::big_endian_bytes, reason = "NBD is big-endian")]

mod blocking;
mod coverage;
mod error;
#[cfg(test)]
mod fuzz;
mod handshake;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::ops::Range;

pub use blocking::{BlockingClient, BlockingTransport, ReadWrite};
pub use error::ClientError;

use crate::Extent;
use coverage::Coverage;

/// `NBD_REPLY_TYPE_*`.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = 1 << 15;
}

/// `NBD_REQUEST_MAGIC`.
const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`.
const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
/// `NBD_REPLY_FLAG_DONE`.
const DONE: u16 = 1;
/// `NBD_STATE_ZERO`.
const ZERO: u32 = 2;
/// The most bytes of an answer to an option, or of the extents of a range, in all parts of the
/// answer together.
const ANSWER_MAX: u32 = 1 << 20;
/// The cookie of requests that are in flight alone.
const COOKIE: u64 = 0;
/// The most bytes of one block status request; a multiple of every sector.
const STATUS_MAX: u64 = 1 << 31;

/// A connection's bytes.
pub trait Transport: Send {
    /// Fills `into` with the next bytes.
    ///
    /// # Errors
    /// When the connection fails, or ends before.
    fn read_exact(&mut self, into: &mut [u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// When the connection fails.
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

/// The form of the replies that a client negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// Simple replies: the data of a read in one piece. Requests may be pipelined.
    Simple,
    /// Structured replies and the metadata context `base:allocation`: holes are not sent as zeros,
    /// and [`Client::extents`] works. One request at a time.
    Structured,
}

/// A command of the protocol, `NBD_CMD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read data.
    Read = 0,
    /// Write data, which follows the request.
    Write = 1,
    /// End the connection. There is no reply.
    Disconnect = 2,
    /// Make completed writes durable.
    Flush = 3,
    /// Discard a range.
    Trim = 4,
    /// Zero a range.
    WriteZeroes = 6,
    /// Return the extents of a range.
    BlockStatus = 7,
}

/// A connection to an export.
pub struct Client<T> {
    transport: T,
    replies: Replies,
    size: u64,
    /// `NBD_FLAG_*`.
    flags: u16,
}

impl<T: Transport> Client<T> {
    /// Opens an export over a new connection.
    ///
    /// # Errors
    /// When the server refuses, or does not follow the protocol.
    pub async fn open(transport: T, export: &str, replies: Replies) -> Result<Self, ClientError> {
        let mut client = Self { transport, replies, size: 0, flags: 0 };
        client.negotiate(export).await?;
        Ok(client)
    }

    /// Size of the export in bytes, when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if the export refuses writes.
    pub fn is_read_only(&self) -> bool {
        // `NBD_FLAG_READ_ONLY`.
        self.flags & 2 != 0
    }

    /// Reads the bytes at `offset`.
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub async fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        self.submit(Command::Read, COOKIE, offset, length(into.len())?, &[]).await?;
        self.reply(offset, into).await.map(drop)
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub async fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.submit(Command::Write, COOKIE, offset, length(data.len())?, data).await?;
        self.reply(offset, &mut []).await.map(drop)
    }

    /// Makes completed writes durable, those of other connections to the export as well
    /// (`NBD_FLAG_CAN_MULTI_CONN`).
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.submit(Command::Flush, COOKIE, 0, 0, &[]).await?;
        self.reply(0, &mut []).await.map(drop)
    }

    /// Discards a range.
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub async fn trim(&mut self, offset: u64, bytes: u32) -> Result<(), ClientError> {
        self.submit(Command::Trim, COOKIE, offset, bytes, &[]).await?;
        self.reply(0, &mut []).await.map(drop)
    }

    /// Returns the extents from `offset` on, in order; at least one, unless the export ends there.
    /// Needs [`Replies::Structured`].
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub async fn extents(&mut self, offset: u64) -> Result<Vec<Extent>, ClientError> {
        let rest = self.size.saturating_sub(offset).min(STATUS_MAX);
        if rest == 0 {
            return Ok(Vec::new());
        }
        let rest = u32::try_from(rest).map_err(|_| ClientError::protocol("range too long"))?;
        self.submit(Command::BlockStatus, COOKIE, offset, rest, &[]).await?;
        let extents = self.reply(offset, &mut []).await?;
        if extents.is_empty() || extents.iter().any(|extent| extent.length == 0) {
            return Err(ClientError::protocol("a block status without extents"));
        }
        Ok(extents)
    }

    /// Ends the connection in order.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn disconnect(&mut self) -> Result<(), ClientError> {
        self.submit(Command::Disconnect, COOKIE, 0, 0, &[]).await
    }

    /// Sends a request. `data` is that of a write.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn submit(
        &mut self,
        command: Command,
        cookie: u64,
        offset: u64,
        bytes: u32,
        data: &[u8],
    ) -> Result<(), ClientError> {
        let mut request = Vec::with_capacity(28 + data.len().min(64 << 10));
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend(0u16.to_be_bytes());
        request.extend((command as u16).to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(bytes.to_be_bytes());
        // A small write is one send.
        let (with_header, rest) = data.split_at(data.len().min(64 << 10));
        request.extend(with_header);
        self.transport.write_all(&request).await?;
        if !rest.is_empty() {
            self.transport.write_all(rest).await?;
        }
        Ok(())
    }

    /// Returns the cookie of the next simple reply. The data of a read follows, see
    /// [`Client::receive`].
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub async fn next_simple_reply(&mut self) -> Result<u64, ClientError> {
        if self.u32().await? != SIMPLE_MAGIC {
            return Err(ClientError::protocol("bad magic of a simple reply"));
        }
        let (error, cookie) = (self.u32().await?, self.u64().await?);
        if error == 0 { Ok(cookie) } else { Err(ClientError::server(error, "")) }
    }

    /// Receives the data of a read after its simple reply.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn receive(&mut self, into: &mut [u8]) -> Result<(), ClientError> {
        Ok(self.transport.read_exact(into).await?)
    }

    async fn array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut bytes = [0; N];
        self.transport.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    async fn u16(&mut self) -> Result<u16, ClientError> {
        self.array().await.map(u16::from_be_bytes)
    }

    async fn u32(&mut self) -> Result<u32, ClientError> {
        self.array().await.map(u32::from_be_bytes)
    }

    async fn u64(&mut self) -> Result<u64, ClientError> {
        self.array().await.map(u64::from_be_bytes)
    }

    /// The next bytes of an answer that may have `room` more.
    async fn bytes(&mut self, length: u32, room: &mut u32) -> Result<Vec<u8>, ClientError> {
        *room = room.checked_sub(length).ok_or_else(|| ClientError::protocol("answer too long"))?;
        let mut bytes = vec![0; length as usize];
        self.transport.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Checks the cookie of a reply against that of the only request in flight.
    async fn check_cookie(&mut self) -> Result<(), ClientError> {
        match self.u64().await? {
            COOKIE => Ok(()),
            other => Err(ClientError::protocol(format!("a reply to request {other:#x}, which was not sent"))),
        }
    }

    /// Receives the reply to a request: data of the export from `offset` on goes `into` the buffer,
    /// extents are returned.
    async fn reply(&mut self, offset: u64, into: &mut [u8]) -> Result<Vec<Extent>, ClientError> {
        let mut coverage = Coverage::default();
        let mut extents = Vec::new();
        let mut room = ANSWER_MAX;
        loop {
            match self.u32().await? {
                SIMPLE_MAGIC => return self.simple_reply(into).await.map(|()| extents),
                STRUCTURED_MAGIC => {}
                _ => return Err(ClientError::protocol("bad magic of a reply")),
            }
            let (flags, kind) = (self.u16().await?, self.u16().await?);
            self.check_cookie().await?;
            let length = self.u32().await?;
            match kind {
                chunk::NONE if length == 0 => {}
                chunk::OFFSET_DATA if length > 8 => {
                    let at = self.u64().await?;
                    let place = place(into, offset, at, length - 8)?;
                    coverage.add(&place)?;
                    let part = into.get_mut(place).ok_or_else(beyond)?;
                    self.transport.read_exact(part).await?;
                }
                chunk::OFFSET_HOLE if length == 12 => {
                    let at = self.u64().await?;
                    let length = self.u32().await?;
                    let place = place(into, offset, at, length)?;
                    coverage.add(&place)?;
                    into.get_mut(place).ok_or_else(beyond)?.fill(0);
                }
                chunk::BLOCK_STATUS => {
                    let payload = self.bytes(length, &mut room).await?;
                    extents.extend(payload.get(4..).unwrap_or_default().chunks_exact(8).filter_map(extent));
                }
                kind if kind & chunk::ERROR != 0 => {
                    let payload = self.bytes(length, &mut room).await?;
                    let number = payload.first_chunk::<4>().map_or(5, |number| u32::from_be_bytes(*number));
                    let message = String::from_utf8_lossy(payload.get(6..).unwrap_or_default()).into_owned();
                    return Err(ClientError::server(number, message));
                }
                _ => return Err(ClientError::protocol("unknown type of a reply")),
            }
            if flags & DONE != 0 {
                break;
            }
        }
        if coverage.is_complete(into.len()) {
            Ok(extents)
        } else {
            Err(ClientError::protocol("a reply without all of its data"))
        }
    }

    /// The rest of a simple reply, after its magic.
    async fn simple_reply(&mut self, into: &mut [u8]) -> Result<(), ClientError> {
        let error = self.u32().await?;
        self.check_cookie().await?;
        match (error, self.replies) {
            (0, Replies::Simple) => self.receive(into).await,
            (0, Replies::Structured) if into.is_empty() => Ok(()),
            // Once structured replies are negotiated, data comes in these alone.
            (0, Replies::Structured) => Err(ClientError::protocol("a reply without its data")),
            (error, _) => Err(ClientError::server(error, "")),
        }
    }
}

/// A number of bytes of one request.
fn length(bytes: usize) -> Result<u32, ClientError> {
    u32::try_from(bytes).map_err(|_| ClientError::protocol("more bytes than one request may have"))
}

fn beyond() -> ClientError {
    ClientError::protocol("data that was not requested")
}

/// The place of `length` bytes of the export at `at` in a buffer for the bytes from `offset` on.
fn place(into: &[u8], offset: u64, at: u64, length: u32) -> Result<Range<usize>, ClientError> {
    let from = at.checked_sub(offset).and_then(|from| usize::try_from(from).ok());
    let to = from.and_then(|from| from.checked_add(length as usize));
    let place = from.zip(to).map(|(from, to)| from..to).filter(|place| into.get(place.clone()).is_some());
    place.ok_or_else(beyond)
}

fn extent(descriptor: &[u8]) -> Option<Extent> {
    let (length, flags) = (descriptor.first_chunk::<4>()?, descriptor.last_chunk::<4>()?);
    let data = u32::from_be_bytes(*flags) & ZERO == 0;
    Some(Extent { length: u32::from_be_bytes(*length).into(), data })
}
