//! SCSI commands, over every form of the transport.

use reactor::Backend;
use test_support::pattern;

use crate::initiator::{
    Data, PLAIN, Session, block_6, block_10, block_12, block_16, flagged, u16_of, u32_of, u64_of, wires,
};
use crate::target::{SIZE, TARGET, Target, TargetOptions, on_each_backend};

const BLOCKS: u64 = SIZE / 512;
const INVALID_FIELD: (u8, u8, u8) = (5, 0x24, 0);
const BEYOND_END: (u8, u8, u8) = (5, 0x21, 0);
const MISCOMPARE: (u8, u8, u8) = (0xe, 0x1d, 0);

/// Runs a command with an allocation length of 255 bytes or less.
fn inquiry(session: &mut Session, page: Option<u8>) -> Vec<u8> {
    let block = [0x12, u8::from(page.is_some()), page.unwrap_or(0), 0, 255, 0];
    session.run(0, &block, Data::In(255)).good()
}

#[test]
fn data_is_read_as_it_was_written() {
    on_each_backend(|target| {
        for wire in wires() {
            let mut session = Session::new(target.address, wire);
            for (first, blocks) in [(0u32, 1usize), (7, 9), (16, 16), (100, 33), (1000, 600), (3000, 1024)] {
                let data = pattern(u64::from(first), blocks * 512);
                let other = pattern(77, blocks * 512);
                let (long, count) = (first.into(), blocks as u32);
                let mut pairs = vec![
                    (block_16(0x8a, long, count), block_16(0x88, long, count)),
                    (block_12(0xaa, first, count), block_12(0xa8, first, count)),
                    (block_10(0x2a, first, count as u16), block_10(0x28, first, count as u16)),
                ];
                if blocks < 256 {
                    pairs.push((block_6(0x0a, first, count as u8), block_6(0x08, first, count as u8)));
                }
                for (write, read) in pairs {
                    session.write(long, &other).good();
                    session.run(0, &write, Data::Out(&data)).good();
                    let done = session.run(0, &read, Data::In(data.len()));
                    assert_eq!(done.residual, 0);
                    assert_eq!(done.good(), data, "{wire:?} {blocks}");
                }
            }
            session.log_out();
        }
    });
}

#[test]
fn the_largest_transfer_is_moved_and_a_larger_one_refused() {
    on_each_backend(|target| {
        for wire in [PLAIN, wires()[2]] {
            let mut session = Session::new(target.address, wire);
            let data = pattern(5, 8 << 20);
            session.write(8, &data).good();
            assert_eq!(session.read(8, 16 << 10).good(), data);
            let large = vec![1; (8 << 20) + 512];
            assert_eq!(session.write(8, &large).failed(), INVALID_FIELD);
            assert_eq!(session.read(8, (16 << 10) + 1).failed(), INVALID_FIELD);
            assert_eq!(session.read(8, 8).good(), data[..4096]);
        }
    });
}

#[test]
fn ranges_are_checked() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        assert_eq!(session.read(BLOCKS - 1, 1).good(), [0; 512]);
        for (first, count) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (1 << 55, 8)] {
            assert_eq!(session.read(first, count).failed(), BEYOND_END, "{first} {count}");
            assert_eq!(session.write(first, &vec![1; count as usize * 512]).failed(), BEYOND_END);
            for code in [0x8f, 0x91] {
                let block = block_16(code, first, count);
                assert_eq!(session.run(0, &block, Data::None).failed(), BEYOND_END, "{code:#x} {first}");
            }
            let same = session.run(0, &block_16(0x93, first, count), Data::Out(&[1; 512]));
            assert_eq!(same.failed(), BEYOND_END);
        }
        // Nothing is transferred, at any place but beyond the end.
        session.run(0, &block_16(0x88, BLOCKS, 0), Data::None).good();
        assert_eq!(session.run(0, &block_16(0x88, BLOCKS + 1, 0), Data::None).failed(), BEYOND_END);
        // Protection information does not exist.
        let block = flagged(block_16(0x88, 0, 1), 0x20);
        assert_eq!(session.run(0, &block, Data::In(512)).failed(), INVALID_FIELD);
        // Unknown commands, and units that do not exist.
        assert_eq!(session.run(0, &[0xc0; 16], Data::None).failed(), (5, 0x20, 0));
        assert_eq!(session.run(1, &block_16(0x88, 0, 1), Data::In(512)).failed(), (5, 0x25, 0));
        assert_eq!(session.run(0x4005, &[0; 6], Data::None).failed(), (5, 0x25, 0));
        session.run(0x4000, &[0; 6], Data::None).good();
    });
}

