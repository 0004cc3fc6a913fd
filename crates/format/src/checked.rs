//! Conversions that panic where a limit of the format is broken.
//!
//! A count that its field cannot hold must never be stored as another one: a reader would take the
//! rest of the list for something else. Limits are checked before anything is encoded.

use std::fmt::Display;

/// Converts a number to a smaller type, which `limit` guarantees to hold it.
#[track_caller]
pub(crate) fn narrow<T: TryFrom<N>, N: Copy + Display>(number: N, limit: &str) -> T {
    match T::try_from(number) {
        Ok(number) => number,
        Err(_) => panic!("{limit}: {number} does not fit into {} bits", 8 * size_of::<T>()),
    }
}

/// Returns the stored form of a value, from the table of all values.
#[track_caller]
pub(crate) fn code_of<T: Copy + PartialEq>(table: &[(u8, T)], value: T) -> u8 {
    match table.iter().find(|(_, other)| *other == value) {
        Some((code, _)) => *code,
        None => panic!("a value of {} has no stored form", std::any::type_name::<T>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_the_limits_are_converted() {
        assert_eq!((narrow::<u8, usize>(255, "count"), code_of(&[(1, 'a'), (2, 'b')], 'b')), (255, 2));
    }

    #[test]
    #[should_panic(expected = "items: 65536 does not fit into 16 bits")]
    fn a_count_beyond_its_field_panics() {
        narrow::<u16, usize>(1 << 16, "items");
    }

    #[test]
    #[should_panic(expected = "no stored form")]
    fn a_value_outside_the_table_panics() {
        code_of(&[(1, 'a')], 'c');
    }
}
