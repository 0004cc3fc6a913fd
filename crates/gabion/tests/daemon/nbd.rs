//! A small NBD client: enough to write, read, flush and trim, and to see the error.

#![allow(clippy::big_endian_bytes, reason = "NBD is big-endian")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;

/// A socket of either kind.
trait Connection: Read + Write + Send {}

impl Connection for UnixStream {}
impl Connection for TcpStream {}

/// A volume, through its export.
pub(crate) struct Client {
    stream: Box<dyn Connection>,
    pub(crate) size: u64,
    pub(crate) read_only: bool,
}

impl Client {
    /// Opens an export; the text is why it could not be.
    pub(crate) fn connect(socket: &Path, export: &str) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(super::harness::DEADLINE)).unwrap();
        Self::open(Box::new(stream), export)
    }

    /// The same over TCP.
    pub(crate) fn connect_tcp(address: SocketAddr, export: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(super::harness::DEADLINE)).unwrap();
        Self::open(Box::new(stream), export)
    }

    fn open(mut stream: Box<dyn Connection>, export: &str) -> Result<Self, String> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).map_err(|error| error.to_string())?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, without the zeros behind the answer.
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(1u32.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello).map_err(|error| error.to_string())?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).map_err(|_| format!("no export '{export}'"))?;
        let size = u64::from_be_bytes(answer[..8].try_into().unwrap());
        let flags = u16::from_be_bytes(answer[8..].try_into().unwrap());
        Ok(Self { stream, size, read_only: flags & 2 != 0 })
    }

    /// Writes bytes; the number is the error that was answered.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.send(WRITE, offset, data.len(), data);
        self.answer()
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.send(READ, offset, length, &[]);
        self.answer()?;
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).unwrap();
        Ok(data)
    }

    pub(crate) fn flush(&mut self) -> Result<(), u32> {
        self.send(FLUSH, 0, 0, &[]);
        self.answer()
    }

    pub(crate) fn trim(&mut self, offset: u64, length: usize) -> Result<(), u32> {
        self.send(TRIM, offset, length, &[]);
        self.answer()
    }

    fn send(&mut self, kind: u16, offset: u64, length: usize, data: &[u8]) {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(0u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(7u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((length as u32).to_be_bytes());
        request.extend(data);
        // A server that has gone shows in its answer.
        let _ = self.stream.write_all(&request);
    }

    fn answer(&mut self) -> Result<(), u32> {
        let mut answer = [0; 16];
        if self.stream.read_exact(&mut answer).is_err() {
            return Err(u32::MAX);
        }
        assert_eq!(answer[..4], 0x6744_6698u32.to_be_bytes());
        match u32::from_be_bytes(answer[4..8].try_into().unwrap()) {
            0 => Ok(()),
            error => Err(error),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.send(DISCONNECT, 0, 0, &[]);
    }
}

/// Bytes that are unlike those of any other seed.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}
