//! Parser for the tables of docs/format.md. Does not know their expected contents.

use std::collections::BTreeMap;
use std::path::Path;

/// A row of a table of fields.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// The parsed page.
pub(crate) struct Page {
    /// Tables of fields, by heading, with the total size in the heading.
    pub(crate) fields: BTreeMap<String, (usize, Vec<Field>)>,
    /// Tables of named values, by heading.
    pub(crate) values: BTreeMap<String, Vec<(String, u64)>>,
    /// Limits, in the order of the page.
    pub(crate) limits: Vec<(String, u64)>,
    /// The format version of the page.
    pub(crate) version: u64,
}

impl Page {
    /// Reads and parses the page.
    pub(crate) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut page =
            Self { fields: BTreeMap::new(), values: BTreeMap::new(), limits: Vec::new(), version: 0 };
        let (mut heading, mut columns) = (String::new(), Vec::new());
        for line in text.lines() {
            if let Some(version) = line.strip_prefix("Version ").and_then(|rest| rest.split('.').next()) {
                page.version = number(version);
            }
            if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim().to_owned();
            }
            let Some(cells) = cells(line) else {
                columns.clear();
                continue;
            };
            if columns.is_empty() {
                columns = cells;
            } else if !cells.iter().all(|cell| cell.contains("---")) {
                page.take_row(&heading, &columns, &cells);
            }
        }
        page
    }

    fn take_row(&mut self, heading: &str, columns: &[String], cells: &[String]) {
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let name = |at: usize| cells[at].trim_matches('`').to_owned();
        match columns.as_slice() {
            ["offset", "size", "field", "meaning"] | ["first bit", "bits", "field", "meaning"] => {
                let (title, sum) = split_heading(heading);
                let field = Field {
                    name: name(2),
                    offset: number(&cells[0]) as usize,
                    size: number(&cells[1]) as usize,
                };
                self.fields.entry(title).or_insert((sum, Vec::new())).1.push(field);
            }
            ["value", "name", "meaning"] => {
                let values = self.values.entry(heading.to_owned()).or_default();
                values.push((name(1), number(&cells[0])));
            }
            ["limit", "value", "meaning"] => self.limits.push((name(0), number(&cells[1]))),
            _ => {}
        }
    }
}

/// Returns the cells of a table row.
fn cells(line: &str) -> Option<Vec<String>> {
    let line = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(line.split('|').map(|cell| cell.trim().to_owned()).collect())
}

fn number(text: &str) -> u64 {
    let digits = text.replace(',', "");
    digits.parse().unwrap_or_else(|_| panic!("'{text}' is not a number"))
}

/// Splits a heading such as `Record header (96 bytes)` or `Address bits (64 bits)` into title and
/// total.
fn split_heading(heading: &str) -> (String, usize) {
    let (title, rest) =
        heading.split_once(" (").unwrap_or_else(|| panic!("heading '{heading}' has no total"));
    let sum = rest.split(' ').next().unwrap_or_default();
    (title.to_owned(), number(sum) as usize)
}
