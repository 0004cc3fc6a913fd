//! Commands, over every form of the transport.

use export::StopMode;
use proptest::prelude::*;
use reactor::Backend;
use test_support::pattern;

use crate::initiator::{PLAIN, Queue, Sqe, Wire, u16_of, u32_of};
use crate::target::{SIZE, SUBSYSTEM, Target, block_on, on_each_backend};

/// Forms of the transport that differ in each option.
fn wires() -> Vec<Wire> {
    vec![
        PLAIN,
        Wire { header_digest: true, data_digest: true, ..PLAIN },
        Wire { no_flow_control: true, alignment: 31, ..PLAIN },
        Wire { no_flow_control: true, data_digest: true, alignment: 3, part: 4096, capsule: 0, ..PLAIN },
        Wire { header_digest: true, part: 3 << 10, capsule: 16 << 10, ..PLAIN },
    ]
}

#[test]
fn data_is_read_as_it_was_written() {
    on_each_backend(|target| {
        for wire in wires() {
            let admin = Queue::admin(target.address, SUBSYSTEM, wire);
            let mut queue = admin.io(SUBSYSTEM, 1);
            for (first, blocks) in [(0, 1), (7, 9), (16, 16), (100, 33), (1000, 2048)] {
                let data = pattern(first, blocks * 512);
                assert_eq!(queue.write(first, &data), 0, "{wire:?} {blocks}");
                assert_eq!(queue.read(first, blocks as u32).unwrap(), data, "{wire:?} {blocks}");
            }
            // Durable writes, a flush, and zeroing.
            assert_eq!(queue.send(Sqe::new(1, 1).blocks(0, 8).word(12, 7 | 1 << 30), &[5; 4096]), 0);
            assert_eq!(queue.run(Sqe::new(0, 1)).status, 0);
            assert_eq!(queue.run(Sqe::new(0, u32::MAX)).status, 0);
            assert_eq!(queue.run(Sqe::new(8, 1).blocks(2, 3)).status, 0);
            let read = queue.read(0, 8).unwrap();
            assert_eq!((read[1023], read[1024], read[2559], read[2560]), (5, 0, 0, 5));
        }
    });
}

#[test]
fn many_commands_in_flight_complete_in_any_order() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, Wire { capsule: 0, ..PLAIN });
        let mut queue = admin.io(SUBSYSTEM, 1);
        // Long writes whose data is requested: as many as the queue has entries, 128 MiB in all.
        let data = pattern(1, 1 << 20);
        let mut left: Vec<u16> = (0..127)
            .map(|number| queue.submit(Sqe::new(1, 1).blocks(number % 32 * 2048, 2048), &data, 0))
            .collect();
        while !left.is_empty() {
            let done = queue.complete(&data);
            assert_eq!(done.status, 0);
            left.retain(|id| *id != done.id);
        }
        for number in 0..32 {
            assert_eq!(queue.read(number * 2048, 2048).unwrap(), data);
        }
    });
}

#[test]
fn ranges_are_checked() {
    on_each_backend(|target| {
        let mut queue = Queue::admin(target.address, SUBSYSTEM, PLAIN).io_kept(SUBSYSTEM);
        let blocks = SIZE / 512;
        assert_eq!(queue.1.read(blocks - 1, 1).unwrap(), [0; 512]);
        for (first, count) in [(blocks, 1), (blocks - 1, 2), (u64::MAX, 1), (1 << 55, 8)] {
            assert_eq!(queue.1.read(first, count), Err(0x80), "{first} {count}");
            assert_eq!(queue.1.write(first, &vec![1; count as usize * 512]), 0x80);
            assert_eq!(queue.1.run(Sqe::new(8, 1).blocks(first, count)).status, 0x80);
        }
        // A namespace that does not exist, a length that differs from the data, an unknown opcode.
        assert_eq!(queue.1.fetch(Sqe::new(2, 2).blocks(0, 1), 512), Err(0x0b));
        assert_eq!(queue.1.fetch(Sqe::new(2, 0).blocks(0, 1), 512), Err(0x0b));
        assert_eq!(queue.1.fetch(Sqe::new(2, 1).blocks(0, 2), 512), Err(0x0f));
        assert_eq!(queue.1.send(Sqe::new(1, 1).blocks(0, 2), &[1; 512]), 0x0f);
        assert_eq!(queue.1.run(Sqe::new(0x93, 1)).status, 0x01);
        assert_eq!(queue.1.read(0, 1).unwrap(), [0; 512]);
    });
}

