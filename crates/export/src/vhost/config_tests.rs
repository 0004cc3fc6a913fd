//! Checks the configuration space field by field.

use super::*;

const DEVICE: DeviceConfig =
    DeviceConfig { size: 3 << 30, sector: 512, preferred: 4096, read_only: false, queues: 4 };

fn number(space: &[u8], at: usize, len: usize) -> u64 {
    space[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[test]
fn fields_are_at_their_specified_offsets() {
    let space = config(&DEVICE);
    let fields = [
        ("capacity", 0, 8, (3 << 30) / 512),
        ("size_max", 8, 4, 1 << 20),
        ("seg_max", 12, 4, 254),
        ("blk_size", 20, 4, 512),
        ("physical_block_exp", 24, 1, 3),
        ("min_io_size", 26, 2, 8),
        ("writeback", 32, 1, 1),
        ("num_queues", 34, 2, 4),
        ("max_discard_sectors", 36, 4, 1 << 23),
        ("max_discard_seg", 40, 4, 16),
        ("discard_sector_alignment", 44, 4, 8),
        ("max_write_zeroes_sectors", 48, 4, 1 << 23),
        ("max_write_zeroes_seg", 52, 4, 16),
        ("write_zeroes_may_unmap", 56, 1, 1),
    ];
    for (name, at, len, expected) in fields {
        assert_eq!(number(&space, at, len), expected, "{name}");
    }
}

#[test]
fn large_logical_blocks_equal_physical_blocks() {
    let space = config(&DeviceConfig { sector: 4096, ..DEVICE });
    assert_eq!((number(&space, 20, 4), number(&space, 24, 1), number(&space, 26, 2)), (4096, 0, 1));
    assert_eq!(number(&space, 44, 4), 8, "in sectors of 512 bytes");
}

#[test]
fn a_read_only_disk_offers_no_writes() {
    let (both, none) = (features(&DEVICE), features(&DeviceConfig { read_only: true, ..DEVICE }));
    assert_eq!(both & (1 << 5), 0);
    assert_eq!(none & (1 << 5), 1 << 5);
    assert_eq!(none & (1 << 13 | 1 << 14), 0);
    assert_eq!(both & (1 << 13 | 1 << 14), 1 << 13 | 1 << 14);
    for bit in [9, 12, 26, 28, 29, 30, 32] {
        assert_eq!(both & none & 1 << bit, 1 << bit, "bit {bit}");
    }
}
