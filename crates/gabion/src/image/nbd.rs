//! An NBD client that asks where data is.
//!
//! Owns as much of the protocol as a copy takes: fixed newstyle, structured replies, `base:allocation` (the NBD project's
//! doc/proto.md; its names are given beside ours). One request is under way at a time: who wants more opens more connections. Must
//! not know files.
#![allow(clippy::big_endian_bytes, reason = "NBD is big-endian")]

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::extents::Extent;
use super::filled::Filled;
use api::paths::encode_segment;

/// `NBD_OPT_*`.
mod option {
    pub(super) const GO: u32 = 7;
    pub(super) const STRUCTURED_REPLY: u32 = 8;
    pub(super) const SET_META_CONTEXT: u32 = 10;
}

/// `NBD_REP_*`.
mod answer {
    pub(super) const ACK: u32 = 1;
    pub(super) const INFO: u32 = 3;
    pub(super) const META_CONTEXT: u32 = 4;
    pub(super) const ERROR: u32 = 1 << 31;
}

/// `NBD_CMD_*`.
mod command {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const FLUSH: u16 = 3;
    pub(super) const BLOCK_STATUS: u16 = 7;
}

/// `NBD_REPLY_TYPE_*`.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = 1 << 15;
}

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
/// `NBD_FLAG_C_FIXED_NEWSTYLE` and `NBD_FLAG_C_NO_ZEROES`.
const CLIENT_FLAGS: u32 = 3;
/// `NBD_REPLY_FLAG_DONE`.
const DONE: u16 = 1;
/// `NBD_STATE_ZERO`.
const ZERO: u32 = 2;
/// `NBD_INFO_EXPORT`, and what is asked for besides: `NBD_INFO_BLOCK_SIZE`, as a promise to keep to it.
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// The most bytes of what is answered to an option or tells of a range's extents, in all parts of
/// the answer together.
const ANSWER_MAX: u32 = 1 << 20;
/// The most parts of an answer to an option.
const PARTS_MAX: usize = 4096;
/// What every request is called: one is under way at a time.
const COOKIE: u64 = 0;
/// The most bytes whose extents are asked for at once; a multiple of every sector.
const STATUS_MAX: u64 = 1 << 31;
/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where an export is served.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// On a Unix socket.
    Socket { path: PathBuf, export: String },
    /// At a TCP address.
    Address { address: String, export: String },
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection to an export.
pub(super) struct Client {
    stream: Box<dyn Stream>,
    /// Bytes of the export.
    pub(super) size: u64,
}

impl Place {
    fn export(&self) -> &str {
        match self {
            Self::Socket { export, .. } | Self::Address { export, .. } => export,
        }
    }

    /// As other programs are told it.
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

    /// Connects, with structured replies and the allocation of the export.
    ///
    /// # Errors
    /// When nothing serves there, or there is no such export.
    pub(super) async fn connect(&self) -> io::Result<Client> {
        patiently(async {
            let stream: Box<dyn Stream> = match self {
                Self::Socket { path, .. } => Box::new(UnixStream::connect(path).await?),
                Self::Address { address, .. } => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
            };
            let mut client = Client { stream, size: 0 };
            client.agree(self.export()).await?;
            Ok(client)
        })
        .await
    }
}

fn refused(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Not longer than anything may take.
async fn patiently<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {PATIENCE:?}"));
    tokio::time::timeout(PATIENCE, work).await.map_err(late)?
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(|_| refused("more bytes than one request takes"))
}

/// A string behind its length.
fn counted(text: &str) -> io::Result<Vec<u8>> {
    let mut bytes = length(text.len())?.to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    Ok(bytes)
}

