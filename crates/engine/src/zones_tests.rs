//! Allocation: no zone twice, and drives used in proportion to their free space.

use super::*;

fn scheme(text: &str) -> Scheme {
    text.parse().unwrap()
}

#[test]
fn every_zone_is_allocated_once() {
    let mut zones = Zones::new([(70, true); 5].into_iter());
    let mut seen = std::collections::BTreeSet::new();
    assert_eq!(zones.available(scheme("4+1")), 70);
    for _ in 0..70 {
        for column in zones.allocate(scheme("4+1")).unwrap().columns {
            assert!(seen.insert(column.zone.unwrap()));
        }
    }
    assert_eq!(zones.allocate(scheme("4+1")), None);
    assert_eq!(zones.totals(), (350, 0));
    for (drive, zone) in seen {
        zones.free(drive, zone);
    }
    assert_eq!(zones.totals(), (350, 350));
}

#[test]
fn parity_rotates_over_the_drives() {
    let mut zones = Zones::new([(100, true); 5].into_iter());
    let mut parity = [0; 5];
    for _ in 0..50 {
        let columns = zones.allocate(scheme("4+1")).unwrap().columns;
        parity[columns[4].zone.unwrap().0.index()] += 1;
    }
    assert_eq!(parity, [10; 5]);
}

#[test]
fn a_wider_pool_fills_evenly_and_counts_exactly() {
    let sizes = [40, 40, 20, 20, 10, 10];
    let mut zones = Zones::new(sizes.iter().map(|size| (*size, true)));
    let expected = zones.available(scheme("2+1"));
    let mut count = 0;
    while zones
        .allocate(scheme("2+1"))
        .is_some_and(|allocated| allocated.columns.iter().all(|column| column.zone.is_some()))
    {
        count += 1;
    }
    assert_eq!(count, expected);
    assert_eq!(count, 46);
}

/// A nearly full drive must not stop a pool that has lost another drive.
#[test]
fn segments_may_lack_columns_while_drives_are_lost() {
    let mut zones = Zones::new([(20, true), (20, false), (20, true), (3, true), (20, true)].into_iter());
    assert_eq!((zones.available(scheme("3+1")), zones.full_width(scheme("3+1"))), (3, 3));
    zones.allow_holes([false, true, false, false, false].into_iter());
    assert_eq!((zones.available(scheme("3+1")), zones.full_width(scheme("3+1"))), (20, 3));
    for number in 0..20 {
        let columns = zones.allocate(scheme("3+1")).unwrap().columns;
        let holes = columns.iter().filter(|column| column.zone.is_none()).count();
        assert_eq!(holes, usize::from(number >= 3));
        assert!(columns[..3].iter().all(|column| column.zone.is_some()));
    }
    assert_eq!(zones.allocate(scheme("3+1")), None);
}

/// New data is never only on a drive that has returned but is incomplete: the drive may fail again.
#[test]
fn a_returned_incomplete_drive_counts_as_failed() {
    let mut zones = Zones::new([(10, true), (4, true), (4, true)].into_iter());
    zones.allow_holes([true, false, false].into_iter());
    assert_eq!((zones.available(scheme("1+1")), zones.available_with(scheme("1+1"), 1)), (8, 10));
    let mut others = 0;
    while let Some(allocated) = zones.allocate(scheme("1+1")) {
        let drives = allocated.columns.iter().filter_map(|column| column.zone).map(|(drive, _)| drive);
        assert!(drives.filter(|drive| drive.index() > 0).count() > 0, "{allocated:?}");
        others += 1;
    }
    assert_eq!(others, 8);
    assert_eq!((zones.available(scheme("1+1")), zones.free_zones(0)), (0, 2));
}

/// The number of available segments with holes equals the number of successful allocations.
#[test]
fn available_counts_segments_with_holes_exactly() {
    for rooms in [[9, 9, 9, 9, 9, 0], [9, 7, 7, 5, 5, 0], [2, 9, 9, 9, 1, 3], [8, 8, 8, 8, 2, 2]] {
        let drives = rooms.into_iter().map(|room| (room, true)).chain([(9, false), (9, false)]);
        let mut zones = Zones::new(drives);
        zones.allow_holes((0..8).map(|drive| drive > 5));
        let mut expected = zones.available(scheme("4+2"));
        while zones.allocate(scheme("4+2")).is_some() {
            assert!(zones.available(scheme("4+2")) + 1 >= expected, "{rooms:?}");
            expected = expected.saturating_sub(1);
        }
        assert_eq!((expected, zones.available(scheme("4+2"))), (0, 0), "{rooms:?}");
    }
}

