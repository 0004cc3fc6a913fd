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
fn segments(memory: &GuestMemory, lengths: &[u32]) -> GuestSegments {
    let mut segments = GuestSegments::new();
    let mut at = GUEST;
    for len in lengths {
        assert!(memory.locate(at, *len, &mut segments));
        at += u64::from(*len) + 1;
    }
    segments
}

/// Returns the offset of each transfer and the lengths of its segments.
fn shape(transfers: &[Transfer]) -> Vec<(u64, Vec<u32>)> {
    transfers
        .iter()
        .map(|transfer| (transfer.at, transfer.segments.iter().map(|segment| segment.len).collect()))
        .collect()
}

#[test]
fn a_single_segment_is_transferred_directly() {
    let memory = memory();
    for len in [512, 4096, 64 << 10, 1 << 20] {
        assert_eq!(shape(&plan(&segments(&memory, &[len]), 512)), [(0, vec![len])]);
    }
    let transfers = plan(&segments(&memory, &[(2 << 20) + 512]), 512);
    assert_eq!(shape(&transfers), [(0, vec![1 << 20]), (1 << 20, vec![1 << 20]), (2 << 20, vec![512])]);
}

#[test]
fn small_segments_share_a_buffer_and_large_ones_are_direct() {
    let memory = memory();
    let scattered = plan(&segments(&memory, &[4096; 256]), 512);
    assert_eq!(shape(&scattered), [(0, vec![4096; 256])]);
    let mixed = plan(&segments(&memory, &[4096, 4096, 128 << 10, 4096]), 512);
    assert_eq!(shape(&mixed), [(0, vec![4096, 4096]), (8192, vec![128 << 10]), (139_264, vec![4096])]);
    let odd = plan(&segments(&memory, &[100, 128 << 10, 412]), 512);
    assert_eq!(shape(&odd), [(0, vec![100, 128 << 10, 412])], "no segment starts on a sector boundary");
}

#[test]
fn a_write_up_to_256_kib_is_one_operation() {
    let memory = memory();
    for lengths in [&[4096, 128 << 10, 4096][..], &[512, 255 << 10, 512], &[100, 64 << 10, 412]] {
        let transfers = plan_write(&segments(&memory, lengths), 512);
        assert_eq!(shape(&transfers), [(0, lengths.to_vec())]);
    }
    let larger = segments(&memory, &[4096, 256 << 10]);
    assert_eq!(plan_write(&larger, 512), plan(&larger, 512));
}

proptest! {
    #[test]
    fn transfers_cover_the_data_once_in_whole_sectors(
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
        let segments = segments(&memory, &lengths);
        let transfers = plan(&segments, sector);
        let mut at = 0;
        let mut bytes = Vec::new();
        for transfer in &transfers {
            let len: u64 = transfer.segments.iter().map(|segment| u64::from(segment.len)).sum();
            prop_assert_eq!(transfer.at, at);
            prop_assert!(len > 0 && len.is_multiple_of(u64::from(sector)));
            prop_assert!(len <= BOUNCE_BUFFER_MAX.max(SEGMENT_BYTES_MAX.into()));
            at += len;
            bytes.extend(transfer.segments.iter().map(|segment| (memory.guest_address(segment), segment.len)));
        }
        // The same bytes in the same order, for any division.
        let join = |list: Vec<(u64, u32)>| list.into_iter().fold(Vec::<(u64, u64)>::new(), |mut joined, (start, len)| {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == start => last.1 += u64::from(len),
                _ => joined.push((start, len.into())),
            }
            joined
        });
        let wanted = segments.iter().map(|segment| (memory.guest_address(segment), segment.len)).collect();
        prop_assert_eq!(join(bytes), join(wanted));
    }
}
