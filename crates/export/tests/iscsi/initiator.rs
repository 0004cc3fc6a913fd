//! An initiator for tests, written from RFC 7143: it shares no code with the target.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use md5::{Digest, Md5};

/// Longer than any step takes, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const TARGET: &str = "iqn.2014-08.org.example:disk";
pub(crate) const HOST: &str = "iqn.1993-08.org.debian:01:1111";
pub(crate) const OTHER: &str = "iqn.1993-08.org.debian:01:2222";
/// The tag that means none.
pub(crate) const NO_TAG: u32 = u32::MAX;

/// The options of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) initiator: &'static str,
    /// The initiator's part of the session identifier.
    pub(crate) id: [u8; 6],
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    pub(crate) first_burst: usize,
    pub(crate) max_burst: usize,
    /// The most bytes of data of one PDU that the initiator receives.
    pub(crate) segment: usize,
    /// The most bytes of data of one PDU that the initiator sends.
    pub(crate) part: usize,
}

pub(crate) const PLAIN: Wire = Wire {
    initiator: HOST,
    id: [0x80, 0, 0, 1, 0, 0],
    header_digest: false,
    data_digest: false,
    initial_r2t: true,
    immediate_data: true,
    first_burst: 64 << 10,
    max_burst: 256 << 10,
    segment: 256 << 10,
    part: 64 << 10,
};

/// Forms of the transport that differ in each option.
pub(crate) fn wires() -> Vec<Wire> {
    vec![
        PLAIN,
        Wire { header_digest: true, data_digest: true, ..PLAIN },
        Wire { initial_r2t: false, first_burst: 16 << 10, part: 3000, ..PLAIN },
        Wire { immediate_data: false, max_burst: 8 << 10, segment: 1000, data_digest: true, ..PLAIN },
        Wire { immediate_data: false, initial_r2t: false, header_digest: true, part: 512, ..PLAIN },
        Wire { first_burst: 512, max_burst: 512, segment: 512, ..PLAIN },
    ]
}

/// Credentials: of the initiator, and of the target if it must authenticate itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chap {
    pub(crate) user: &'static str,
    pub(crate) secret: &'static str,
    pub(crate) target: Option<(&'static str, &'static str)>,
}

/// A header under construction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bhs(pub(crate) [u8; 48]);

impl Bhs {
    pub(crate) fn new(opcode: u8, flags: u8) -> Self {
        Self([0; 48]).put(0, &[opcode, flags])
    }

    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn word(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_be_bytes())
    }
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

pub(crate) fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub(crate) fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn u64_of(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A PDU as received.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    pub(crate) header: [u8; 48],
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    pub(crate) fn opcode(&self) -> u8 {
        self.header[0]
    }

    pub(crate) fn word(&self, at: usize) -> u32 {
        u32_of(&self.header, at)
    }
}

/// The direction of a command's data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    None,
    In(usize),
    Out(&'a [u8]),
}

/// A completed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) tag: u32,
    pub(crate) status: u8,
    /// Key, code and qualifier.
    pub(crate) sense: (u8, u8, u8),
    /// The information of the sense data, and the field that is invalid.
    pub(crate) details: (u32, u16),
    /// Expected bytes less the bytes that the command has.
    pub(crate) residual: i64,
    pub(crate) data: Vec<u8>,
}

impl Done {
    /// The data of a successful command.
    #[track_caller]
    pub(crate) fn good(self) -> Vec<u8> {
        assert_eq!((self.status, self.sense), (0, (0, 0, 0)), "{self:?}");
        self.data
    }

    /// The sense of a failed command.
    #[track_caller]
    pub(crate) fn failed(self) -> (u8, u8, u8) {
        assert_eq!(self.status, 2, "{self:?}");
        self.sense
    }
}

/// The status of a command that a reservation excludes.
pub(crate) const CONFLICT: u8 = 0x18;

