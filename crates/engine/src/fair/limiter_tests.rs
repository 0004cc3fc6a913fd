//! The baseline that a limiter learns, and the limit that follows from measured latencies.

use super::*;

const MILLISECOND: u64 = 1_000_000;

/// Completes operations of one block one after another, each with a latency of `nanos`.
fn complete(limiter: &LatencyLimiter, operations: u64, nanos: u64, from: u64) {
    let demand = Demand { fair_limit: f32::INFINITY, ..Demand::default() };
    for number in 0..operations {
        limiter.on_contended(0, nanos, demand, from + number * nanos);
    }
}

#[test]
fn an_operation_is_contended_if_another_starts_before_it_ends() {
    let [reads, writes] = LatencyLimiter::pair([1, 1], 200);
    let first = reads.on_start(1).unwrap();
    assert!(reads.is_latest(first));
    assert_eq!(writes.on_start(1), None);
    assert!(!reads.is_latest(first));
    reads.on_end(1);
    assert_eq!(reads.on_start(1), None, "a write is in flight");
    writes.on_end(1);
    reads.on_end(1);
    let last = writes.on_start(1).unwrap();
    assert!(writes.is_latest(last) && reads.is_latest(last));
}

#[test]
fn the_limit_follows_the_latency_target() {
    for (slowdown, min, max) in [(200, 4.0, 4.0), (400, 100.0, LIMIT_MAX), (0, LIMIT_MAX, LIMIT_MAX)] {
        let [limiter, _] = LatencyLimiter::pair([4, 4], slowdown);
        limiter.on_uncontended(0, 100_000);
        complete(&limiter, 4096, 310_000, MILLISECOND);
        assert!((min..=max).contains(&limiter.limit()), "{slowdown} %: {}", limiter.limit());
    }
}

#[test]
fn the_lowest_contended_latency_stands_in_for_an_unmeasured_baseline() {
    let [limiter, _] = LatencyLimiter::pair([4, 4], 200);
    complete(&limiter, 1, 100_000, MILLISECOND);
    complete(&limiter, 4096, 310_000, 2 * MILLISECOND);
    assert!(limiter.limit() <= 4.0, "{}", limiter.limit());
    assert_eq!(limiter.baseline(1).to_bits(), 100_000_f32.to_bits());
    limiter.on_uncontended(0, 200_000);
    assert_eq!(limiter.baseline(1).to_bits(), 200_000_f32.to_bits(), "it is measured now");
}

#[test]
fn a_high_latency_at_the_other_limiter_counts_once_and_expires() {
    let [own, peer] = LatencyLimiter::pair([4, 4], 200);
    own.on_uncontended(0, 100_000);
    peer.on_uncontended(0, 100_000);
    let from = 10 * MILLISECOND;
    complete(&peer, u64::from(ADJUST_EVERY), 300_000, from - u64::from(ADJUST_EVERY) * 300_000);
    let before = own.limit();
    complete(&own, u64::from(ADJUST_EVERY), 100_000, from);
    let once = own.limit();
    assert!(once < before, "{once} of {before}");
    complete(&own, u64::from(ADJUST_EVERY), 100_000, from + 4 * MILLISECOND);
    assert_eq!(own.limit().to_bits(), once.to_bits(), "no new sample");
    complete(&own, u64::from(ADJUST_EVERY), 100_000, from + 2 * SAMPLE_LIFETIME);
    assert!(own.limit() > once);
}

#[test]
fn few_operations_adjust_the_limit_after_a_while() {
    let [limiter, _] = LatencyLimiter::pair([4, 4], 200);
    limiter.on_uncontended(0, MILLISECOND);
    let before = limiter.limit();
    complete(&limiter, u64::from(ADJUST_MIN), 3 * MILLISECOND, 20 * MILLISECOND);
    assert!(limiter.limit() < before, "{} of {before}", limiter.limit());
}
