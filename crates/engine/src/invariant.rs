//! Access to data whose presence an invariant guarantees.
//!
//! A broken invariant must stop the daemon, which recovers at its next start, and must never become
//! a harmless value: a record with no CRCs would answer its writers without a change of the map.
//! Each call names the invariant, by its number in docs/invariants.md, in the panic's message.
//! Bytes from drives are verified before they are used here.

use std::fmt::Display;
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

/// Converts a number to a smaller type, which an invariant guarantees to hold it.
#[track_caller]
pub(crate) fn narrow<T: TryFrom<N>, N: Copy + Display>(number: N, invariant: &str) -> T {
    match T::try_from(number) {
        Ok(number) => number,
        Err(_) => panic!("{invariant}: {number} does not fit into {} bits", 8 * size_of::<T>()),
    }
}

/// Returns a value that an invariant guarantees to exist.
#[track_caller]
pub(crate) fn present<T>(value: Option<T>, invariant: &str) -> T {
    match value {
        Some(value) => value,
        None => panic!("{invariant}: a {} is missing", std::any::type_name::<T>()),
    }
}

/// Converts a time in nanoseconds to 64 bits. Longer times, of more than 500 years, count as the
/// longest one.
pub(crate) fn clamped(nanoseconds: u128) -> u64 {
    u64::try_from(nanoseconds).map_or(u64::MAX, |nanoseconds| nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_data_is_returned() {
        assert_eq!(part(&[1, 2, 3], 1..3, "R3"), [2, 3]);
        assert_eq!(element(&[1, 2, 3], 2, "R3"), 3);
        assert_eq!((to_index(1 << 40), narrow::<u32, usize>(7, "R3")), (1 << 40, 7));
        assert_eq!((present(Some(3), "R3"), clamped(5), clamped(u128::MAX)), (3, 5, u64::MAX));
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
        narrow::<u32, u64>(1 << 32, "R3");
    }

    #[test]
    #[should_panic(expected = "C5: a u16 is missing")]
    fn a_missing_value_panics_with_the_invariant() {
        present(None::<u16>, "C5");
    }
}
