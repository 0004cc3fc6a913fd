//! Checks that each process recovers the requests that the previous one left.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;

const SIZE: u16 = 8;

fn region() -> (std::fs::File, InflightRegion) {
    let bytes = region_bytes(2, SIZE).unwrap();
    let file = std::fs::File::from(new_region(bytes).unwrap());
    let region = InflightRegion::new(file.as_fd(), 0, 2, SIZE).unwrap();
    (file, region)
}

#[test]
fn invalid_region_sizes_are_refused() {
    for (queues, size) in [(0, 8), (65, 8), (1, 0), (1, 7), (u16::MAX, 32768)] {
        assert_eq!(region_bytes(queues, size), None);
    }
    let file = new_region(100).unwrap();
    assert!(InflightRegion::new(file.as_fd(), 0, 2, SIZE).is_err(), "shorter than stated");
    let (_, region) = region();
    assert!(region.queue(2, SIZE).is_none());
    assert!(region.queue(0, SIZE * 2).is_none());
    assert!(region.queue(1, SIZE / 2).is_some());
}

#[test]
fn an_empty_region_has_no_requests() {
    let (_, region) = region();
    let mut queue = region.queue(1, SIZE).unwrap();
    assert_eq!(queue.resume(77), InflightRecovery { next: None, incomplete: vec![] });
    let mut again = region.queue(1, SIZE).unwrap();
    assert_eq!(again.resume(77), InflightRecovery { next: Some(77), incomplete: vec![] });
}

#[test]
fn the_fields_are_at_their_specified_offsets() {
    let (file, region) = region();
    let mut queue = region.queue(1, SIZE).unwrap();
    queue.resume(5);
    queue.begin(3);
    queue.begin(2);
    queue.end(3);
    queue.end(2);
    queue.published(7);
    queue.begin(6);
    let part = part_bytes(SIZE);
    assert_eq!(part, 192);
    let mut bytes = vec![0; part];
    file.read_exact_at(&mut bytes, part as u64).unwrap();
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!(bytes[..8], [0; 8]);
    assert_eq!(
        [half(8), half(10), half(12), half(14)],
        [1, SIZE, 2, 7],
        "version, entries, last head, used index"
    );
    let entry = |head: usize| &bytes[16 + head * 16..32 + head * 16];
    assert_eq!((entry(3)[0], entry(2)[0], entry(6)[0]), (0, 0, 1));
    assert_eq!(entry(2)[6..8], [3, 0], "the previous request of the batch");
    assert_eq!(entry(2)[8..], 1u64.to_le_bytes());
    assert_eq!(entry(6)[8..], 2u64.to_le_bytes());
}

#[test]
fn a_published_batch_counts_as_completed() {
    let (_, region) = region();
    let mut queue = region.queue(0, SIZE).unwrap();
    queue.resume(65534);
    [4, 1, 7, 2].into_iter().for_each(|head| queue.begin(head));
    [1, 4, 2].into_iter().for_each(|head| queue.end(head));
    // The used index was stored as 65537 = 1, and then the process died.
    let mut next = region.queue(0, SIZE).unwrap();
    assert_eq!(next.resume(1), InflightRecovery { next: Some(2), incomplete: vec![7] });
    // Before it was stored, no request was completed.
    let (_, region) = self::region();
    let mut queue = region.queue(0, SIZE).unwrap();
    queue.resume(65534);
    [4, 1, 7, 2].into_iter().for_each(|head| queue.begin(head));
    [1, 4, 2].into_iter().for_each(|head| queue.end(head));
    let mut next = region.queue(0, SIZE).unwrap();
    assert_eq!(next.resume(65534), InflightRecovery { next: Some(2), incomplete: vec![4, 1, 7, 2] });
}

#[test]
fn a_corrupt_region_is_tolerated() {
    let (file, region) = region();
    region.queue(0, SIZE).unwrap().resume(0);
    let part = part_bytes(SIZE) as u64;
    for (at, bytes) in
        [(12u64, [0xFF, 0xFF]), (14, [0x34, 0x12]), (16 + 6, [9, 0]), (16, [1, 0]), (32, [2, 0])]
    {
        file.write_all_at(&bytes, at).unwrap();
        let mut queue = region.queue(0, SIZE).unwrap();
        let recovery = queue.resume(3);
        assert!(recovery.incomplete.len() <= usize::from(SIZE));
    }
    let mut bytes = vec![0xFF; part as usize];
    bytes[8..10].copy_from_slice(&[1, 0]);
    file.write_all_at(&bytes, 0).unwrap();
    assert_eq!(region.queue(0, SIZE).unwrap().resume(3).incomplete, Vec::<u16>::new());
}

#[derive(Clone, Copy, Debug)]
enum InflightStep {
    Begin,
    End(u16),
    Publish,
}

proptest! {
    #[test]
    fn after_any_crash_the_incomplete_requests_are_known(
        steps in prop::collection::vec(
            prop_oneof![Just(InflightStep::Begin), any::<u16>().prop_map(InflightStep::End), Just(InflightStep::Publish)], 0..80),
        start in any::<u16>(),
    ) {
        let (_, region) = region();
        let mut queue = region.queue(0, SIZE).unwrap();
        queue.resume(start);
        let mut free: Vec<u16> = (0..SIZE).collect();
        let (mut in_flight, mut ended): (Vec<u16>, Vec<u16>) = (Vec::new(), Vec::new());
        let mut used = start;
        let check = |used: u16, incomplete: &[u16]| {
            // A copy, as another process would see it.
            let mut other = region.queue(0, SIZE).unwrap();
            let other_used = other.window.load_16(USED_INDEX);
            let recovery = other.resume(used);
            other.window.store_16(USED_INDEX, other_used);
            assert_eq!(recovery.incomplete, incomplete);
            assert_eq!(recovery.next, Some(used.wrapping_add(incomplete.len() as u16)));
        };
        // The order in which requests were begun.
        let mut order: Vec<u16> = Vec::new();
        for step in steps {
            match step {
                InflightStep::Begin if !free.is_empty() => {
                    let head = free.remove(0);
                    queue.begin(head);
                    in_flight.push(head);
                    order.push(head);
                }
                InflightStep::End(which) if !in_flight.is_empty() => {
                    let head = in_flight.remove(usize::from(which) % in_flight.len());
                    queue.end(head);
                    ended.push(head);
                }
                InflightStep::Publish => {
                    used = used.wrapping_add(ended.len() as u16);
                    order.retain(|head| !ended.contains(head));
                    free.append(&mut ended);
                    queue.published(used);
                }
                _ => {}
            }
            check(used, &order);
        }
    }
}
