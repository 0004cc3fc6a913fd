//! A small NBD client, and a load generator over it for machines without fio.
//!
//! Implements the necessary subset of the protocol: fixed newstyle over a Unix socket,
//! `NBD_OPT_EXPORT_NAME`, simple replies (NBD protocol, the project's doc/proto.md).
#![allow(clippy::big_endian_bytes, reason = "NBD is big-endian")]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::result::{DirectionFigures, JobResult};
use crate::sample::Recorder;
use crate::suite::Job;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
/// Maximum time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to an export.
pub struct Client {
    stream: UnixStream,
    size: u64,
}

fn refused(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

impl Client {
    /// Connects to the export `name` behind a Unix socket.
    ///
    /// # Errors
    /// If no NBD server listens there, or the export does not exist.
    pub fn connect(socket: &Path, name: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if !greeting.starts_with(b"NBDMAGICIHAVEOPT") {
            return Err(refused("the peer does not speak NBD"));
        }
        // Fixed newstyle without zero padding; then the export's name.
        let length = u32::try_from(name.len()).map_err(|_| refused("the export name is too long"))?;
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(1u32.to_be_bytes());
        hello.extend(length.to_be_bytes());
        hello.extend(name.as_bytes());
        stream.write_all(&hello)?;
        let mut size = [0; 8];
        let mut flags = [0; 2];
        stream.read_exact(&mut size).map_err(|_| refused(format!("export '{name}' does not exist")))?;
        stream.read_exact(&mut flags)?;
        Ok(Self { stream, size: u64::from_be_bytes(size) })
    }

    /// Returns the size of the export in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn send(&mut self, kind: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) -> io::Result<()> {
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend(0u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)
    }

    /// Returns the cookie of the next reply; its data, if any, follows.
    fn reply(&mut self) -> io::Result<u64> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let (magic, rest) = reply.split_at(4);
        let (error, cookie) = rest.split_at(4);
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        if number(magic) != u64::from(REPLY_MAGIC) {
            return Err(refused("invalid reply: bad magic"));
        }
        match number(error) {
            0 => Ok(number(cookie)),
            error => Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(5))),
        }
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// The error that the server returns.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| refused("the request is too long"))?;
        self.send(WRITE, 0, offset, length, data)?;
        self.reply().map(|_| ())
    }

    /// Reads into `data` from `offset`.
    ///
    /// # Errors
    /// The error that the server returns.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| refused("the request is too long"))?;
        self.send(READ, 0, offset, length, &[])?;
        self.reply()?;
        self.stream.read_exact(data)
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// The error that the server returns.
    pub fn flush(&mut self) -> io::Result<()> {
        self.send(FLUSH, 0, 0, 0, &[])?;
        self.reply().map(|_| ())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Best effort: the server also detects a closed connection.
        let _ = self.send(DISCONNECT, 0, 0, 0, &[]);
    }
}

/// An operation in flight.
#[derive(Clone, Copy)]
struct Pending {
    started: Instant,
    read: bool,
}

/// The records of one direction.
struct DirectionRecorder {
    recorder: Recorder,
    bytes: u64,
}

impl DirectionRecorder {
    fn figures(&self, elapsed: f64) -> Option<DirectionFigures> {
        (self.recorder.count() > 0).then(|| self.recorder.figures(self.bytes, elapsed))
    }
}

/// Runs a job over one connection. Uses the first `size` bytes of the export.
///
/// # Errors
/// The error that the server returns.
pub fn run_job(socket: &Path, name: &str, job: &Job, size: u64, seconds: u64) -> io::Result<JobResult> {
    let mut client = Client::connect(socket, name)?;
    let blocks = (size.min(client.size) / job.block_bytes).max(1);
    let length = u32::try_from(job.block_bytes).map_err(|_| refused("the block size is too large"))?;
    let mut data = vec![0u8; length as usize];
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move || {
        // xorshift64 (Marsaglia, 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut sequential = 0;
    let mut pending = vec![Pending { started: Instant::now(), read: true }; job.depth as usize];
    let mut counted = [true, false].map(|_| DirectionRecorder { recorder: Recorder::new(), bytes: 0 });
    let start = Instant::now();
    let mut submit = |client: &mut Client, data: &mut [u8], slot: usize, pending: &mut [Pending]| {
        let block = if job.random { next() % blocks } else { sequential % blocks };
        sequential += 1;
        let read = next() % 100 < u64::from(job.read_percent);
        if let Some(entry) = pending.get_mut(slot) {
            *entry = Pending { started: Instant::now(), read };
        }
        let payload: &[u8] = if read {
            &[]
        } else {
            let stamp = next().to_le_bytes();
            data.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&stamp));
            data
        };
        let kind = if read { READ } else { WRITE };
        client.send(kind, slot as u64, block * job.block_bytes, length, payload)
    };
    for slot in 0..pending.len() {
        submit(&mut client, &mut data, slot, &mut pending)?;
    }
    let mut in_flight = pending.len();
    while in_flight > 0 {
        let slot = usize::try_from(client.reply()?).unwrap_or(usize::MAX);
        let Some(Pending { started, read }) = pending.get(slot).copied() else {
            return Err(refused("invalid reply: unknown cookie"));
        };
        if read {
            client.stream.read_exact(&mut data)?;
        }
        if let Some(counted) = counted.get_mut(usize::from(!read)) {
            counted.recorder.record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
            counted.bytes += job.block_bytes;
        }
        if start.elapsed() < Duration::from_secs(seconds) {
            submit(&mut client, &mut data, slot, &mut pending)?;
        } else {
            in_flight -= 1;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let [read, write] = counted.map(|counted| counted.figures(elapsed));
    Ok(JobResult { job: job.name.clone(), runner: "built-in load, one connection".into(), read, write })
}