impl Client {
    pub(super) async fn agree(&mut self, export: &str) -> io::Result<()> {
        let mut greeting = [0; 18];
        self.stream.read_exact(&mut greeting).await?;
        if !greeting.starts_with(b"NBDMAGICIHAVEOPT") {
            return Err(refused("it does not speak NBD"));
        }
        self.stream.write_all(&CLIENT_FLAGS.to_be_bytes()).await?;
        self.option(option::STRUCTURED_REPLY, &[]).await?;
        let mut query = counted(export)?;
        query.extend(1u32.to_be_bytes());
        query.extend(counted("base:allocation")?);
        let contexts = self.option(option::SET_META_CONTEXT, &query).await?;
        if !contexts.iter().any(|(kind, _)| *kind == answer::META_CONTEXT) {
            return Err(refused("it does not tell where data is"));
        }
        let mut go = counted(export)?;
        go.extend(1u16.to_be_bytes());
        go.extend(INFO_BLOCK_SIZE.to_be_bytes());
        for (kind, told) in self.option(option::GO, &go).await? {
            if let (answer::INFO, Some((about, rest))) = (kind, told.split_first_chunk::<2>())
                && u16::from_be_bytes(*about) == INFO_EXPORT
                && let Some(size) = rest.first_chunk::<8>()
            {
                self.size = u64::from_be_bytes(*size);
                return Ok(());
            }
        }
        Err(refused("it does not tell the export's size"))
    }

    /// What is answered to an option, before the last word.
    async fn option(&mut self, option: u32, data: &[u8]) -> io::Result<Vec<(u32, Vec<u8>)>> {
        let mut said = OPTION_MAGIC.to_vec();
        said.extend(option.to_be_bytes());
        said.extend(length(data.len())?.to_be_bytes());
        said.extend(data);
        self.stream.write_all(&said).await?;
        let mut answers = Vec::new();
        let mut room = ANSWER_MAX;
        while answers.len() < PARTS_MAX {
            let magic = self.stream.read_u64().await?;
            let of = self.stream.read_u32().await?;
            let kind = self.stream.read_u32().await?;
            if magic != OPTION_REPLY_MAGIC || of != option {
                return Err(refused("an answer that is none"));
            }
            let length = self.stream.read_u32().await?;
            let data = self.bytes(length, &mut room).await?;
            match kind {
                answer::ACK => return Ok(answers),
                kind if kind & answer::ERROR != 0 => {
                    let why = String::from_utf8_lossy(&data).into_owned();
                    return Err(refused(if why.is_empty() { format!("refused ({kind:#x})") } else { why }));
                }
                kind => answers.push((kind, data)),
            }
        }
        Err(refused("an answer without end"))
    }

