//! Clients that violate the protocol, stall, or never read.

use std::time::Duration;

use export::nbd::{DisconnectReason, Limits, ProtocolViolation};
use proptest::prelude::*;
use reactor::Backend;

use crate::client::*;
use crate::server::{Server, on_each_backend, with_limits};

/// A well-behaved client, before and after.
struct Bystander(RawClient);

impl Bystander {
    fn new(server: &Server) -> Self {
        let mut bystander = Self(server.client());
        bystander.look();
        bystander
    }

    fn look(&mut self) {
        self.0.write(0, 1, 1 << 20, &[0xbb; 4096]);
        assert_eq!(self.0.result(1), 0);
        assert_eq!(self.0.read(0, 1 << 20, 4096), Ok(vec![0xbb; 4096]));
    }
}

/// Runs a client on each backend, and checks that its connection ends for this reason.
fn ends_with(expected: &DisconnectReason, act: impl Fn(&Server) -> Option<RawClient>) {
    on_each_backend(|server| {
        let mut bystander = Bystander::new(&server);
        let client = act(&server);
        assert_eq!(server.end(), *expected);
        if let Some(mut client) = client {
            client.read_to_end();
        }
        bystander.look();
        assert!(server.no_end());
    });
}

fn greeted(server: &Server) -> RawClient {
    let mut client = server.connect();
    client.greet(3);
    client
}

#[test]
fn other_protocols() {
    ends_with(&ProtocolViolation::BadMagic(0x2f20_4854_5450_2f31).into(), |server| {
        let mut client = server.connect();
        // The first four bytes are taken as flags, and are valid.
        client.send(b"\0\0\0\0/ HTTP/1.1\r\nHost: x\r\n\r\n");
        Some(client)
    });
    ends_with(&ProtocolViolation::UnknownFlags(0x4745_5420).into(), |server| {
        let mut client = server.connect();
        client.send(b"GET / HTTP/1.1\r\n\r\n");
        Some(client)
    });
    ends_with(&ProtocolViolation::UnknownFlags(7).into(), |server| {
        let mut client = server.connect();
        client.greet(7);
        Some(client)
    });
    ends_with(&ProtocolViolation::BadMagic(0x2560_9512).into(), |server| {
        let mut client = server.client();
        let mut bytes = request(0, READ, 1, 0, 512);
        bytes[3] -= 1;
        client.send(&bytes);
        Some(client)
    });
}

#[test]
fn excessive_lengths() {
    for length in [(64 << 10) + 1, u32::MAX] {
        ends_with(&ProtocolViolation::OptionLength(length).into(), |server| {
            let mut client = greeted(server);
            client.send(&[b"IHAVEOPT\0\0\0\x07".as_slice(), &length.to_be_bytes()].concat());
            Some(client)
        });
    }
    for length in [(32 << 20) + 1, u32::MAX] {
        ends_with(&ProtocolViolation::PayloadLength(length).into(), |server| {
            let mut client = server.client();
            client.request(0, WRITE, 1, 0, length);
            Some(client)
        });
    }
    ends_with(&ProtocolViolation::BadName("a name is longer than 4096 bytes").into(), |server| {
        let mut client = greeted(server);
        client.send_option(OPT_EXPORT_NAME, &[b'x'; 4097]);
        Some(client)
    });
    ends_with(&ProtocolViolation::BadName("a name is not UTF-8").into(), |server| {
        let mut client = greeted(server);
        client.send_option(OPT_EXPORT_NAME, b"\xff");
        Some(client)
    });
}

#[test]
fn an_endless_handshake() {
    ends_with(&ProtocolViolation::TooManyOptions.into(), |server| {
        let mut client = greeted(server);
        for _ in 0..4096 {
            assert_eq!(client.option_result(4, b""), REP_ERR_UNSUP);
        }
        Some(client)
    });
}

