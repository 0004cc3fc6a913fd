//! An initiator's connection to a controller: the handshake, the namespace, and its I/O queues.
//!
//! Always true: the admin connection stays open as long as the queues are used.

use std::io::{Error, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::pdu::{Entry, TargetPdu, kind, push_command, push_open, receive, u16_at, u32_at, u64_at};

/// The name by which the load presents itself.
const HOST: &[u8] = b"nqn.2014-08.org.gabion:bench";
/// The namespace that is measured.
pub(super) const NAMESPACE: u32 = 1;
/// Entries of an I/O queue, the most commands in flight plus one.
pub(super) const QUEUE_ENTRIES: u16 = 128;
const ADMIN_ENTRIES: u16 = 32;
/// Bytes of an identify structure.
const IDENTIFY: u32 = 4096;
/// Time for each step of the handshake.
const TIMEOUT: Duration = Duration::from_secs(10);

const FABRICS: u8 = 0x7f;
const IDENTIFY_COMMAND: u8 = 0x06;
/// Fabrics commands.
const PROPERTY_SET: u8 = 0;
const CONNECT: u8 = 1;
const PROPERTY_GET: u8 = 4;
/// Controller properties.
const CONFIGURATION: u32 = 0x14;
const STATUS: u32 = 0x1c;
/// The configuration that enables the controller, with entries of 64 and 16 bytes.
const ENABLED: u64 = 6 << 16 | 4 << 20 | 1;

/// The address of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeAddress {
    /// Address of the listener.
    pub address: SocketAddr,
    /// Name of the subsystem (NQN). Namespace 1 is used.
    pub subsystem: String,
}

impl std::fmt::Display for NvmeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.subsystem)
    }
}

impl std::str::FromStr for NvmeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("'{text}' has not the form ADDRESS:PORT/NQN");
        let (address, subsystem) = text.split_once('/').ok_or_else(expected)?;
        let address = address.parse().map_err(|_| expected())?;
        if subsystem.is_empty() || subsystem.len() > 223 {
            return Err(expected());
        }
        Ok(Self { address, subsystem: subsystem.into() })
    }
}

/// A controller, its namespace, and its limits.
pub(super) struct Controller {
    address: NvmeAddress,
    id: u16,
    _admin: TcpStream,
    queues: u16,
    /// Bytes of the namespace, and of one of its sectors.
    pub(super) bytes: u64,
    pub(super) sector: u32,
    /// The most bytes of data in a capsule.
    pub(super) capsule: u32,
    /// The most bytes of a command; `None` without a limit.
    pub(super) transfer_max: Option<u64>,
}

/// An I/O queue that is connected.
pub(super) struct ConnectedQueue {
    pub(super) stream: TcpStream,
    /// The most bytes of data in one PDU to the target.
    pub(super) data_max: usize,
}

fn invalid(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, problem.into())
}

