//! An initiator for tests, written from the specification: it shares no code with the target.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any step takes, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
pub(crate) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// The options of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Alignment of data to the host, in units of 4 bytes, less one.
    pub(crate) alignment: u8,
    /// The target does not report the head of the queue, and may omit responses of reads.
    pub(crate) no_flow_control: bool,
    /// The most bytes of one PDU with data of the host.
    pub(crate) part: usize,
    /// The most bytes of data in a capsule.
    pub(crate) capsule: usize,
}

pub(crate) const PLAIN: Wire = Wire {
    header_digest: false,
    data_digest: false,
    alignment: 0,
    no_flow_control: false,
    part: 1 << 20,
    capsule: 8192,
};

/// A completion: status (type and code, without the bit that forbids a retry) and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) id: u16,
    pub(crate) status: u16,
    pub(crate) result: u64,
    pub(crate) data: Vec<u8>,
}

/// A command under construction.
#[derive(Clone, Debug)]
pub(crate) struct Sqe(pub(crate) [u8; 64]);

impl Sqe {
    pub(crate) fn new(opcode: u8, namespace: u32) -> Self {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        bytes[1] = 0x40;
        bytes[39] = 0x5a;
        Self(bytes).put(4, &namespace.to_le_bytes())
    }

    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn word(self, number: usize, value: u32) -> Self {
        self.put(4 * number, &value.to_le_bytes())
    }

    /// A range of blocks.
    pub(crate) fn blocks(self, first: u64, count: u32) -> Self {
        self.put(40, &first.to_le_bytes()).put(48, &((count - 1) as u16).to_le_bytes())
    }
}

/// The identifier of a host.
pub(crate) fn host_id(host: &str) -> [u8; 16] {
    if host == HOST { *b"0123456789abcdef" } else { *b"other host 12345" }
}

/// A session on a socket, such as TLS.
pub(crate) trait SocketSession: Read + Write + Send {
    /// Begins the same kind of session on another socket.
    fn renew(&self, socket: TcpStream) -> Box<dyn SocketSession>;
}

/// A connection, with one queue once it is connected.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    /// The session on the socket, if there is one.
    pub(crate) session: Option<Box<dyn SocketSession>>,
    pub(crate) wire: Wire,
    next: u16,
    pub(crate) controller: u16,
    host: &'static str,
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

pub(crate) fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// A PDU as received: its header and its data.
#[derive(Debug)]
pub(crate) struct Pdu {
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Queue {
    /// Connects a socket; no PDU is sent.
    pub(crate) fn open(address: SocketAddr, wire: Wire) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { stream, session: None, wire, next: 0, controller: 0xffff, host: HOST }
    }

