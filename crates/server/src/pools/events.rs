//! The event log of a pool for the API.

use engine::{Event, EventKind};

use super::Pools;
use crate::error::Result;
use api::Size;
use api::types::{self, PoolEventKind, Severity};

impl Pools {
    /// Returns up to `last` events with numbers higher than `after`, the newest ones, in order.
    ///
    /// # Errors
    /// When the pool is not open.
    pub(crate) async fn events(&self, name: &str, after: u64, last: usize) -> Result<Vec<types::Event>> {
        let open = self.get(name)?;
        let events = open.call(move |pool| async move { pool.events(after, last).await }).await?;
        Ok(events.into_iter().map(|(number, event)| event_of(number, &event)).collect())
    }
}

fn event_of(number: u64, event: &Event) -> types::Event {
    let (severity, message) = describe(event);
    types::Event {
        number,
        time: event.seconds,
        kind: kind_of(event.kind),
        severity,
        message,
        drive: event.drive,
    }
}

/// Returns the severity and the message of an event.
fn describe(event: &Event) -> (Severity, String) {
    let Event { amount, text, .. } = event;
    let drive = event.drive.map_or_else(String::new, |number| format!("drive {number}"));
    let plural = if *amount == 1 { "" } else { "s" };
    let info = |message: String| (Severity::Info, message);
    let warning = |message: String| (Severity::Warning, message);
    let error = |message: String| (Severity::Error, message);
    match event.kind {
        EventKind::Opened => info("pool opened after a clean close".into()),
        EventKind::Recovered => {
            warning(format!("pool opened after a crash: {amount} log record{plural} replayed"))
        }
        EventKind::Closed => info("pool closed".into()),
        EventKind::DriveAdded => info(format!("{drive} ({text}) added")),
        EventKind::DriveLost => error(format!("{drive} is missing ({text}); its data is kept if it returns")),
        EventKind::DriveFailed => {
            error(format!("{drive} failed ({text}); re-add it with 'gabion drive return'"))
        }
        EventKind::DriveReturned => {
            info(format!("{drive} ({text}) returned; rebuilding the writes that it missed"))
        }
        EventKind::DriveResynced => info(format!("{drive} ({text}) rebuilt")),
        EventKind::DriveDraining => {
            info(format!("removal of {drive} ({text}) started: its data is migrated to the other drives"))
        }
        EventKind::DriveDrainCancelled => warning(format!("removal of {drive} cancelled ({text})")),
        EventKind::DriveRemoved => {
            info(format!("{drive} ({text}) removed; its data was migrated to the other drives"))
        }
        EventKind::DriveReadErrors => warning(format!(
            "{drive}: {amount} read{plural} failed or returned wrong data, answered from other drives ({text})"
        )),
        EventKind::DriveFailing => {
            error(format!("{drive} ({text}) is failing: read errors in {amount} zones; remove or replace it"))
        }
        EventKind::Damaged => warning(format!("{drive}: {amount} damaged block{plural} ({text})")),
        EventKind::DriveStale => warning(format!(
            "{drive} ({text}) holds outdated data: the drive is not read until it is rebuilt"
        )),
        EventKind::SuperblockDamaged => warning(format!(
            "one copy of the superblock of {text} was damaged, or incomplete after a crash, and is rewritten"
        )),
        EventKind::StateUncertain => {
            error("every drive has a damaged superblock copy: a newer state of the pool may be lost".into())
        }
        EventKind::BlocksLost => {
            error(format!("{amount} block{plural} cannot be read or reconstructed from other drives"))
        }
        EventKind::ScrubStarted => info("scrub started".into()),
        EventKind::ScrubFinished if *amount == 0 => info(format!("scrub finished without damage: {text}")),
        EventKind::ScrubFinished => {
            warning(format!("scrub finished with {amount} damaged block{plural}: {text}"))
        }
        EventKind::ScrubCancelled => info("scrub cancelled".into()),
        EventKind::VolumeCreated => info(format!("volume '{text}' created with {}", Size(*amount))),
        EventKind::VolumeResized => info(format!("volume '{text}' resized to {}", Size(*amount))),
        EventKind::VolumeDeleted => {
            let noun = if text.contains('@') { "snapshot" } else { "volume" };
            info(format!("{noun} '{text}' deleted"))
        }
        EventKind::SnapshotTaken => info(format!("snapshot '{text}' created")),
        EventKind::VolumeCloned => match text.split_once(" of ") {
            Some((volume, snapshot)) => info(format!("volume '{volume}' cloned from snapshot '{snapshot}'")),
            None => info(format!("volume '{text}' cloned from a snapshot")),
        },
        EventKind::VolumeRolledBack => warning(format!("volume rolled back to snapshot '{text}'")),
        EventKind::SpaceLow => warning(format!("{amount} % of the space is used")),
        EventKind::Full => error("the pool is full: writes that need new space fail".into()),
        EventKind::SpaceAvailable => info("the pool has free space again".into()),
    }
}

