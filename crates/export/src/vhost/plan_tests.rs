//! Checks the division of data into transfers.

use std::os::fd::AsFd;

use proptest::prelude::*;

use super::super::memory::{GuestMemory, RegionLayout};
use super::super::testing::{GUEST, Guest, USER};
use super::*;

const LEN: u64 = 64 << 20;

fn memory() -> GuestMemory {
    let guest = Guest::new(LEN);
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap()
}

/// Returns segments of these lengths, none of them adjacent.
fn pieces(memory: &GuestMemory, lengths: &[u32]) -> Pieces {
    let mut pieces = Pieces::new();
    let mut at = GUEST;
    for len in lengths {
        assert!(memory.locate(at, *len, &mut pieces));
        at += u64::from(*len) + 1;
    }
    pieces
}

/// Returns the offset of each transfer and the lengths of its segments.
fn shape(parts: &[Part]) -> Vec<(u64, Vec<u32>)> {
    parts.iter().map(|part| (part.at, part.pieces.iter().map(|piece| piece.len).collect())).collect()
}

#[test]
fn one_piece_is_used_where_it_lies() {
    let memory = memory();
    for len in [512, 4096, 64 << 10, 1 << 20] {
        assert_eq!(shape(&plan(&pieces(&memory, &[len]), 512)), [(0, vec![len])]);
    }
    let parts = plan(&pieces(&memory, &[(2 << 20) + 512]), 512);
    assert_eq!(shape(&parts), [(0, vec![1 << 20]), (1 << 20, vec![1 << 20]), (2 << 20, vec![512])]);
}

#[test]
fn small_pieces_go_together_and_large_ones_alone() {
    let memory = memory();
    let scattered = plan(&pieces(&memory, &[4096; 256]), 512);
    assert_eq!(shape(&scattered), [(0, vec![4096; 256])]);
    let mixed = plan(&pieces(&memory, &[4096, 4096, 128 << 10, 4096]), 512);
    assert_eq!(shape(&mixed), [(0, vec![4096, 4096]), (8192, vec![128 << 10]), (139_264, vec![4096])]);
    let odd = plan(&pieces(&memory, &[100, 128 << 10, 412]), 512);
    assert_eq!(shape(&odd), [(0, vec![100, 128 << 10, 412])], "no segment starts on a sector boundary");
}

#[test]
fn a_write_up_to_256_kib_is_one_operation() {
    let memory = memory();
    for lengths in [&[4096, 128 << 10, 4096][..], &[512, 255 << 10, 512], &[100, 64 << 10, 412]] {
        let parts = plan_write(&pieces(&memory, lengths), 512);
        assert_eq!(shape(&parts), [(0, lengths.to_vec())]);
    }
    let larger = pieces(&memory, &[4096, 256 << 10]);
    assert_eq!(plan_write(&larger, 512), plan(&larger, 512));
}

proptest! {
    #[test]
    fn parts_cover_the_data_once_in_whole_sectors(
        lengths in prop::collection::vec(
            prop_oneof![4 => 1..10_000u32, 2 => (1..40u32).prop_map(|pages| pages * 4096), 1 => 1..3_000_000u32], 1..40),
        sector in prop_oneof![Just(512u32), Just(4096)],
    ) {
        let memory = memory();
        let mut lengths = lengths;
        let sum: u64 = lengths.iter().map(|len| u64::from(*len)).sum();
        let rest = sum % u64::from(sector);
        if rest > 0 {
            lengths.push(sector - rest as u32);
        }
        let pieces = pieces(&memory, &lengths);
        let parts = plan(&pieces, sector);
        let mut at = 0;
        let mut bytes = Vec::new();
        for part in &parts {
            let len: u64 = part.pieces.iter().map(|piece| u64::from(piece.len)).sum();
            prop_assert_eq!(part.at, at);
            prop_assert!(len > 0 && len.is_multiple_of(u64::from(sector)));
            prop_assert!(len <= GATHER_MAX.max(SEGMENT_BYTES_MAX.into()));
            at += len;
            bytes.extend(part.pieces.iter().map(|piece| (memory.guest_address(piece), piece.len)));
        }
        // The same bytes in the same order, for any division.
        let join = |list: Vec<(u64, u32)>| list.into_iter().fold(Vec::<(u64, u64)>::new(), |mut joined, (start, len)| {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == start => last.1 += u64::from(len),
                _ => joined.push((start, len.into())),
            }
            joined
        });
        let wanted = pieces.iter().map(|piece| (memory.guest_address(piece), piece.len)).collect();
        prop_assert_eq!(join(bytes), join(wanted));
    }
}
