//! Fused compare and write, and copies.

use crate::initiator::{Completion, PLAIN, Queue, Sqe, Wire, u16_of, u32_of};
use crate::target::{SIZE, SUBSYSTEM, on_each_backend};

const FIRST: u8 = 0x41;
const SECOND: u8 = 0x42;

fn fused(opcode: u8, part: u8, first: u64, count: u32) -> Sqe {
    Sqe::new(opcode, 1).blocks(first, count).put(1, &[part])
}

/// Runs a compare and a write as one pair. Returns their statuses.
fn swap(queue: &mut Queue, first: u64, expected: &[u8], data: &[u8]) -> (u16, u16) {
    let count = (expected.len() / 512) as u32;
    let capsule = queue.wire.capsule;
    let compare = queue.submit(fused(5, FIRST, first, count), expected, capsule);
    let write = queue.submit(fused(1, SECOND, first, (data.len() / 512) as u32), data, capsule);
    let done: Vec<Completion> = if expected.len() > capsule {
        // The data of both is requested: in the order of the queue.
        for data in [expected, data] {
            let request = queue.receive();
            assert_eq!(request.header[0], 9);
            queue.send_requested(&request, data);
        }
        (0..2).map(|_| queue.complete(&[])).collect()
    } else {
        (0..2).map(|_| queue.complete(&[])).collect()
    };
    let status = |id| done.iter().find(|done| done.id == id).unwrap().status;
    (status(compare), status(write))
}

#[test]
fn a_fused_write_takes_place_if_the_data_is_equal() {
    on_each_backend(|target| {
        for (wire, length) in [(PLAIN, 512), (PLAIN, 8192), (Wire { capsule: 0, ..PLAIN }, 16384)] {
            let admin = Queue::admin(target.address, SUBSYSTEM, wire);
            let mut queue = admin.io(SUBSYSTEM, 1);
            let (old, new) = (vec![1; length], vec![2; length]);
            assert_eq!(queue.write(40, &old), 0);
            assert_eq!(swap(&mut queue, 40, &old, &new), (0, 0));
            assert_eq!(queue.read(40, (length / 512) as u32).unwrap(), new);
            // Another value: nothing is written.
            let mut other = new.clone();
            other[length - 1] = 7;
            assert_eq!(swap(&mut queue, 40, &other, &old), (0x285, 0x09));
            assert_eq!(queue.read(40, (length / 512) as u32).unwrap(), new);
        }
    });
}

#[test]
fn fused_commands_without_partner_are_aborted() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        let capsule = queue.wire.capsule;
        // The second without the first.
        assert_eq!(queue.send(fused(1, SECOND, 0, 1), &[1; 512]), 0x0a);
        // The first without the second: the next command is executed.
        let lonely = queue.submit(fused(5, FIRST, 0, 1), &[0; 512], capsule);
        let read = queue.submit(Sqe::new(2, 1).blocks(0, 1).put(32, &512u32.to_le_bytes()), &[], 0);
        let mut done = [queue.complete(&[]), queue.complete(&[])];
        done.sort_by_key(|done| done.id);
        assert_eq!((done[0].id, done[0].status, done[1].id, done[1].status), (lonely, 0x0a, read, 0));
        // Two firsts, then the partner of the second one.
        let lonely = queue.submit(fused(5, FIRST, 0, 1), &[0; 512], capsule);
        let compare = queue.submit(fused(5, FIRST, 8, 1), &[0; 512], capsule);
        let write = queue.submit(fused(1, SECOND, 8, 1), &[9; 512], capsule);
        let done: Vec<_> = (0..3).map(|_| queue.complete(&[])).collect();
        let status = |id| done.iter().find(|done| done.id == id).unwrap().status;
        assert_eq!((status(lonely), status(compare), status(write)), (0x0a, 0, 0));
        assert_eq!(queue.read(8, 1).unwrap(), [9; 512]);
        // Other ranges, other opcodes, a reserved value.
        queue.submit(fused(5, FIRST, 8, 1), &[9; 512], capsule);
        queue.submit(fused(1, SECOND, 9, 1), &[1; 512], capsule);
        let done: Vec<_> = (0..2).map(|_| queue.complete(&[]).status).collect();
        assert_eq!(done, [0x09, 0x02]);
        assert_eq!(queue.send(fused(1, FIRST, 0, 1), &[1; 512]), 0x02);
        assert_eq!(queue.send(fused(1, 0x43, 0, 1), &[1; 512]), 0x02);
        assert_eq!(queue.read(8, 2).unwrap(), [[9; 512], [0; 512]].concat());
    });
}

