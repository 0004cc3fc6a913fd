//! Walks of arbitrary descriptors end and collect the memory that the specification defines.

use std::os::fd::AsFd;

use proptest::prelude::*;

use super::super::memory::RegionLayout;
use super::super::testing::{self, Driver, GUEST, Guest, USER};
use super::*;

const SIZE: u16 = 16;
const LEN: u64 = 64 * 4096;

fn setup() -> (Driver, GuestMemory) {
    let guest = Guest::new(LEN);
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    let memory = GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap();
    (Driver::new(&guest, GUEST, SIZE), memory)
}

fn table(memory: &GuestMemory) -> Window {
    memory.window_at_user(USER, usize::from(SIZE) * DESCRIPTOR, 16).unwrap()
}

fn walk(memory: &GuestMemory, head: u16) -> (Result<(), ChainError>, Chain) {
    let mut chain = Chain::default();
    let result = chain.walk(&table(memory), head, memory);
    (result, chain)
}

/// Returns addresses and lengths of segments.
fn listed(memory: &GuestMemory, segments: &GuestSegments) -> Vec<(u64, u32)> {
    segments.iter().map(|segment| (memory.guest_address(segment), segment.len)).collect()
}

fn descriptor(address: u64, len: u32, flags: u16, next: u16) -> testing::Descriptor {
    testing::Descriptor { address, len, flags, next }
}

const DATA: u64 = GUEST + 16 * 4096;

#[test]
fn a_chain_is_collected_in_order() {
    let (driver, memory) = setup();
    driver.chain(
        3,
        &[(DATA, 16, false), (DATA + 100, 7, false), (DATA + 4096, 512, true), (DATA + 9000, 1, true)],
    );
    let (result, chain) = walk(&memory, 3);
    assert_eq!(result, Ok(()));
    assert_eq!(listed(&memory, &chain.readable), [(DATA, 16), (DATA + 100, 7)]);
    assert_eq!(listed(&memory, &chain.writable), [(DATA + 4096, 512), (DATA + 9000, 1)]);
}

#[test]
fn an_indirect_table_need_not_be_aligned() {
    let (driver, memory) = setup();
    let at = GUEST + 8 * 4096 + 3;
    let entries =
        [descriptor(DATA, 16, NEXT, 2), descriptor(0, 0, 0, 0), descriptor(DATA + 4096, 4096, WRITE, 0)];
    entries
        .iter()
        .enumerate()
        .for_each(|(index, entry)| driver.guest.write(at + index as u64 * 16, &entry.bytes()));
    driver.set(5, descriptor(at, 48, INDIRECT, 0));
    let (result, chain) = walk(&memory, 5);
    assert_eq!(result, Ok(()));
    assert_eq!(listed(&memory, &chain.readable), [(DATA, 16)]);
    assert_eq!(listed(&memory, &chain.writable), [(DATA + 4096, 4096)]);
    // A table may end a chain of other descriptors.
    driver.set(4, descriptor(DATA + 16, 4, NEXT, 5));
    let (result, chain) = walk(&memory, 4);
    assert_eq!(result, Ok(()));
    assert_eq!(listed(&memory, &chain.readable), [(DATA + 16, 4), (DATA, 16)]);
}

#[test]
fn each_error_is_distinguished() {
    let (driver, memory) = setup();
    let table = GUEST + 8 * 4096;
    let nested = descriptor(table, 16, INDIRECT, 0);
    let looped = descriptor(DATA, 1, NEXT, 0);
    let outside = descriptor(DATA, 1, NEXT, 1);
    driver.guest.write(table, &nested.bytes());
    driver.guest.write(table + 16, &looped.bytes());
    driver.guest.write(table + 32, &outside.bytes());
    for (bad, expected) in [
        (descriptor(DATA, 1, NEXT, 0), ChainError::Endless),
        (descriptor(DATA, 1, NEXT, SIZE), ChainError::Index),
        (descriptor(DATA, 1, NEXT, u16::MAX), ChainError::Index),
        (descriptor(GUEST + LEN, 1, 0, 0), ChainError::Address),
        (descriptor(GUEST + LEN - 1, 2, WRITE, 0), ChainError::Address),
        (descriptor(DATA, u32::MAX, WRITE, 0), ChainError::Address),
        (descriptor(table, 16, INDIRECT, 0), ChainError::Indirect),
        (descriptor(table, 15, INDIRECT, 0), ChainError::Indirect),
        (descriptor(table, 0, INDIRECT, 0), ChainError::Indirect),
        (descriptor(table + 16, 16, INDIRECT, 0), ChainError::Endless),
        (descriptor(table + 32, 16, INDIRECT, 0), ChainError::Index),
        (descriptor(GUEST + LEN - 8, 16, INDIRECT, 0), ChainError::Address),
        (descriptor(u64::MAX - 7, 32, INDIRECT, 0), ChainError::Address),
        (descriptor(u64::MAX, u32::MAX - 15, INDIRECT, 0), ChainError::Address),
    ] {
        driver.set(0, bad);
        let (result, _) = walk(&memory, 0);
        assert_eq!(result, Err(expected), "{bad:?}");
    }
    driver.set(0, descriptor(table + 32, 16, INDIRECT | NEXT, 1));
    assert!(walk(&memory, 0).0.is_err());
    driver.chain(0, &[(DATA, 1, true), (DATA, 1, false), (DATA + 8, 1, true)]);
    let (result, chain) = walk(&memory, 0);
    assert_eq!(result, Err(ChainError::Order));
    assert_eq!(
        listed(&memory, &chain.writable).last(),
        Some(&(DATA + 8, 1)),
        "a status can still be written"
    );
    assert_eq!(walk(&memory, SIZE).0, Err(ChainError::Index));
}

