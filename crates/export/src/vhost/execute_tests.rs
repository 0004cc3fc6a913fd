//! Executes requests with scattered data on a volume in memory.

use std::os::fd::AsFd;
use std::rc::Rc;

use reactor::{Clock, ParkDriver, Reactor, SystemClock};

use super::super::limits::BOUNCE_BYTES_MAX;
use super::super::memory::RegionLayout;
use super::super::testing::{GUEST, Guest, USER};
use super::*;
use crate::{MemoryVolume, VolumeErrorKind};

const LEN: u64 = 16 << 20;
const MANNER: DeviceOptions =
    DeviceOptions { write_through: false, id: *b"a disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0" };

struct ExecuteFixture {
    guest: Guest,
    memory: GuestMemory,
    volume: MemoryVolume,
    reactor: Reactor,
}

fn setup() -> ExecuteFixture {
    let guest = Guest::new(LEN);
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    let memory = GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap();
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    ExecuteFixture { guest, memory, volume: MemoryVolume::new(8 << 20, 512), reactor }
}

impl ExecuteFixture {
    /// Returns segments of these lengths from the start of the memory, one byte apart.
    fn segments(&self, lengths: &[u32]) -> GuestSegments {
        let mut segments = GuestSegments::new();
        let mut at = GUEST;
        for len in lengths {
            assert!(self.memory.locate(at, *len, &mut segments));
            at += u64::from(*len) + 1;
        }
        segments
    }

    fn bytes(&self, lengths: &[u32]) -> Vec<u8> {
        let mut at = GUEST;
        let mut bytes = Vec::new();
        for len in lengths {
            bytes.extend(self.guest.read(at, *len as usize));
            at += u64::from(*len) + 1;
        }
        bytes
    }

    fn run(&self, operation: &BlkOperation, options: &DeviceOptions) -> Result<u32, BlkStatus> {
        let bounce_buffers = Reserve::new(BOUNCE_BYTES_MAX);
        let context = RequestContext {
            volume: &self.volume,
            memory: &self.memory,
            options,
            bounce_buffers: &bounce_buffers,
        };
        self.reactor.run(context.execute(operation))
    }

    fn stored(&self, offset: u64, len: usize) -> Vec<u8> {
        let buffer = Buffer::new(len);
        self.reactor.run(self.volume.read(offset, &buffer.span())).unwrap();
        buffer.as_slice().to_vec()
    }
}

/// Returns bytes in which no two sectors are equal.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 509 * 7) as u8).collect()
}

#[test]
fn scattered_data_is_transferred() {
    for lengths in [
        &[4096u32][..],
        &[512, 3584],
        &[1, 2, 509, 3584],
        &[4096; 256],
        &[1 << 20, 1 << 20, 512],
        &[2 << 20],
        &[100, 70_000, 130_000 - 100, 4096, 512 - 70_000 % 512 + 512],
    ] {
        let setup = setup();
        let sum: u32 = lengths.iter().sum();
        let lengths: Vec<u32> =
            lengths.iter().copied().chain(Some(512 - sum % 512).filter(|rest| *rest < 512)).collect();
        let len: u64 = lengths.iter().map(|len| u64::from(*len)).sum();
        let data = pattern(len as usize);
        let mut rest = &data[..];
        let mut at = GUEST;
        for segment in &lengths {
            let (now, left) = rest.split_at(*segment as usize);
            setup.guest.write(at, now);
            (rest, at) = (left, at + u64::from(*segment) + 1);
        }
        let from = setup.segments(&lengths);
        assert_eq!(setup.run(&BlkOperation::Write { offset: 1024, from, len }, &MANNER), Ok(0));
        assert_eq!(setup.stored(1024, len as usize), data, "{lengths:?}");
        assert_eq!(setup.stored(0, 1024), [0; 1024]);
        setup.guest.write(GUEST, &vec![0xEE; 6 << 20]);
        let into = setup.segments(&lengths);
        let read = BlkOperation::Read { offset: 1024, into, len };
        assert_eq!(setup.run(&read, &MANNER), Ok(len as u32));
        assert_eq!(setup.bytes(&lengths), data, "{lengths:?}");
        let behind = GUEST + u64::from(lengths[0]);
        assert_eq!(setup.guest.read(behind, 1), [0xEE], "bytes between the segments were changed");
    }
}

