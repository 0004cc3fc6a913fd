//! Fuzz target: whole connections, from the host's first byte to the end.
//!
//! A connection ends when its host closes it. After a valid handshake each command is answered
//! once, by well-formed PDUs.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Backend, Buffer, Clock, Platform, Reactor, Stream, SystemClock};

use super::NvmeLimits;
use super::connection::serve_connection;
use super::host_secrets::HostSecrets;
use super::shared::ServerShared;
use super::target::{NvmeNamespace, NvmeTarget};
use crate::MemorySource;
use crate::reservation::ReservationRegistry;
use crate::transport::LocalAddress;
use crate::transport::testing::receive_all;

const SIZE: u64 = 4 << 20;
const NAME: &str = "nqn.2014-08.org.example:disk";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
const LOCAL: &str = "127.0.0.1:4420";

::fuzz::target!(nvme_connection, |bytes| match bytes {
    [0, rest @ ..] => drop(serve(vec![rest.to_vec()])),
    [1, rest @ ..] => check_admin(NAME, rest),
    [2, rest @ ..] => check_admin(DISCOVERY, rest),
    [options, rest @ ..] => check_io(*options, rest),
    [] => {}
});

/// Serves connections one after the other, whose host sends these bytes. Each is opened once the
/// one before has answered, and all are closed at the end. Returns the bytes that the host received
/// on the last one.
fn serve(connections: Vec<Vec<u8>>) -> Vec<u8> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(Backend::Threads, clock.clone()).unwrap();
    let reactor = Reactor::new(platform.clone(), clock);
    let received = reactor.run(async {
        let listener = LOCAL.parse().unwrap();
        let source = MemorySource::create(&reactor.remote(), SIZE, 512).await.unwrap();
        let reservations = ReservationRegistry::new(None);
        let target: Arc<NvmeTarget<MemorySource>> = Arc::default();
        let namespace = NvmeNamespace {
            id: 1,
            source: Arc::new(source),
            read_only: false,
            identity: [7; 16],
            hosts: Vec::new(),
            secrets: HostSecrets::default(),
            listen: vec![listener],
            leases: Arc::default(),
            reservations: reservations.of_volume([7; 16]),
        };
        assert!(target.add(NAME, namespace).is_ok());
        let shared = Rc::new(ServerShared::new(target, reservations, NvmeLimits::default()));
        let (mut open, count) = (Vec::new(), connections.len());
        for (number, bytes) in connections.into_iter().enumerate() {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let stream = |socket: UnixStream| Stream::from_fd(&platform, socket.into()).unwrap();
            let (server, client) = (stream(ours), Rc::new(stream(theirs)));
            let shared = shared.clone();
            let serving = reactor.spawn(async move {
                let admitted = shared.admission.admit(server.peer()).unwrap();
                let address = LocalAddress { listener, reached: listener };
                serve_connection(server, address, &shared, &admitted).await;
            });
            let (writer, sent) = (client.clone(), Buffer::copy_of(&bytes).span());
            if number + 1 < count {
                // The answers to the connection request and to the connect command.
                writer.write_all(&[sent]).await.unwrap();
                client.read_exact(&[Buffer::new(128 + 2 * 24).span()]).await.unwrap();
                open.push((client, serving));
                continue;
            }
            let writing = reactor.spawn(async move {
                // A target that ends the connection early does not read the rest.
                let _ = writer.write_all(&[sent]).await;
                let _ = writer.shutdown();
            });
            let received = receive_all(client).await;
            writing.await;
            serving.await;
            for (client, serving) in open {
                drop(client);
                serving.await;
            }
            return received;
        }
        Vec::new()
    });
    reactor.shut_down();
    received
}

/// A PDU without digests.
fn pdu(kind: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
    let length = header.len() + 8;
    let offset = if data.is_empty() { 0 } else { length as u8 };
    let mut bytes = vec![kind, 0, length as u8, offset, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&((length + data.len()) as u32).to_le_bytes());
    [&bytes, header, data].concat()
}

/// The bytes that open a queue.
fn handshake(name: &str, queue: u16, controller: u16) -> Vec<u8> {
    let mut sent = pdu(0, &[0; 120], &[]);
    let mut data = [0; 1024];
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + name.len()].copy_from_slice(name.as_bytes());
    let host = "nqn.2014-08.org.example:host";
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    let mut command = command(0x7f, 0xffff, 1024, true);
    command[4] = 1;
    command[42..44].copy_from_slice(&queue.to_le_bytes());
    command[44] = if queue == 0 { 31 } else { 127 };
    sent.extend(pdu(4, &command, &data));
    sent
}

fn command(opcode: u8, id: u16, length: u32, in_capsule: bool) -> [u8; 64] {
    let mut bytes = [0; 64];
    (bytes[0], bytes[1]) = (opcode, 0x40);
    bytes[2..4].copy_from_slice(&id.to_le_bytes());
    bytes[32..36].copy_from_slice(&length.to_le_bytes());
    bytes[39] = if in_capsule { 0x01 } else { 0x5a };
    bytes
}