/// A command in flight.
#[derive(Clone, Debug, Default)]
struct Pending {
    out: Vec<u8>,
    received: Vec<u8>,
    data_number: u32,
    request_number: u32,
    /// Bytes sent without a request.
    sent: usize,
}

/// A connection, with a session once the login is complete.
pub(crate) struct Session {
    pub(crate) stream: TcpStream,
    pub(crate) wire: Wire,
    digests: (bool, bool),
    pub(crate) next_tag: u32,
    /// The number of the next command.
    pub(crate) command: u32,
    /// The number of the next status.
    pub(crate) status: u32,
    /// The next command that the target expects, and the last one that it accepts.
    pub(crate) window: (u32, u32),
    pub(crate) handle: u16,
    /// The answers of the login.
    pub(crate) answers: BTreeMap<String, String>,
    pending: BTreeMap<u32, Pending>,
}

fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

pub(crate) fn pairs_of(text: &[u8]) -> Vec<(String, String)> {
    let parts = text.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (key, value) = std::str::from_utf8(part).unwrap().split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        })
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn chap_response(id: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    Md5::digest([&[id], secret.as_bytes(), challenge].concat()).to_vec()
}

/// The address of a logical unit.
pub(crate) fn unit_field(unit: u16) -> [u8; 8] {
    let [high, low] = unit.to_be_bytes();
    [high, low, 0, 0, 0, 0, 0, 0]
}

