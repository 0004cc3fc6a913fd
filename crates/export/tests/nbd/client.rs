//! A driver of raw NBD messages for tests: it blocks, sends valid and invalid messages, and checks
//! the form of replies.
//!
//! The client of the product, `export::nbd::client`, follows the protocol and cannot break it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::server::TIMEOUT;

pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOVERFLOW: u32 = 75;
pub(crate) const ESHUTDOWN: u32 = 108;

pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;

pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;
pub(crate) const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
pub(crate) const REP_ERR_POLICY: u32 = (1 << 31) + 2;
pub(crate) const REP_ERR_INVALID: u32 = (1 << 31) + 3;
pub(crate) const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
pub(crate) const REP_ERR_SHUTDOWN: u32 = (1 << 31) + 7;
pub(crate) const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

trait Socket: Read + Write + Send {
    fn hang_up(&self);
    fn second_handle(&self) -> Box<dyn Socket>;
}

impl Socket for UnixStream {
    fn hang_up(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }

    fn second_handle(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }
}

impl Socket for TcpStream {
    fn hang_up(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }

    fn second_handle(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }
}

/// A client that sends arbitrary bytes and decodes replies.
pub(crate) struct RawClient {
    socket: Box<dyn Socket>,
}

/// A chunk of a structured reply, or a simple reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple { cookie: u64, error: u32 },
    None { cookie: u64 },
    Data { cookie: u64, done: bool, offset: u64, data: Vec<u8> },
    Hole { cookie: u64, done: bool, offset: u64, length: u32 },
    Status { cookie: u64, extents: Vec<(u32, u32)> },
    Error { cookie: u64, error: u32, message: String },
}

impl Reply {
    pub(crate) fn cookie(&self) -> u64 {
        match self {
            Self::Simple { cookie, .. }
            | Self::None { cookie }
            | Self::Data { cookie, .. }
            | Self::Hole { cookie, .. }
            | Self::Status { cookie, .. }
            | Self::Error { cookie, .. } => *cookie,
        }
    }
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// The data of an INFO or GO option.
pub(crate) fn info(export: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((requests.len() as u16).to_be_bytes());
    data.extend(requests.iter().flat_map(|request| request.to_be_bytes()));
    data
}

/// The data of a LIST_META_CONTEXT or SET_META_CONTEXT option.
pub(crate) fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}

