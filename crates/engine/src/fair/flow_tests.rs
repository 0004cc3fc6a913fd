//! Who asks for little, and how much is enough for the others.

use super::*;

/// A volume that has had so much at once.
fn flow(number: u32, weight: u16, most: u32) -> Flow {
    Flow::new(VolumeId::new(number), weight, most, 0.0, 0)
}

#[test]
fn little_is_few_units_and_a_small_share_both() {
    for (most, greatest, little) in [
        (0, 0, true),
        (1, 3, false),
        (1, 4, true),
        (8, 31, false),
        (8, 32, true),
        // A small share of very much is no little.
        (9, 1000, false),
        // Few units are not little where nobody has more.
        (4, 8, false),
    ] {
        assert_eq!(is_little(most, greatest), little, "{most} of {greatest}");
    }
}

#[test]
fn enough_is_what_the_first_of_those_that_ask_for_much_has_no_more_use_for() {
    let flows = [flow(1, 100, 2), flow(2, 100, 32), flow(3, 300, 64)];
    let wants = wants(&flows, 2);
    // Of 85 units at depth, one in four is the second one's 21, and three are the third one's 64.
    assert_eq!((wants.most, wants.greatest), (2, 64));
    assert!((wants.enough - 64.0 * 400.0 / 300.0).abs() < 0.01, "{wants:?}");
}

#[test]
fn a_share_is_by_weight() {
    let flows = [flow(1, 100, 0), flow(2, 300, 0)];
    let shares: Vec<f64> = flows.iter().map(|flow| flow.share(40.0, weights(&flows))).collect();
    assert_eq!(shares, [10.0, 30.0]);
}