impl Session {
    /// Connects a socket; no PDU is sent.
    pub(crate) fn open(address: SocketAddr, wire: Wire) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self {
            stream,
            wire,
            digests: (false, false),
            next_tag: 0x100,
            // Numbers wrap around early.
            command: u32::MAX - 3,
            status: 0,
            window: (0, 0),
            handle: 0,
            answers: BTreeMap::new(),
            pending: BTreeMap::new(),
        }
    }

    /// Opens a session with the target.
    pub(crate) fn new(address: SocketAddr, wire: Wire) -> Self {
        Self::log_in(address, wire, Some(TARGET), None).unwrap()
    }

    /// Opens a session, for discovery without a target.
    ///
    /// # Errors
    /// The status of the refused login.
    pub(crate) fn log_in(
        address: SocketAddr,
        wire: Wire,
        target: Option<&str>,
        chap: Option<Chap>,
    ) -> Result<Self, u16> {
        let mut session = Self::open(address, wire);
        let names: Vec<(&str, &str)> = match target {
            Some(target) => {
                vec![("InitiatorName", wire.initiator), ("TargetName", target), ("SessionType", "Normal")]
            }
            None => vec![("InitiatorName", wire.initiator), ("SessionType", "Discovery")],
        };
        let mut rest = names;
        if let Some(chap) = chap {
            session.authenticate(&std::mem::take(&mut rest), chap)?;
        }
        session.negotiate(&rest)?;
        Ok(session)
    }

    fn authenticate(&mut self, names: &[(&str, &str)], chap: Chap) -> Result<(), u16> {
        let first = [names, &[("AuthMethod", "CHAP,None")]].concat();
        self.login_step(0x81, &first)?;
        assert_eq!(self.answers["AuthMethod"], "CHAP");
        self.login_step(0x00, &[("CHAP_A", "5")])?;
        assert_eq!(self.answers["CHAP_A"], "5");
        let id: u8 = self.answers["CHAP_I"].parse().unwrap();
        let response = to_hex(&chap_response(id, chap.secret, &from_hex(&self.answers["CHAP_C"])));
        let mut last = vec![("CHAP_N", chap.user), ("CHAP_R", &response)];
        if chap.target.is_some() {
            last.extend([("CHAP_I", "77"), ("CHAP_C", "0x00112233445566778899aabbccddeeff")]);
        }
        let flags = self.login_step(0x81, &last)?;
        assert_eq!(flags & 0x80, 0x80, "the security stage ends");
        if let Some((user, secret)) = chap.target {
            let challenge = from_hex("0x00112233445566778899aabbccddeeff");
            assert_eq!(self.answers["CHAP_N"], user);
            assert_eq!(from_hex(&self.answers["CHAP_R"]), chap_response(77, secret, &challenge));
        }
        Ok(())
    }

    fn negotiate(&mut self, names: &[(&str, &str)]) -> Result<(), u16> {
        let wire = self.wire;
        let digest = |wanted: bool| if wanted { "CRC32C" } else { "None" };
        let boolean = |value: bool| if value { "Yes" } else { "No" };
        let numbers = [wire.first_burst, wire.max_burst, wire.segment].map(|number| number.to_string());
        let offers = [
            ("HeaderDigest", digest(wire.header_digest)),
            ("DataDigest", digest(wire.data_digest)),
            ("InitialR2T", boolean(wire.initial_r2t)),
            ("ImmediateData", boolean(wire.immediate_data)),
            ("FirstBurstLength", &numbers[0]),
            ("MaxBurstLength", &numbers[1]),
            ("MaxRecvDataSegmentLength", &numbers[2]),
            ("MaxOutstandingR2T", "1"),
            ("ErrorRecoveryLevel", "0"),
        ];
        let flags = self.login_step(0x87, &[names, &offers].concat())?;
        assert_eq!(flags, 0x87);
        for (key, value) in offers.iter().filter(|(key, _)| *key != "MaxRecvDataSegmentLength") {
            assert_eq!(self.answers[*key], *value, "{key}");
        }
        assert!(self.answers["MaxRecvDataSegmentLength"].parse::<usize>().unwrap() >= 8192);
        self.digests = (wire.header_digest, wire.data_digest);
        Ok(())
    }

    /// The header of a login request.
    pub(crate) fn login_header(&self, flags: u8) -> Bhs {
        Bhs::new(0x43, flags)
            .put(8, &self.wire.id)
            .put(14, &self.handle.to_be_bytes())
            .word(16, 7)
            .word(24, self.command)
            .word(28, self.status)
    }

    /// Sends a login request and takes the answer. Returns the flags.
    pub(crate) fn login_step(&mut self, flags: u8, pairs: &[(&str, &str)]) -> Result<u8, u16> {
        self.send(self.login_header(flags), &text(pairs));
        let answer = self.receive();
        assert_eq!((answer.opcode(), answer.word(16)), (0x23, 7));
        match u16_of(&answer.header, 36) {
            0 => {}
            status => return Err(status),
        }
        self.handle = u16_of(&answer.header, 14);
        self.answers.extend(pairs_of(&answer.data));
        Ok(answer.header[1])
    }

    /// Sends a PDU.
    pub(crate) fn send(&mut self, header: Bhs, data: &[u8]) {
        let pdu = self.encode(header, data);
        self.stream.write_all(&pdu).unwrap();
    }

    pub(crate) fn encode(&self, header: Bhs, data: &[u8]) -> Vec<u8> {
        let mut pdu = header.put(5, &(data.len() as u32).to_be_bytes()[1..]).0.to_vec();
        if self.digests.0 {
            pdu.extend_from_slice(&crc32c(&pdu).to_le_bytes());
        }
        if !data.is_empty() {
            let mut padded = data.to_vec();
            padded.resize(data.len().next_multiple_of(4), 0);
            let digest = crc32c(&padded);
            pdu.extend(padded);
            if self.digests.1 {
                pdu.extend_from_slice(&digest.to_le_bytes());
            }
        }
        pdu
    }

    /// Receives a PDU, and checks its digests and numbers.
    pub(crate) fn receive(&mut self) -> Pdu {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header).unwrap();
        assert_eq!(header[4], 0, "no additional header segment: {header:?}");
        if self.digests.0 {
            assert_eq!(self.digest(), crc32c(&header), "header digest");
        }
        let length = u32_of(&header, 4) as usize;
        assert!(length <= self.wire.segment.max(8192), "a segment of {length} bytes");
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data).unwrap();
        if self.digests.1 && length > 0 {
            assert_eq!(self.digest(), crc32c(&data), "data digest");
        }
        data.truncate(length);
        let pdu = Pdu { header, data };
        self.check_numbers(&pdu);
        pdu
    }

    fn digest(&mut self) -> u32 {
        let mut digest = [0; 4];
        self.stream.read_exact(&mut digest).unwrap();
        u32::from_le_bytes(digest)
    }

    fn check_numbers(&mut self, pdu: &Pdu) {
        let has_status = match pdu.opcode() {
            0x20 => pdu.word(16) != NO_TAG,
            0x25 => pdu.header[1] & 1 != 0,
            0x31 => false,
            _ => true,
        };
        if has_status {
            if self.status != 0 {
                assert_eq!(pdu.word(24), self.status, "status number of {:?}", pdu.header);
            }
            self.status = pdu.word(24).wrapping_add(1);
        } else if pdu.opcode() == 0x31 {
            assert_eq!(pdu.word(24), self.status);
        }
        let window = (pdu.word(28), pdu.word(32));
        if self.window != (0, 0) {
            let is_later = |new: u32, old: u32| new.wrapping_sub(old) < 1 << 31;
            assert!(is_later(window.0, self.window.0) && is_later(window.1, self.window.1), "{window:?}");
        }
        self.window = window;
    }

    /// A tag that is not in use.
    pub(crate) fn tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    /// The number of a command that is not immediate.
    pub(crate) fn number(&mut self) -> u32 {
        self.command = self.command.wrapping_add(1);
        self.command.wrapping_sub(1)
    }

    /// The header of a SCSI command.
    pub(crate) fn command_header(&mut self, unit: u16, block: &[u8], data: Data<'_>) -> (u32, Bhs) {
        let (direction, length) = match data {
            Data::None => (0, 0),
            Data::In(length) => (0x40, length),
            Data::Out(data) => (0x20, data.len()),
        };
        let tag = self.tag();
        let header = Bhs::new(0x01, 0x80 | direction | 1)
            .put(8, &unit_field(unit))
            .word(16, tag)
            .word(20, length as u32)
            .word(24, self.number())
            .word(28, self.status)
            .put(32, block);
        (tag, header)
    }

    /// Sends a command, with the data that needs no request. Returns its tag.
    pub(crate) fn submit(&mut self, unit: u16, block: &[u8], data: Data<'_>) -> u32 {
        let (tag, mut header) = self.command_header(unit, block, data);
        let out = if let Data::Out(out) = data { out } else { &[] };
        let first = self.wire.first_burst.min(self.wire.max_burst).min(out.len());
        let immediate = if self.wire.immediate_data { first.min(self.wire.part) } else { 0 };
        let unsolicited = if self.wire.initial_r2t { immediate } else { first };
        if unsolicited > immediate {
            header.0[1] &= 0x7f;
        }
        let pending = Pending { out: out.to_vec(), sent: unsolicited, ..Pending::default() };
        self.pending.insert(tag, pending);
        self.send(header, &out[..immediate]);
        if unsolicited > immediate {
            self.send_data(tag, NO_TAG, immediate, &out[immediate..unsolicited]);
        }
        tag
    }

    /// Sends data of a command, from `offset` on, as one sequence.
    pub(crate) fn send_data(&mut self, tag: u32, target_tag: u32, offset: usize, data: &[u8]) {
        let mut at = 0;
        for (number, part) in (0u32..).zip(data.chunks(self.wire.part)) {
            at += part.len();
            let last = if at == data.len() { 0x80 } else { 0 };
            let header = Bhs::new(0x05, last)
                .word(16, tag)
                .word(20, target_tag)
                .word(28, self.status)
                .word(36, number)
                .word(40, (offset + at - part.len()) as u32);
            self.send(header, part);
        }
    }

    /// Receives until a command completes. Sends the data that the target requests.
    pub(crate) fn complete(&mut self) -> Done {
        loop {
            let pdu = self.receive();
            match pdu.opcode() {
                0x21 => return self.response(&pdu),
                0x25 => {
                    if let Some(done) = self.data_in(pdu) {
                        return done;
                    }
                }
                0x31 => self.answer_request(&pdu),
                other => panic!("a PDU of type {other:#x}: {:?}", pdu.header),
            }
        }
    }

    fn response(&mut self, pdu: &Pdu) -> Done {
        let tag = pdu.word(16);
        let pending = self.pending.remove(&tag).expect("a command in flight");
        assert_eq!((pdu.header[1] & 0x80, pdu.header[2]), (0x80, 0), "completed at the target");
        let (sense, details) = match pdu.data.get(2..) {
            Some(sense) if !sense.is_empty() => {
                assert_eq!((usize::from(u16_of(&pdu.data, 0)), sense[0] & 0x7f), (sense.len(), 0x70));
                ((sense[2] & 15, sense[12], sense[13]), (u32_of(sense, 3), u16_of(sense, 16)))
            }
            _ => Default::default(),
        };
        let residual = residual_of(pdu);
        Done { tag, status: pdu.header[3], sense, details, residual, data: pending.received }
    }

    fn data_in(&mut self, pdu: Pdu) -> Option<Done> {
        let tag = pdu.word(16);
        let pending = self.pending.get_mut(&tag).expect("a command in flight");
        assert_eq!((pdu.word(36), pdu.word(40) as usize), (pending.data_number, pending.received.len()));
        pending.data_number += 1;
        pending.received.extend_from_slice(&pdu.data);
        let at_burst_end = pending.received.len().is_multiple_of(self.wire.max_burst);
        assert_eq!(pdu.header[1] & 0x80 != 0, at_burst_end || pdu.header[1] & 1 != 0, "end of a sequence");
        if pdu.header[1] & 1 == 0 {
            return None;
        }
        let pending = self.pending.remove(&tag).unwrap();
        let (status, residual) = (pdu.header[3], residual_of(&pdu));
        Some(Done { tag, status, sense: (0, 0, 0), details: (0, 0), residual, data: pending.received })
    }

    /// Sends the data that a PDU requests.
    pub(crate) fn answer_request(&mut self, pdu: &Pdu) {
        let (tag, target_tag) = (pdu.word(16), pdu.word(20));
        let (offset, length) = (pdu.word(40) as usize, pdu.word(44) as usize);
        let pending = self.pending.get_mut(&tag).expect("a command in flight");
        assert_eq!((pdu.word(36), offset), (pending.request_number, pending.sent), "requests in order");
        assert!(target_tag != NO_TAG && length > 0 && length <= self.wire.max_burst);
        pending.request_number += 1;
        pending.sent += length;
        let data = pending.out[offset..offset + length].to_vec();
        self.send_data(tag, target_tag, offset, &data);
    }

    /// Runs a command.
    pub(crate) fn run(&mut self, unit: u16, block: &[u8], data: Data<'_>) -> Done {
        let tag = self.submit(unit, block, data);
        let done = self.complete();
        assert_eq!(done.tag, tag);
        done
    }

    /// Forgets a command that was aborted.
    pub(crate) fn forget(&mut self, tag: u32) {
        self.pending.remove(&tag);
    }

    /// Runs an immediate task management function. Returns the response.
    pub(crate) fn manage(&mut self, function: u8, unit: u16, referenced: u32) -> u8 {
        let tag = self.submit_management(function, unit, referenced);
        let pdu = self.receive();
        assert_eq!((pdu.opcode(), pdu.word(16)), (0x22, tag), "{:?}", pdu.header);
        pdu.header[2]
    }

    pub(crate) fn submit_management(&mut self, function: u8, unit: u16, referenced: u32) -> u32 {
        let tag = self.tag();
        let header = Bhs::new(0x42, 0x80 | function)
            .put(8, &unit_field(unit))
            .word(16, tag)
            .word(20, referenced)
            .word(24, self.command)
            .word(28, self.status);
        self.send(header, &[]);
        tag
    }

    /// Sends a ping and checks the answer.
    pub(crate) fn ping(&mut self, data: &[u8]) {
        let tag = self.tag();
        let header =
            Bhs::new(0x40, 0x80).word(16, tag).word(20, NO_TAG).word(24, self.command).word(28, self.status);
        self.send(header, data);
        let pdu = self.receive();
        assert_eq!((pdu.opcode(), pdu.word(16), pdu.word(20)), (0x20, tag, NO_TAG));
        assert_eq!(pdu.data, data);
    }

    /// Runs a text request, with all parts of the answer.
    pub(crate) fn text(&mut self, pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let (mut request, mut target_tag, mut answer) = (text(pairs), NO_TAG, Vec::new());
        loop {
            let tag = self.tag();
            let header = Bhs::new(0x04, 0x80)
                .word(16, tag)
                .word(20, target_tag)
                .word(24, self.number())
                .word(28, self.status);
            self.send(header, &std::mem::take(&mut request));
            let pdu = self.receive();
            assert_eq!((pdu.opcode(), pdu.word(16)), (0x24, tag));
            answer.extend_from_slice(&pdu.data);
            target_tag = pdu.word(20);
            assert_eq!(pdu.header[1] & 0x80 != 0, target_tag == NO_TAG);
            if target_tag == NO_TAG {
                return pairs_of(&answer);
            }
        }
    }

    /// Logs out, and waits for the end of the connection.
    pub(crate) fn log_out(&mut self) {
        let tag = self.tag();
        let header = Bhs::new(0x46, 0x80).word(16, tag).word(24, self.command).word(28, self.status);
        self.send(header, &[]);
        let pdu = self.receive();
        assert_eq!((pdu.opcode(), pdu.word(16), pdu.header[2]), (0x26, tag, 0));
        assert_eq!(self.read_to_end(), 0);
    }

    /// Receives until the target closes the connection. Returns the number of bytes.
    pub(crate) fn read_to_end(&mut self) -> usize {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = self.stream.read_to_end(&mut rest);
        rest.len()
    }

    /// Writes blocks of unit 0.
    pub(crate) fn write(&mut self, first: u64, data: &[u8]) -> Done {
        self.run(0, &block_16(0x8a, first, (data.len() / 512) as u32), Data::Out(data))
    }

    /// Reads blocks of unit 0.
    pub(crate) fn read(&mut self, first: u64, count: u32) -> Done {
        self.run(0, &block_16(0x88, first, count), Data::In(count as usize * 512))
    }
}

