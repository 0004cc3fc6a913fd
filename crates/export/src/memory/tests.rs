//! Compares memory volumes with plain arrays, and tests their fault hooks.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use reactor::Buffer;

use super::*;

/// Returns the result of a future that completes at its first poll.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("an operation of a memory volume did not complete immediately"),
    }
}

fn read(volume: &MemoryVolume, offset: u64, len: usize) -> Vec<u8> {
    let span = Buffer::new(len).span();
    now(volume.read(offset, &span)).unwrap();
    span.peek(<[u8]>::to_vec)
}

fn write(volume: &MemoryVolume, offset: u64, byte: u8, len: usize) -> Result<(), VolumeError> {
    now(volume.write(offset, &Buffer::copy_of(&vec![byte; len]).span()))
}

#[derive(Clone, Debug)]
enum Change {
    Write(u8),
    Zero,
    Discard,
}

/// Sectors of the tested volumes, which end within a block of the third chunk.
const SECTORS: u64 = 2 * 2048 + 13;

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![(1u8..).prop_map(Change::Write), Just(Change::Zero), Just(Change::Discard)]
}

/// Returns a range of sectors, usually near a chunk boundary.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let start = prop_oneof![0..SECTORS, 2000..2100u64, 4000..SECTORS];
    let length = prop_oneof![1..30u64, 1..SECTORS];
    (start, length).prop_map(|(start, length)| (start, length.min(SECTORS - start)))
}

proptest! {
    #[test]
    fn reads_and_extents_agree_with_a_plain_array(changes in prop::collection::vec((change(), range()), 1..30)) {
        let volume = MemoryVolume::new(SECTORS * 512, 512);
        let mut plain = vec![0u8; (SECTORS * 512) as usize];
        let mut blocks = BTreeSet::new();
        for (change, (start, length)) in changes {
            let (offset, bytes) = (start * 512, length * 512);
            let range = offset as usize..(offset + bytes) as usize;
            match change {
                Change::Write(byte) => {
                    write(&volume, offset, byte, bytes as usize).unwrap();
                    plain[range].fill(byte);
                    blocks.extend(offset / 4096..(offset + bytes).div_ceil(4096));
                }
                Change::Zero | Change::Discard => {
                    match change {
                        Change::Zero => now(volume.write_zeroes(offset, bytes)).unwrap(),
                        _ => now(volume.discard(offset, bytes)).unwrap(),
                    }
                    plain[range].fill(0);
                    for block in offset.div_ceil(4096)..(offset + bytes) / 4096 {
                        blocks.remove(&block);
                    }
                }
            }
        }
        prop_assert!(read(&volume, 0, plain.len()) == plain);
        let mut at = 0;
        for extent in now(volume.extents(0, SECTORS * 512)).unwrap() {
            for sector in (at..at + extent.length).step_by(512) {
                prop_assert_eq!(blocks.contains(&(sector / 4096)), extent.data, "at {}", sector);
            }
            at += extent.length;
        }
        prop_assert_eq!(at, SECTORS * 512);
        // Any part of the list equals the list of that part.
        let (from, to) = (2045 * 512, 2060 * 512);
        let part = now(volume.extents(from, to - from)).unwrap();
        prop_assert_eq!(part.iter().map(|extent| extent.length).sum::<u64>(), to - from);
    }
}

#[test]
fn only_written_data_takes_memory() {
    let volume = MemoryVolume::new(1 << 60, 512);
    write(&volume, (1 << 60) - 512, 7, 512).unwrap();
    assert_eq!(read(&volume, (1 << 60) - 1024, 1024), [[0; 512], [7; 512]].concat());
    assert_eq!(volume.shared.chunks.borrow().extents(0, 1 << 60).len(), 2);
    now(volume.write_zeroes(0, 1 << 60)).unwrap();
    assert_eq!(now(volume.extents(0, 1 << 60)).unwrap(), [Extent { length: 1 << 60, data: false }]);
}