    /// Sends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        match &mut self.session {
            Some(session) => session.write_all(bytes).unwrap(),
            None => self.stream.write_all(bytes).unwrap(),
        }
    }

    /// Receives bytes.
    fn take(&mut self, bytes: &mut [u8]) {
        match &mut self.session {
            Some(session) => session.read_exact(bytes).unwrap(),
            None => self.stream.read_exact(bytes).unwrap(),
        }
    }

    /// Connects a socket and exchanges the parameters of the transport.
    pub(crate) fn negotiated(address: SocketAddr, wire: Wire) -> Self {
        let mut queue = Self::open(address, wire);
        queue.exchange_parameters();
        queue
    }

    /// Exchanges the parameters of the transport.
    pub(crate) fn exchange_parameters(&mut self) {
        let wire = self.wire;
        let mut request = [0; 128];
        request[2] = 128;
        request[4] = 128;
        request[10] = wire.alignment;
        request[11] = u8::from(wire.header_digest) | u8::from(wire.data_digest) << 1;
        self.put(&request);
        let mut answer = [0; 128];
        self.take(&mut answer);
        assert_eq!((answer[0], answer[2], u32_of(&answer, 4)), (1, 128, 128));
        assert_eq!(answer[11], request[11], "digests");
        assert!(u32_of(&answer, 12) >= 4096, "data per PDU");
    }

    /// Connects queue `id` of a subsystem.
    pub(crate) fn connect(
        &mut self,
        subsystem: &str,
        host: &str,
        id: u16,
        controller: u16,
        keep_alive: u32,
    ) -> Completion {
        let mut data = vec![0; 1024];
        data[..16].copy_from_slice(&host_id(host));
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
        data[512..512 + host.len()].copy_from_slice(host.as_bytes());
        let entries: u16 = if id == 0 { 31 } else { 127 };
        let mut sqe = Sqe::new(0x7f, 1).put(42, &id.to_le_bytes()).put(44, &entries.to_le_bytes());
        sqe = sqe.put(46, &[u8::from(self.wire.no_flow_control) << 2]).word(12, keep_alive);
        self.controller = controller;
        let done = self.run_with(sqe, &data, 8192);
        if done.status == 0 && id == 0 {
            self.controller = done.result as u16;
        }
        done
    }

    /// Opens the admin queue of a new controller and enables it.
    pub(crate) fn admin(address: SocketAddr, subsystem: &str, wire: Wire) -> Self {
        Self::admin_of(HOST, address, subsystem, wire)
    }

    /// Like [`Queue::admin`], of another host.
    pub(crate) fn admin_of(host: &'static str, address: SocketAddr, subsystem: &str, wire: Wire) -> Self {
        let mut queue = Self::negotiated(address, wire);
        assert_eq!(queue.connect(subsystem, host, 0, 0xffff, 0).status, 0);
        queue.host = host;
        queue.enable();
        queue
    }

    /// Enables the controller, as hosts do.
    pub(crate) fn enable(&mut self) {
        let capabilities = self.property(0, true);
        assert!(capabilities & 0xffff >= 31 && capabilities >> 37 & 1 == 1, "{capabilities:#x}");
        assert_eq!(self.property(0x1c, false) & 1, 0);
        self.set_configuration(6 << 16 | 4 << 20 | 1);
        assert_eq!(self.property(0x1c, false) & 1, 1, "ready");
    }

    pub(crate) fn set_configuration(&mut self, value: u32) {
        let sqe = Sqe::new(0x7f, 0).word(11, 0x14).word(12, value);
        assert_eq!(self.run(sqe).status, 0);
    }

    pub(crate) fn property(&mut self, offset: u32, long: bool) -> u64 {
        let done = self.run(Sqe::new(0x7f, 4).put(40, &[u8::from(long)]).word(11, offset));
        assert_eq!(done.status, 0, "property {offset:#x}");
        done.result
    }

    /// Opens I/O queue `id` of the controller of this admin queue.
    pub(crate) fn io(&self, subsystem: &str, id: u16) -> Self {
        let mut queue = Self::open(self.stream.peer_addr().unwrap(), self.wire);
        queue.session = self.session.as_ref().map(|own| own.renew(queue.stream.try_clone().unwrap()));
        queue.exchange_parameters();
        assert_eq!(queue.connect(subsystem, self.host, id, self.controller, 0).status, 0);
        queue
    }

    /// Sends a command without data and waits for its completion.
    pub(crate) fn run(&mut self, sqe: Sqe) -> Completion {
        self.run_with(sqe, &[], 0)
    }

    /// Runs a command that returns `length` bytes.
    pub(crate) fn fetch(&mut self, sqe: Sqe, length: usize) -> Result<Vec<u8>, u16> {
        let done = self.run(sqe.put(32, &(length as u32).to_le_bytes()));
        if done.status == 0 { Ok(done.data) } else { Err(done.status) }
    }

    /// Runs a command with data for the target, in its capsule or on request.
    pub(crate) fn send(&mut self, sqe: Sqe, data: &[u8]) -> u16 {
        self.run_with(sqe, data, self.wire.capsule).status
    }

    fn run_with(&mut self, sqe: Sqe, data: &[u8], capsule: usize) -> Completion {
        let id = self.submit(sqe, data, capsule);
        let done = self.complete(data);
        assert_eq!(done.id, id);
        done
    }

    /// Sends a command. Returns its id.
    pub(crate) fn submit(&mut self, sqe: Sqe, data: &[u8], capsule: usize) -> u16 {
        let id = self.next;
        self.next = self.next.wrapping_add(1) % 0x8000;
        let mut sqe = sqe.put(2, &id.to_le_bytes());
        if !data.is_empty() {
            sqe = sqe.put(32, &(data.len() as u32).to_le_bytes());
        }
        if data.is_empty() || data.len() > capsule {
            self.send_pdu(4, &sqe.0, &[], 0);
        } else {
            sqe.0[39] = 0x01;
            self.send_pdu(4, &sqe.0, data, 0);
        }
        id
    }

    /// Sends a PDU: the header after the common part, and data.
    pub(crate) fn send_pdu(&mut self, kind: u8, header: &[u8], data: &[u8], flags: u8) {
        let mut pdu = vec![kind, flags, (header.len() + 8) as u8, 0, 0, 0, 0, 0];
        pdu.extend_from_slice(header);
        if self.wire.header_digest {
            pdu[1] |= 1;
        }
        let with_digest = pdu.len() + if self.wire.header_digest { 4 } else { 0 };
        let mut length = with_digest;
        if !data.is_empty() {
            pdu[3] = with_digest as u8;
            length += data.len();
            if self.wire.data_digest {
                pdu[1] |= 2;
                length += 4;
            }
        }
        pdu[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        if self.wire.header_digest {
            pdu.extend_from_slice(&crc32c(&pdu).to_le_bytes());
        }
        pdu.extend_from_slice(data);
        if !data.is_empty() && self.wire.data_digest {
            pdu.extend_from_slice(&crc32c(data).to_le_bytes());
        }
        self.put(&pdu);
    }

    /// Receives PDUs until a command completes; sends `data` on request.
    pub(crate) fn complete(&mut self, data: &[u8]) -> Completion {
        let mut received = Vec::new();
        loop {
            let pdu = self.receive();
            match pdu.header[0] {
                5 => {
                    let status = u16_of(&pdu.header, 22) >> 1 & 0x3fff;
                    let (id, result) = (u16_of(&pdu.header, 20), &pdu.header[8..16]);
                    let result = u64::from_le_bytes(result.try_into().unwrap());
                    return Completion { id, status, result, data: received };
                }
                7 => {
                    assert_eq!(u32_of(&pdu.header, 12) as usize, received.len(), "data in order");
                    received.extend_from_slice(&pdu.data);
                    if pdu.header[1] & 8 != 0 {
                        assert!(self.wire.no_flow_control && pdu.header[1] & 4 != 0);
                        let id = u16_of(&pdu.header, 8);
                        return Completion { id, status: 0, result: 0, data: received };
                    }
                }
                9 => self.send_requested(&pdu, data),
                other => panic!("a PDU of type {other}: {:?}", pdu.header),
            }
        }
    }

    /// Sends the data that a PDU requests.
    pub(crate) fn send_requested(&mut self, request: &Pdu, data: &[u8]) {
        let (offset, length) = (u32_of(&request.header, 12) as usize, u32_of(&request.header, 16) as usize);
        let mut at = offset;
        while at < offset + length {
            let end = (at + self.wire.part).min(offset + length);
            let mut header = request.header[8..12].to_vec();
            header.extend_from_slice(&(at as u32).to_le_bytes());
            header.extend_from_slice(&((end - at) as u32).to_le_bytes());
            header.extend_from_slice(&[0; 4]);
            let last = if end == offset + length { 4 } else { 0 };
            self.send_pdu(6, &header, &data[at..end], last);
            at = end;
        }
    }

    /// Receives a PDU and checks its digests.
    pub(crate) fn receive(&mut self) -> Pdu {
        let mut header = vec![0; 8];
        self.take(&mut header);
        let (kind, flags, length) = (header[0], header[1], usize::from(header[2]));
        let (offset, whole) = (usize::from(header[3]), u32_of(&header, 4) as usize);
        let mut rest = vec![0; whole - 8];
        self.take(&mut rest);
        header.extend_from_slice(&rest);
        if kind == 3 {
            return Pdu { header, data: Vec::new() };
        }
        assert_eq!((flags & 1 != 0, length), (self.wire.header_digest, 24));
        if self.wire.header_digest {
            assert_eq!(u32_of(&header, 24), crc32c(&header[..24]), "header digest");
        }
        let mut data = Vec::new();
        if kind == 7 {
            assert_eq!(flags & 2 != 0, self.wire.data_digest);
            assert_eq!(offset % (usize::from(self.wire.alignment) * 4 + 4), 0, "alignment");
            let bytes = u32_of(&header, 16) as usize;
            data = header[offset..offset + bytes].to_vec();
            if self.wire.data_digest {
                assert_eq!(u32_of(&header, offset + bytes), crc32c(&data), "data digest");
            }
        }
        header.truncate(24);
        Pdu { header, data }
    }

    /// Receives until the target closes the connection. Returns the number of bytes.
    pub(crate) fn read_to_end(&mut self) -> usize {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = match &mut self.session {
            Some(session) => session.read_to_end(&mut rest),
            None => self.stream.read_to_end(&mut rest),
        };
        rest.len()
    }

    pub(crate) fn write(&mut self, first: u64, data: &[u8]) -> u16 {
        self.send(Sqe::new(1, 1).blocks(first, (data.len() / 512) as u32), data)
    }

    pub(crate) fn read(&mut self, first: u64, count: u32) -> Result<Vec<u8>, u16> {
        self.fetch(Sqe::new(2, 1).blocks(first, count), count as usize * 512)
    }
}