fn residual_of(pdu: &Pdu) -> i64 {
    let count = i64::from(pdu.word(44));
    match pdu.header[1] & 6 {
        0 => {
            assert_eq!(count, 0);
            0
        }
        2 => count,
        4 => -count,
        other => panic!("residual flags {other:#x}"),
    }
}

/// A command block of 6 bytes.
pub(crate) fn block_6(code: u8, first: u32, count: u8) -> Vec<u8> {
    let [_, a, b, c] = first.to_be_bytes();
    vec![code, a, b, c, count, 0]
}

/// A command block of 10 bytes.
pub(crate) fn block_10(code: u8, first: u32, count: u16) -> Vec<u8> {
    [&[code, 0][..], &first.to_be_bytes(), &[0], &count.to_be_bytes(), &[0]].concat()
}

/// A command block of 12 bytes.
pub(crate) fn block_12(code: u8, first: u32, count: u32) -> Vec<u8> {
    [&[code, 0][..], &first.to_be_bytes(), &count.to_be_bytes(), &[0, 0]].concat()
}

/// A command block of 16 bytes.
pub(crate) fn block_16(code: u8, first: u64, count: u32) -> Vec<u8> {
    [&[code, 0][..], &first.to_be_bytes(), &count.to_be_bytes(), &[0, 0]].concat()
}

/// Sets the second byte of a command block.
pub(crate) fn flagged(mut block: Vec<u8>, flags: u8) -> Vec<u8> {
    block[1] |= flags;
    block
}
