//! CRC-32C of 4 KiB blocks, codec against ISA-L and crc-fast; and detection of zeros.
//!
//! Owns these comparisons, over blocks in the L1 cache, the L2 cache and memory.

use std::hint::black_box;

use crate::isal;
use crate::measure::{Candidate, Sampling, Variant, compare};
use crate::memory::{MEMORY, Stripes};
use crate::report::Comparison;

const BLOCK: usize = 4096;

/// Compares one case for each residence of the blocks.
pub fn compare_crc(sampling: Sampling) -> Vec<Comparison> {
    [("L1", 4), ("L2", 128), ("memory", MEMORY / BLOCK)]
        .map(|(residence, count)| case(sampling, residence, count))
        .into()
}

fn case(sampling: Sampling, residence: &'static str, count: usize) -> Comparison {
    let stripes = Stripes::new(count, 1, BLOCK);
    // SAFETY: nothing writes the blocks.
    let block = |iteration| unsafe { stripes.slice(stripes.columns(iteration)[0]) };
    let variants: [Variant<'_, &[u8], u32>; 3] = [
        ("codec", &codec::crc32c),
        ("isal crc32_iscsi", &isal::crc32c),
        ("crc-fast", &crc_fast::crc32_iscsi),
    ];
    let expected = codec::crc32c(block(0));
    let correct = variants.iter().filter(|(_, variant)| variant(block(0)) == expected).count();
    let mut candidates: Vec<Candidate<'_>> = variants
        .iter()
        .map(|&(name, variant)| {
            Candidate::new(name, move |iteration| {
                black_box(variant(block(iteration)));
            })
        })
        .collect();
    Comparison {
        work: "crc32c".into(),
        column: BLOCK,
        residence: residence.into(),
        bytes: BLOCK,
        correct: (correct, candidates.len()),
        measurements: compare(sampling, &mut candidates),
    }
}

/// Compares runs of 64 blocks, like those of a long read: one call for the run against one call per
/// block.
pub fn compare_blocks(sampling: Sampling) -> Vec<Comparison> {
    const RUN: usize = 64;
    [("L2", 1), ("memory", MEMORY / BLOCK / RUN)]
        .map(|(residence, count)| {
            let stripes = Stripes::new(count, 1, RUN * BLOCK);
            // SAFETY: nothing writes the blocks.
            let run = |iteration| unsafe { stripes.slice(stripes.columns(iteration)[0]) };
            let in_one_call = |iteration| {
                let mut crcs = [0; RUN];
                codec::crc32c_blocks(run(iteration), BLOCK, &mut crcs);
                crcs
            };
            let variants: [Variant<'_, usize, [u32; RUN]>; 3] = [
                ("crc32c_blocks", &in_one_call),
                ("crc32c", &|iteration| {
                    std::array::from_fn(|i| codec::crc32c(&run(iteration)[i * BLOCK..][..BLOCK]))
                }),
                ("isal crc32_iscsi", &|iteration| {
                    std::array::from_fn(|i| isal::crc32c(&run(iteration)[i * BLOCK..][..BLOCK]))
                }),
            ];
            let expected = in_one_call(0);
            let correct = variants.iter().filter(|(_, variant)| variant(0) == expected).count();
            let mut candidates = variants.map(|(name, variant)| {
                Candidate::new(name, move |iteration| {
                    black_box(variant(iteration));
                })
            });
            Comparison {
                work: "crc32c of 64".into(),
                column: BLOCK,
                residence: residence.into(),
                bytes: RUN * BLOCK,
                correct: (correct, candidates.len()),
                measurements: compare(sampling, &mut candidates),
            }
        })
        .into()
}

/// Compares a block of zeros in the L1 cache, and a nonzero one.
pub fn compare_zero(sampling: Sampling) -> Vec<Comparison> {
    let zeros = [0u8; BLOCK];
    let mut noise = zeros;
    noise[3] = 1;
    let case = |work: &str, block: &[u8; BLOCK], zero: bool| Comparison {
        work: work.into(),
        column: BLOCK,
        residence: "L1".into(),
        bytes: BLOCK,
        correct: (usize::from(codec::is_zero(block) == zero), 1),
        measurements: compare(
            sampling,
            &mut [Candidate::new("codec", |_| {
                black_box(codec::is_zero(black_box(block)));
            })],
        ),
    };
    vec![case("is_zero of zeros", &zeros, true), case("is_zero of others", &noise, false)]
}