    /// The next bytes of an answer for which there is room for so many more.
    async fn bytes(&mut self, length: u32, room: &mut u32) -> io::Result<Vec<u8>> {
        *room = room.checked_sub(length).ok_or_else(|| refused("an answer longer than any"))?;
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    async fn ask(&mut self, command: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<()> {
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(0u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(COOKIE.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        self.stream.write_all(&request).await?;
        self.stream.write_all(data).await
    }

    /// The cookie of a reply, which must be the request's.
    async fn cookie(&mut self) -> io::Result<()> {
        match self.stream.read_u64().await? {
            COOKIE => Ok(()),
            other => Err(refused(format!("a reply to request {other:#x}, which was not made"))),
        }
    }

    /// Takes the reply to a request: what it holds of the export's bytes from `offset` on goes `into` there, and extents are
    /// given back.
    async fn reply(&mut self, offset: u64, into: &mut [u8]) -> io::Result<Vec<Extent>> {
        let mut filled = Filled::default();
        let mut extents = Vec::new();
        let mut room = ANSWER_MAX;
        loop {
            let magic = self.stream.read_u32().await?;
            if magic == SIMPLE_MAGIC {
                let error = self.stream.read_u32().await?;
                self.cookie().await?;
                return match error {
                    // Data comes in structured replies only, once these are agreed on.
                    0 if into.is_empty() => Ok(extents),
                    0 => Err(refused("a reply without its data")),
                    error => Err(of_server(error, "")),
                };
            }
            if magic != STRUCTURED_MAGIC {
                return Err(refused("a reply that is none"));
            }
            let flags = self.stream.read_u16().await?;
            let kind = self.stream.read_u16().await?;
            self.cookie().await?;
            let length = self.stream.read_u32().await?;
            match kind {
                chunk::NONE if length == 0 => {}
                chunk::OFFSET_DATA if length > 8 => {
                    let at = self.stream.read_u64().await?;
                    let place = place(into, offset, at, length - 8)?;
                    filled.add(&place).map_err(refused)?;
                    let place = into.get_mut(place).ok_or_else(|| refused("data that was not asked for"))?;
                    self.stream.read_exact(place).await?;
                }
                chunk::OFFSET_HOLE if length == 12 => {
                    let at = self.stream.read_u64().await?;
                    let length = self.stream.read_u32().await?;
                    let place = place(into, offset, at, length)?;
                    filled.add(&place).map_err(refused)?;
                    into.get_mut(place).into_iter().for_each(|place| place.fill(0));
                }
                chunk::BLOCK_STATUS => {
                    let told = self.bytes(length, &mut room).await?;
                    extents.extend(told.get(4..).unwrap_or_default().chunks_exact(8).filter_map(extent));
                }
                kind if kind & chunk::ERROR != 0 => {
                    let told = self.bytes(length, &mut room).await?;
                    let error = told.first_chunk::<4>().map_or(5, |error| u32::from_be_bytes(*error));
                    let why = String::from_utf8_lossy(told.get(6..).unwrap_or_default()).into_owned();
                    return Err(of_server(error, &why));
                }
                _ => return Err(refused("a reply of an unknown kind")),
            }
            if flags & DONE != 0 {
                break;
            }
        }
        if filled.is_all(into.len()) { Ok(extents) } else { Err(refused("a reply without all of its data")) }
    }

    /// Reads the export's bytes from `offset` on.
    ///
    /// # Errors
    /// What the server answers.
    pub(super) async fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        patiently(async {
            self.ask(command::READ, offset, length(into.len())?, &[]).await?;
            self.reply(offset, into).await.map(drop)
        })
        .await
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    /// What the server answers.
    pub(super) async fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        patiently(async {
            self.ask(command::WRITE, offset, length(data.len())?, data).await?;
            self.reply(offset, &mut []).await.map(drop)
        })
        .await
    }

    /// Makes what was written durable, on all connections: exports promise that (`NBD_FLAG_CAN_MULTI_CONN`).
    ///
    /// # Errors
    /// What the server answers.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        patiently(async {
            self.ask(command::FLUSH, 0, 0, &[]).await?;
            self.reply(0, &mut []).await.map(drop)
        })
        .await
    }

    /// Extents from `offset` on, in order; at least one, unless the export ends there.
    ///
    /// # Errors
    /// What the server answers.
    pub(super) async fn extents(&mut self, offset: u64) -> io::Result<Vec<Extent>> {
        let rest = self.size.saturating_sub(offset).min(STATUS_MAX);
        if rest == 0 {
            return Ok(Vec::new());
        }
        let rest = u32::try_from(rest).map_err(|_| refused("a range that long"))?;
        let extents = patiently(async {
            self.ask(command::BLOCK_STATUS, offset, rest, &[]).await?;
            self.reply(offset, &mut []).await
        })
        .await?;
        if extents.is_empty() || extents.iter().any(|extent| extent.length == 0) {
            return Err(refused("no extents where there are some"));
        }
        Ok(extents)
    }
}

/// Where `length` bytes of the export at `at` belong in a buffer for those from `offset` on.
fn place(into: &[u8], offset: u64, at: u64, length: u32) -> io::Result<Range<usize>> {
    let from = at.checked_sub(offset).and_then(|from| usize::try_from(from).ok());
    let to = from.and_then(|from| from.checked_add(length as usize));
    let place = from.zip(to).map(|(from, to)| from..to).filter(|place| into.get(place.clone()).is_some());
    place.ok_or_else(|| refused("data that was not asked for"))
}

fn extent(told: &[u8]) -> Option<Extent> {
    let (length, flags) = (told.first_chunk::<4>()?, told.last_chunk::<4>()?);
    let data = u32::from_be_bytes(*flags) & ZERO == 0;
    Some(Extent { length: u32::from_be_bytes(*length).into(), data })
}

fn of_server(error: u32, why: &str) -> io::Error {
    let known = io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(5));
    if why.is_empty() { known } else { io::Error::new(known.kind(), format!("{known}: {why}")) }
}

#[cfg(test)]
#[path = "nbd_tests.rs"]
pub(super) mod tests;
