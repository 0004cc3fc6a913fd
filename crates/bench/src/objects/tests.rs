//! Tests of mixes, contents and bounds.

use super::content::Contents;
use super::*;
use crate::lab::DriveLimits;

#[test]
fn the_shares_of_each_mix_are_complete() {
    for mix in MIXES {
        assert_eq!(mix.shares.iter().map(|share| u32::from(*share)).sum::<u32>(), 100, "{}", mix.name);
        for operation in ObjectOperation::ALL {
            let picked = (0..100).filter(|number| mix.pick(*number) == operation).count();
            assert_eq!(picked, usize::from(mix.share(operation)), "{} {operation:?}", mix.name);
        }
    }
    assert!(Mix::find("restore").is_some_and(|mix| mix.needs_objects()));
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
        ObjectBound::new(&Mix::find(name).unwrap(), &limits, "6+2", 8).unwrap().bytes_per_s / 1e6
    };
    assert!((bound("restore") - 1120.0).abs() < 0.1);
    assert!((bound("backup") - 405.0).abs() < 0.1);
    // 405 MB/s of PUT are half of the bodies.
    assert!((bound("cloud") - 810.0).abs() < 0.1);
    assert!(ObjectBound::new(&MIXES[0], &limits, "six", 8).is_err());
}
