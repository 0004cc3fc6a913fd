//! CRC-32C of 4 KiB blocks: codec against ISA-L and crc-fast.
//!
//! Owns these comparisons, over blocks that lie in the first cache, the second, and memory.

use crate::isal;
use crate::measure::{Contestant, Effort, compare};
use crate::memory::Stripes;
use crate::report::Case;

const BLOCK: usize = 4096;

/// One case for each place the blocks lie in.
pub fn compare_crc(effort: Effort) -> Vec<Case> {
    [("L1", 4), ("L2", 128), ("memory", (192 << 20) / BLOCK)].map(|(resident, count)| case(effort, resident, count)).into()
}

fn case(effort: Effort, resident: &'static str, count: usize) -> Case {
    let stripes = Stripes::new(count, 1, BLOCK);
    // SAFETY: nothing writes the blocks.
    let block = |turn| unsafe { stripes.slice(stripes.columns(turn)[0]) };
    let expected = codec::crc32c(block(0));
    let right = [isal::crc32c(block(0)), crc_fast::crc32_iscsi(block(0))];
    let mut contestants = [
        Contestant::new("codec", |turn| {
            std::hint::black_box(codec::crc32c(block(turn)));
        }),
        Contestant::new("isal crc32_iscsi", |turn| {
            std::hint::black_box(isal::crc32c(block(turn)));
        }),
        Contestant::new("crc-fast", |turn| {
            std::hint::black_box(crc_fast::crc32_iscsi(block(turn)));
        }),
    ];
    Case {
        work: "crc32c".into(),
        column: BLOCK,
        resident,
        bytes: BLOCK,
        right: (1 + right.iter().filter(|&&r| r == expected).count(), 3),
        outcomes: compare(effort, &mut contestants),
    }
}
