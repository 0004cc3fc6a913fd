//! Tests of mixes, contents and bounds.

use super::content::Contents;
use super::*;
use crate::lab::DriveLimits;
use crate::suite::Suite;

#[test]
fn the_shares_of_each_mix_are_complete() {
    for mix in MIXES {
        let shares = mix.shares;
        assert_eq!(shares.0.iter().map(|share| u32::from(*share)).sum::<u32>(), 100, "{}", mix.name);
        for operation in ObjectOperation::ALL {
            let picked = (0..100).filter(|number| shares.pick(*number) == operation).count();
            assert_eq!(picked, usize::from(shares.share(operation)), "{} {operation:?}", mix.name);
        }
    }
    assert!(Mix::find("restore").is_some_and(|mix| mix.shares.needs_objects()));
    assert!(Mix::find("none").is_none());
}

#[test]
fn contents_differ_by_key_version_and_position() {
    let contents = Contents::new();
    for length in [0, 5, 16, 4096, 3 << 20] {
        let content = contents.make(7, 3, length);
        assert_eq!(content.len(), length);
        for cut in [0, 3, 16, 1 << 20].into_iter().filter(|cut| *cut <= length) {
            let (first, rest) = content.split_at(cut);
            assert!(contents.matches(7, 3, 0, first) && contents.matches(7, 3, cut, rest));
        }
    }
    let mut content = contents.make(7, 3, 100_000);
    assert!(!contents.matches(7, 4, 0, &content) && !contents.matches(8, 3, 0, &content));
    assert!(!contents.matches(7, 4, 4096, &content[4096..]));
    for at in [0, 15, 16, 99_999] {
        content[at] ^= 1;
        assert!(!contents.matches(7, 3, 0, &content), "{at}");
        content[at] ^= 1;
    }
}

#[test]
fn bounds_are_those_of_the_slower_direction() {
    let limits = DriveLimits { read_iops: 1, write_iops: 1, read_bps: 140_000_000, write_bps: 67_500_000 };
    let bound = |name: &str| {
        let shares = Mix::find(name).unwrap().shares;
        ObjectBound::new(shares, &limits, "6+2", 8).unwrap().bytes_per_s / 1e6
    };
    assert!((bound("restore") - 1120.0).abs() < 0.1);
    assert!((bound("backup") - 405.0).abs() < 0.1);
    // 405 MB/s of PUT are half of the bodies.
    assert!((bound("cloud") - 810.0).abs() < 0.1);
    assert!(ObjectBound::new(MIXES[0].shares, &limits, "six", 8).is_err());
}

#[test]
fn the_mixes_are_those_of_the_suite() {
    let suite = Suite::find("object-five").unwrap();
    let shares: Vec<RequestShares> =
        suite.jobs.iter().map(|job| job.objects.as_ref().unwrap().shares()).collect();
    assert_eq!(shares, MIXES.map(|mix| mix.shares));
}

#[test]
fn sizes_are_spread_over_the_doubles() {
    let sizes = ObjectSizes::new(512 << 10, 64 << 20);
    assert_eq!(sizes.mean(), (255 << 19) / 8);
    let mut counts = std::collections::BTreeMap::<u64, u32>::new();
    for key in 0..8000 {
        *counts.entry(sizes.of(key, 1)).or_default() += 1;
    }
    let found: Vec<u64> = counts.keys().copied().collect();
    assert_eq!(found, (0..8).map(|doubled| (512 << 10) << doubled).collect::<Vec<u64>>());
    assert!(counts.values().all(|count| (500..2000).contains(count)), "{counts:?}");
    assert!(ObjectSizes::new(4096, 4096).is_single() && !sizes.is_single());
}

#[test]
fn published_columns_are_those_of_the_document() {
    let suite = Suite::find("object-five").unwrap();
    let columns = |job: &str| {
        let found = suite.jobs.iter().find(|one| one.name == job).unwrap();
        ObjectColumns::published(suite.published[0].figure(job).unwrap(), found).cells()
    };
    assert_eq!(columns("AI"), ["22953.17", "1786.65", "47.29", "0.34", "0.55", "57.60", "-"]);
    assert_eq!(columns("restore")[..2], ["23594.08", "0.00"]);
    assert_eq!(columns("backup")[..2], ["0.00", "13291.60"]);
}
