//! Checks the translation of guest addresses.

use std::os::fd::AsFd;

use super::super::testing::{GUEST, Guest, USER};
use super::*;

fn region(guest: u64, len: u64, offset: u64) -> RegionLayout {
    RegionLayout { guest, user: guest.wrapping_add(USER - GUEST), len, offset }
}

/// Returns 16 pages in two regions of 8, adjacent for the guest but not in the file, then a hole,
/// then 8 pages.
fn memory() -> (Guest, GuestMemory) {
    let guest = Guest::new(24 * 4096);
    let memory = [(GUEST, 8 * 4096), (GUEST + 8 * 4096, 0), (GUEST + 32 * 4096, 16 * 4096)]
        .into_iter()
        .fold(GuestMemory::empty(), |memory, (at, offset)| {
            memory.with(region(at, 8 * 4096, offset), guest.file.as_fd()).unwrap()
        });
    (guest, memory)
}

fn locate(memory: &GuestMemory, guest: u64, len: u32) -> Option<GuestSegments> {
    let mut segments = GuestSegments::new();
    memory.locate(guest, len, &mut segments).then_some(segments)
}

#[test]
fn a_range_across_regions_has_several_segments() {
    let (_, memory) = memory();
    let segments = locate(&memory, GUEST + 7 * 4096, 8192).unwrap();
    assert_eq!(segments.len(), 2);
    assert_eq!(memory.guest_address(&segments[0]), GUEST + 7 * 4096);
    assert_eq!(memory.guest_address(&segments[1]), GUEST + 8 * 4096);
    let spans: Vec<_> = segments.iter().map(|segment| memory.span(segment)).collect();
    spans[1].copy_from(0, b"second");
    let mut bytes = [0; 6];
    assert!(memory.read(&segments[1], &mut bytes));
    assert_eq!(&bytes, b"second");
    assert!(!memory.read_at(GUEST + 8 * 4096 - 3, &mut bytes), "a value across two regions was read");
}

#[test]
fn adjacent_ranges_are_one_segment() {
    let (_, memory) = memory();
    let mut segments = GuestSegments::new();
    for page in 0..4 {
        assert!(memory.locate(GUEST + page * 4096, 4096, &mut segments));
    }
    assert!(memory.locate(GUEST, 1, &mut segments));
    assert_eq!(segments.iter().map(|segment| segment.len).collect::<Vec<_>>(), [4 * 4096, 1]);
}

#[test]
fn addresses_outside_of_memory_are_not_located() {
    let (_, memory) = memory();
    for (guest, len) in [
        (GUEST - 1, 1),
        (GUEST + 16 * 4096, 1),
        (GUEST + 15 * 4096, 4097),
        (GUEST + 40 * 4096 - 1, 2),
        (u64::MAX, 2),
        (0, u32::MAX),
        (GUEST, u32::MAX),
    ] {
        assert!(locate(&memory, guest, len).is_none(), "{len} bytes at {guest:#x}");
    }
    assert_eq!(locate(&memory, u64::MAX, 0).unwrap().len(), 0);
}

#[test]
fn regions_do_not_overlap() {
    let (guest, memory) = memory();
    let add = |at, len| memory.with(region(at, len, 0), guest.file.as_fd());
    assert!(matches!(add(GUEST + 4096, 4096), Err(MemoryError::Overlap(_))));
    assert!(matches!(add(GUEST - 4096, 4097), Err(MemoryError::Overlap(_))));
    assert!(matches!(add(GUEST - 4096, 100 * 4096), Err(MemoryError::Overlap(_))));
    assert!(matches!(add(u64::MAX - 4095, 8192), Err(MemoryError::Overlap(_))));
    assert!(matches!(add(GUEST + 64 * 4096, 25 * 4096), Err(MemoryError::Map { .. })));
    assert!(add(GUEST - 4096, 4096).is_ok());
}

#[test]
fn a_removed_region_lives_while_it_is_used() {
    let (guest, memory) = memory();
    let segment = locate(&memory, GUEST, 8).unwrap()[0];
    let span = memory.span(&segment);
    let less = memory.without(GUEST, USER, 8 * 4096).unwrap();
    drop(memory);
    assert!(locate(&less, GUEST, 1).is_none());
    assert!(locate(&less, GUEST + 8 * 4096, 1).is_some());
    assert!(matches!(less.without(GUEST, USER, 8 * 4096), Err(MemoryError::Unknown { .. })));
    span.copy_from(0, b"still");
    assert_eq!(guest.read(GUEST + 8 * 4096, 5), b"still");
}

#[test]
fn the_number_of_regions_is_limited() {
    let guest = Guest::new(4096);
    let mut memory = GuestMemory::empty();
    for index in 0..REGIONS_MAX as u64 {
        memory = memory.with(region(GUEST + index * 4096, 4096, 0), guest.file.as_fd()).unwrap();
    }
    let more = memory.with(region(GUEST - 4096, 4096, 0), guest.file.as_fd());
    assert!(matches!(more, Err(MemoryError::TooMany)));
}

#[test]
fn rings_are_located_by_front_end_addresses() {
    let (_, memory) = memory();
    assert!(memory.window_at_user(USER + 16, 64, 16).is_some());
    assert!(memory.window_at_user(USER + 8, 64, 16).is_none());
    assert!(memory.window_at_user(GUEST, 64, 16).is_none());
    assert!(memory.window_at_user(USER + 8 * 4096 - 32, 64, 16).is_none(), "a window across two regions");
    assert!(memory.window_at_user(u64::MAX - 15, 64, 16).is_none());
}
