//! CRC-32C of 4 KiB blocks: codec against ISA-L and crc-fast; and looking for zeros.
//!
//! Owns these comparisons, over blocks that lie in the first cache, the second, and memory.

use std::hint::black_box;

use crate::isal;
use crate::measure::{Contestant, Effort, Way, compare};
use crate::memory::{MEMORY, Stripes};
use crate::report::Case;

const BLOCK: usize = 4096;

/// One case for each place the blocks lie in.
pub fn compare_crc(effort: Effort) -> Vec<Case> {
    [("L1", 4), ("L2", 128), ("memory", MEMORY / BLOCK)]
        .map(|(resident, count)| case(effort, resident, count))
        .into()
}

fn case(effort: Effort, resident: &'static str, count: usize) -> Case {
    let stripes = Stripes::new(count, 1, BLOCK);
    // SAFETY: nothing writes the blocks.
    let block = |turn| unsafe { stripes.slice(stripes.columns(turn)[0]) };
    let ways: [Way<'_, &[u8], u32>; 3] = [
        ("codec", &codec::crc32c),
        ("isal crc32_iscsi", &isal::crc32c),
        ("crc-fast", &crc_fast::crc32_iscsi),
    ];
    let expected = codec::crc32c(block(0));
    let right = ways.iter().filter(|(_, way)| way(block(0)) == expected).count();
    let mut contestants: Vec<Contestant<'_>> = ways
        .iter()
        .map(|&(name, way)| {
            Contestant::new(name, move |turn| {
                black_box(way(block(turn)));
            })
        })
        .collect();
    Case {
        work: "crc32c".into(),
        column: BLOCK,
        resident: resident.into(),
        bytes: BLOCK,
        right: (right, contestants.len()),
        outcomes: compare(effort, &mut contestants),
    }
}

/// Runs of 64 blocks, as a long read brings them: one call against one for each.
pub fn compare_blocks(effort: Effort) -> Vec<Case> {
    const RUN: usize = 64;
    [("L2", 1), ("memory", MEMORY / BLOCK / RUN)]
        .map(|(resident, count)| {
            let stripes = Stripes::new(count, 1, RUN * BLOCK);
            // SAFETY: nothing writes the blocks.
            let run = |turn| unsafe { stripes.slice(stripes.columns(turn)[0]) };
            let at_once = |turn| {
                let mut crcs = [0; RUN];
                codec::crc32c_blocks(run(turn), BLOCK, &mut crcs);
                crcs
            };
            let ways: [Way<'_, usize, [u32; RUN]>; 3] = [
                ("crc32c_blocks", &at_once),
                ("crc32c", &|turn| std::array::from_fn(|i| codec::crc32c(&run(turn)[i * BLOCK..][..BLOCK]))),
                ("isal crc32_iscsi", &|turn| {
                    std::array::from_fn(|i| isal::crc32c(&run(turn)[i * BLOCK..][..BLOCK]))
                }),
            ];
            let expected = at_once(0);
            let right = ways.iter().filter(|(_, way)| way(0) == expected).count();
            let mut contestants = ways.map(|(name, way)| {
                Contestant::new(name, move |turn| {
                    black_box(way(turn));
                })
            });
            Case {
                work: "crc32c of 64".into(),
                column: BLOCK,
                resident: resident.into(),
                bytes: RUN * BLOCK,
                right: (right, contestants.len()),
                outcomes: compare(effort, &mut contestants),
            }
        })
        .into()
}

/// A block of zeros in the first cache, and one that is not.
pub fn compare_zero(effort: Effort) -> Vec<Case> {
    let zeros = [0u8; BLOCK];
    let mut noise = zeros;
    noise[3] = 1;
    let case = |work: &str, block: &[u8; BLOCK], zero: bool| Case {
        work: work.into(),
        column: BLOCK,
        resident: "L1".into(),
        bytes: BLOCK,
        right: (usize::from(codec::is_zero(block) == zero), 1),
        outcomes: compare(
            effort,
            &mut [Contestant::new("codec", |_| {
                black_box(codec::is_zero(black_box(block)));
            })],
        ),
    };
    vec![case("is_zero of zeros", &zeros, true), case("is_zero of others", &noise, false)]
}
