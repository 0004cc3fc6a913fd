//! Concurrent requests, and requests of disconnected clients.

use export::nbd::{DisconnectReason, Limits};

use crate::client::*;
use crate::server::{on_each_backend, with_limits};

#[test]
fn a_slow_request_delays_no_other() {
    on_each_backend(|server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        client.write(0, 1, 0, &[1; 4096]);
        assert_eq!(client.read(0, 0, 4096), Ok(vec![0; 4096]));
        client.request(0, FLUSH, 2, 0, 0);
        assert_eq!(client.result(2), 0);
        server.with(|fixture| fixture.disk.faults().release_writes());
        assert_eq!(client.result(1), 0);
        assert_eq!(client.read(0, 0, 4096), Ok(vec![1; 4096]));
    });
}

#[test]
fn received_payload_is_held_until_it_is_written() {
    on_each_backend(|server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        for block in 0..100u8 {
            client.write(0, block.into(), u64::from(block) * 4096, &[block; 4096]);
        }
        server.wait_until(|fixture| fixture.disk.faults().held_writes() == 100);
        // Received while the others are held.
        for _ in 0..200 {
            client.request(0, TRIM, 1000, 0, 7);
            assert_eq!(client.result(1000), EINVAL);
        }
        server.with(|fixture| fixture.disk.faults().release_writes());
        let mut answered: Vec<u64> = (0..100).map(|_| client.reply().cookie()).collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..100));
        for block in 0..100u8 {
            assert_eq!(client.read(0, u64::from(block) * 4096, 4096), Ok(vec![block; 4096]));
        }
    });
}

#[test]
fn requests_in_flight_are_limited() {
    with_limits(&Limits { requests: 4, ..Limits::default() }, |server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        for cookie in 0..6 {
            client.write(0, cookie, cookie * 512, &[1; 512]);
        }
        client.request(0, READ, 6, 0, 512);
        server.wait_until(|fixture| fixture.disk.faults().held_writes() == 4);
        // A refusal needs a slot too. Another connection has its own.
        let mut other = server.client();
        assert_eq!(other.read(0, 0, 512), Ok(vec![0; 512]));
        server.with(|fixture| {
            let counters = fixture.disk.counters();
            assert_eq!((counters.writes, counters.reads), (4, 1));
            fixture.disk.faults().release_writes();
        });
        let mut answered: Vec<u64> = (0..7).map(|_| client.reply().cookie()).collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..7));
    });
}

#[test]
fn payload_in_flight_is_limited() {
    with_limits(&Limits { payload_bytes: 1 << 20, ..Limits::default() }, |server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        let mut sender = client.second_handle();
        let sending = std::thread::spawn(move || {
            for cookie in 0..4 {
                sender.write(0, cookie, cookie << 20, &[1; 512 << 10]);
            }
            // A write that is larger than the payload limit.
            sender.write(0, 4, 8 << 20, &[2; 5 << 20]);
        });
        server.wait_until(|fixture| fixture.disk.faults().held_writes() == 2);
        assert_eq!(server.client().read(0, 0, 512), Ok(vec![0; 512]));
        server.with(|fixture| {
            assert_eq!(fixture.disk.counters().writes, 2);
            fixture.disk.faults().release_writes();
        });
        let mut answered: Vec<u64> = (0..5).map(|_| client.reply().cookie()).collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..5));
        sending.join().unwrap();
        assert!(client.read(0, 8 << 20, 5 << 20) == Ok(vec![2; 5 << 20]));
    });
}

#[test]
fn a_long_write_begins_before_it_is_received() {
    on_each_backend(|server| {
        let mut client = server.client();
        client.send(&request(0, WRITE, 1, 0, 4 << 20));
        client.send(&vec![1; 3 << 20]);
        server.wait_until(|fixture| fixture.disk.counters().writes == 3);
        client.send(&vec![2; 1 << 20]);
        assert_eq!(client.result(1), 0);
        assert!(client.read(0, 3 << 20, 1 << 20) == Ok(vec![2; 1 << 20]));
    });
}

#[test]
fn a_disconnect_waits_for_requests_in_flight() {
    on_each_backend(|server| {
        for says_goodbye in [true, false] {
            let mut client = server.client();
            server.with(|fixture| fixture.disk.faults().hold_writes());
            client.write(0, 1, 0, &[1; 512]);
            client.write(0, 2, 0, &vec![1; 3 << 20]);
            server.wait_until(|fixture| fixture.disk.faults().held_writes() == 4);
            if says_goodbye {
                client.request(0, DISC, 3, 0, 0);
            } else {
                client.hang_up();
            }
            server.with(|fixture| fixture.disk.faults().release_writes());
            let mut answered = [client.reply(), client.reply()].map(|reply| reply.cookie());
            answered.sort_unstable();
            assert_eq!(answered, [1, 2]);
            assert!(client.is_closed());
            assert_eq!(
                server.end(),
                if says_goodbye { DisconnectReason::Disconnected } else { DisconnectReason::Closed }
            );
        }
    });
}

#[test]
fn a_disconnect_does_not_truncate_replies() {
    on_each_backend(|server| {
        let mut client = server.client();
        client.write(0, 1, 0, &[1; 1 << 20]);
        assert_eq!(client.result(1), 0);
        for flags in [DF, 0] {
            let mut client = server.client();
            for cookie in 0..16 {
                client.request(flags, READ, cookie, 0, 1 << 20);
            }
            // Until the last reply is queued, and the first is being sent.
            let reads = if flags == DF { 16 } else { 32 };
            server.wait_until(move |fixture| fixture.disk.counters().reads == reads);
            client.request(0, DISC, 99, 0, 0);
            let mut seen = 0;
            while seen < 16 {
                let Reply::Data { data, .. } = client.reply() else { panic!("not data") };
                assert!(data.len() == 1 << 20 && data.iter().all(|byte| *byte == 1));
                seen += 1;
            }
            assert!(client.is_closed());
            assert_eq!(server.end(), DisconnectReason::Disconnected);
        }
    });
}

#[test]
fn requests_are_completed_without_their_client() {
    on_each_backend(|server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        client.write(FUA, 1, 0, &[7; 4096]);
        // A write with an incomplete payload.
        client.send(&request(0, WRITE, 2, 1 << 20, 3 << 20));
        client.send(&vec![8; 2 << 20]);
        server.wait_until(|fixture| fixture.disk.faults().held_writes() == 3);
        drop(client);
        assert!(server.no_end());
        server.with(|fixture| fixture.disk.faults().release_writes());
        assert_eq!(server.end(), DisconnectReason::Truncated);
        assert_eq!(server.with(|fixture| fixture.disk.counters().flushes), 1);
        let mut client = server.client();
        assert_eq!(client.read(0, 0, 4096), Ok(vec![7; 4096]));
        assert!(client.read(0, 1 << 20, 3 << 20) == Ok([vec![8; 2 << 20], vec![0; 1 << 20]].concat()));
    });
}

#[test]
fn several_connections_see_the_same_volume() {
    on_each_backend(|server| {
        let mut clients: Vec<RawClient> = (0..8).map(|_| server.client()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.write(0, 1, 512 * index as u64, &[index as u8; 512]);
        }
        for client in &mut clients {
            assert_eq!(client.result(1), 0);
        }
        let expected: Vec<u8> = (0..8).flat_map(|index| [index; 512]).collect();
        for client in &mut clients {
            assert_eq!(client.read(0, 0, 4096), Ok(expected.clone()));
        }
    });
}