/// Implements the specification on a list of descriptors.
fn expected(table: &[testing::Descriptor], head: u16) -> Option<[Vec<(u64, u32)>; 2]> {
    let (mut readable, mut writable) = (Vec::new(), Vec::new());
    let mut index = usize::from(head);
    for _ in 0..1024 {
        let found = table.get(index)?;
        let inside =
            found.len == 0 || (found.address >= GUEST && found.address - GUEST + u64::from(found.len) <= LEN);
        if !inside || found.flags & INDIRECT != 0 {
            return None;
        }
        if found.flags & WRITE != 0 {
            writable.push((found.address, found.len));
        } else if writable.iter().all(|(_, len)| *len == 0) {
            readable.push((found.address, found.len));
        } else {
            return None;
        }
        if found.flags & NEXT == 0 {
            return Some([readable, writable]);
        }
        index = usize::from(found.next);
    }
    None
}

/// Joins adjacent ranges and removes empty ones.
fn joined(parts: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let mut joined: Vec<(u64, u32)> = Vec::new();
    for (address, len) in parts.iter().filter(|(_, len)| *len > 0) {
        match joined.last_mut() {
            Some(last) if last.0 + u64::from(last.1) == *address => last.1 += len,
            _ => joined.push((*address, *len)),
        }
    }
    joined
}

fn any_descriptor() -> impl Strategy<Value = testing::Descriptor> {
    let address = prop_oneof![
        8 => (0..LEN).prop_map(|at| GUEST + at),
        1 => any::<u64>(),
        1 => Just(GUEST + LEN),
    ];
    let len = prop_oneof![8 => 0..8192u32, 1 => any::<u32>()];
    let flags = prop_oneof![12 => 0..4u16, 1 => any::<u16>()];
    let next = prop_oneof![12 => 0..SIZE, 1 => any::<u16>()];
    (address, len, flags, next).prop_map(|(address, len, flags, next)| descriptor(address, len, flags, next))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_table_is_walked_as_specified(
        table in prop::collection::vec(any_descriptor(), usize::from(SIZE)),
        head in 0..SIZE,
    ) {
        let (driver, memory) = setup();
        table.iter().enumerate().for_each(|(index, one)| driver.set(index as u16, *one));
        let (result, chain) = walk(&memory, head);
        let simple = table.iter().all(|one| one.flags & INDIRECT == 0);
        match expected(&table, head) {
            Some([readable, writable]) => {
                prop_assert_eq!(result, Ok(()));
                prop_assert_eq!(listed(&memory, &chain.readable), joined(&readable));
                prop_assert_eq!(listed(&memory, &chain.writable), joined(&writable));
            }
            None => prop_assert!(result.is_err() || !simple),
        }
    }

    #[test]
    fn any_indirect_table_walk_ends(bytes in prop::collection::vec(any_descriptor(), 1..40), len in 0..2000u32) {
        let (driver, memory) = setup();
        let at = GUEST + 8 * 4096;
        bytes.iter().enumerate().for_each(|(index, one)| driver.guest.write(at + index as u64 * 16, &one.bytes()));
        driver.set(0, descriptor(at, len, INDIRECT, 0));
        let (result, chain) = walk(&memory, 0);
        let entries = &bytes[..bytes.len().min(len as usize / 16)];
        if len % 16 == 0 && len as usize / 16 <= bytes.len() && let Some([readable, writable]) = expected(entries, 0) {
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(listed(&memory, &chain.readable), joined(&readable));
            prop_assert_eq!(listed(&memory, &chain.writable), joined(&writable));
        } else {
            let zeros_follow = len as usize / 16 > bytes.len();
            prop_assert!(result.is_err() || zeros_follow || entries.iter().any(|one| one.flags & INDIRECT != 0));
        }
    }
}
