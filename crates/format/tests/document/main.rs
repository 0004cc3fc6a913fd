//! Compares docs/format.md with the code: every table of fields, values and limits on the page.
//!
//! For each table of fields, a value with different bytes in each field is encoded, and each field
//! must have the offset and size on the page; there are no gaps between fields. The test fails for
//! a table that is on the page but not checked here, and for the reverse.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod events;
mod records;
mod superblocks;
mod tables;

use std::cell::RefCell;
use std::collections::BTreeSet;

use format::{Address, Column, FORMAT_VERSION, MapEntry, Row, SegmentId, limits};
use tables::Page;

/// The page, and the names of the tables that have been checked.
struct Checked {
    page: Page,
    fields: RefCell<BTreeSet<String>>,
    values: RefCell<BTreeSet<String>>,
}

impl Checked {
    /// Compares `bytes` with the table `name`; `expected` lists its fields and their bytes. Returns
    /// the bytes after the table.
    fn fields<'a>(&self, name: &str, bytes: &'a [u8], expected: &[(&str, &[u8])]) -> &'a [u8] {
        let Some((sum, fields)) = self.page.fields.get(name) else {
            panic!("the page has no table '{name}'")
        };
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let wanted: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, wanted, "fields of '{name}'");
        let mut end = 0;
        for (field, (_, value)) in fields.iter().zip(expected) {
            let at = format!("'{}' of '{name}'", field.name);
            assert_eq!(field.offset, end, "{at} must follow the field before it");
            assert_eq!(field.size, value.len(), "size of {at}");
            end += field.size;
            assert_eq!(&bytes[field.offset..end], *value, "{at}");
        }
        assert_eq!(end, *sum, "the sum in the heading of '{name}'");
        for (at, (one, value)) in expected.iter().enumerate().filter(|(_, (one, _))| *one != "reserved") {
            let twin = expected[..at].iter().find(|(other, bytes)| *other != "reserved" && bytes == value);
            assert!(
                twin.is_none(),
                "'{one}' of '{name}' has the same bytes as {twin:?}, so the test proves nothing"
            );
        }
        self.fields.borrow_mut().insert(name.to_owned());
        &bytes[end..]
    }

    /// Compares a table of named values.
    fn values(&self, name: &str, expected: &[(&str, u64)]) {
        let Some(values) = self.page.values.get(name) else { panic!("the page has no table '{name}'") };
        let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(*values, expected, "{name}");
        self.values.borrow_mut().insert(name.to_owned());
    }

    fn all(&self) {
        let unchecked: Vec<_> =
            self.page.fields.keys().filter(|name| !self.fields.borrow().contains(*name)).collect();
        assert!(unchecked.is_empty(), "unchecked tables of fields: {unchecked:?}");
        let unchecked: Vec<_> =
            self.page.values.keys().filter(|name| !self.values.borrow().contains(*name)).collect();
        assert!(unchecked.is_empty(), "unchecked tables of values: {unchecked:?}");
    }
}

/// Checks a text at the front of `bytes`, and returns the bytes after it.
fn text<'a>(bytes: &'a [u8], expected: &str) -> &'a [u8] {
    let (length, rest) = bytes.split_at(2);
    assert_eq!(length, (expected.len() as u16).to_le_bytes());
    let (text, rest) = rest.split_at(expected.len());
    assert_eq!(text, expected.as_bytes());
    rest
}

#[test]
fn the_page_matches_the_encoders() {
    let page = Checked { page: Page::read(), fields: RefCell::default(), values: RefCell::default() };
    superblocks::check(&page);
    records::check(&page);
    events::check(&page);
    check_address(&page);
    page.all();
}