#[test]
fn lengths_that_differ_from_the_command_are_reported() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let data = pattern(9, 8 * 512);
        session.write(0, &data).good();
        // More is expected than the command has, or less.
        let done = session.run(0, &block_16(0x88, 0, 2), Data::In(4096));
        assert_eq!((done.residual, done.good()), (3072, data[..1024].to_vec()));
        let done = session.run(0, &block_16(0x88, 0, 8), Data::In(1500));
        assert_eq!((done.residual, done.good()), (1500 - 4096, data[..1500].to_vec()));
        let done = session.run(0, &block_16(0x88, 0, 8), Data::None);
        assert_eq!((done.residual, done.good()), (-4096, Vec::new()));
        let done = session.run(0, &block_16(0x8a, 0, 2), Data::Out(&[1; 4096]));
        assert_eq!((done.status, done.residual), (0, 3072));
        assert_eq!(session.read(0, 8).good(), [&[1; 1024], &data[1024..]].concat());
        let done = session.run(0, &block_16(0x8a, 4, 4), Data::Out(&[2; 700]));
        assert_eq!((done.status, done.residual), (0, 700 - 2048));
        let read = session.read(4, 4).good();
        assert_eq!((&read[..512], &read[512..]), (&[2; 512][..], &data[5 * 512..]));
    });
}

#[test]
fn blocks_are_verified_and_compared() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let data = pattern(3, 64 * 512);
        session.write(0, &data).good();
        let mut other = data.clone();
        other[40 * 512 + 3] ^= 1;
        for code in [0x2f, 0xaf, 0x8f] {
            let block = |count: u16| match code {
                0x2f => block_10(code, 0, count),
                0xaf => block_12(code, 0, count.into()),
                _ => block_16(code, 0, count.into()),
            };
            session.run(0, &block(64), Data::None).good();
            session.run(0, &flagged(block(64), 2), Data::Out(&data)).good();
            let done = session.run(0, &flagged(block(64), 2), Data::Out(&other));
            assert_eq!((done.sense, done.details.0), (MISCOMPARE, 40 * 512 + 3), "{code:#x}");
            // One block that all blocks equal.
            session.run(0, &flagged(block(1), 6), Data::Out(&data[..512])).good();
            assert_eq!(session.run(0, &flagged(block(2), 6), Data::Out(&data[..512])).sense, MISCOMPARE);
            assert_eq!(session.run(0, &flagged(block(1), 4), Data::None).failed(), INVALID_FIELD);
            // No block, and no data.
            for flags in [0, 2, 6] {
                session.run(0, &flagged(block(0), flags), Data::None).good();
            }
        }
        // A range of any length is verified in parts, up to the longest transfer.
        session.run(0, &block_16(0x8f, 0, 16 << 10), Data::None).good();
        assert_eq!(session.run(0, &block_16(0x8f, 0, (16 << 10) + 1), Data::None).failed(), INVALID_FIELD);
        for code in [0x2e, 0xae, 0x8e] {
            let data = pattern(code.into(), 16 * 512);
            for flags in [0, 2] {
                let block = match code {
                    0x2e => block_10(code, 8, 16),
                    0xae => block_12(code, 8, 16),
                    _ => block_16(code, 8, 16),
                };
                session.write(8, &[0; 16 * 512]).good();
                session.run(0, &flagged(block, flags), Data::Out(&data)).good();
                assert_eq!(session.read(8, 16).good(), data);
                session.run(0, &flagged(block_16(0x8e, 0, 0), flags), Data::None).good();
            }
        }
    });
}

