//! The effort follows what users notice, whatever their operations take by themselves.

use super::*;

const fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// So many operations more, of so many microseconds each.
fn more(sum: &mut OpSum, operations: u64, micros: u64) {
    sum.operations += operations;
    sum.nanos += operations * micros * 1000;
}

/// The effort after a second of rests and pieces of a millisecond in turns, in which operations take so many microseconds by themselves and, with
/// the effort at which a piece is, beside it.
fn after_a_second(rate: &BackgroundRate, by_itself: u64, beside: impl Fn(f64) -> u64) -> f64 {
    let mut done = OpTotals::default();
    rate.begin(done, at(0));
    for turn in 1..500 {
        more(&mut done.uncontended, 10, by_itself);
        more(&mut done.contended, 10, beside(rate.rate.get()));
        rate.follow(done, at(2 * turn));
    }
    rate.rate.get()
}

#[test]
fn what_nobody_notices_grows_and_what_is_felt_shrinks() {
    let rate = BackgroundRate::default();
    for by_itself in [50, 100, 5000] {
        assert!(after_a_second(&rate, by_itself, |_| by_itself * 3 / 2) > 15.0);
        assert_eq!(rate.chunk_bytes(), 1 << 20);
        assert!(after_a_second(&rate, by_itself, |_| by_itself * 3) < 0.26);
        assert_eq!(rate.chunk_bytes(), 64 << 10);
    }
}

#[test]
fn pieces_are_as_large_as_is_borne() {
    let rate = BackgroundRate::default();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let longer = |rate: f64| 100 + (rate * 25.0) as u64;
    let found = after_a_second(&rate, 100, longer);
    assert!((2.5..5.0).contains(&found), "{found}");
}

#[test]
fn what_takes_a_little_longer_than_almost_nothing_is_not_felt() {
    let rate = BackgroundRate::default();
    assert!(after_a_second(&rate, 2, |_| 20) > 15.0);
    assert!(after_a_second(&rate, 2, |_| 40) < 0.26);
}

#[test]
fn it_grows_while_nobody_is_there_and_stays_while_nothing_is_known() {
    let (rate, mut done) = (BackgroundRate::default(), OpTotals::default());
    rate.begin(done, at(0));
    (1..20).for_each(|tenth| rate.follow(done, at(100 * tenth)));
    let grown = rate.rate.get();
    assert!(grown > 2.0 * SHARE_LEAST);
    more(&mut done.contended, 1000, 1);
    rate.follow(done, at(3000));
    assert_eq!(rate.rate.get().to_bits(), grown.to_bits());
}

#[test]
fn rests_leave_a_quarter_of_the_time_and_are_long_enough_to_learn_from_now_and_then() {
    let (rate, mut done) = (BackgroundRate::default(), OpTotals::default());
    rate.begin(done, at(0));
    let took = Duration::from_millis(1);
    assert_eq!(rate.rest(took, 1, at(1)), 3 * took);
    assert_eq!(rate.rest(took, 2, at(2)), 7 * took);
    more(&mut done.uncontended, 10, 1000);
    more(&mut done.contended, 64, 10_000);
    rate.follow(done, at(100));
    let rests: Vec<_> = (0..400).map(|turn| rate.rest(took, 1, at(100 + 4 * turn))).collect();
    assert!(rests.iter().all(|rest| *rest == 3 * took || *rest == 40 * took));
    let long = rests.iter().filter(|rest| **rest == 40 * took).count();
    assert!((4..=5).contains(&long), "once in 320 ms: {long}");
}
