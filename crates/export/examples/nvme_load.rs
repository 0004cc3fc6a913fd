//! A load generator for NVMe/TCP: random reads or writes on one queue, at a fixed depth.
//!
//! ```text
//! cargo run --release -p export --example nvme_load -- 127.0.0.1:4420 NQN read 4096 64 10
//! ```
//!
//! The arguments are the address, the name of the subsystem, the operation, the bytes of a command,
//! the commands in flight and the seconds; then, for TLS, the bytes of the configured key as
//! hexadecimal digits, which is combined with the name of the host. The namespace has id 1 and
//! sectors of 512 bytes. Prints the commands per second, the throughput, and the mean and the 99th
//! percentile of the latency. The load polls its socket, and so measures no wake-up of its own
//! thread.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for measurements, whose failures are panics"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tls_client::TlsClient;
use tls_identity::TlsIdentity;

#[path = "../tests/nvme/tls_client.rs"]
#[allow(dead_code, reason = "the TLS client of the tests, of which this uses less")]
#[allow(clippy::big_endian_bytes, reason = "the numbers of TLS are big-endian")]
mod tls_client;

#[path = "../tests/nvme/tls_identity.rs"]
#[allow(dead_code, reason = "the identities of the tests, of which this uses less")]
#[allow(clippy::big_endian_bytes, clippy::cast_possible_truncation, reason = "as in the tests")]
mod tls_identity;

const SECTOR: u64 = 512;
/// The most bytes of data in a capsule.
const CAPSULE: usize = 16 << 10;

/// The name of the host.
const HOST: &str = "nqn.2014-08.org.example:load";

/// A connection, without or with TLS.
enum Link {
    Plain(TcpStream),
    Tls { session: TlsClient, socket: TcpStream },
}

