//! Blocks of the event log.

use format::limits::BLOCK;
use format::{Event, EventBlock, EventKind, FORMAT_VERSION};

use crate::{Checked, text};

pub(crate) fn check(page: &Checked) {
    let event = |kind, text: &str| Event {
        seconds: 0x0102_0304_0506_0708,
        kind,
        drive: Some(0x1112),
        amount: 0x2122_2324_2526_2728,
        text: text.into(),
    };
    let block = EventBlock {
        first: 0x3132_3334_3536_3738,
        events: vec![event(EventKind::Full, "fast"), event(EventKind::Opened, "")],
    };
    let bytes = block.encode();
    let rest = page.fields(
        "Event block",
        &bytes,
        &[
            ("magic", b"GEVT"),
            ("version", &FORMAT_VERSION.to_le_bytes()),
            ("first", &0x3132_3334_3536_3738u64.to_le_bytes()),
            ("events", &2u16.to_le_bytes()),
            ("reserved", &[0; 6]),
        ],
    );
    let one = |rest, kind: EventKind, expected_text: &str| {
        let rest = page.fields(
            "Event",
            rest,
            &[
                ("seconds", &0x0102_0304_0506_0708u64.to_le_bytes()),
                ("kind", &kind.value().to_le_bytes()),
                ("drive", &0x1112u16.to_le_bytes()),
                ("amount", &0x2122_2324_2526_2728u64.to_le_bytes()),
            ],
        );
        text(rest, expected_text)
    };
    let rest = one(one(rest, EventKind::Full, "fast"), EventKind::Opened, "");
    assert!(rest.iter().all(|byte| *byte == 0) && bytes.len() == BLOCK);
    assert_eq!(EventBlock::decode(&bytes), Ok(block));
    let without_drive = Event { drive: None, ..event(EventKind::Full, "") };
    let bytes = EventBlock { first: 1, events: vec![without_drive] }.encode();
    assert_eq!(bytes[34..36], 65_535u16.to_le_bytes());
    let kinds: Vec<_> =
        EventKind::ALL.iter().map(|kind| (format!("{kind:?}"), u64::from(kind.value()))).collect();
    let kinds: Vec<_> = kinds.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    page.values("Event kinds", &kinds);
}