/// Returns the kind of an event for the API. These names do not change with the engine's names.
fn kind_of(kind: EventKind) -> PoolEventKind {
    match kind {
        EventKind::Opened => PoolEventKind::PoolOpened,
        EventKind::Recovered => PoolEventKind::PoolRecovered,
        EventKind::Closed => PoolEventKind::PoolClosed,
        EventKind::DriveAdded => PoolEventKind::DriveAdded,
        EventKind::DriveLost => PoolEventKind::DriveMissing,
        EventKind::DriveFailed => PoolEventKind::DriveFailed,
        EventKind::DriveReturned => PoolEventKind::DriveReturned,
        EventKind::DriveResynced => PoolEventKind::DriveRebuilt,
        EventKind::DriveDraining => PoolEventKind::DriveRemoving,
        EventKind::DriveDrainCancelled => PoolEventKind::DriveRemoveCancelled,
        EventKind::DriveRemoved => PoolEventKind::DriveRemoved,
        EventKind::DriveReadErrors => PoolEventKind::DriveReadErrors,
        EventKind::DriveFailing => PoolEventKind::DriveFailing,
        EventKind::DriveStale => PoolEventKind::DriveStale,
        EventKind::Damaged => PoolEventKind::BlocksDamaged,
        EventKind::BlocksLost => PoolEventKind::BlocksLost,
        EventKind::SuperblockDamaged => PoolEventKind::SuperblockDamaged,
        EventKind::StateUncertain => PoolEventKind::StateUncertain,
        EventKind::ScrubStarted => PoolEventKind::ScrubStarted,
        EventKind::ScrubFinished => PoolEventKind::ScrubFinished,
        EventKind::ScrubCancelled => PoolEventKind::ScrubCancelled,
        EventKind::VolumeCreated => PoolEventKind::VolumeCreated,
        EventKind::VolumeResized => PoolEventKind::VolumeResized,
        EventKind::VolumeDeleted => PoolEventKind::VolumeDeleted,
        EventKind::SnapshotTaken => PoolEventKind::SnapshotCreated,
        EventKind::VolumeCloned => PoolEventKind::VolumeCloned,
        EventKind::VolumeRolledBack => PoolEventKind::VolumeRolledBack,
        EventKind::SpaceLow => PoolEventKind::SpaceLow,
        EventKind::Full => PoolEventKind::PoolFull,
        EventKind::SpaceAvailable => PoolEventKind::SpaceAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_names_its_object() {
        for kind in EventKind::ALL {
            let of_drive = format!("{kind:?}").starts_with("Drive") || *kind == EventKind::Damaged;
            let drive = of_drive.then_some(7);
            let event = Event { seconds: 5, kind: *kind, drive, amount: 80, text: "vm01".into() };
            let event = event_of(3, &event);
            assert!(!event.message.contains("  ") && !event.message.ends_with('.'), "{}", event.message);
            assert_eq!(drive.is_some(), event.message.contains("drive 7"), "{}", event.message);
        }
        let lost =
            Event { seconds: 5, kind: EventKind::DriveLost, drive: Some(1), amount: 0, text: "x".into() };
        assert_eq!(
            (event_of(3, &lost).kind.to_string().as_str(), event_of(3, &lost).severity),
            ("drive_missing", Severity::Error)
        );
    }
}
