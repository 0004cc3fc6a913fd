//! The event log of a pool, as the API tells it.

use engine::{Event, EventKind};

use super::Pools;
use crate::error::Result;
use crate::sizes::Size;
use crate::wire::{self, Severity};

impl Pools {
    /// What happened to a pool: up to `most` events with numbers higher than `after`, the newest ones, in order.
    ///
    /// # Errors
    /// When the pool is not open.
    pub(crate) async fn events(&self, name: &str, after: u64, most: usize) -> Result<Vec<wire::Event>> {
        let open = self.get(name)?;
        let events = open.call(move |pool| async move { pool.events(after, most).await }).await?;
        Ok(events.into_iter().map(|(number, event)| shown(number, &event)).collect())
    }
}

fn shown(number: u64, event: &Event) -> wire::Event {
    let (severity, message) = told(event);
    wire::Event {
        number,
        at: event.seconds,
        kind: snake(&format!("{:?}", event.kind)),
        severity,
        message,
        drive: event.drive,
    }
}

/// How much an event matters, and what it says.
fn told(event: &Event) -> (Severity, String) {
    let Event { amount, text, .. } = event;
    let drive = event.drive.map_or_else(String::new, |number| format!("drive {number}"));
    let info = |message: String| (Severity::Info, message);
    let warning = |message: String| (Severity::Warning, message);
    match event.kind {
        EventKind::Opened => info("opened; it had been closed in order".into()),
        EventKind::Recovered => warning(format!(
            "opened after a crash: {amount} record{} replayed",
            if *amount == 1 { "" } else { "s" }
        )),
        EventKind::Closed => info("closed".into()),
        EventKind::DriveAdded => info(format!("{drive} ({text}) was added")),
        EventKind::DriveLost => {
            (Severity::Error, format!("{drive} is gone ({text}); it may come back with what it holds"))
        }
        EventKind::DriveFailed => (
            Severity::Error,
            format!("{drive} is out of use ({text}); it comes back only when somebody says so"),
        ),
        EventKind::DriveReturned => {
            info(format!("{drive} ({text}) is back; what it missed is being written to it"))
        }
        EventKind::DriveResynced => info(format!("{drive} ({text}) has all that it missed")),
        EventKind::DriveDraining => info(format!("{drive} ({text}) is being emptied")),
        EventKind::DriveDrainCancelled => warning(format!("{drive} is not emptied any more ({text})")),
        EventKind::DriveRemoved => {
            info(format!("{drive} ({text}) belongs to the pool no more: all that it held is on others"))
        }
        EventKind::DriveReadErrors => warning(format!(
            "{drive} failed {amount} read{}, or answered wrongly; others gave the data back ({text})",
            if *amount == 1 { "" } else { "s" }
        )),
        EventKind::DriveFailing => (
            Severity::Error,
            format!(
                "{drive} ({text}) is failing: it errs in {amount} zones, and is to be emptied or replaced"
            ),
        ),
        EventKind::Damaged => warning(format!(
            "{drive}: {amount} block{} damaged ({text})",
            if *amount == 1 { "" } else { "s" }
        )),
        EventKind::DriveStale => warning(format!(
            "{drive} ({text}) holds an old copy of itself: nothing on it is used until all of it is rebuilt"
        )),
        EventKind::SuperblockDamaged => warning(format!(
            "one copy of the superblock on {text} is damaged or was being written at a crash; it is rewritten"
        )),
        EventKind::StateUncertain => (
            Severity::Error,
            "every drive shows a damaged copy of its superblock: a newer state of the pool may have been lost".into(),
        ),
        EventKind::BlocksLost => (
            Severity::Error,
            format!("{amount} block{} cannot be read, and no other drive gives them back", if *amount == 1 { "" } else { "s" }),
        ),
        EventKind::ScrubStarted => info("a scrub began: everything is read and compared".into()),
        EventKind::ScrubFinished if *amount == 0 => info(format!("the scrub found nothing damaged: {text}")),
        EventKind::ScrubFinished => warning(format!(
            "the scrub found {amount} damaged block{}: {text}",
            if *amount == 1 { "" } else { "s" }
        )),
        EventKind::ScrubCancelled => info("the scrub was called off".into()),
        EventKind::VolumeCreated => info(format!("volume '{text}' of {} was created", Size(*amount))),
        EventKind::VolumeResized => info(format!("volume '{text}' has {} now", Size(*amount))),
        EventKind::VolumeDeleted => info(format!("'{text}' was deleted")),
        EventKind::SnapshotTaken => info(format!("snapshot '{text}' was taken")),
        EventKind::VolumeCloned => match text.split_once(" of ") {
            Some((volume, snapshot)) => info(format!("volume '{volume}' was made of snapshot '{snapshot}'")),
            None => info(format!("volume '{text}' was made of a snapshot")),
        },
        EventKind::VolumeRolledBack => warning(format!("a volume is again what its snapshot '{text}' is")),
        EventKind::SpaceLow => warning(format!("{amount} % of the room is taken")),
        EventKind::Full => {
            (Severity::Error, "the pool is full: writes that need more room are refused".into())
        }
        EventKind::SpaceAvailable => info("there is room again".into()),
    }
}

/// `DriveLost` as `drive_lost`.
fn snake(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_says_what_happened_to_what() {
        for kind in EventKind::ALL {
            let of_drive = format!("{kind:?}").starts_with("Drive") || *kind == EventKind::Damaged;
            let drive = of_drive.then_some(7);
            let event = Event { seconds: 5, kind: *kind, drive, amount: 80, text: "vm01".into() };
            let event = shown(3, &event);
            assert!(!event.message.contains("  ") && !event.message.ends_with('.'), "{}", event.message);
            assert_eq!(drive.is_some(), event.message.contains("drive 7"), "{}", event.message);
        }
        let lost =
            Event { seconds: 5, kind: EventKind::DriveLost, drive: Some(1), amount: 0, text: "x".into() };
        assert_eq!(
            (shown(3, &lost).kind.as_str(), shown(3, &lost).severity),
            ("drive_lost", Severity::Error)
        );
    }
}
