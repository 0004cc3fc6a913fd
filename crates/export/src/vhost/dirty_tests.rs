//! Checks that exactly the changed pages are marked.

use std::os::fd::AsFd;

use super::super::testing::{GUEST, Guest};
use super::*;

fn marked(guest: &Guest, from: u64, len: usize) -> Vec<u64> {
    let bytes = guest.read(GUEST + from, len);
    (0..len as u64 * 8).filter(|page| bytes[(page / 8) as usize] & 1 << (page % 8) != 0).collect()
}

#[test]
fn every_changed_page_is_marked() {
    let guest = Guest::new(8192);
    let log = DirtyLog::new(guest.file.as_fd(), 4096, 64).unwrap();
    log.mark(0, 1);
    log.mark(3 * 4096 - 1, 2);
    log.mark(9 * 4096, 4096);
    log.mark(100, 0);
    assert_eq!(marked(&guest, 4096, 64), [0, 2, 3, 9]);
    assert!(marked(&guest, 0, 4096).is_empty());
}

#[test]
fn pages_beyond_the_log_are_ignored() {
    let guest = Guest::new(4096);
    let log = DirtyLog::new(guest.file.as_fd(), 0, 1).unwrap();
    log.mark(7 * 4096, 4 * 4096);
    log.mark(u64::MAX, 10);
    log.mark(1 << 60, u64::MAX);
    assert_eq!(marked(&guest, 0, 64), [7]);
    assert!(DirtyLog::new(guest.file.as_fd(), 0, 4097).is_err());
}