#[test]
fn disconnects_within_messages() {
    let option = [b"IHAVEOPT\0\0\0\x07\0\0\0\x0a", info("disk", &[]).as_slice()].concat();
    for length in [1, 4 + 1, 4 + 16, 4 + 16 + 5] {
        ends_with(&DisconnectReason::Truncated, |server| {
            let mut client = server.connect();
            client.receive(18);
            client.send(&[b"\0\0\0\x03", option.as_slice()].concat()[..length]);
            None
        });
    }
    let write = [request(0, WRITE, 1, 0, 2 << 20), vec![1; 2 << 20]].concat();
    for length in [1, 27, 28, 28 + 511, 28 + (1 << 20), 28 + (1 << 20) + 1] {
        ends_with(&DisconnectReason::Truncated, |server| {
            let mut client = server.client();
            client.send(&write[..length]);
            None
        });
    }
    // Within the payload of a refused request.
    ends_with(&DisconnectReason::Truncated, |server| {
        let mut client = server.client();
        client.send(&request(0, WRITE, 1, 1, 2 << 20));
        client.send(&[1; 1000]);
        None
    });
    // Closing between messages is allowed.
    ends_with(&DisconnectReason::Closed, |server| {
        let mut client = server.connect();
        client.receive(18);
        None
    });
    ends_with(&DisconnectReason::Closed, |server| {
        greeted(server);
        None
    });
    ends_with(&DisconnectReason::Closed, |server| {
        server.client();
        None
    });
}

#[test]
fn silent_and_endless_handshakes_time_out() {
    let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
    with_limits(&limits, |server| {
        let mut silent = server.connect();
        assert_eq!(server.end(), DisconnectReason::HandshakeTimeout);
        assert_eq!(silent.read_to_end(), 18);
        let mut slow = server.connect();
        slow.greet(3);
        slow.send(b"IHAVE");
        assert_eq!(server.end(), DisconnectReason::HandshakeTimeout);
        assert!(slow.is_closed());
    });
}

#[test]
fn a_client_that_does_not_read_affects_itself_only() {
    let limits = Limits { stalled: Duration::from_millis(100), payload_bytes: 4 << 20, ..Limits::default() };
    with_limits(&limits, |server| {
        let mut client = server.client();
        // 10 GiB in total, if the server permitted it.
        for cookie in 0..10_000 {
            if !client.try_send(&request(DF, READ, cookie, 0, 1 << 20)) {
                break;
            }
        }
        let mut bystander = Bystander::new(&server);
        assert_eq!(server.end(), DisconnectReason::Stalled);
        bystander.look();
        let reads = server.with(|fixture| fixture.disk.counters().reads);
        // The payload in flight, the socket's buffers, and the read of the bystander.
        assert!(reads < 20, "{reads} reads were begun");
    });
}

#[test]
fn connections_keep_their_own_memory_when_the_shared_memory_is_used_up() {
    let limits = Limits { stalled: Duration::from_millis(100), shared_bytes: 8 << 20, ..Limits::default() };
    with_limits(&limits, |server| {
        let mut client = server.client();
        for cookie in 0..20 {
            client.request(DF, READ, cookie, 0, 1 << 20);
        }
        // One read uses the connection's own memory, the others use the shared memory.
        server.wait_until(|fixture| fixture.disk.counters().reads == 9);
        let mut bystander = Bystander::new(&server);
        assert_eq!(bystander.0.read(0, 0, 1 << 20).map(|data| data.len()), Ok(1 << 20));
        // More than the connection's own memory: it waits for the other connection.
        bystander.0.request(DF, READ, 1, 0, 2 << 20);
        assert_eq!(server.end(), DisconnectReason::Stalled);
        assert_eq!(bystander.0.read_reply(1, 0, 2 << 20).map(|data| data.len()), Ok(2 << 20));
    });
}

#[test]
fn small_writes_hold_little_more_memory_than_they_are_charged() {
    const WRITES: u64 = 100;
    const FILLER: u32 = 511 << 10;
    let limits = Limits { payload_bytes: 4 << 20, ..Limits::default() };
    with_limits(&limits, |server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        // A refused request is sent between two writes that wait for the volume: its payload fills
        // the receive memory of the write before.
        let mut sender = client.second_handle();
        let sending = std::thread::spawn(move || {
            for cookie in 0..WRITES {
                sender.write(0, cookie, cookie * 512, &[cookie as u8; 512]);
                sender.write(0, WRITES + cookie, 1, &vec![0; FILLER as usize]);
            }
        });
        server.wait_until(|fixture| fixture.disk.faults().held_writes() >= 8);
        // While the other connections are served, nothing more is received from this one.
        let mut others: Vec<RawClient> = (0..4).map(|_| server.client()).collect();
        for _ in 0..400 {
            for other in &mut others {
                assert_eq!(other.read(0, 1 << 20, 512), Ok(vec![0; 512]));
            }
        }
        let held = server.with(|fixture| fixture.disk.faults().held_write_bytes());
        // The payload in flight, and the receive memory that is not charged yet: the current part
        // and the one before.
        assert!(held <= (4 << 20) + 2 * (512 << 10), "held writes keep {} KiB", held >> 10);
        server.with(|fixture| fixture.disk.faults().release_writes());
        let mut answered: Vec<u64> = (0..2 * WRITES).map(|_| client.reply().cookie()).collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..2 * WRITES));
        sending.join().unwrap();
        for block in [0, 1, WRITES - 1] {
            assert_eq!(client.read(0, block * 512, 512), Ok(vec![block as u8; 512]));
        }
    });
}

