//! Commands over real sockets: their effects and replies.

use std::collections::BTreeMap;

use export::VolumeErrorKind;
use test_support::pattern;

use crate::client::*;
use crate::server::{SIZE, on_each_backend};

#[test]
fn written_data_is_read_back() {
    on_each_backend(|server| {
        let mut client = server.client();
        // Sizes around every limit inside the server.
        let sizes =
            [512, 4096, 32 << 10, (32 << 10) + 512, 256 << 10, 1 << 20, (1 << 20) + 512, (5 << 20) + 1024];
        for (index, size) in sizes.into_iter().enumerate() {
            let (offset, data) = (4096 * index as u64 + 512, pattern(index as u64, size));
            client.write(0, 1, offset, &data);
            assert_eq!(client.result(1), 0);
            assert!(client.read(0, offset, size as u32) == Ok(data.clone()));
            assert!(client.read(DF, offset, size as u32) == Ok(data));
        }
    });
}

#[test]
fn the_largest_payload_is_transferred() {
    on_each_backend(|server| {
        let mut client = server.client();
        let data = pattern(1, 32 << 20);
        client.write(0, 1, 512, &data);
        assert_eq!(client.result(1), 0);
        assert!(client.read(0, 512, 32 << 20) == Ok(data.clone()));
        assert!(client.read(DF, 512, 32 << 20) == Ok(data.clone()));
        let mut simple = server.connect();
        simple.negotiate_simple();
        simple.request(0, READ, 1, 512, 32 << 20);
        assert_eq!(simple.reply(), Reply::Simple { cookie: 1, error: 0 });
        assert!(simple.receive(32 << 20) == data);
    });
}

