//! Light and heavy volumes, and the limit that suits the heavy ones.

use super::*;

/// A volume with this peak demand.
fn flow(number: u32, weight: u16, peak: u32) -> FlowState<()> {
    FlowState::new(VolumeId::new(number), weight, peak, 0.0, 0)
}

#[test]
fn light_is_few_units_and_a_small_share_both() {
    for (peak, max_peak, light) in [
        (0, 0, true),
        (1, 3, false),
        (1, 4, true),
        (8, 31, false),
        (8, 32, true),
        // A small share of a very high peak is not light.
        (9, 1000, false),
        // Few units are not light if no volume has more.
        (4, 8, false),
    ] {
        assert_eq!(is_light(peak, max_peak), light, "{peak} of {max_peak}");
    }
}

#[test]
fn the_fair_limit_covers_the_first_heavy_volume() {
    let flows = [flow(1, 100, 2), flow(2, 100, 32), flow(3, 300, 64)];
    let demand = demand(&flows, 2);
    // Of a limit of 85 units a quarter, 21, is the second volume's share, and the third volume's is
    // its peak of 64.
    assert_eq!((demand.peak, demand.max_peak), (2, 64));
    assert!((demand.fair_limit - 64.0 * 400.0 / 300.0).abs() < 0.01, "{demand:?}");
}

#[test]
fn a_share_is_by_weight() {
    let flows = [flow(1, 100, 0), flow(2, 300, 0)];
    let shares: Vec<f64> = flows.iter().map(|flow| flow.share(40.0, total_weight(&flows))).collect();
    assert_eq!(shares, [10.0, 30.0]);
}