/// Encodes a request's header.
pub(crate) fn request(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

impl RawClient {
    pub(crate) fn unix(path: &Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket: Box::new(socket) }
    }

    pub(crate) fn tcp(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket: Box::new(socket) }
    }

    /// Returns the same connection, for another thread.
    pub(crate) fn second_handle(&self) -> Self {
        Self { socket: self.socket.second_handle() }
    }

    /// Sends bytes. The server may have closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub(crate) fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.receive(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.receive(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.receive(8).try_into().unwrap())
    }

    /// Shuts down the sending side. The server may have closed the connection.
    pub(crate) fn hang_up(&self) {
        self.socket.hang_up();
    }

    /// Reads until the server closes the connection. Returns the number of bytes.
    pub(crate) fn read_to_end(&mut self) -> usize {
        let mut bytes = Vec::new();
        match self.socket.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server does not close the connection: {error}"),
        }
        bytes.len()
    }

    /// Returns true if the server has closed the connection without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.read_to_end() == 0
    }

    pub(crate) fn greet(&mut self, flags: u32) {
        assert!(self.try_greet(flags));
    }

    /// Sends the client's flags. Returns false if the server has closed the connection.
    pub(crate) fn try_greet(&mut self, flags: u32) -> bool {
        let mut greeting = [0; 18];
        let greeted = self.socket.read_exact(&mut greeting).is_ok();
        assert!(!greeted || greeting == *b"NBDMAGICIHAVEOPT\x00\x03");
        greeted && self.try_send(&flags.to_be_bytes())
    }

    pub(crate) fn send_option(&mut self, code: u32, data: &[u8]) {
        self.send(b"IHAVEOPT");
        self.send(&code.to_be_bytes());
        self.send(&(data.len() as u32).to_be_bytes());
        self.send(data);
    }

    /// Receives one reply to an option: its type and data.
    pub(crate) fn option_reply(&mut self, code: u32) -> (u32, Vec<u8>) {
        assert_eq!(self.u64(), 0x0003_e889_0455_65a9);
        assert_eq!(self.u32(), code);
        let kind = self.u32();
        let length = self.u32() as usize;
        (kind, self.receive(length))
    }

    /// Sends an option and receives all replies; the last is an acknowledgement or an error.
    pub(crate) fn option(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(code, data);
        let mut replies = Vec::new();
        loop {
            let reply = self.option_reply(code);
            let last = reply.0 == REP_ACK || reply.0 >= 1 << 31;
            replies.push(reply);
            if last {
                return replies;
            }
        }
    }

    /// Sends an option and returns the type of the last reply.
    pub(crate) fn option_result(&mut self, code: u32, data: &[u8]) -> u32 {
        self.option(code, data).pop().unwrap().0
    }

    /// Opens `disk`, with structured replies and the allocation context.
    pub(crate) fn negotiate(&mut self) {
        self.greet(3);
        self.negotiate_greeted();
    }

    pub(crate) fn negotiate_greeted(&mut self) {
        assert_eq!(self.option_result(OPT_STRUCTURED_REPLY, b""), REP_ACK);
        let selected = self.option(OPT_SET_META_CONTEXT, &contexts("disk", &["base:allocation"]));
        assert_eq!(selected.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [REP_META_CONTEXT, REP_ACK]);
        assert_eq!(self.option_result(OPT_GO, &info("disk", &[])), REP_ACK);
    }

    /// Opens `disk`, with simple replies.
    pub(crate) fn negotiate_simple(&mut self) {
        self.greet(3);
        assert_eq!(self.option_result(OPT_GO, &info("disk", &[])), REP_ACK);
    }

    pub(crate) fn request(&mut self, flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&request(flags, kind, cookie, offset, length));
    }

    pub(crate) fn write(&mut self, flags: u16, cookie: u64, offset: u64, data: &[u8]) {
        self.send(&[request(flags, WRITE, cookie, offset, data.len() as u32).as_slice(), data].concat());
    }

    /// Receives the next reply. The data of a simple reply to a read remains in the socket.
    pub(crate) fn reply(&mut self) -> Reply {
        match self.u32() {
            0x6744_6698 => {
                let error = self.u32();
                Reply::Simple { error, cookie: self.u64() }
            }
            0x668e_33ef => self.chunk(),
            magic => panic!("no reply begins with {magic:#x}"),
        }
    }

    fn chunk(&mut self) -> Reply {
        let (flags, kind, cookie) = (self.u16(), self.u16(), self.u64());
        let length = self.u32() as usize;
        assert!(flags <= 1, "unknown flags");
        let done = flags == 1;
        match kind {
            0 => {
                assert!(done && length == 0);
                Reply::None { cookie }
            }
            1 => {
                assert!(length > 8);
                Reply::Data { cookie, done, offset: self.u64(), data: self.receive(length - 8) }
            }
            2 => {
                assert_eq!(length, 12);
                Reply::Hole { cookie, done, offset: self.u64(), length: self.u32() }
            }
            5 => {
                assert!(done && self.u32() == 1 && (length - 4).is_multiple_of(8));
                Reply::Status {
                    cookie,
                    extents: (0..(length - 4) / 8).map(|_| (self.u32(), self.u32())).collect(),
                }
            }
            0x8001 => {
                assert!(done);
                let (error, length) = (self.u32(), self.u16().into());
                let message = String::from_utf8(self.receive(length)).unwrap();
                Reply::Error { cookie, error, message }
            }
            _ => panic!("no reply has type {kind}"),
        }
    }

    /// Receives a reply without data. Returns the error number, or 0.
    pub(crate) fn result(&mut self, cookie: u64) -> u32 {
        let reply = self.reply();
        assert_eq!(reply.cookie(), cookie, "{reply:?}");
        match reply {
            Reply::Simple { error, .. } => error,
            Reply::None { .. } => 0,
            Reply::Error { error, message, .. } => {
                assert!(error != 0 && !message.is_empty());
                error
            }
            _ => panic!("unexpected data: {reply:?}"),
        }
    }

    /// Reads a range with structured replies.
    pub(crate) fn read(&mut self, flags: u16, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.request(flags, READ, 77, offset, length);
        self.read_reply(77, offset, length)
    }

    /// Assembles the replies of a read. Each byte must be sent once.
    pub(crate) fn read_reply(&mut self, expected: u64, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        let mut bytes: Vec<Option<u8>> = vec![None; length as usize];
        let mut put = |at: u64, part: &[u8]| {
            let at = (at - offset) as usize;
            for (place, byte) in bytes[at..at + part.len()].iter_mut().zip(part) {
                assert!(place.replace(*byte).is_none(), "a byte came twice");
            }
        };
        let result = loop {
            let reply = self.reply();
            assert_eq!(reply.cookie(), expected, "{reply:?}");
            let last = match reply {
                Reply::Data { done, offset, data, .. } => {
                    put(offset, &data);
                    done
                }
                Reply::Hole { done, offset, length, .. } => {
                    put(offset, &vec![0; length as usize]);
                    done
                }
                Reply::None { .. } => true,
                Reply::Error { error, .. } => break Err(error),
                reply => panic!("no part of a read: {reply:?}"),
            };
            if last {
                break Ok(());
            }
        };
        result.map(|()| bytes.into_iter().map(|byte| byte.expect("every byte comes")).collect())
    }
}