#[test]
fn simple_replies_are_simple() {
    on_each_backend(|server| {
        let mut client = server.connect();
        client.negotiate_simple();
        client.write(FUA, 1, 0, &[5; 4096]);
        assert_eq!(client.reply(), Reply::Simple { cookie: 1, error: 0 });
        client.request(0, READ, 2, 512, 1024);
        assert_eq!(client.reply(), Reply::Simple { cookie: 2, error: 0 });
        assert_eq!(client.receive(1024), [5; 1024]);
        server.with(|fixture| fixture.disk.faults().fail_next_read(VolumeErrorKind::Io));
        client.request(0, READ, 3, 0, 512);
        assert_eq!(client.reply(), Reply::Simple { cookie: 3, error: EIO });
        // In one piece at any length.
        client.request(0, READ, 4, 0, 4 << 20);
        assert_eq!(client.reply(), Reply::Simple { cookie: 4, error: 0 });
        assert!(client.receive(4 << 20)[4096..].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn errors_carry_the_message_of_the_volume() {
    on_each_backend(|server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().fail_next_write(VolumeErrorKind::NoSpace));
        client.write(0, 9, 0, &[1; 512]);
        let message = "injected by a test: no space".to_owned();
        assert_eq!(client.reply(), Reply::Error { cookie: 9, error: ENOSPC, message });
        server.with(|fixture| fixture.disk.faults().fail_next_read(VolumeErrorKind::Io));
        assert_eq!(client.read(0, 0, 4096), Err(EIO));
        for (kind, fault) in [(TRIM, ENOSPC), (WRITE_ZEROES, ENOSPC), (FLUSH, EIO), (BLOCK_STATUS, EIO)] {
            server.with(|fixture| {
                let faults = fixture.disk.faults();
                faults.fail_next_write(VolumeErrorKind::NoSpace);
                faults.fail_next_read(VolumeErrorKind::Io);
                faults.fail_next_flush(VolumeErrorKind::Io);
            });
            let length = if kind == FLUSH { 0 } else { 4096 };
            client.request(0, kind, 9, 0, length);
            assert_eq!(client.result(9), fault, "command {kind}");
            // Uses up the other injected errors.
            client.write(0, 1, 0, &[1; 512]);
            client.request(0, FLUSH, 1, 0, 0);
            client.request(0, READ, 1, 0, 512);
            while client.reply().cookie() != 1 {}
            client.reply();
            client.reply();
        }
    });
}

#[test]
fn invalid_requests_are_refused_and_the_connection_continues() {
    on_each_backend(|server| {
        let mut client = server.client();
        for (flags, kind, offset, length, expected) in [
            (0, READ, SIZE, 512, EINVAL),
            (0, READ, SIZE - 512, 1024, EINVAL),
            (0, READ, u64::MAX - 511, 512, EINVAL),
            (0, READ, 0, 0, EINVAL),
            (0, READ, 1, 512, EINVAL),
            (0, READ, 0, (32 << 20) + 512, EINVAL),
            (DF, READ, 0, (32 << 20) + 512, EOVERFLOW),
            (NO_HOLE, READ, 0, 512, EINVAL),
            (0, TRIM, SIZE, 512, EINVAL),
            (0, WRITE_ZEROES, SIZE, 512, ENOSPC),
            (0, BLOCK_STATUS, SIZE, 512, EINVAL),
            (0, FLUSH, 0, 512, EINVAL),
            (0, 5, 0, 512, EINVAL),
            (0, 99, 0, 512, EINVAL),
            (0x8000, FLUSH, 0, 0, EINVAL),
        ] {
            client.request(flags, kind, 5, offset, length);
            assert_eq!(client.result(5), expected, "{kind} of {length} at {offset}");
        }
        // The payload of a refused write is skipped.
        for (flags, offset, length, expected) in
            [(0, SIZE, 512, ENOSPC), (0, 100, 3 << 20, EINVAL), (DF, 0, 4096, EINVAL), (0, 0, 7, EINVAL)]
        {
            client.write(flags, 6, offset, &vec![1; length]);
            assert_eq!(client.result(6), expected);
        }
        assert_eq!(server.with(|fixture| fixture.disk.counters().writes), 0);
        client.write(0, 7, SIZE - 512, &[1; 512]);
        assert_eq!(client.result(7), 0);
    });
}

#[test]
fn a_read_only_export_is_not_changed() {
    on_each_backend(|server| {
        let mut client = server.client();
        client.write(0, 1, 0, &[1; 4096]);
        assert_eq!(client.result(1), 0);
        // The volume becomes read-only while it is in use.
        server.with(|fixture| fixture.disk.set_read_only(true));
        client.write(0, 2, 0, &[2; 4096]);
        assert_eq!(client.result(2), EPERM);
        client.request(0, TRIM, 3, 0, 4096);
        assert_eq!(client.result(3), EPERM);
        client.request(0, WRITE_ZEROES, 4, 0, 4096);
        assert_eq!(client.result(4), EPERM);
        client.request(0, FLUSH, 5, 0, 0);
        assert_eq!(client.result(5), 0);
        assert_eq!(client.read(0, 0, 4096), Ok(vec![1; 4096]));
    });
}

#[test]
fn a_volume_that_shrinks_is_never_read_beyond_its_end() {
    on_each_backend(|server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.resize(8192));
        assert_eq!(client.read(0, 4096, 8192), Err(EINVAL));
        assert_eq!(client.read(0, 4096, 4096), Ok(vec![0; 4096]));
        server.with(|fixture| fixture.disk.resize(2 * SIZE));
        assert_eq!(client.read(0, 2 * SIZE - 4096, 4096), Ok(vec![0; 4096]));
    });
}

#[test]
fn zeroes_and_trims_take_effect() {
    on_each_backend(|server| {
        let mut client = server.client();
        client.write(0, 1, 0, &[1; 1 << 20]);
        assert_eq!(client.result(1), 0);
        for (kind, flags, offset) in
            [(WRITE_ZEROES, 0, 0), (WRITE_ZEROES, NO_HOLE | FAST_ZERO, 8192), (TRIM, 0, 16384)]
        {
            client.request(flags, kind, 2, offset, 4096);
            assert_eq!(client.result(2), 0);
            assert_eq!(client.read(0, offset, 8192), Ok([[0; 4096], [1; 4096]].concat()));
        }
        // Longer than any payload.
        client.request(0, WRITE_ZEROES, 3, 0, SIZE as u32);
        assert_eq!(client.result(3), 0);
        assert_eq!(client.read(0, 0, 1 << 20), Ok(vec![0; 1 << 20]));
    });
}