#[test]
fn a_lost_drive_costs_parity_not_data() {
    let mut zones = Zones::new([(10, true), (10, false), (10, true), (10, true), (10, true)].into_iter());
    assert_eq!(zones.available(scheme("4+1")), 10);
    for _ in 0..10 {
        let columns = zones.allocate(scheme("4+1")).unwrap().columns;
        assert!(columns[..4].iter().all(|column| column.zone.is_some()));
        assert_eq!(columns[4], SegmentColumn::hole());
    }
    assert_eq!(zones.available(scheme("4+1")), 0);
}

#[test]
fn a_full_drive_never_costs_parity() {
    let mut zones = Zones::new([(10, true), (3, true), (10, true)].into_iter());
    assert_eq!(zones.available(scheme("1+2")), 3);
    for _ in 0..3 {
        assert!(zones.allocate(scheme("1+2")).unwrap().columns.iter().all(|column| column.zone.is_some()));
    }
    assert_eq!(zones.allocate(scheme("1+2")), None);
}

#[test]
fn one_column_goes_to_another_drive_with_most_spare_zones() {
    let mut zones = Zones::new([(10, true), (30, false), (12, true), (60, true)].into_iter());
    let on = |index| DriveIndex::new(index);
    // 22 segments of two columns fit; the rest of the last drive cannot be used by segments.
    let mut taken = [0; 4];
    for _ in 0..38 {
        taken[zones.allocate_one(scheme("1+1"), &[on(2)], false).unwrap().0.0.index()] += 1;
    }
    assert_eq!(taken, [0, 0, 0, 38]);
    assert_eq!(zones.available(scheme("1+1")), 22);
    for _ in 0..16 {
        taken[zones.allocate_one(scheme("1+1"), &[on(2)], false).unwrap().0.0.index()] += 1;
    }
    assert!(taken[0] >= 3 && taken[3] >= 44, "both drives, more from the larger one: {taken:?}");
    assert!(zones.has_other(&[on(0), on(2)]) && !zones.has_other(&[on(0), on(2), on(3)]));
    assert_eq!(
        zones.allocate_one(scheme("1+1"), &[on(0), on(2), on(3)], false),
        None,
        "a failed drive is not used"
    );
    while zones.allocate_one(scheme("1+1"), &[], false).is_some() {}
    assert_eq!(zones.totals(), (82, 0));
}

/// Allocates segments until none fits; returns the columns on each drive per `step` segments.
fn fill(zones: &mut Zones, scheme: Scheme, step: usize) -> Vec<Vec<u32>> {
    let mut counts: Vec<Vec<u32>> = Vec::new();
    for number in 0.. {
        let Some(allocated) = zones.allocate(scheme) else { break };
        if number % step == 0 {
            counts.push(vec![0; zones.drives.len()]);
        }
        let count = counts.last_mut().unwrap();
        allocated.columns.iter().for_each(|column| count[column.zone.unwrap().0.index()] += 1);
    }
    counts
}

#[test]
fn unequal_drives_are_filled_optimally() {
    let sizes: [&[u32]; 6] = [
        &[100, 100, 100, 100, 100, 300],
        &[10, 20, 30, 40, 50, 60, 70, 80],
        &[1, 1, 1, 1, 100, 100, 100],
        &[64; 24],
        &[5, 400, 400, 5, 400, 400, 5],
        &[33, 7, 99, 12, 54, 81, 81, 81, 3],
    ];
    for sizes in sizes {
        for text in ["4+1", "1+1", "2+1", "1+0", "2+2"] {
            let mut zones = Zones::new(sizes.iter().map(|size| (*size, true)));
            let expected = zones.available(scheme(text));
            let segments: u32 = fill(&mut zones, scheme(text), 1).len() as u32;
            assert!(segments >= expected, "{sizes:?} {text}: {segments} of {expected}");
        }
    }
}

#[test]
fn a_joined_drive_gets_its_share_and_no_more() {
    // The joined drive has twice as much free space as each of the others.
    let mut zones = Zones::new((0..24).map(|drive| (if drive == 23 { 1000 } else { 500 }, true)));
    let counts = fill(&mut zones, scheme("4+1"), 500);
    let first = &counts[0];
    assert!((195..=205).contains(&first[23]), "{first:?}");
    assert!(first[..23].iter().all(|count| (95..=105).contains(count)), "{first:?}");
    // With little free space elsewhere, every segment needs the large drive.
    let mut zones = Zones::new((0..24).map(|drive| (if drive == 23 { 1000 } else { 10 }, true)));
    let counts = fill(&mut zones, scheme("4+1"), 10);
    assert!(counts.len() == 6 && counts[..5].iter().all(|count| count[23] == 10), "{counts:?}");
}