#[test]
fn a_connection_may_end_between_fused_commands() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        let capsule = queue.wire.capsule;
        queue.submit(fused(5, FIRST, 0, 1), &[0; 512], capsule);
        queue.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(queue.read_to_end(), 0);
        let mut again = admin.io(SUBSYSTEM, 1);
        assert_eq!(again.read(0, 1).unwrap(), [0; 512]);
    });
}

fn range(first: u64, count: u16) -> Vec<u8> {
    let mut range = vec![0; 32];
    range[8..16].copy_from_slice(&first.to_le_bytes());
    range[16..18].copy_from_slice(&(count - 1).to_le_bytes());
    range
}

fn copy(queue: &mut Queue, target: u64, ranges: &[(u64, u16)]) -> u16 {
    let data: Vec<u8> = ranges.iter().flat_map(|(first, count)| range(*first, *count)).collect();
    let sqe = Sqe::new(0x19, 1).put(40, &target.to_le_bytes()).word(12, ranges.len() as u32 - 1);
    queue.send(sqe, &data)
}

#[test]
fn ranges_are_copied_within_a_namespace() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        let data: Vec<u8> = (0..3000 * 512).map(|at| (at / 512 * 7 + at) as u8).collect();
        for (first, part) in (0..).step_by(1000).zip(data.chunks(1000 * 512)) {
            assert_eq!(queue.write(first, part), 0);
        }
        assert_eq!(copy(&mut queue, 10_000, &[(0, 1500), (2000, 1), (1, 2)]), 0);
        assert_eq!(queue.read(10_000, 1500).unwrap(), data[..1500 * 512]);
        assert_eq!(queue.read(11_500, 1).unwrap(), data[2000 * 512..2001 * 512]);
        assert_eq!(queue.read(11_501, 2).unwrap(), data[512..3 * 512]);
        let blocks = SIZE / 512;
        for (to, ranges, status) in [
            (blocks - 1, &[(0, 2)][..], 0x80),
            (0, &[(blocks - 1, 2)], 0x80),
            (u64::MAX, &[(0, 2)], 0x80),
            (10, &[(5, 6)], 0x02),
            (10, &[(0, 1), (11, 4)], 0x02),
            (50_000, &[(0, u16::MAX), (0, u16::MAX)], 0x80),
        ] {
            assert_eq!(copy(&mut queue, to, ranges), status, "{to} {ranges:?}");
        }
        let other_format = Sqe::new(0x19, 1).put(40, &9u64.to_le_bytes()).word(12, 1 << 8);
        assert_eq!(queue.send(other_format, &range(0, 1)), 0x02);
        let short = Sqe::new(0x19, 1).put(40, &9u64.to_le_bytes()).word(12, 1);
        assert_eq!(queue.send(short, &range(0, 1)), 0x0f);
        assert_eq!(queue.read(0, 20).unwrap(), data[..20 * 512]);
    });
}

#[test]
fn atomic_units_and_limits_of_copies_are_reported() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let namespace = admin.fetch(Sqe::new(6, 1).word(10, 0), 4096).unwrap();
        // 1 MiB without a boundary.
        for at in [34, 36, 38] {
            assert_eq!(u16_of(&namespace, at), 2047, "{at}");
        }
        assert_eq!((u16_of(&namespace, 40), u16_of(&namespace, 44)), (0, 0));
        assert_eq!((u16_of(&namespace, 74), namespace[80]), (u16::MAX, 127));
        assert_eq!(u32_of(&namespace, 76), (64 << 20) / 512);
        let controller = admin.fetch(Sqe::new(6, 0).word(10, 1), 4096).unwrap();
        assert_eq!(
            (u16_of(&controller, 520) >> 8 & 1, u16_of(&controller, 522), u16_of(&controller, 534)),
            (1, 1, 1)
        );
    });
}
