//! Enumeration of column combinations.

use super::*;

#[test]
fn every_combination_is_tried_once() {
    let mut seen = Vec::new();
    let present: ColumnSet = [0, 2, 3, 7, 9].into_iter().collect();
    assert!(!combinations(present, 3, |sources| {
        seen.push(sources);
        false
    }));
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|sources| sources.len() == 3));
    seen.sort_by_key(|sources| sources.bits());
    seen.dedup();
    assert_eq!(seen.len(), 10);
}

#[test]
fn the_search_ends_at_the_first_accepted_combination() {
    let mut tries = 0;
    assert!(combinations(ColumnSet::first(6), 4, |_| {
        tries += 1;
        tries == 3
    }));
    assert_eq!(tries, 3);
    assert!(!combinations(ColumnSet::first(2), 3, |_| true), "too few columns");
}
