//! Executes requests with scattered data on a volume in memory.

use std::os::fd::AsFd;
use std::rc::Rc;

use reactor::{Clock, ParkDriver, Reactor, SystemClock};

use super::super::limits::GATHERS_BYTES;
use super::super::memory::RegionLayout;
use super::super::testing::{GUEST, Guest, USER};
use super::*;
use crate::{MemoryVolume, VolumeErrorKind};

const LEN: u64 = 16 << 20;
const MANNER: Manner = Manner { write_through: false, id: *b"a disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0" };

struct Setup {
    guest: Guest,
    memory: GuestMemory,
    volume: MemoryVolume,
    reactor: Reactor,
}

fn setup() -> Setup {
    let guest = Guest::new(LEN);
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    let memory = GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap();
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    Setup { guest, memory, volume: MemoryVolume::new(8 << 20, 512), reactor }
}

impl Setup {
    /// Returns segments of these lengths from the start of the memory, one byte apart.
    fn pieces(&self, lengths: &[u32]) -> Pieces {
        let mut pieces = Pieces::new();
        let mut at = GUEST;
        for len in lengths {
            assert!(self.memory.locate(at, *len, &mut pieces));
            at += u64::from(*len) + 1;
        }
        pieces
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

    fn run(&self, operation: &Operation, manner: &Manner) -> Result<u32, Status> {
        let gathers = Reserve::new(GATHERS_BYTES);
        let means = Means { volume: &self.volume, memory: &self.memory, manner, gathers: &gathers };
        self.reactor.run(means.execute(operation))
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
fn data_comes_and_goes_however_it_is_scattered() {
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
        for piece in &lengths {
            let (now, left) = rest.split_at(*piece as usize);
            setup.guest.write(at, now);
            (rest, at) = (left, at + u64::from(*piece) + 1);
        }
        let from = setup.pieces(&lengths);
        assert_eq!(setup.run(&Operation::Write { offset: 1024, from, len }, &MANNER), Ok(0));
        assert_eq!(setup.stored(1024, len as usize), data, "{lengths:?}");
        assert_eq!(setup.stored(0, 1024), [0; 1024]);
        setup.guest.write(GUEST, &vec![0xEE; 6 << 20]);
        let into = setup.pieces(&lengths);
        let read = Operation::Read { offset: 1024, into, len };
        assert_eq!(setup.run(&read, &MANNER), Ok(len as u32));
        assert_eq!(setup.bytes(&lengths), data, "{lengths:?}");
        let behind = GUEST + u64::from(lengths[0]);
        assert_eq!(setup.guest.read(behind, 1), [0xEE], "bytes between the segments were changed");
    }
}

#[test]
fn scattered_pages_are_one_operation_of_the_volume() {
    let setup = setup();
    let from = setup.pieces(&[4096; 256]);
    setup.run(&Operation::Write { offset: 0, from, len: 1 << 20 }, &MANNER).unwrap();
    assert_eq!(setup.volume.counters().writes, 1);
    let into = setup.pieces(&[4096; 256]);
    setup.run(&Operation::Read { offset: 0, into, len: 1 << 20 }, &MANNER).unwrap();
    assert_eq!(setup.volume.counters().reads, 1);
}

#[test]
fn one_part_that_fails_fails_the_request() {
    let setup = setup();
    let lengths = [1 << 20; 4];
    let into = setup.pieces(&lengths);
    let read = Operation::Read { offset: 0, into, len: 4 << 20 };
    setup.volume.faults().fail_next_read(VolumeErrorKind::Io);
    assert_eq!(setup.run(&read, &MANNER), Err(Status::IoError));
    assert_eq!(setup.run(&read, &MANNER), Ok(4 << 20));
}

#[test]
fn ranges_are_zeroed_and_discarded() {
    let setup = setup();
    let from = setup.pieces(&[8192]);
    setup.guest.write(GUEST, &[7; 8192]);
    setup.run(&Operation::Write { offset: 0, from, len: 8192 }, &MANNER).unwrap();
    let ranges = vec![Range { offset: 512, len: 512 }, Range { offset: 4096, len: 4096 }];
    assert_eq!(setup.run(&Operation::WriteZeroes(ranges.clone()), &MANNER), Ok(0));
    let expected = [vec![7; 512], vec![0; 512], vec![7; 3072], vec![0; 4096]].concat();
    assert_eq!(setup.stored(0, 8192), expected);
    assert_eq!(setup.run(&Operation::Discard(ranges), &MANNER), Ok(0));
    assert_eq!((setup.volume.counters().zeroes, setup.volume.counters().discards), (2, 2));
}

#[test]
fn a_guest_that_knows_of_no_cache_has_none() {
    let setup = setup();
    let through = Manner { write_through: true, ..MANNER };
    let write = |offset| Operation::Write { offset, from: setup.pieces(&[512]), len: 512 };
    setup.run(&write(0), &MANNER).unwrap();
    assert_eq!(setup.volume.counters().flushes, 0);
    setup.run(&write(0), &through).unwrap();
    setup.run(&Operation::WriteZeroes(vec![Range { offset: 0, len: 512 }]), &through).unwrap();
    assert_eq!(setup.volume.counters().flushes, 2);
    setup.run(&Operation::Read { offset: 0, into: setup.pieces(&[512]), len: 512 }, &through).unwrap();
    setup.run(&Operation::Flush, &MANNER).unwrap();
    assert_eq!(setup.volume.counters().flushes, 3);
}

#[test]
fn the_name_is_cut_to_what_there_is_room_for() {
    let setup = setup();
    setup.guest.write(GUEST, &[0xEE; 64]);
    let id = |lengths: &[u32]| Operation::Id {
        into: setup.pieces(lengths),
        len: lengths.iter().map(|len| u64::from(*len)).sum(),
    };
    assert_eq!(setup.run(&id(&[2, 3]), &MANNER), Ok(5));
    assert_eq!(setup.guest.read(GUEST, 7), b"a \xEEdis\xEE");
    assert_eq!(setup.run(&id(&[30]), &MANNER), Ok(20));
    assert_eq!(setup.guest.read(GUEST, 22), b"a disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xEE\xEE");
}

#[test]
fn buffers_wait_when_a_guest_has_as_many_as_it_may() {
    let setup = setup();
    let gathers = Reserve::new(2 << 20);
    let means = Means { volume: &setup.volume, memory: &setup.memory, manner: &MANNER, gathers: &gathers };
    let scattered = || Operation::Read { offset: 0, into: setup.pieces(&[512; 2048]), len: 1 << 20 };
    let operations: Vec<Operation> = std::iter::repeat_with(scattered).take(5).collect();
    setup.volume.faults().hold_reads();
    let mut requests: Vec<_> =
        operations.iter().map(|operation| Box::pin(means.execute(operation))).collect();
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