#[test]
fn a_client_that_does_not_read_errors_affects_itself_only() {
    let limits = Limits { stalled: Duration::from_millis(100), ..Limits::default() };
    with_limits(&limits, |server| {
        let mut client = server.client();
        let many: Vec<u8> = (0..1000).flat_map(|cookie| request(0, READ, cookie, 1, 1)).collect();
        let mut sender = client.second_handle();
        let sending = std::thread::spawn(move || {
            let mut sent = 0;
            while sender.try_send(&many) {
                sent += many.len();
            }
            sent
        });
        assert_eq!(server.end(), DisconnectReason::Stalled);
        let taken = sending.join().unwrap();
        assert!(taken < 4 << 20, "{taken} bytes of requests were taken without an answer being read");
        client.read_to_end();
        Bystander::new(&server);
    });
}

#[test]
fn a_stalled_client_is_disconnected_and_an_idle_one_is_not() {
    let limits = Limits { stalled: Duration::from_millis(50), ..Limits::default() };
    with_limits(&limits, |server| {
        let mut idle = server.client();
        for length in [10, 28 + 100, 28 + (1 << 20), 28 + (1 << 20) + 100] {
            let mut client = server.client();
            client.send(&[request(0, WRITE, 1, 0, 2 << 20), vec![1; 2 << 20]].concat()[..length]);
            if length == 28 + (1 << 20) {
                // Between two parts of a payload, the timeout starts again.
                client.send(&[1]);
            }
            assert_eq!(server.end(), DisconnectReason::Stalled);
            assert!(client.is_closed());
        }
        assert!(server.no_end());
        assert_eq!(idle.read(0, 0, 512).map(|data| data.len()), Ok(512));
        // A slow volume is not a stall.
        server.with(|fixture| fixture.disk.faults().hold_writes());
        idle.write(0, 1, 0, &[1; 512]);
        let mut stalled = server.client();
        stalled.send(&[0x25]);
        assert_eq!(server.end(), DisconnectReason::Stalled);
        assert!(server.no_end());
        server.with(|fixture| fixture.disk.faults().release_writes());
        assert_eq!(idle.result(1), 0);
    });
}

/// Almost valid requests.
fn almost_valid_requests() -> impl Strategy<Value = Vec<u8>> {
    let one = (0..64u16, 0..9u16, any::<u64>(), 0..1u64 << 27, 0..1u32 << 14, any::<bool>());
    let requests = prop::collection::vec(one, 1..50).prop_map(|requests| {
        let mut bytes = Vec::new();
        for (flags, kind, cookie, offset, length, aligned) in requests {
            let mask = if aligned { !511 } else { !0 };
            bytes.extend(request(flags, kind, cookie, offset & mask, length & mask as u32));
            if kind == WRITE {
                bytes.extend(vec![0xee; (length & mask as u32) as usize]);
            }
        }
        bytes
    });
    (requests, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)).prop_map(
        |(mut bytes, damage)| {
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

#[test]
fn arbitrary_bytes() {
    let server = Server::start(Backend::Auto, Limits::default(), 512);
    let mut bystander = Bystander::new(&server);
    let config = ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = prop::test_runner::TestRunner::new(config);
    let bytes = prop_oneof![prop::collection::vec(any::<u8>(), 0..2000), almost_valid_requests()];
    let in_use = any::<bool>();
    runner
        .run(&(bytes, in_use), |(bytes, in_use)| {
            let mut client = if in_use { server.client() } else { greeted(&server) };
            let mut reader = client.second_handle();
            let reading = std::thread::spawn(move || reader.read_to_end());
            client.try_send(&bytes);
            client.hang_up();
            reading.join().unwrap();
            let end = server.end();
            let expected = matches!(
                end,
                DisconnectReason::ProtocolViolation(_)
                    | DisconnectReason::Truncated
                    | DisconnectReason::Closed
                    | DisconnectReason::Disconnected
                    | DisconnectReason::Refused { .. }
            );
            prop_assert!(expected, "{end:?}");
            Ok(())
        })
        .unwrap();
    server.with(|fixture| fixture.disk.set_read_only(false));
    bystander.look();
}