impl Queue {
    /// This admin queue and an I/O queue of its controller.
    fn io_kept(self, subsystem: &str) -> (Self, Self) {
        let io = self.io(subsystem, 1);
        (self, io)
    }
}

#[test]
fn ranges_are_deallocated_and_compared_and_verified() {
    on_each_backend(|target| {
        let (_admin, mut queue) = Queue::admin(target.address, SUBSYSTEM, PLAIN).io_kept(SUBSYSTEM);
        let data = pattern(3, 64 * 512);
        assert_eq!(queue.write(0, &data), 0);
        assert_eq!(queue.send(Sqe::new(5, 1).blocks(0, 64), &data), 0);
        let mut other = data.clone();
        other[40 * 512] ^= 1;
        assert_eq!(queue.send(Sqe::new(5, 1).blocks(0, 64), &other), 0x285);
        assert_eq!(queue.run(Sqe::new(0x0c, 1).blocks(0, 64)).status, 0);
        let range =
            |first: u64, count: u32| [&[0; 4][..], &count.to_le_bytes(), &first.to_le_bytes()].concat();
        let ranges = [range(1, 2), range(10, 8)].concat();
        assert_eq!(queue.send(Sqe::new(9, 1).word(10, 1).word(11, 4), &ranges), 0);
        let mut expected = data.clone();
        expected[512..3 * 512].fill(0);
        expected[10 * 512..18 * 512].fill(0);
        assert_eq!(queue.read(0, 64).unwrap(), expected);
        // One range beyond the end: nothing is deallocated.
        let ranges = [range(30, 2), range(SIZE / 512 - 1, 2)].concat();
        assert_eq!(queue.send(Sqe::new(9, 1).word(10, 1).word(11, 4), &ranges), 0x80);
        assert_eq!(queue.send(Sqe::new(9, 1).word(10, 2).word(11, 4), &ranges), 0x0f);
        assert_eq!(queue.read(0, 64).unwrap(), expected);
    });
}

#[test]
fn identify_describes_the_controller_and_the_namespace() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let controller = admin.fetch(Sqe::new(6, 0).word(10, 1), 4096).unwrap();
        assert_eq!(&controller[24..31], b"Gabion ");
        assert!(controller[768..].starts_with(SUBSYSTEM.as_bytes()));
        assert_eq!((controller[77], u16_of(&controller, 78), controller[111]), (8, admin.controller, 1));
        assert_eq!(u32_of(&controller, 1792) * 16, 64 + (16 << 10));
        let namespace = admin.fetch(Sqe::new(6, 1).word(10, 0), 4096).unwrap();
        assert_eq!(u64::from(u32_of(&namespace, 0)), SIZE / 512);
        assert_eq!((namespace[130], namespace[99]), (9, 0));
        let nguid = &namespace[104..120];
        let descriptors = admin.fetch(Sqe::new(6, 1).word(10, 3), 4096).unwrap();
        assert_eq!((&descriptors[..2], &descriptors[4..20]), (&[2, 16][..], nguid));
        assert_eq!((&descriptors[20..22], &descriptors[24..40]), (&[3, 16][..], nguid));
        let list = admin.fetch(Sqe::new(6, 0).word(10, 2), 4096).unwrap();
        assert_eq!((u32_of(&list, 0), u32_of(&list, 4)), (1, 0));
        assert_eq!(admin.fetch(Sqe::new(6, 2).word(10, 3), 4096), Err(0x0b));
        assert_eq!(admin.fetch(Sqe::new(6, 2).word(10, 0), 4096).unwrap(), [0; 4096]);
        assert_eq!(admin.fetch(Sqe::new(6, 0).word(10, 0xfe), 4096), Err(0x02));
    });
}

#[test]
fn log_pages_are_returned_in_parts() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let page = |id: u32, length: u32, offset: u32| {
            Sqe::new(2, u32::MAX).word(10, id | (length / 4 - 1) << 16).word(12, offset)
        };
        for (id, length) in [(1, 64), (2, 512), (3, 512), (4, 4096), (5, 4096)] {
            let whole = admin.fetch(page(id, length, 0), length as usize).unwrap();
            let half = admin.fetch(page(id, length / 2, length / 2), length as usize / 2).unwrap();
            assert_eq!(half, whole[length as usize / 2..], "page {id}");
        }
        assert_eq!(admin.fetch(page(0xc0, 512, 0), 512), Err(0x109));
        assert_eq!(admin.fetch(page(2, 512, 516), 512), Err(0x02));
        assert_eq!(admin.fetch(page(2, 512, 0), 256), Err(0x0f));
    });
}

