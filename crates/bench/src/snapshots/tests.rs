//! Tests of all parts at a small scale.

use super::*;

#[test]
fn every_part_returns_results() {
    let options =
        SnapshotOptions { volume_bytes: 4 << 20, snapshots: 5, changes: 16, seconds: 0.01, rounds: 1 };
    let mut parts = Vec::new();
    let found = run(&options, |part| parts.push(part.to_owned())).unwrap();
    assert_eq!(parts.len(), 3);
    assert_eq!(found.wrong, 0);
    assert_eq!(found.rates.snapshots, 5);
    assert!(found.rates.taken_per_s > 0.0 && found.rates.gone_per_s > 0.0);
    assert!(found.rates.gone_per_s <= found.rates.deleted_per_s);
    assert!(
        found.pause.with_p50_us > 0.0
            && found.pause.with_p50_us <= found.pause.with_p99_us
            && found.pause.with_p99_us <= found.pause.with_max_us
    );
    let depths: Vec<(u32, u32)> =
        found.depths.iter().map(|line| (line.snapshots, line.queue_depth)).collect();
    assert_eq!(depths.len(), 8);
    assert!(depths.contains(&(100, 1)) && depths.contains(&(0, 64)));
    let without: Vec<_> = found.depths.iter().filter(|line| line.snapshots == 0).collect();
    assert!(without.iter().all(|line| (line.times_longer - 1.0).abs() < 1e-9 && line.iops > 0.0));
}
