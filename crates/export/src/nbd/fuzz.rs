//! Fuzz target: whole connections, from the client's first byte to the end.
//!
//! A connection ends when its client closes it. Requests after a valid handshake are each answered
//! once, by well-formed replies that cover the requested range.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use reactor::{Backend, Buffer, Clock, Platform, Reactor, Stream, SystemClock};

use super::*;
use crate::transport::testing::receive_all;
use crate::{MemoryExports, MemoryVolume};

const SIZE: u64 = 4 << 20;

::fuzz::target!(nbd_connection, |bytes| match bytes {
    [0, rest @ ..] => drop(serve(rest)),
    [options, rest @ ..] => check_session(*options, rest),
    [] => {}
});

struct FuzzServer {
    platform: Rc<Platform>,
    reactor: Reactor,
}

thread_local! {
    static SERVER: FuzzServer = {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let platform = Platform::new(Backend::Auto, clock.clone()).unwrap();
        FuzzServer { reactor: Reactor::new(platform.clone(), clock), platform }
    };
}

/// Serves a client that sends these bytes and closes its half of the connection. Returns the reason
/// of the disconnect and the bytes that the client received.
fn serve(bytes: &[u8]) -> (DisconnectReason, Vec<u8>) {
    SERVER.with(|server| {
        server.reactor.run(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let stream = |socket: UnixStream| Stream::from_fd(&server.platform, socket.into()).unwrap();
            let client = Rc::new(stream(theirs));
            let (writer, sent) = (client.clone(), Buffer::copy_of(bytes).span());
            let writing = server.reactor.spawn(async move {
                // A server that ends the connection early does not read the rest.
                let _ = writer.write_all(&[sent]).await;
                let _ = writer.shutdown();
            });
            let reading = server.reactor.spawn(receive_all(client));
            let disk = MemoryVolume::new(SIZE, 512);
            let exports = MemoryExports::default();
            exports.insert("disk", "the only one", &disk);
            let limits = Limits::default();
            let reserve = Reserve::new(limits.shared_bytes);
            let end = serve_connection(stream(ours), &exports, &limits, &reserve, &Stop::default()).await;
            writing.await;
            (end, reading.await)
        })
    })
}

/// A request of the client.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: u16,
    offset: u64,
    length: u32,
}

/// Encodes a handshake option.
fn option(code: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &code.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Serves requests made of these bytes, 9 for each, after a handshake with these options, and
/// checks every reply.
fn check_session(options: u8, bytes: &[u8]) {
    let structured = options & 2 != 0;
    let mut sent = 3u32.to_be_bytes().to_vec();
    if structured {
        sent.extend(option(8, &[]));
        let query = [string("disk"), 1u32.to_be_bytes().to_vec(), string("base:allocation")].concat();
        sent.extend(option(10, &query));
    }
    sent.extend(option(7, &[string("disk"), vec![0, 0]].concat()));
    let mut asked = BTreeMap::new();
    for (cookie, request) in (1u64..).zip(bytes.chunks_exact(9).take(40)) {
        let one = request_of(request);
        let flags = u16::from(request[0] >> 3);
        sent.extend(0x2560_9513u32.to_be_bytes());
        sent.extend(flags.to_be_bytes());
        sent.extend(one.kind.to_be_bytes());
        sent.extend(cookie.to_be_bytes());
        sent.extend(one.offset.to_be_bytes());
        sent.extend(one.length.to_be_bytes());
        if one.kind == 1 {
            sent.resize(sent.len() + one.length as usize, request[0]);
        }
        asked.insert(cookie, one);
    }
    sent.extend([0x2560_9513u32.to_be_bytes().as_slice(), &[0, 0, 0, 2], &[0; 20]].concat());
    let (end, received) = serve(&sent);
    assert_eq!(end, DisconnectReason::Disconnected);
    let replies = after_handshake(&received, structured);
    check_replies(replies, structured, &asked);
}

fn request_of(bytes: &[u8]) -> Asked {
    let kind = [0, 1, 3, 4, 6, 7, 9, 0][usize::from(bytes[0] & 7)];
    let offset = u64::from(u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]])) << (bytes[4] & 15);
    let length = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]) << (bytes[8] & 1);
    let length = match (kind, bytes[8] & 2) {
        (1, _) => length % (300 << 10),
        (_, 0) => length,
        _ => length & !511,
    };
    Asked { kind, offset: if bytes[4] & 16 == 0 { offset } else { offset & !511 }, length }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn number(bytes: &mut &[u8], size: usize) -> u64 {
    take(bytes, size).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Skips the greeting and the replies to options.
fn after_handshake(mut received: &[u8], structured: bool) -> &[u8] {
    assert_eq!(take(&mut received, 18), b"NBDMAGICIHAVEOPT\x00\x03");
    let mut left = if structured { vec![7, 10, 8] } else { vec![7] };
    while let Some(option) = left.last() {
        assert_eq!(number(&mut received, 8), 0x0003_e889_0455_65a9);
        assert_eq!(number(&mut received, 4), *option);
        let kind = number(&mut received, 4);
        let length = number(&mut received, 4) as usize;
        take(&mut received, length);
        assert!(kind < 1 << 31, "option {option} was refused");
        if kind == 1 {
            left.pop();
        }
    }
    received
}

/// Checks that every request is answered once, in full.
fn check_replies(mut bytes: &[u8], structured: bool, asked: &BTreeMap<u64, Asked>) {
    let mut open = asked.clone();
    let mut filled: BTreeMap<u64, u64> = BTreeMap::new();
    while !bytes.is_empty() {
        let magic = number(&mut bytes, 4);
        if magic == 0x6744_6698 {
            let error = number(&mut bytes, 4);
            let one = open.remove(&number(&mut bytes, 8)).expect("an open request");
            if one.kind == 0 && error == 0 {
                assert!(!structured);
                take(&mut bytes, one.length as usize);
            }
            continue;
        }
        assert!(magic == 0x668e_33ef && structured, "{magic:#x}");
        let (flags, kind) = (number(&mut bytes, 2), number(&mut bytes, 2));
        let cookie = number(&mut bytes, 8);
        let length = number(&mut bytes, 4) as usize;
        let mut payload = take(&mut bytes, length);
        let one = *open.get(&cookie).expect("an open request");
        let mut failed = false;
        match kind {
            0 => assert_eq!(length, 0),
            1 | 2 => {
                let at = number(&mut payload, 8);
                let count = if kind == 1 { payload.len() as u64 } else { number(&mut payload, 4) };
                let end = one.offset + u64::from(one.length);
                assert!(one.kind == 0 && count > 0 && at >= one.offset && at + count <= end);
                *filled.entry(cookie).or_default() += count;
            }
            5 => {
                assert!(one.kind == 7 && number(&mut payload, 4) == 1 && !payload.is_empty());
                let lengths = payload.chunks_exact(8).map(|mut one| number(&mut one, 4));
                assert!(lengths.clone().all(|length| length > 0) && lengths.sum::<u64>() > 0);
            }
            32_769 => failed = true,
            _ => panic!("a reply of kind {kind}"),
        }
        if flags & 1 != 0 {
            open.remove(&cookie);
            let expected = if one.kind == 0 && !failed { u64::from(one.length) } else { 0 };
            assert!(failed || filled.remove(&cookie).unwrap_or(0) == expected, "{one:?}");
        }
    }
    assert!(open.is_empty(), "without an answer: {open:?}");
}
