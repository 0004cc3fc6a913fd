//! The rate follows the slowdown of client operations, for any uncontended latency.

use super::*;

const fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// Adds operations of `micros` microseconds each.
fn more(sum: &mut OpSum, operations: u64, micros: u64) {
    sum.operations += operations;
    sum.nanos += operations * micros * 1000;
}

/// Returns the rate after one second of alternating pauses and chunks of 1 ms. Uncontended
/// operations take `baseline` microseconds; contended ones take a time that depends on the rate.
fn after_a_second(rate: &BackgroundRate, baseline: u64, contended: impl Fn(f64) -> u64) -> f64 {
    let mut totals = OpTotals::default();
    rate.begin(totals, at(0));
    for round in 1..500 {
        more(&mut totals.uncontended, 10, baseline);
        more(&mut totals.contended, 10, contended(rate.rate.get()));
        rate.adjust(totals, at(2 * round));
    }
    rate.rate.get()
}

#[test]
fn the_rate_grows_if_latency_is_tolerable_and_shrinks_otherwise() {
    let rate = BackgroundRate::default();
    for baseline in [50, 100, 5000] {
        assert!(after_a_second(&rate, baseline, |_| baseline * 3 / 2) > 15.0);
        assert_eq!(rate.chunk_bytes(), 1 << 20);
        assert!(after_a_second(&rate, baseline, |_| baseline * 3) < 0.26);
        assert_eq!(rate.chunk_bytes(), 64 << 10);
    }
}

#[test]
fn chunks_grow_to_the_tolerated_size() {
    let rate = BackgroundRate::default();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let longer = |rate: f64| 100 + (rate * 25.0) as u64;
    let found = after_a_second(&rate, 100, longer);
    assert!((2.5..5.0).contains(&found), "{found}");
}

#[test]
fn thirty_microseconds_more_are_tolerated() {
    let rate = BackgroundRate::default();
    assert!(after_a_second(&rate, 2, |_| 20) > 15.0);
    assert!(after_a_second(&rate, 2, |_| 40) < 0.26);
}

#[test]
fn the_rate_grows_without_clients_and_stays_without_a_baseline() {
    let (rate, mut totals) = (BackgroundRate::default(), OpTotals::default());
    rate.begin(totals, at(0));
    (1..20).for_each(|tenth| rate.adjust(totals, at(100 * tenth)));
    let grown = rate.rate.get();
    assert!(grown > 2.0 * SHARE_MIN);
    more(&mut totals.contended, 1000, 1);
    rate.adjust(totals, at(3000));
    assert_eq!(rate.rate.get().to_bits(), grown.to_bits());
}

#[test]
fn pauses_keep_a_quarter_of_the_time_and_include_measuring_pauses() {
    let (rate, mut totals) = (BackgroundRate::default(), OpTotals::default());
    rate.begin(totals, at(0));
    let took = Duration::from_millis(1);
    assert_eq!(rate.rest(took, 1, at(1)), 3 * took);
    assert_eq!(rate.rest(took, 2, at(2)), 7 * took);
    more(&mut totals.uncontended, 10, 1000);
    more(&mut totals.contended, 64, 10_000);
    rate.adjust(totals, at(100));
    let rests: Vec<_> = (0..400).map(|round| rate.rest(took, 1, at(100 + 4 * round))).collect();
    assert!(rests.iter().all(|rest| *rest == 3 * took || *rest == 40 * took));
    let long = rests.iter().filter(|rest| **rest == 40 * took).count();
    assert!((4..=5).contains(&long), "once in 320 ms: {long}");
}
