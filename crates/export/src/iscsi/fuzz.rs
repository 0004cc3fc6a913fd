//! Fuzz target: whole connections, from the initiator's first byte to the end.
//!
//! A connection ends when its initiator closes it. After a valid login each command is answered
//! once, by well-formed messages whose statuses are numbered without a gap.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Backend, Buffer, Clock, Platform, Reactor, Stream, SystemClock};

use super::connection::serve_connection;
use super::shared::IscsiShared;
use super::target::{IscsiTargets, IscsiUnit, UnitOptions};
use super::{ChapAccount, IscsiLimits};
use crate::MemorySource;
use crate::reservation::ReservationRegistry;
use crate::transport::LocalAddress;
use crate::transport::testing::receive_all;

const SIZE: u64 = 4 << 20;
const NAME: &str = "iqn.2014-08.org.example:disk";
const LOCAL: &str = "127.0.0.1:3260";

::fuzz::target!(iscsi_connection, |bytes| match bytes {
    [0, rest @ ..] => drop(serve(rest, None)),
    [1, rest @ ..] => {
        // Text of a login at a target with credentials.
        let user = "ada".to_owned();
        let account = ChapAccount { user, secret: "a secret of CHAP".into(), target: None };
        let received = serve(&login_parts(rest), Some(account));
        assert!(!received.chunks_exact(48).any(|part| part[0] == 0x23 && part[1] & 0x83 == 0x83));
    }
    [options, rest @ ..] => check_session(*options, rest),
    [] => {}
});

/// Serves an initiator that sends these bytes and closes its half of the connection. Returns the
/// bytes that the initiator received.
fn serve(bytes: &[u8], account: Option<ChapAccount>) -> Vec<u8> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(Backend::Threads, clock.clone()).unwrap();
    let reactor = Reactor::new(platform.clone(), clock);
    let received = reactor.run(async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = |socket: UnixStream| Stream::from_fd(&platform, socket.into()).unwrap();
        let client = Rc::new(stream(theirs));
        let (writer, sent) = (client.clone(), Buffer::copy_of(bytes).span());
        let writing = reactor.spawn(async move {
            // A target that ends the connection early does not read the rest.
            let _ = writer.write_all(&[sent]).await;
            let _ = writer.shutdown();
        });
        let reading = reactor.spawn(receive_all(client));
        let shared = Rc::new(shared(&reactor, account).await);
        let ours = stream(ours);
        let admitted = shared.admission.admit(ours.peer()).unwrap();
        let listener = LOCAL.parse().unwrap();
        let address = LocalAddress { listener, reached: listener };
        serve_connection(ours, address, &shared, &admitted).await;
        writing.await;
        reading.await
    });
    reactor.shut_down();
    received
}

/// A target with one unit.
async fn shared(reactor: &Reactor, account: Option<ChapAccount>) -> IscsiShared<MemorySource> {
    let reservations = ReservationRegistry::new(None);
    let targets: Arc<IscsiTargets<MemorySource>> = Arc::default();
    let unit = IscsiUnit::new(UnitOptions {
        number: 0,
        source: Arc::new(MemorySource::create(&reactor.remote(), SIZE, 512).await.unwrap()),
        read_only: false,
        identity: [7; 16],
        hosts: Vec::new(),
        account,
        listen: vec![LOCAL.parse().unwrap()],
        leases: Arc::default(),
        reservations: reservations.of_volume([7; 16]),
    });
    assert!(targets.add(NAME, unit).is_some());
    IscsiShared::new(targets, reservations, IscsiLimits::default())
}

