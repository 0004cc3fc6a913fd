//! Tests of the map and recovery benchmarks at a small scale.

use super::*;

#[test]
fn a_map_larger_than_its_memory_is_measured() {
    let options =
        MapOptions { volume_bytes: 1 << 40, map_bytes: 1 << 20, drive_bytes: 96 << 20, writes: 2_000 };
    let cost = measure_map(&options, |_| {}).unwrap();
    assert_eq!((cost.wrong, cost.writes), (0, 2_000));
    assert!(cost.checkpoints > 0 && cost.map_per_write > 0.5, "{cost:?}");
    assert!(cost.map_used_bytes < 4 << 20, "{cost:?}");
    assert!(cost.longest_busy_ms <= cost.longest_pause_ms + 10.0);
}

#[test]
fn recovery_replays_all_records() {
    let place = tempfile::tempdir().unwrap();
    let options = RecoveryOptions { directory: place.path().into(), log_bytes: 4 << 20 };
    let recovery = measure_recovery(&options, |_| {}).unwrap();
    assert_eq!(recovery.wrong, 0);
    assert!(recovery.records > 10, "{recovery:?}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