impl Controller {
    /// Connects the admin queue, enables the controller and reads the properties of its namespace.
    pub(super) fn connect(address: &NvmeAddress) -> std::io::Result<Self> {
        let (queue, id) = connect_queue(address, 0, u16::MAX)?;
        let mut admin = queue.stream;
        set_property(&mut admin, CONFIGURATION, ENABLED)?;
        let begin = Instant::now();
        while property(&mut admin, STATUS)? & 1 == 0 {
            if begin.elapsed() > TIMEOUT {
                return Err(invalid("the controller did not become ready within 10 s"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let controller = identify(&mut admin, 0, 1)?;
        let namespace = identify(&mut admin, NAMESPACE, 0)?;
        let format = usize::from(namespace.get(26).copied().unwrap_or(0) & 0xf);
        let shift = namespace.get(128 + 4 * format + 2).copied().unwrap_or(0);
        let blocks = u64_at(&namespace, 0);
        if blocks == 0 || !(9..=12).contains(&shift) {
            return Err(invalid(format!(
                "there is no namespace {NAMESPACE} with sectors of 512 to 4096 bytes"
            )));
        }
        // The capacity of a command capsule counts in units of 16 bytes, with the entry.
        let capsule = (u32_at(&controller, 1792) * 16).saturating_sub(64);
        let transfer_shift = controller.get(77).copied().unwrap_or(0);
        Ok(Self {
            address: address.clone(),
            id,
            _admin: admin,
            queues: 0,
            bytes: blocks << shift,
            sector: 1 << shift,
            capsule,
            transfer_max: (transfer_shift > 0).then(|| 4096 << transfer_shift.min(32)),
        })
    }

    /// Connects another I/O queue.
    pub(super) fn connect_queue(&mut self) -> std::io::Result<ConnectedQueue> {
        self.queues += 1;
        let (queue, _) = connect_queue(&self.address, self.queues, self.id)?;
        queue.stream.set_nonblocking(true)?;
        Ok(queue)
    }
}

/// Connects a queue. Returns it with the id of the controller.
fn connect_queue(
    address: &NvmeAddress,
    queue: u16,
    controller: u16,
) -> std::io::Result<(ConnectedQueue, u16)> {
    let mut stream = TcpStream::connect_timeout(&address.address, TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut out = Vec::new();
    push_open(&mut out);
    stream.write_all(&out)?;
    let opened = receive(&mut stream)?;
    if opened.first() != Some(&kind::OPENED) {
        return Err(invalid("the target did not open the connection"));
    }
    let mut data = vec![0; 1024];
    let mut fill = |at: usize, bytes: &[u8]| {
        data.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
    };
    fill(0, b"gabion-bench-nvm");
    fill(16, &controller.to_le_bytes());
    fill(256, address.subsystem.as_bytes());
    fill(512, HOST);
    let mut entry = fabrics(CONNECT, 1024);
    let entries = if queue == 0 { ADMIN_ENTRIES } else { QUEUE_ENTRIES };
    entry.set(42, &queue.to_le_bytes());
    entry.set(44, &(entries - 1).to_le_bytes());
    // Without flow control, the target omits the responses of reads.
    entry.set(46, &[1 << 2]);
    let answer = execute(&mut stream, &entry, &data)?;
    let data_max = (u32_at(&opened, 12) as usize).max(4096);
    #[allow(clippy::cast_possible_truncation, reason = "the id is in the low bits")]
    Ok((ConnectedQueue { stream, data_max }, answer.result as u16))
}

fn fabrics(kind: u8, length: u32) -> Entry {
    let mut entry = Entry::new(FABRICS, 0, 0, length, true);
    entry.set(4, &[kind]);
    entry
}

fn set_property(stream: &mut TcpStream, property: u32, value: u64) -> std::io::Result<()> {
    let mut entry = fabrics(PROPERTY_SET, 0);
    entry.set(44, &property.to_le_bytes());
    entry.set(48, &value.to_le_bytes());
    execute(stream, &entry, &[]).map(drop)
}

fn property(stream: &mut TcpStream, property: u32) -> std::io::Result<u64> {
    let mut entry = fabrics(PROPERTY_GET, 0);
    entry.set(44, &property.to_le_bytes());
    Ok(execute(stream, &entry, &[])?.result)
}

fn identify(stream: &mut TcpStream, namespace: u32, structure: u8) -> std::io::Result<Vec<u8>> {
    let mut entry = Entry::new(IDENTIFY_COMMAND, 0, namespace, IDENTIFY, false);
    entry.set(40, &[structure]);
    let data = execute(stream, &entry, &[])?.data;
    if data.len() < IDENTIFY as usize {
        return Err(invalid(format!("an identify structure has {} bytes", data.len())));
    }
    Ok(data)
}

/// The answer to a command.
#[derive(Default)]
struct Answer {
    result: u64,
    data: Vec<u8>,
}

/// Executes a command, with the data of its capsule.
fn execute(stream: &mut TcpStream, entry: &Entry, data: &[u8]) -> std::io::Result<Answer> {
    let mut out = Vec::new();
    push_command(&mut out, entry, data);
    stream.write_all(&out)?;
    let mut answer = Answer::default();
    loop {
        let pdu = receive(stream)?;
        match TargetPdu::decode(&pdu) {
            TargetPdu::Response { status: 0, result, .. } => return Ok(Answer { result, ..answer }),
            TargetPdu::Response { status, .. } => {
                let (kind, code) = (status >> 8 & 7, status & 0xff);
                let about = u16_at(&entry.0, 0) & 0xff;
                return Err(invalid(format!(
                    "command {about:#04x} failed with status {code:#04x} of type {kind}: is the subsystem exported, \
                     and may this host use it?"
                )));
            }
            TargetPdu::Data { bytes, completes, .. } => {
                answer.data.extend_from_slice(bytes);
                if completes {
                    return Ok(answer);
                }
            }
            TargetPdu::Ready(_) | TargetPdu::Unexpected(_) => {
                return Err(invalid("the target sent a PDU that the command does not allow"));
            }
        }
    }
}
