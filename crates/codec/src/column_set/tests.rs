//! Operations on sets of columns.

use proptest::prelude::*;

use super::*;

#[test]
fn insert_and_remove() {
    let mut set = ColumnSet::EMPTY;
    assert!(set.is_empty() && set.iter().next().is_none());
    assert!(set.insert(31) && set.insert(0) && !set.insert(31));
    assert!(set.contains(0) && set.contains(31) && !set.contains(1));
    assert!(!set.contains(32) && !set.contains(255), "numbers of MAX_COLUMNS or above are never in a set");
    assert_eq!((set.len(), set.iter().collect::<Vec<_>>()), (2, vec![0, 31]));
    assert!(set.remove(0) && !set.remove(0) && !set.remove(200));
    assert_eq!(set, [31].into_iter().collect());
}

#[test]
fn first_returns_the_lowest_columns() {
    for count in 0..=32 {
        assert_eq!(ColumnSet::first(count), (0..count).collect(), "{count}");
    }
}

#[test]
#[should_panic(expected = "below MAX_COLUMNS")]
fn inserting_a_column_of_32_or_above_panics() {
    let mut set = ColumnSet::EMPTY;
    set.insert(32);
}

#[test]
fn displays_its_columns() {
    let set: ColumnSet = [4, 0, 1].into_iter().collect();
    assert_eq!((format!("{set}"), format!("{set:?}")), ("{0,1,4}".into(), "{0,1,4}".into()));
    assert_eq!(ColumnSet::EMPTY.to_string(), "{}");
}

proptest! {
    #[test]
    fn set_operations_match_bit_operations(a: u32, b: u32) {
        let (x, y) = (ColumnSet::from_bits(a), ColumnSet::from_bits(b));
        prop_assert_eq!(x.difference(y).bits(), a & !b);
        prop_assert_eq!(x.iter().collect::<ColumnSet>(), x);
        prop_assert_eq!(x.iter().len(), usize::from(x.len()));
        prop_assert!(x.iter().is_sorted());
    }
}
