//! The list of implementations of this machine.

use super::*;

#[test]
fn the_oracle_is_always_available_and_last() {
    let all = implementations();
    assert_eq!(all.last(), Some(&Implementation::SCALAR));
    assert_eq!(all.first(), Some(&Implementation::best()));
    let mut names: Vec<_> = all.iter().map(|i| i.to_string()).collect();
    names.dedup();
    assert_eq!(names.len(), all.len(), "{all:?}");
}