#[test]
fn blocks_are_compared_and_written() {
    on_each_backend(|target| {
        for wire in wires() {
            let mut session = Session::new(target.address, wire);
            let (old, new) = (pattern(1, 4 * 512), pattern(2, 4 * 512));
            let swap = |count: u8| {
                let mut block = block_16(0x89, 40, 0);
                block[13] = count;
                block
            };
            session.write(40, &old).good();
            let both = [&old[..], &new].concat();
            session.run(0, &swap(4), Data::Out(&both)).good();
            assert_eq!(session.read(40, 4).good(), new);
            let done = session.run(0, &swap(4), Data::Out(&both));
            let at = old.iter().zip(&new).position(|(one, other)| one != other).unwrap();
            assert_eq!((done.sense, done.details.0), (MISCOMPARE, at as u32));
            assert_eq!(session.read(40, 4).good(), new);
            assert_eq!(session.run(0, &swap(3), Data::Out(&both)).failed(), INVALID_FIELD);
            session.run(0, &swap(0), Data::None).good();
        }
    });
}

#[test]
fn blocks_are_unmapped_filled_and_reported() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let data = pattern(3, 4096 * 512);
        session.write(0, &data).good();
        let range =
            |first: u64, count: u32| [&first.to_be_bytes()[..], &count.to_be_bytes(), &[0; 4]].concat();
        let list = |ranges: &[Vec<u8>]| {
            let ranges = ranges.concat();
            let lengths = [ranges.len() as u16 + 6, ranges.len() as u16].map(u16::to_be_bytes).concat();
            [&lengths[..], &[0; 4], &ranges].concat()
        };
        let unmap = |session: &mut Session, list: &[u8]| {
            let block = [&[0x42, 0, 0, 0, 0, 0, 0][..], &(list.len() as u16).to_be_bytes(), &[0]].concat();
            session.run(0, &block, Data::Out(list))
        };
        unmap(&mut session, &list(&[range(1, 2), range(1024, 1024)])).good();
        let mut expected = data.clone();
        expected[512..3 * 512].fill(0);
        expected[1024 * 512..2048 * 512].fill(0);
        assert_eq!(session.read(0, 4096).good(), expected);
        // One range beyond the end: nothing is unmapped.
        let bad = list(&[range(30, 2), range(BLOCKS - 1, 2)]);
        assert_eq!(unmap(&mut session, &bad).failed(), BEYOND_END);
        assert_eq!(unmap(&mut session, &list(&vec![range(0, 1); 257])).failed(), (5, 0x26, 0));
        assert_eq!(unmap(&mut session, &[0; 7]).failed(), (5, 0x1a, 0));
        unmap(&mut session, &[]).good();
        assert_eq!(session.read(0, 4096).good(), expected);
        // The extents: data, a hole, data.
        let status = [&[0x9e, 0x12][..], &8u64.to_be_bytes(), &[0, 0, 1, 0, 0, 0]].concat();
        let extents = session.run(0, &status, Data::In(256)).good();
        assert_eq!(u64_of(&extents, 8), 8);
        let parts = extents[8..].chunks(16).map(|part| (u64_of(part, 0), u32_of(part, 8), part[12]));
        let parts: Vec<_> = parts.collect();
        assert!(parts.contains(&(1024, 1024, 1)), "{parts:?}");
        assert_eq!(u32_of(&extents, 0) as usize, extents.len() - 4);
        // Copies of a block, and zeros without data.
        for block in [block_16(0x93, 500, 1000), block_10(0x41, 500, 1000)] {
            session.run(0, &block, Data::Out(&[9; 512])).good();
            expected[500 * 512..1500 * 512].fill(9);
            assert_eq!(session.read(0, 4096).good(), expected);
            session.run(0, &block, Data::Out(&[0; 512])).good();
            expected[500 * 512..1500 * 512].fill(0);
            assert_eq!(session.read(0, 4096).good(), expected);
        }
        session.run(0, &flagged(block_16(0x93, 0, 8), 0x09), Data::None).good();
        expected[..4096].fill(0);
        assert_eq!(session.read(0, 4096).good(), expected);
        for (block, data) in [
            (block_16(0x93, 0, 0), Data::Out(&[1; 512])),
            (flagged(block_16(0x93, 0, 8), 0x01), Data::None),
            (flagged(block_16(0x93, 0, 8), 0x10), Data::Out(&[1; 512])),
            (block_16(0x93, 0, 8), Data::Out(&[1; 1024])),
            (block_16(0x93, 0, (32 << 10) + 1), Data::Out(&[1; 512])),
        ] {
            assert_eq!(session.run(0, &block, data).failed(), INVALID_FIELD, "{block:?}");
        }
    });
}

