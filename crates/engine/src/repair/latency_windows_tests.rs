//! Percentiles from the histogram, compared with the recorded latencies.

use super::*;

/// Longer latencies are counted as this one.
const LONGEST: Duration = Duration::from_nanos(1 << (UNIT_BITS + STEP_BITS + DOUBLINGS));

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn recent(latency: &LatencyWindows, now: Instant) -> Option<RecentLatency> {
    let mut counts = LatencyHistogram::default();
    latency.add_to(&mut counts, now);
    counts.summary()
}

#[test]
fn every_latency_is_exact_to_one_eighth() {
    assert!(LONGEST >= Duration::from_secs(120));
    let mut nanos = 1;
    let mut before = 0;
    while nanos < LONGEST.as_nanos() as u64 {
        let bucket = bucket_of(nanos);
        assert!(bucket >= before, "longer latencies have higher buckets");
        before = bucket;
        let end = end_of(bucket);
        assert!(nanos < end && end - nanos <= (nanos / 8).max(1 << UNIT_BITS), "{nanos}: {end}");
        nanos += nanos / 50 + 1;
    }
    assert_eq!(bucket_of(LONGEST.as_nanos() as u64 - 1), BUCKETS - 1);
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    let ends: Vec<u64> = (0..BUCKETS).map(end_of).collect();
    assert!(ends.windows(2).all(|pair| pair[0] < pair[1]));
    assert!((0..BUCKETS - 1).all(|bucket| bucket_of(end_of(bucket)) == bucket + 1));
}

#[test]
fn the_99th_percentile_excludes_the_slowest_operation() {
    let latency = LatencyWindows::default();
    assert_eq!(recent(&latency, at(100)), None);
    for number in 0..1000 {
        // 11 of 1000 operations take a millisecond.
        latency.count(at(100), if number < 989 { 10_000 } else { 1_000_000 });
    }
    let found = recent(&latency, at(100)).unwrap();
    assert_eq!(found.operations, 1000);
    assert!(found.p50 > Duration::from_micros(9) && found.p50 < Duration::from_micros(12), "{found:?}");
    assert!(found.p99 > Duration::from_micros(900) && found.p99 < Duration::from_micros(1150), "{found:?}");
    (0..100).for_each(|_| latency.count(at(100), 10_000));
    assert!(recent(&latency, at(100)).unwrap().p99 < Duration::from_micros(12));
}

#[test]
fn old_operations_are_dropped() {
    let latency = LatencyWindows::default();
    let operations = |now| recent(&latency, now).map_or(0, |recent| recent.operations);
    latency.count(at(5), 1000);
    latency.count(at(15), 1000);
    assert_eq!(
        (operations(at(15)), operations(at(19)), operations(at(20)), operations(at(30))),
        (2, 2, 1, 0)
    );
    latency.count(at(25), 1000);
    latency.count(at(26), 1000);
    assert_eq!((operations(at(29)), operations(at(31)), operations(at(41))), (3, 2, 0));
}