#[test]
fn features_are_set_and_returned() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut set = |id: u32, value: u32| admin.run(Sqe::new(9, 0).word(10, id).word(11, value));
        assert_eq!(set(7, 3 | 3 << 16).result, 3 | 3 << 16);
        assert_eq!(set(7, 0xffff).status, 0x02);
        assert_eq!(set(0x0f, 120_000).status, 0);
        assert_eq!(set(0x0b | 1 << 31, 0x100).status, 0x10d);
        assert_eq!(set(6, 0).status, 0x10e);
        let mut get = |id: u32| admin.run(Sqe::new(0x0a, 0).word(10, id)).result;
        assert_eq!((get(7), get(0x0f), get(6)), (3 | 3 << 16, 120_000, 1));
        assert_eq!(admin.fetch(Sqe::new(0x0a, 0).word(10, 0x81), 16).unwrap(), b"0123456789abcdef");
        // No queue beyond the number.
        let mut queue = Queue::negotiated(target.address, PLAIN);
        let done = queue.connect(SUBSYSTEM, crate::initiator::HOST, 5, admin.controller, 0);
        assert_eq!((done.status, done.result), (0x182, 42));
    });
}

#[test]
fn a_new_namespace_is_reported() {
    on_each_backend(|target| {
        let (mut admin, mut queue) = Queue::admin(target.address, SUBSYSTEM, PLAIN).io_kept(SUBSYSTEM);
        assert_eq!(admin.run(Sqe::new(9, 0).word(10, 0x0b).word(11, 1 << 8)).status, 0);
        let request = admin.submit(Sqe::new(0x0c, 0), &[], 0);
        let added = target.add(2, &[]);
        let done = admin.complete(&[]);
        assert_eq!((done.id, done.status, done.result), (request, 0, 2 | 4 << 16));
        let changed = admin.fetch(Sqe::new(2, u32::MAX).word(10, 4 | 1023 << 16), 4096).unwrap();
        assert_eq!((u32_of(&changed, 0), u32_of(&changed, 4)), (2, 0));
        let list = admin.fetch(Sqe::new(6, 0).word(10, 2), 4096).unwrap();
        assert_eq!((u32_of(&list, 0), u32_of(&list, 4), u32_of(&list, 8)), (1, 2, 0));
        assert_eq!(queue.send(Sqe::new(1, 2).blocks(0, 1), &[9; 512]), 0);
        assert_eq!(queue.read(0, 1).unwrap(), [0; 512]);
        // A resize is reported, and a removal.
        let request = admin.submit(Sqe::new(0x0c, 0), &[], 0);
        block_on(added.resize());
        assert_eq!(admin.complete(&[]).id, request);
        admin.fetch(Sqe::new(2, u32::MAX).word(10, 4 | 1023 << 16), 4096).unwrap();
        block_on(added.stop(StopMode::Orderly)).unwrap();
        admin.submit(Sqe::new(0x0c, 0), &[], 0);
        assert_eq!(admin.complete(&[]).result, 2 | 4 << 16);
        assert_eq!(queue.send(Sqe::new(1, 2).blocks(0, 1), &[9; 512]), 0x0b);
        assert_eq!(queue.read(0, 1).unwrap(), [0; 512]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random commands, compared with a plain array.
    #[test]
    fn a_volume_behaves_like_an_array(
        steps in prop::collection::vec((0..5u8, 0..200u64, 1..60u32, any::<u8>()), 1..40), which in 0..5usize,
    ) {
        let target = Target::start(Backend::Auto, export::nvme::NvmeLimits::default(), &[]);
        let (_admin, mut queue) =
            Queue::admin(target.address, SUBSYSTEM, wires()[which]).io_kept(SUBSYSTEM);
        let mut model = vec![0u8; 300 * 512];
        for (kind, first, count, byte) in steps {
            let range = first as usize * 512..(first as usize + count as usize) * 512;
            match kind {
                0 | 1 => {
                    let data = pattern(byte.into(), count as usize * 512);
                    prop_assert_eq!(queue.write(first, &data), 0);
                    model[range].copy_from_slice(&data);
                }
                2 => {
                    prop_assert_eq!(queue.run(Sqe::new(8, 1).blocks(first, count)).status, 0);
                    model[range].fill(0);
                }
                3 => {
                    let same = queue.send(Sqe::new(5, 1).blocks(first, count), &model[range]);
                    prop_assert_eq!(same, 0);
                }
                _ => prop_assert_eq!(&queue.read(first, count).unwrap()[..], &model[range]),
            }
        }
        prop_assert_eq!(queue.read(0, 300).unwrap(), model);
    }
}