#[test]
fn durable_writes_and_synchronisation_flush_the_volume() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let fails = |target: &Target| {
            target.with(|volume| volume.faults().fail_next_flush(export::VolumeErrorKind::Io));
        };
        for block in [block_10(0x35, 0, 8), block_16(0x91, 0, 8), block_10(0x35, 0, 0)] {
            session.run(0, &block, Data::None).good();
            fails(target);
            assert_eq!(session.run(0, &block, Data::None).failed(), (3, 0x0c, 0), "{block:?}");
        }
        for block in [block_10(0x2a, 0, 8), block_12(0xaa, 0, 8), block_16(0x8a, 0, 8)] {
            fails(target);
            session.run(0, &block, Data::Out(&[1; 4096])).good();
            let durable = flagged(block, 0x08);
            assert_eq!(session.run(0, &durable, Data::Out(&[2; 4096])).failed(), (3, 0x0c, 0));
            session.run(0, &durable, Data::Out(&[3; 4096])).good();
            assert_eq!(session.read(0, 8).good(), [3; 4096]);
        }
        for block in [block_10(0x34, 0, 8), block_16(0x90, 0, 8)] {
            session.run(0, &block, Data::None).good();
        }
    });
}

#[test]
fn errors_of_the_volume_are_reported() {
    use export::VolumeErrorKind::{Closed, Io, NoSpace};
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        for (kind, read, write) in [
            (Io, (3, 0x11, 0), (3, 0x0c, 0)),
            (NoSpace, (7, 0x27, 7), (7, 0x27, 7)),
            (Closed, (2, 4, 0), (2, 4, 0)),
        ] {
            target.with(move |volume| {
                volume.faults().fail_next_read(kind);
                volume.faults().fail_next_write(kind);
            });
            assert_eq!(session.read(0, 8).failed(), read);
            assert_eq!(session.write(0, &[1; 4096]).failed(), write);
        }
        session.write(0, &[1; 4096]).good();
    });
}

#[test]
fn the_unit_is_described() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let standard = inquiry(&mut session, None);
        assert_eq!((standard[0], standard[2], standard[3] & 15, standard[7] & 2), (0, 6, 2, 2));
        assert_eq!((&standard[8..16], usize::from(standard[4])), (&b"GABION  "[..], standard.len() - 5));
        let pages = inquiry(&mut session, Some(0));
        assert_eq!(pages[4..], [0, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);
        for page in &pages[4..] {
            let data = inquiry(&mut session, Some(*page));
            assert_eq!((data[1], usize::from(u16_of(&data, 2))), (*page, data.len() - 4));
        }
        let serial = inquiry(&mut session, Some(0x80));
        assert!(serial[4..].starts_with(b"6d656d6f727980"));
        // Designators: NAA, T10, UUID, port number, port name.
        let names = inquiry(&mut session, Some(0x83));
        let (mut rest, mut kinds) = (&names[4..], Vec::new());
        while let [_, kind, _, length, ..] = rest {
            kinds.push(kind & 15);
            rest = &rest[4 + usize::from(*length)..];
        }
        assert_eq!((kinds, rest.len()), (vec![3, 1, 10, 4, 8], 0));
        assert!(names.windows(TARGET.len()).any(|part| part == TARGET.as_bytes()));
        let limits = inquiry(&mut session, Some(0xb0));
        assert!(limits[5] > 0 && u32_of(&limits, 8) == 16 << 10 && u32_of(&limits, 24) == 256, "{limits:?}");
        assert_eq!(inquiry(&mut session, Some(0xb2))[5] & 0xe0, 0xe0);
        let bad = session.run(0, &[0x12, 1, 0xc0, 0, 255, 0], Data::In(255));
        assert_eq!((bad.sense, bad.details.1), (INVALID_FIELD, 2));
        let absent = session.run(9, &[0x12, 0, 0, 0, 255, 0], Data::In(255)).good();
        assert_eq!(absent[0], 0x7f);

        let short = session.run(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Data::In(8)).good();
        assert_eq!((u64::from(u32_of(&short, 0)), u32_of(&short, 4)), (BLOCKS - 1, 512));
        let capacity = [&[0x9e, 0x10][..], &[0; 11], &[32, 0, 0]].concat();
        let long = session.run(0, &capacity, Data::In(32)).good();
        assert_eq!((u64_of(&long, 0), u32_of(&long, 8), long[13], long[14]), (BLOCKS - 1, 512, 3, 0xc0));
        let units = session.run(0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], Data::In(64)).good();
        assert_eq!((u32_of(&units, 0), units.len()), (8, 16));
    });
}