/// The commands that enable a controller.
fn enable() -> Vec<u8> {
    let mut set = command(0x7f, 0xfffe, 0, false);
    (set[44], set[50]) = (0x14, 0x46);
    set[48] = 1;
    pdu(4, &set, &[])
}

/// Runs admin commands made of these bytes, 9 for each, and checks every answer.
fn check_admin(name: &str, bytes: &[u8]) {
    const CODES: [u8; 8] = [0x06, 0x02, 0x09, 0x0a, 0x08, 0x0c, 0x18, 0x7f];
    let mut sent = [handshake(name, 0, 0xffff), enable()].concat();
    let mut expected = BTreeMap::from([(0xffff, 0), (0xfffe, 0)]);
    // The queue has room for 16 commands beside those of the handshake.
    for (id, part) in (1u16..).zip(bytes.chunks_exact(9).take(16)) {
        let opcode = CODES[usize::from(part[0] & 7)];
        let length = if matches!(opcode, 0x06 | 0x02) { 4096 } else { 0 };
        let mut one = command(opcode, id, length, false);
        (one[4], one[40], one[41], one[42]) = (part[1], part[2], part[3], part[4]);
        if opcode == 0x02 {
            // A log of 4 KiB.
            (one[42], one[43]) = (0xff, 0x03);
        }
        (one[44], one[45], one[47], one[48]) = (part[5], part[6], part[7], part[8]);
        if opcode == 0x7f {
            // Property commands, but no change of the configuration, and no end of the queue.
            (one[4], one[44]) = (0x04, part[5] & 0x1c);
        }
        sent.extend(pdu(4, &one, &[]));
        // Requests for events may stay without an answer.
        if opcode != 0x0c {
            expected.insert(id, length);
        }
    }
    check_answers(&serve(vec![sent]), expected);
}

/// Runs commands on a volume made of these bytes, 9 for each, and checks every answer.
fn check_io(options: u8, bytes: &[u8]) {
    const CODES: [u8; 16] =
        [0x01, 0x02, 0x00, 0x08, 0x09, 0x05, 0x0c, 0x19, 0x0d, 0x0e, 0x11, 0x15, 0x01, 0x02, 0x01, 0x04];
    let mut sent = handshake(NAME, 1, 1);
    let mut expected = BTreeMap::from([(0xffff, 0)]);
    for (id, part) in (1u16..).zip(bytes.chunks_exact(9).take(60)) {
        let opcode = CODES[usize::from(part[0] & 15)];
        let blocks = u32::from(part[1] & 31);
        let takes_data = matches!(opcode, 0x01 | 0x05 | 0x09 | 0x19 | 0x0d | 0x11 | 0x15);
        let mut length = if matches!(opcode, 0x01 | 0x02 | 0x05) { (blocks + 1) * 512 } else { 0 };
        if matches!(opcode, 0x09 | 0x19 | 0x0d | 0x11 | 0x15) {
            length = u32::from(part[2] & 7) * 16;
        }
        if matches!(opcode, 0x0e) {
            length = u32::from(part[2]) * 4;
        }
        let in_capsule = takes_data && length > 0 && length <= 16 << 10;
        let mut one = command(opcode, id, length, in_capsule);
        // A part of a fused operation waits for the other one: not without it.
        one[4] = if part[0] & 0x80 == 0 { 1 } else { part[1] };
        (one[40], one[41], one[44]) = (part[3], part[4], part[5]);
        (one[48], one[49], one[51]) = (blocks as u8, 0, part[6]);
        let data = if in_capsule { vec![part[7] ^ options; length as usize] } else { Vec::new() };
        sent.extend(pdu(4, &one, &data));
        expected.insert(id, length);
    }
    let admin = [handshake(NAME, 0, 0xffff), enable()].concat();
    check_answers(&serve(vec![admin, sent]), expected);
}

/// Checks that each command is answered once, with its data before.
fn check_answers(mut bytes: &[u8], mut expected: BTreeMap<u16, u32>) {
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let short = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!((bytes[0], number(bytes, 4)), (1, 128));
    bytes = &bytes[128..];
    let mut received: BTreeMap<u16, u32> = BTreeMap::new();
    while !bytes.is_empty() {
        let length = number(bytes, 4) as usize;
        let (one, rest) = bytes.split_at(length);
        bytes = rest;
        match one[0] {
            5 => {
                let (id, status) = (short(one, 20), short(one, 22) >> 1);
                let wanted = expected.remove(&id);
                let data = received.remove(&id).unwrap_or(0);
                if let Some(wanted) = wanted {
                    assert!(data == 0 || status == 0 && data == wanted, "data of a failed command");
                }
            }
            7 => {
                let id = short(one, 8);
                assert!(expected.contains_key(&id), "data of a command without data");
                let at = received.entry(id).or_default();
                assert_eq!(number(one, 12), *at, "data in order");
                *at += number(one, 16);
                assert_eq!(length, usize::from(one[3]) + number(one, 16) as usize);
            }
            other => panic!("a PDU of type {other}"),
        }
    }
    assert!(expected.is_empty(), "without an answer: {expected:?}");
}
