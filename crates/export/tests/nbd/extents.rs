//! Sparse reads and block status.

use export::VolumeErrorKind;

use crate::client::*;
use crate::server::{SIZE, on_each_backend};

const HOLE: u32 = 3;
const DATA: u32 = 0;

fn status(client: &mut RawClient, flags: u16, offset: u64, length: u32) -> Vec<(u32, u32)> {
    client.request(flags, BLOCK_STATUS, 3, offset, length);
    match client.reply() {
        Reply::Status { cookie: 3, extents } => extents,
        reply => panic!("{reply:?}"),
    }
}

fn fill(client: &mut RawClient, offset: u64, length: usize) {
    client.write(0, 1, offset, &vec![0xaa; length]);
    assert_eq!(client.result(1), 0);
}

#[test]
fn data_and_holes_are_reported() {
    on_each_backend(|server| {
        let mut client = server.client();
        let all = SIZE as u32;
        assert_eq!(status(&mut client, 0, 0, all), [(all, HOLE)]);
        fill(&mut client, 1 << 20, 8192);
        fill(&mut client, 3 << 20, 4096);
        let expected = [(1 << 20, HOLE), (8192, DATA), ((2 << 20) - 8192, HOLE), (4096, DATA)];
        let rest = (all - (3 << 20) - 4096, HOLE);
        assert_eq!(status(&mut client, 0, 0, all), [&expected[..], &[rest]].concat());
        assert_eq!(status(&mut client, REQ_ONE, 0, all), [(1 << 20, HOLE)]);
        assert_eq!(status(&mut client, REQ_ONE, 1 << 20, 4096), [(4096, DATA)]);
        assert_eq!(status(&mut client, 0, (1 << 20) + 4096, 8192), [(4096, DATA), (4096, HOLE)]);
    });
}

#[test]
fn a_range_longer_than_one_query_is_reported_as_one() {
    on_each_backend(|server| {
        server.with(|fixture| fixture.disk.resize(1 << 40));
        let mut client = server.client();
        let most = u32::MAX - 511;
        assert_eq!(status(&mut client, 0, 1 << 30, most), [(most, HOLE)]);
        assert_eq!(status(&mut client, REQ_ONE, 512, most), [(most, HOLE)]);
        // Data across the boundary of two queries.
        fill(&mut client, (1 << 30) - 4096, 8192);
        let before = (1 << 29) - 4096;
        let expected = [(before, HOLE), (8192, DATA), (most - before - 8192, HOLE)];
        assert_eq!(status(&mut client, 0, 1 << 29, most), expected);
    });
}

#[test]
fn a_reply_with_many_extents_is_limited() {
    on_each_backend(|server| {
        let mut client = server.client();
        for block in 0..5000u64 {
            client.write(0, block, block * 8192, &[1; 4096]);
            assert_eq!(client.result(block), 0);
        }
        let mut next = 0;
        let mut seen = Vec::new();
        while next < SIZE {
            let extents = status(&mut client, 0, next, (SIZE - next) as u32);
            assert!(!extents.is_empty() && extents.len() <= 4096);
            next += extents.iter().map(|(length, _)| u64::from(*length)).sum::<u64>();
            seen.extend(extents);
        }
        assert_eq!((next, seen.len()), (SIZE, 10_000));
    });
}

#[test]
fn large_holes_are_reported_instead_of_sent() {
    on_each_backend(|server| {
        let mut client = server.client();
        fill(&mut client, 1 << 20, 128 << 10);
        client.request(0, READ, 1, 0, 2 << 20);
        let mut parts = Vec::new();
        loop {
            match client.reply() {
                Reply::Hole { cookie: 1, done: false, offset, length } => parts.push((offset, length, true)),
                Reply::Data { cookie: 1, done: false, offset, data } => {
                    assert!(data.iter().all(|byte| *byte == 0xaa));
                    parts.push((offset, data.len() as u32, false));
                }
                Reply::None { cookie: 1 } => break,
                reply => panic!("{reply:?}"),
            }
        }
        parts.sort_unstable();
        let (border, data) = (1 << 20, 128 << 10);
        let expected =
            [(0, border, true), (border.into(), data, false), ((border + data).into(), border - data, true)];
        assert_eq!(parts, expected);
        // In one piece with DF, and for short reads.
        for (flags, length) in [(DF, 2 << 20), (0, 32 << 10)] {
            client.request(flags, READ, 2, 0, length);
            let Reply::Data { done: true, offset: 0, data, .. } = client.reply() else {
                panic!("not in one piece")
            };
            assert_eq!(data.len(), length as usize);
        }
    });
}

#[test]
fn a_long_read_that_fails_in_the_middle_returns_an_error() {
    on_each_backend(|server| {
        let mut client = server.client();
        fill(&mut client, 0, 8 << 20);
        // The query for extents fails: everything is read as data.
        server.with(|fixture| fixture.disk.faults().fail_next_read(VolumeErrorKind::Io));
        assert!(client.read(0, 0, 8 << 20) == Ok(vec![0xaa; 8 << 20]));
        for part in 0..8 {
            server.with(move |fixture| {
                let faults = fixture.disk.faults();
                // The query for extents, and the parts before.
                (0..=part).for_each(|_| faults.pass_next_read());
                faults.fail_next_read(VolumeErrorKind::Io);
            });
            assert_eq!(client.read(0, 0, 8 << 20), Err(EIO));
        }
        assert_eq!(client.read(0, 0, 4096), Ok(vec![0xaa; 4096]));
    });
}