#[test]
fn only_fua_requests_are_flushed() {
    on_each_backend(|server| {
        let mut client = server.client();
        let flushes = || server.with(|fixture| fixture.disk.counters().flushes);
        let long = vec![1; 3 << 20];
        client.write(0, 1, 0, &[1; 512]);
        client.write(0, 2, 0, &long);
        client.request(0, TRIM, 3, 0, 512);
        client.request(0, WRITE_ZEROES, 4, 0, 512);
        (1..=4).for_each(|_| assert!(matches!(client.reply(), Reply::Simple { error: 0, .. })));
        assert_eq!(flushes(), 0);
        client.write(FUA, 1, 0, &[1; 512]);
        client.write(FUA, 2, 0, &long);
        client.request(FUA, TRIM, 3, 0, 512);
        client.request(FUA, WRITE_ZEROES, 4, 0, 512);
        (1..=4).for_each(|_| assert!(matches!(client.reply(), Reply::Simple { error: 0, .. })));
        assert_eq!(flushes(), 4);
        // FUA on a read is permitted, and has no effect.
        assert_eq!(client.read(FUA, 0, 512), Ok(vec![0; 512]));
        assert_eq!(flushes(), 4);
        // A failed flush fails the write; a failed write is not flushed.
        server.with(|fixture| fixture.disk.faults().fail_next_flush(VolumeErrorKind::Io));
        client.write(FUA, 1, 0, &[1; 512]);
        assert_eq!(client.result(1), EIO);
        server.with(|fixture| fixture.disk.faults().fail_next_write(VolumeErrorKind::NoSpace));
        client.write(FUA, 2, 0, &long);
        assert_eq!(client.result(2), ENOSPC);
        assert_eq!(flushes(), 5);
    });
}

#[test]
fn many_requests_of_all_kinds_at_once_are_each_answered_once() {
    on_each_backend(|server| {
        let mut client = server.client();
        let mut expected = BTreeMap::new();
        let mut all = Vec::new();
        for cookie in 0..2000u64 {
            let offset = cookie * 4096;
            let kind = [WRITE, READ, FLUSH, TRIM, WRITE, BLOCK_STATUS, 99, READ][cookie as usize % 8];
            let length = match kind {
                FLUSH => 0,
                _ => 512 * (1 + cookie as u32 % 8),
            };
            all.extend(request(0, kind, cookie, if kind == FLUSH { 0 } else { offset }, length));
            if kind == WRITE {
                all.extend(pattern(cookie, length as usize));
            }
            expected.insert(cookie, (kind, offset, length));
        }
        let mut sender = client.second_handle();
        let sending = std::thread::spawn(move || sender.send(&all));
        let replies: Vec<_> = (0..2000).map(|_| client.reply()).collect();
        sending.join().unwrap();
        for reply in replies {
            let (kind, offset, length) = expected.remove(&reply.cookie()).expect("no answer comes twice");
            match (kind, reply) {
                (WRITE | FLUSH | TRIM, Reply::Simple { error: 0, .. }) => {}
                (READ, Reply::Data { done: true, offset: from, data, .. }) => {
                    assert_eq!((from, data.len()), (offset, length as usize));
                }
                (BLOCK_STATUS, Reply::Status { extents, .. }) => {
                    assert_eq!(extents.iter().map(|(length, _)| length).sum::<u32>(), length);
                }
                (99, Reply::Error { error: EINVAL, .. }) => {}
                (kind, reply) => panic!("command {kind} was answered with {reply:?}"),
            }
        }
        assert!(expected.is_empty());
        for cookie in (0..2000u64).filter(|cookie| cookie % 4 == 0) {
            let length = 512 * (1 + cookie as u32 % 8);
            assert_eq!(client.read(0, cookie * 4096, length), Ok(pattern(cookie, length as usize)));
        }
    });
}