#[test]
fn scattered_pages_are_one_operation_of_the_volume() {
    let setup = setup();
    let from = setup.segments(&[4096; 256]);
    setup.run(&BlkOperation::Write { offset: 0, from, len: 1 << 20 }, &MANNER).unwrap();
    assert_eq!(setup.volume.counters().writes, 1);
    let into = setup.segments(&[4096; 256]);
    setup.run(&BlkOperation::Read { offset: 0, into, len: 1 << 20 }, &MANNER).unwrap();
    assert_eq!(setup.volume.counters().reads, 1);
}

#[test]
fn a_failed_transfer_fails_the_request() {
    let setup = setup();
    let lengths = [1 << 20; 4];
    let into = setup.segments(&lengths);
    let read = BlkOperation::Read { offset: 0, into, len: 4 << 20 };
    setup.volume.faults().fail_next_read(VolumeErrorKind::Io);
    assert_eq!(setup.run(&read, &MANNER), Err(BlkStatus::IoError));
    assert_eq!(setup.run(&read, &MANNER), Ok(4 << 20));
}

#[test]
fn ranges_are_zeroed_and_discarded() {
    let setup = setup();
    let from = setup.segments(&[8192]);
    setup.guest.write(GUEST, &[7; 8192]);
    setup.run(&BlkOperation::Write { offset: 0, from, len: 8192 }, &MANNER).unwrap();
    let ranges = vec![BlkRange { offset: 512, len: 512 }, BlkRange { offset: 4096, len: 4096 }];
    assert_eq!(setup.run(&BlkOperation::WriteZeroes(ranges.clone()), &MANNER), Ok(0));
    let expected = [vec![7; 512], vec![0; 512], vec![7; 3072], vec![0; 4096]].concat();
    assert_eq!(setup.stored(0, 8192), expected);
    assert_eq!(setup.run(&BlkOperation::Discard(ranges), &MANNER), Ok(0));
    assert_eq!((setup.volume.counters().zeroes, setup.volume.counters().discards), (2, 2));
}

#[test]
fn without_a_negotiated_cache_writes_are_durable() {
    let setup = setup();
    let through = DeviceOptions { write_through: true, ..MANNER };
    let write = |offset| BlkOperation::Write { offset, from: setup.segments(&[512]), len: 512 };
    setup.run(&write(0), &MANNER).unwrap();
    assert_eq!(setup.volume.counters().flushes, 0);
    setup.run(&write(0), &through).unwrap();
    setup.run(&BlkOperation::WriteZeroes(vec![BlkRange { offset: 0, len: 512 }]), &through).unwrap();
    assert_eq!(setup.volume.counters().flushes, 2);
    setup.run(&BlkOperation::Read { offset: 0, into: setup.segments(&[512]), len: 512 }, &through).unwrap();
    setup.run(&BlkOperation::Flush, &MANNER).unwrap();
    assert_eq!(setup.volume.counters().flushes, 3);
}

#[test]
fn the_serial_number_is_truncated_to_fit() {
    let setup = setup();
    setup.guest.write(GUEST, &[0xEE; 64]);
    let id = |lengths: &[u32]| BlkOperation::Id {
        into: setup.segments(lengths),
        len: lengths.iter().map(|len| u64::from(*len)).sum(),
    };
    assert_eq!(setup.run(&id(&[2, 3]), &MANNER), Ok(5));
    assert_eq!(setup.guest.read(GUEST, 7), b"a \xEEdis\xEE");
    assert_eq!(setup.run(&id(&[30]), &MANNER), Ok(20));
    assert_eq!(setup.guest.read(GUEST, 22), b"a disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xEE\xEE");
}

#[test]
fn bounce_buffers_wait_at_their_limit() {
    let setup = setup();
    let bounce_buffers = Reserve::new(2 << 20);
    let context = RequestContext {
        volume: &setup.volume,
        memory: &setup.memory,
        options: &MANNER,
        bounce_buffers: &bounce_buffers,
    };
    let scattered = || BlkOperation::Read { offset: 0, into: setup.segments(&[512; 2048]), len: 1 << 20 };
    let operations: Vec<BlkOperation> = std::iter::repeat_with(scattered).take(5).collect();
    setup.volume.faults().hold_reads();
    let mut requests: Vec<_> =
        operations.iter().map(|operation| Box::pin(context.execute(operation))).collect();
    let mut poll_all = || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        requests.retain_mut(|request| request.as_mut().poll(&mut context).is_pending());
        requests.len()
    };
    assert_eq!(poll_all(), 5);
    assert_eq!(setup.volume.faults().held_reads(), 2);
    setup.volume.faults().release_reads();
    assert_eq!(poll_all(), 0, "a buffer was not released");
}