#[test]
fn every_drive_shares_segments_with_every_other() {
    let mut zones = Zones::new([(1000, true); 24].into_iter());
    let mut together = [[0; 24]; 24];
    for _ in 0..960 {
        let columns = zones.allocate(scheme("4+1")).unwrap().columns;
        let drives: Vec<_> = columns.iter().map(|column| column.zone.unwrap().0.index()).collect();
        drives.iter().for_each(|a| drives.iter().for_each(|b| together[*a][*b] += 1));
    }
    for (drive, others) in together.iter().enumerate() {
        assert!((195..=205).contains(&others[drive]), "{others:?}");
        let others = others.iter().enumerate().filter(|(other, _)| *other != drive);
        // 35 on average.
        assert!(others.clone().all(|(_, count)| (12..=70).contains(count)), "{others:?}");
    }
}

#[test]
fn occupying_a_zone_twice_fails() {
    let mut zones = Zones::new([(10, true)].into_iter());
    assert!(zones.occupy(DriveIndex::new(0), ZoneIndex::new(3)));
    assert!(!zones.occupy(DriveIndex::new(0), ZoneIndex::new(3)));
    assert!(!zones.occupy(DriveIndex::new(0), ZoneIndex::new(10)));
    assert!(!zones.occupy(DriveIndex::new(1), ZoneIndex::new(0)));
}

#[test]
fn freed_zones_are_reused_first_and_discarded_later() {
    let drive = DriveIndex::new(0);
    let run = |first, count| ZoneRun { drive, first: ZoneIndex::new(first), count };
    let mut zones = Zones::new([(100, true)].into_iter());
    let take = |zones: &mut Zones| {
        let allocated = zones.allocate(scheme("1+0")).unwrap();
        (allocated.columns[0].zone.unwrap().1.get(), allocated.unbacked.len())
    };
    assert_eq!([take(&mut zones), take(&mut zones), take(&mut zones)], [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(zones.discarded_after(drive, ZoneIndex::new(2), 4), run(3, 4));
    zones.mark_backed(run(3, 4));
    assert_eq!(
        (take(&mut zones), zones.discarded_after(drive, ZoneIndex::new(96), 64)),
        ((3, 0), run(97, 3))
    );
    zones.free(drive, ZoneIndex::new(0));
    zones.free(drive, ZoneIndex::new(2));
    assert!(zones.age_backed());
    zones.free(drive, ZoneIndex::new(1));
    assert_eq!(take(&mut zones), (0, 0));
    assert_eq!(zones.take_aged(2), [run(2, 1)]);
    assert_eq!(zones.totals(), (100, 97), "a zone is not free during its discard");
    assert_eq!(zones.take_aged(2), [run(4, 2)]);
    zones.finish_discard(run(2, 1));
    zones.finish_discard(run(4, 2));
    assert_eq!(zones.take_aged(2), [run(6, 1)]);
    assert_eq!(zones.take_aged(2), []);
    zones.finish_discard(run(6, 1));
    assert_eq!([take(&mut zones), take(&mut zones)], [(1, 0), (2, 1)]);
    let taken = |zone| (drive, ZoneIndex::new(zone));
    zones.return_unused([taken(1), taken(2)].into_iter(), &[taken(2)]);
    assert_eq!([take(&mut zones), take(&mut zones)], [(1, 0), (2, 1)], "2 has no backing space");
    assert!(!zones.age_backed());
    assert_eq!(zones.totals(), (100, 96));
}

#[test]
fn the_fraction_of_a_segment_is_below_the_next_whole_one() {
    for seed in 0..4_000u64 {
        let number = |index: u64, max: u64| splitmix64(seed << 16 | index) % max;
        let drives = 3 + number(0, 5);
        let mut zones =
            Zones::new((1..=drives).map(|drive| (number(drive, 12) as u32, number(50 + drive, 8) > 0)));
        zones.allow_holes((1..=drives).map(|drive| number(90 + drive, 4) == 0));
        let scheme = scheme(["2+1", "1+1", "3+0", "1+2"][number(99, 4) as usize]);
        let space = zones.free_space(scheme);
        let parts = space.parts_with(&[]);
        assert_eq!(parts / SEGMENT_PARTS, u64::from(zones.available(scheme)), "{space:?}");
        // More free zones never mean fewer segments.
        let freed: Vec<u32> = (0..drives).map(|drive| number(200 + drive, 3) as u32).collect();
        assert!(space.parts_with(&freed) >= parts, "{space:?} {freed:?}");
    }
    assert_eq!(segment_parts_that_fit(vec![3, 3, 3, 3], 3), 4 * SEGMENT_PARTS);
    assert_eq!(segment_parts_that_fit(vec![4, 3, 3, 3], 3), 4 * SEGMENT_PARTS + SEGMENT_PARTS / 3);
    assert_eq!(segment_parts_that_fit(vec![9, 1], 2), SEGMENT_PARTS);
}
