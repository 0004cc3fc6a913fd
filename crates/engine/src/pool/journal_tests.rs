//! The event log without faults: its contents and their retention.

use format::{Event, EventKind};

use super::tests::{create_options, drives, open_options, run};
use super::*;

async fn kinds(pool: &Pool, after: u64) -> Vec<(u64, EventKind, Option<u16>, String)> {
    let events = pool.events(after, 1000).await.unwrap();
    events.into_iter().map(|(number, event)| (number, event.kind, event.drive, event.text)).collect()
}

#[test]
fn events_survive_a_crash_and_a_close() {
    let drives = drives(6, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 1 << 20, 4096, 0).await.unwrap();
        pool.snapshot_volume("a@one", 0).await.unwrap();
        pool.fail_drive(2).await.unwrap();
        pool.wait_for_repair().await.unwrap();
        let first = pool.events(0, 1000).await.unwrap();
        let created = Event {
            seconds: 1_700_000_000,
            kind: EventKind::VolumeCreated,
            drive: None,
            amount: 1 << 20,
            text: "a".into(),
        };
        assert_eq!(first[1], (2, created));
        // Dropped without closing, as in a crash.
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.close().await.unwrap();
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let event = |number, kind, drive, text: &str| (number, kind, drive, text.to_owned());
        let expected = [
            event(1, EventKind::Opened, None, ""),
            event(2, EventKind::VolumeCreated, None, "a"),
            event(3, EventKind::SnapshotTaken, None, "a@one"),
            event(4, EventKind::DriveFailed, Some(2), "memory2: taken offline on request"),
            event(5, EventKind::DriveRemoved, Some(2), "memory2"),
            event(6, EventKind::Recovered, None, ""),
            event(7, EventKind::Closed, None, ""),
            event(8, EventKind::Opened, None, ""),
        ];
        assert_eq!(kinds(&pool, 0).await, expected);
        assert_eq!(kinds(&pool, 6).await, expected[6..]);
        let newest = pool.events(0, 2).await.unwrap();
        assert_eq!(newest.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [7, 8]);
    });
}

#[test]
fn only_the_oldest_events_are_dropped() {
    let drives = drives(5, 64 << 20);
    let text = "x".repeat(1000);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        for amount in 2..=3000 {
            pool.emit_event(EventKind::SpaceLow, amount, &text).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let events = pool.events(0, usize::MAX).await.unwrap();
        assert!(events.len() >= 800, "{} are left", events.len());
        assert_eq!(
            events.last().map(|(number, event)| (*number, event.kind)),
            Some((3002, EventKind::Opened))
        );
        for ((number, event), expected) in events.iter().rev().skip(2).zip((2..=3000).rev()) {
            assert_eq!((*number, event.amount, event.text.len()), (expected, expected, 255));
        }
    });
}