#[test]
fn invalid_requests_are_refused() {
    let volume = MemoryVolume::new(8192, 4096);
    let kind = |result: Result<(), VolumeError>| result.unwrap_err().kind();
    assert_eq!(kind(write(&volume, 512, 1, 4096)), VolumeErrorKind::Invalid);
    assert_eq!(kind(write(&volume, 4096, 1, 512)), VolumeErrorKind::Invalid);
    assert_eq!(kind(write(&volume, 8192, 1, 4096)), VolumeErrorKind::Invalid);
    assert_eq!(kind(now(volume.discard(u64::MAX - 4095, 4096))), VolumeErrorKind::Invalid);
    assert_eq!(kind(now(volume.write_zeroes(4096, u64::MAX - 4095))), VolumeErrorKind::Invalid);
    volume.set_read_only(true);
    assert_eq!(kind(write(&volume, 0, 1, 4096)), VolumeErrorKind::ReadOnly);
    assert_eq!(read(&volume, 0, 8192), [0; 8192]);
}

#[test]
fn shrinking_discards_the_data_beyond_the_end() {
    let volume = MemoryVolume::new(8192, 512);
    write(&volume, 0, 1, 8192).unwrap();
    volume.resize(1024);
    assert!(write(&volume, 1024, 1, 512).is_err());
    volume.resize(8192);
    assert_eq!(read(&volume, 0, 8192), [vec![1; 1024], vec![0; 7168]].concat());
}

#[test]
fn faults_are_injected() {
    let volume = MemoryVolume::new(4096, 512);
    volume.faults().fail_next_write(VolumeErrorKind::NoSpace);
    volume.faults().fail_next_flush(VolumeErrorKind::Io);
    assert_eq!(write(&volume, 0, 1, 512).unwrap_err().kind(), VolumeErrorKind::NoSpace);
    assert_eq!(now(volume.flush()).unwrap_err().kind(), VolumeErrorKind::Io);
    write(&volume, 0, 1, 512).unwrap();
    now(volume.flush()).unwrap();

    volume.faults().hold_writes();
    let data = Buffer::copy_of(&[2; 512]).span();
    let mut held = pin!(volume.write(0, &data));
    let mut context = Context::from_waker(Waker::noop());
    assert!(held.as_mut().poll(&mut context).is_pending());
    assert_eq!((volume.faults().held_writes(), read(&volume, 0, 512)), (1, vec![1; 512]));
    volume.faults().release_writes();
    assert_eq!(held.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    assert_eq!((volume.faults().held_writes(), read(&volume, 0, 512)), (0, vec![2; 512]));
    assert_eq!(volume.counters().writes, 3);
}

#[test]
fn a_range_is_written_if_it_holds_the_expected_bytes() {
    let volume = MemoryVolume::new(8 << 20, 512);
    write(&volume, 1 << 20, 3, 1024).unwrap();
    let span = |byte: u8, len| Buffer::copy_of(&vec![byte; len]).span();
    let swap = |expected: Span, data: Span| {
        now(volume.compare_and_write(1 << 20, &expected, &data)).map_err(|error| error.kind())
    };
    assert_eq!(swap(span(3, 1024), span(4, 1024)), Ok(Comparison::Written));
    let wanted = span(4, 1024);
    wanted.copy_from(700, &[9]);
    assert_eq!(swap(wanted, span(5, 1024)), Ok(Comparison::Differs { at: 700 }));
    assert_eq!(read(&volume, 1 << 20, 1024), [4; 1024]);
    assert_eq!(swap(span(4, 512), span(5, 1024)), Err(VolumeErrorKind::Invalid));
    let long = volume.atomic_limits().bytes as usize + 512;
    assert_eq!(swap(span(4, long), span(5, long)), Err(VolumeErrorKind::Invalid));
    volume.set_read_only(true);
    assert_eq!(swap(span(4, 512), span(5, 512)), Err(VolumeErrorKind::ReadOnly));
}

#[test]
fn ranges_are_copied_in_parts() {
    let volume = MemoryVolume::new(8 << 20, 512);
    for (at, byte) in (0..8).zip(1..) {
        write(&volume, at * 100_352, byte, 100_352).unwrap();
    }
    now(volume.copy_from(&volume.clone(), 512, 4 << 20, 802_304)).unwrap();
    assert_eq!(read(&volume, 4 << 20, 802_304), read(&volume, 512, 802_304));
    assert!(now(volume.copy_from(&volume.clone(), 0, 8 << 20, 512)).is_err());
}

#[test]
fn atomic_limits_have_a_length_and_a_boundary() {
    let limits = AtomicLimits { bytes: 8192, boundary: Some(65536) };
    for (offset, length, covered) in
        [(0, 8192, true), (0, 8704, false), (61440, 4096, true), (61440, 4608, false), (65024, 512, true)]
    {
        assert_eq!(limits.covers(offset, length), covered, "{offset} {length}");
    }
}
