//! The rotation of volume numbers alone.

use super::*;

#[test]
fn numbers_rotate_and_skip_used_ones() {
    let mut ids = RetiredIds::default();
    let numbers: Vec<u32> = (0..4).map(|_| ids.next_free(|id| id.get() == 3).unwrap().get()).collect();
    assert_eq!(numbers, [1, 2, 4, 5], "number 3 is in use");
}

#[test]
fn the_rotation_begins_again_after_the_last_number() {
    let mut ids = RetiredIds { last: VOLUMES_MAX - 2, ..RetiredIds::default() };
    let mut next = || ids.next_free(|id| id.get() == 2).unwrap().get();
    assert_eq!([next(), next(), next()], [VOLUMES_MAX - 1, 1, 3]);
}

#[test]
fn the_last_free_number_is_found_and_then_none() {
    let mut ids = RetiredIds { last: 7, ..RetiredIds::default() };
    assert_eq!(ids.next_free(|id| id.get() != 7).map(VolumeId::get), Some(7));
    assert_eq!(ids.next_free(|_| true), None);
}
