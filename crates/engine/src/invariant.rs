//! Access to data whose presence an invariant guarantees.
//!
//! A broken invariant must stop the daemon, which recovers at its next start, and must never become
//! a harmless value: a record with no CRCs would answer its writers without a change of the map.
//! Each call names the invariant, by its number in docs/invariants.md, in the panic's message.
//! Bytes from drives are verified before they are used here.

use std::ops::Range;

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "indexes and sizes have 64 bits");

/// Returns a part of a slice.
#[track_caller]
pub(crate) fn part<'a, T>(slice: &'a [T], range: Range<usize>, invariant: &str) -> &'a [T] {
    match slice.get(range.clone()) {
        Some(part) => part,
        None => panic!("{invariant}: {range:?} of {} elements", slice.len()),
    }
}

/// Returns an element of a slice.
#[track_caller]
pub(crate) fn element<T: Copy>(slice: &[T], index: usize, invariant: &str) -> T {
    match slice.get(index) {
        Some(element) => *element,
        None => panic!("{invariant}: element {index} of {}", slice.len()),
    }
}

/// Converts a number of 64 bits to an index or size, without loss.
pub(crate) const fn to_index(number: u64) -> usize {
    number as usize
}

/// Converts an index or size to 32 bits.
#[track_caller]
pub(crate) fn narrow(number: usize, invariant: &str) -> u32 {
    match u32::try_from(number) {
        Ok(number) => number,
        Err(_) => panic!("{invariant}: {number} does not fit into 32 bits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_data_is_returned() {
        assert_eq!(part(&[1, 2, 3], 1..3, "R3"), [2, 3]);
        assert_eq!(element(&[1, 2, 3], 2, "R3"), 3);
        assert_eq!((to_index(1 << 40), narrow(7, "R3")), (1 << 40, 7));
    }

    #[test]
    #[should_panic(expected = "R3: 2..4 of 3 elements")]
    fn a_missing_part_panics_with_the_invariant() {
        part(&[1, 2, 3], 2..4, "R3");
    }

    #[test]
    #[should_panic(expected = "R3: element 3 of 3")]
    fn a_missing_element_panics_with_the_invariant() {
        element(&[1, 2, 3], 3, "R3");
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_number_beyond_32_bits_panics() {
        narrow(1 << 32, "R3");
    }
}