/// Encodes a message without digests.
fn message(header: &[u8; 48], data: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn login(flags: u8, text: &[u8]) -> Vec<u8> {
    let mut header = [0; 48];
    (header[0], header[1], header[8]) = (0x43, flags, 0x80);
    message(&header, text)
}

/// Login requests whose flags and text are made of these bytes.
fn login_parts(bytes: &[u8]) -> Vec<u8> {
    let names = format!("InitiatorName=iqn.1993-08.org.debian:01:1\0TargetName={NAME}\0AuthMethod=CHAP\0");
    let mut sent = login(0x00, names.as_bytes());
    for part in bytes.chunks(64) {
        sent.extend(login(part[0], &part[1..]));
    }
    sent
}

/// Serves commands made of these bytes, 9 for each, after a login, and checks every answer.
fn check_session(options: u8, bytes: &[u8]) {
    let text = format!(
        "InitiatorName=iqn.1993-08.org.debian:01:1\0TargetName={NAME}\0ImmediateData=Yes\0InitialR2T={}\0\
         MaxRecvDataSegmentLength={}\0",
        if options & 2 != 0 { "No" } else { "Yes" },
        [512, 8192, 1000, 256 << 10][usize::from(options >> 2 & 3)]
    );
    let mut sent = login(0x87, text.as_bytes());
    let mut expected = BTreeMap::new();
    for (tag, part) in (1u32..).zip(bytes.chunks_exact(9).take(40)) {
        let (opcode, request) = request_of(tag, part, options & 2 != 0);
        sent.extend(request);
        expected.insert(tag, opcode);
    }
    let mut header = [0; 48];
    (header[0], header[1]) = (0x46, 0x80);
    header[16..20].copy_from_slice(&0x7777u32.to_be_bytes());
    sent.extend(message(&header, &[]));
    expected.insert(0x7777, 0x26);
    check_answers(&serve(&sent, None), expected);
}

/// A message made of 9 bytes, and the opcode of its answer.
fn request_of(tag: u32, bytes: &[u8], unsolicited: bool) -> (u8, Vec<u8>) {
    let mut header = [0; 48];
    header[1] = 0x80;
    header[16..20].copy_from_slice(&tag.to_be_bytes());
    header[20..24].copy_from_slice(&[0xff; 4]);
    header[24..28].copy_from_slice(&(tag - 1).to_be_bytes());
    let amount = usize::from(u16::from_be_bytes([bytes[7], bytes[8]]));
    match bytes[0] & 7 {
        0 => return (0x20, message(&header, &vec![0x5a; amount % 512])),
        1 => {
            (header[0], header[1]) = (0x02, 0x80 | bytes[1] & 7);
            if header[1] == 0x87 {
                // A cold reset ends the session.
                header[1] = 0x81;
            }
            return (0x22, message(&header, &[]));
        }
        2 => {
            header[0] = 0x04;
            return (0x24, message(&header, b"SendTargets=\0"));
        }
        _ => header[0] = 0x01,
    }
    // A command descriptor block: an opcode of the table or any, then bytes at choice.
    const CODES: [u8; 16] =
        [0x28, 0x2a, 0x88, 0x8a, 0x89, 0x42, 0x93, 0x9e, 0x5e, 0x5f, 0x12, 0x1a, 0x8f, 0x41, 0xa3, 0xa0];
    let code = if bytes[1] & 0x80 == 0 { CODES[usize::from(bytes[1] & 15)] } else { bytes[2] };
    header[32] = code;
    header[33] = bytes[2] & 0x1f;
    (header[37], header[40], header[45]) = (bytes[3], bytes[4], bytes[5]);
    (header[39], header[41]) = (bytes[5] & 1, bytes[6]);
    let flags = [0, 0x40, 0x20, 0x20][usize::from(bytes[0] >> 6)];
    header[1] |= flags;
    let length = if flags == 0 { 0 } else { amount };
    header[20..24].copy_from_slice(&(length as u32).to_be_bytes());
    if flags != 0x20 {
        return (0x21, message(&header, &[]));
    }
    let data = vec![bytes[6]; length];
    if !unsolicited || bytes[0] & 8 == 0 {
        return (0x21, message(&header, &data));
    }
    // A part with the command, and the rest without a request.
    header[1] &= 0x7f;
    let (first, rest) = data.split_at(length / 2);
    let mut sent = message(&header, first);
    let mut out = [0; 48];
    (out[0], out[1]) = (0x05, 0x80);
    out[16..20].copy_from_slice(&tag.to_be_bytes());
    out[20..24].copy_from_slice(&[0xff; 4]);
    out[40..44].copy_from_slice(&(first.len() as u32).to_be_bytes());
    sent.extend(message(&out, rest));
    (0x21, sent)
}

fn word(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(header[at..at + 4].try_into().unwrap())
}

/// Checks that every message is answered once.
fn check_answers(mut bytes: &[u8], mut expected: BTreeMap<u32, u8>) {
    let (mut status, mut is_first) = (0, true);
    let mut received: BTreeMap<u32, u32> = BTreeMap::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(48);
        let length = word(header, 4) as usize;
        bytes = &rest[length.next_multiple_of(4)..];
        let has_status = header[0] != 0x25 || header[1] & 1 != 0;
        if has_status {
            assert!(is_first || word(header, 24) == status, "a gap in the numbers of statuses");
            status = word(header, 24) + 1;
        }
        if std::mem::take(&mut is_first) {
            assert_eq!((header[0], header[1], header[36]), (0x23, 0x87, 0), "the login is refused");
            continue;
        }
        let tag = word(header, 16);
        let wanted = *expected.get(&tag).expect("an open request");
        match (header[0], wanted) {
            (0x25, 0x21) => {
                let offset = received.entry(tag).or_default();
                assert_eq!(word(header, 40), *offset, "data in order");
                *offset += length as u32;
            }
            (opcode, wanted) => assert_eq!(opcode, wanted),
        }
        if has_status {
            expected.remove(&tag);
        }
    }
    // Aborted commands have no answer.
    let had_aborts = expected.values().all(|opcode| *opcode == 0x21);
    assert!(had_aborts, "without an answer: {expected:?}");
}