fn check_address(page: &Checked) {
    let entry = entry(0x0102_0304, 0x05, 0x06_0708, 0x090A_0B0C);
    let bytes = entry.to_bytes();
    let rest = page.fields(
        "Map entry",
        &bytes,
        &[("address", &[8, 7, 6, 5, 4, 3, 2, 1]), ("crc", &[12, 11, 10, 9]), ("reserved", &[0; 4])],
    );
    assert!(rest.is_empty());
    assert_eq!(MapEntry::ABSENT.to_bytes(), [0; 16]);
    assert_eq!(MapEntry::ZERO.to_bytes()[..8], 1u64.to_le_bytes());

    let bits = entry.address().unwrap().to_bits();
    let (sum, fields) = &page.page.fields["Address bits"];
    let expected = [("row", 0x06_0708), ("column", 0x05), ("segment", 0x0102_0304)];
    let mut end = 0;
    for (field, (name, value)) in fields.iter().zip(expected) {
        assert_eq!((field.name.as_str(), field.offset), (name, end));
        assert_eq!(bits >> field.offset & ((1 << field.size) - 1), value, "{name}");
        end += field.size;
    }
    assert_eq!((end, fields.len()), (*sum, expected.len()));
    page.fields.borrow_mut().insert("Address bits".to_owned());
}

/// Returns a map entry with these parts.
fn entry(segment: u32, column: u8, row: u32, crc: u32) -> MapEntry {
    MapEntry::block(Address::new(SegmentId::new(segment), Column::new(column), Row::new(row)), crc)
}

#[test]
fn the_page_has_the_version_of_the_code() {
    assert_eq!(Page::read().version, u64::from(FORMAT_VERSION));
}

#[test]
fn the_page_lists_every_limit() {
    let expected = [
        ("BLOCK", limits::BLOCK as u64),
        ("COLUMNS_MAX", limits::COLUMNS_MAX as u64),
        ("ZONE_MIN", limits::ZONE_MIN),
        ("SEGMENT_BLOCKS_MIN", limits::SEGMENT_BLOCKS_MIN),
        ("ZONE_MAX", limits::ZONE_MAX),
        ("ROWS_MAX", limits::ROWS_MAX.into()),
        ("DRIVES_MAX", limits::DRIVES_MAX as u64),
        ("SHARDS_MAX", limits::SHARDS_MAX as u64),
        ("SUPERBLOCK_SLOT", limits::SUPERBLOCK_SLOT),
        ("RECENT_SEGMENTS_MAX", limits::RECENT_SEGMENTS_MAX as u64),
        ("RECENT_SEGMENTS_MIN", limits::RECENT_SEGMENTS_MIN as u64),
        ("DRIVE_ZONES_MIN", limits::DRIVE_ZONES_MIN),
        ("RECORD_PAYLOAD_MAX", limits::RECORD_PAYLOAD_MAX as u64),
        ("HEADER_BLOCKS_MAX", limits::HEADER_BLOCKS_MAX as u64),
        ("RECORD_ITEMS_MAX", limits::RECORD_ITEMS_MAX as u64),
        ("NAME_MAX", limits::NAME_MAX as u64),
        ("DRIVE_PATH_MAX", limits::DRIVE_PATH_MAX as u64),
        ("LINEAGE_MAX", limits::LINEAGE_MAX as u64),
        ("VOLUME_MAX", limits::VOLUME_MAX),
        ("LAYER_BLOCKS_MAX", limits::LAYER_BLOCKS_MAX),
        ("NODE_ENTRIES", limits::NODE_ENTRIES as u64),
        ("HEIGHT_MAX", limits::HEIGHT_MAX.into()),
        ("VOLUMES_MAX", limits::VOLUMES_MAX.into()),
        ("EVENT_BLOCKS", limits::EVENT_BLOCKS),
        ("EVENT_TEXT_MAX", limits::EVENT_TEXT_MAX as u64),
        ("ROOT_POINTERS_MAX", limits::ROOT_POINTERS_MAX as u64),
        ("TABLE_BLOCKS_MAX", limits::TABLE_BLOCKS_MAX as u64),
        ("SLICE", limits::SLICE),
    ];
    let page = Page::read();
    let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    assert_eq!(page.limits, expected);

    let source = include_str!("../../src/limits.rs");
    let names = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    // BLOCK with another type.
    let names: BTreeSet<&str> = names.filter(|name| *name != "BLOCK_BYTES").collect();
    let shown: BTreeSet<&str> = page.limits.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, shown, "limits of the code and of the page");
}