impl Link {
    /// Lets reads return at once if nothing has arrived.
    fn poll(&self) {
        let (Self::Plain(socket) | Self::Tls { socket, .. }) = self;
        socket.set_nonblocking(true).unwrap();
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls { session, .. } => session.read(into),
        }
    }

    /// Writes everything, although the socket may not block.
    fn write_all(&mut self, mut from: &[u8]) {
        while !from.is_empty() {
            let written = match self {
                Self::Plain(socket) => socket.write(from),
                Self::Tls { session, .. } => session.write(from),
            };
            match written {
                Ok(count) => from = &from[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn read_exact(&mut self, mut into: &mut [u8]) {
        while !into.is_empty() {
            let count = self.read(into).unwrap();
            assert!(count > 0, "the target closed the connection");
            into = &mut into[count..];
        }
    }
}

struct Load {
    stream: Link,
    /// Bytes that are received and not consumed: a part of `buffer`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// PDUs to send.
    out: Vec<u8>,
    writes: bool,
    length: usize,
    blocks: u64,
    random: u64,
    begun: Vec<Instant>,
    latencies: Vec<u32>,
    data: Vec<u8>,
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn command(opcode: u8, id: u16, length: usize, in_capsule: bool) -> [u8; 64] {
    let mut bytes = [0; 64];
    (bytes[0], bytes[1], bytes[4]) = (opcode, 0x40, 1);
    bytes[2..4].copy_from_slice(&id.to_le_bytes());
    bytes[32..36].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[39] = if in_capsule { 0x01 } else { 0x5a };
    bytes
}

/// Appends a PDU.
fn push(out: &mut Vec<u8>, kind: u8, flags: u8, header: &[u8], data: &[u8]) {
    let length = header.len() + 8;
    let offset = if data.is_empty() { 0 } else { length as u8 };
    out.extend([kind, flags, length as u8, offset]);
    out.extend(((length + data.len()) as u32).to_le_bytes());
    out.extend(header);
    out.extend(data);
}

/// Opens a queue. Returns its connection and the id of the controller.
fn connect(address: &str, subsystem: &str, key: Option<&[u8]>, queue: u16, controller: u16) -> (Link, u16) {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut stream = match key {
        None => Link::Plain(socket),
        Some(key) => {
            let identity = TlsIdentity::new(0, key, HOST, subsystem);
            let session = TlsClient::connect(socket.try_clone().unwrap(), &identity).unwrap();
            Link::Tls { session, socket }
        }
    };
    let mut out = Vec::new();
    push(&mut out, 0, 0, &[0; 120], &[]);
    let mut data = [0; 1024];
    data[..8].copy_from_slice(b"nvmeload");
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let mut sqe = command(0x7f, 0, 1024, true);
    (sqe[4], sqe[44]) = (1, if queue == 0 { 31 } else { 127 });
    sqe[42..44].copy_from_slice(&queue.to_le_bytes());
    // Without flow control, the target omits the responses of reads.
    sqe[46] = 1 << 2;
    push(&mut out, 4, 0, &sqe, &data);
    stream.write_all(&out);
    let mut answer = [0; 128 + 24];
    stream.read_exact(&mut answer);
    assert_eq!(short(&answer, 128 + 22) >> 1, 0, "the queue was not connected");
    (stream, short(&answer, 128 + 8))
}

impl Load {
    fn submit(&mut self, id: u16) {
        xorshift(&mut self.random);
        let count = self.length as u64 / SECTOR;
        let first = self.random % (self.blocks / count) * count;
        let in_capsule = self.writes && self.length <= CAPSULE;
        let mut sqe = command(if self.writes { 1 } else { 2 }, id, self.length, in_capsule);
        sqe[40..48].copy_from_slice(&first.to_le_bytes());
        sqe[48..50].copy_from_slice(&((count - 1) as u16).to_le_bytes());
        push(&mut self.out, 4, 0, &sqe, if in_capsule { &self.data } else { &[] });
        self.begun[usize::from(id)] = Instant::now();
    }

    /// Receives at least `count` bytes.
    fn require(&mut self, count: usize) {
        if self.buffer.len() - self.start < count {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < count {
            let space = &mut self.buffer[self.end..];
            let received = match self.stream.read(space) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::hint::spin_loop();
                    continue;
                }
                received => received.unwrap(),
            };
            assert!(received > 0, "the target closed the connection");
            self.end += received;
        }
    }

    /// Handles one PDU. Returns the command that it completes.
    fn receive(&mut self) -> Option<u16> {
        self.require(8);
        let length = word(&self.buffer, self.start + 4) as usize;
        self.require(length);
        let pdu = &self.buffer[self.start..self.start + length];
        self.start += length;
        match pdu[0] {
            5 => {
                assert_eq!(short(pdu, 22) >> 1, 0, "a command failed");
                Some(short(pdu, 20))
            }
            7 => (pdu[1] & 8 != 0).then(|| short(pdu, 8)),
            9 => {
                let (offset, bytes) = (word(pdu, 12) as usize, word(pdu, 16) as usize);
                let mut header = [0; 16];
                header[..4].copy_from_slice(&pdu[8..12]);
                header[4..12].copy_from_slice(&pdu[12..20]);
                push(&mut self.out, 6, 4, &header, &self.data[offset..offset + bytes]);
                None
            }
            other => panic!("a PDU of type {other}"),
        }
    }

    fn run(&mut self, depth: u16, time: Duration) -> Duration {
        let begin = Instant::now();
        for id in 0..depth {
            self.submit(id);
        }
        let mut open = depth;
        while open > 0 {
            if !self.out.is_empty() {
                self.stream.write_all(&self.out);
                self.out.clear();
            }
            // One PDU, and those that have arrived with it.
            loop {
                if let Some(id) = self.receive() {
                    let latency = self.begun[usize::from(id)].elapsed().as_nanos();
                    self.latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
                    if begin.elapsed() < time {
                        self.submit(id);
                    } else {
                        open -= 1;
                    }
                }
                let left = &self.buffer[self.start..self.end];
                if left.len() < 8 || word(left, 4) as usize > left.len() {
                    break;
                }
            }
        }
        begin.elapsed()
    }
}

/// Returns bytes that no drive can compress.
fn random_bytes(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d;
    let mut next = || {
        xorshift(&mut state);
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn xorshift(state: &mut u64) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, subsystem, operation, length, depth, seconds, key @ ..] = &arguments[..] else {
        panic!("usage: nvme_load ADDRESS NQN read|write BYTES DEPTH SECONDS [TLS_KEY]");
    };
    let key = key.first().map(|digits| bytes_of(digits));
    let key = key.as_deref();
    let (length, depth): (usize, u16) = (length.parse().unwrap(), depth.parse().unwrap());
    let (mut admin, controller) = connect(address, subsystem, key, 0, 0xffff);
    // The configuration that enables the controller, then the properties of the namespace.
    let mut enable = command(0x7f, 0, 0, false);
    (enable[4], enable[44]) = (0, 0x14);
    enable[48..52].copy_from_slice(&(6u32 << 16 | 4 << 20 | 1).to_le_bytes());
    let mut out = Vec::new();
    push(&mut out, 4, 0, &enable, &[]);
    push(&mut out, 4, 0, &command(0x06, 1, 4096, false), &[]);
    admin.write_all(&out);
    let mut answer = [0; 24 + 24 + 4096];
    admin.read_exact(&mut answer);
    let blocks = u64::from_le_bytes(answer[48..56].try_into().unwrap());
    let (stream, _) = connect(address, subsystem, key, 1, controller);
    stream.poll();
    let mut load = Load {
        stream,
        buffer: vec![0; (4 << 20).max(4 * length)],
        start: 0,
        end: 0,
        out: Vec::new(),
        writes: operation == "write",
        length,
        blocks,
        random: 0x9e37_79b9_7f4a_7c15,
        begun: vec![Instant::now(); usize::from(depth)],
        latencies: Vec::new(),
        data: random_bytes(length),
    };
    let time = load.run(depth, Duration::from_secs(seconds.parse().unwrap())).as_secs_f64();
    load.latencies.sort_unstable();
    let count = load.latencies.len();
    let mean = load.latencies.iter().map(|latency| f64::from(*latency)).sum::<f64>() / count as f64;
    let tail = f64::from(load.latencies[count * 99 / 100]);
    let (rate, throughput) = (count as f64 / time, count as f64 * length as f64 / time);
    println!(
        "{operation} of {length} bytes, depth {depth}: {rate:.0}/s, {:.2} GB/s, mean {:.1} us, p99 {:.1} us",
        throughput / 1e9,
        mean / 1e3,
        tail / 1e3,
    );
}