#[test]
fn modes_commands_and_sense_are_reported() {
    on_each_backend(|target| {
        let mut session = Session::new(target.address, PLAIN);
        let all = session.run(0, &[0x1a, 0, 0x3f, 0, 255, 0], Data::In(255)).good();
        assert_eq!((usize::from(all[0]), all[2], all[3]), (all.len() - 1, 0x10, 8));
        let long = session.run(0, &[0x5a, 0x08, 0x08, 0, 0, 0, 0, 0, 255, 0], Data::In(255)).good();
        assert_eq!((usize::from(u16_of(&long, 0)), long[8], long[10]), (long.len() - 2, 8, 4));
        assert_eq!(session.run(0, &[0x1a, 0, 0xff, 0, 255, 0], Data::In(255)).failed(), (5, 0x39, 0));
        assert_eq!(session.run(0, &[0x1a, 0, 0x2a, 0, 255, 0], Data::In(255)).failed(), INVALID_FIELD);
        let report = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0];
        let commands = session.run(0, &report, Data::In(4096)).good();
        assert_eq!(u32_of(&commands, 0) as usize, commands.len() - 4);
        let codes: Vec<u8> = commands[4..].chunks(8).map(|entry| entry[0]).collect();
        assert!([0x28, 0x2a, 0x42, 0x89, 0x93].iter().all(|code| codes.contains(code)), "{codes:?}");
        // Each reported command is known.
        for entry in commands[4..].chunks(8) {
            let mut block = vec![0; usize::from(u16_of(entry, 6))];
            (block[0], block[1]) = (entry[0], entry[3]);
            let done = session.run(0, &block, Data::None);
            assert_ne!(done.sense, (5, 0x20, 0), "{entry:?}");
        }
        let sense = session.run(0, &[3, 0, 0, 0, 252, 0], Data::In(252)).good();
        assert_eq!((sense[0], sense[2], sense.len()), (0x70, 0, 18));
        session.run(0, &[0x1b, 0, 0, 0, 1, 0], Data::None).good();
        assert_eq!(session.run(0, &[0x1b, 0, 0, 0, 2, 0], Data::None).failed(), INVALID_FIELD);
        session.run(0, &[0x1e, 0, 0, 0, 1, 0], Data::None).good();
    });
}

#[test]
fn a_read_only_unit_refuses_changes() {
    let options = TargetOptions { read_only: true, ..TargetOptions::default() };
    let target = Target::start(Backend::Auto, &options);
    let mut session = Session::new(target.address, PLAIN);
    let protected = (7, 0x27, 0);
    assert_eq!(session.read(0, 8).good(), [0; 4096]);
    assert_eq!(session.write(0, &[1; 4096]).failed(), protected);
    assert_eq!(session.run(0, &block_16(0x93, 0, 8), Data::Out(&[1; 512])).failed(), protected);
    assert_eq!(session.run(0, &block_16(0x8e, 0, 1), Data::Out(&[1; 512])).failed(), protected);
    let list = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 8, 0, 0, 0, 0]].concat();
    assert_eq!(session.run(0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], Data::Out(&list)).failed(), protected);
    let mut swap = block_16(0x89, 0, 0);
    swap[13] = 1;
    assert_eq!(session.run(0, &swap, Data::Out(&[0; 1024])).failed(), protected);
    let modes = session.run(0, &[0x1a, 8, 8, 0, 255, 0], Data::In(255)).good();
    assert_eq!(modes[2] & 0x80, 0x80);
}
