//! Compares the coefficients in docs/format.md with those of the code.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

use std::path::Path;

use codec::Code;

/// Returns the rows of the page's table of coefficients: parity, then c(i, 0), c(i, 1) ...
fn rows() -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| parity | c(i, 0)")).skip(2);
    let numbers = |line: &str| line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
    table.take_while(|line| line.starts_with('|')).map(numbers).collect()
}

#[test]
fn the_page_has_the_coefficients_of_the_code() {
    let rows = rows();
    assert!(rows.len() >= 4 && rows.iter().all(|row| row.len() == 9), "{rows:?}");
    let data = 8;
    let code = Code::new(data, u8::try_from(rows.len()).unwrap()).unwrap();
    for column in 0..usize::from(data) {
        // One byte of data is 1 and all others are 0: each parity is its coefficient.
        let columns: Vec<[u8; 1]> = (0..usize::from(data)).map(|other| [u8::from(other == column)]).collect();
        let inputs: Vec<&[u8]> = columns.iter().map(|cell| &cell[..]).collect();
        let mut parities = vec![[0u8; 1]; rows.len()];
        let mut outputs: Vec<&mut [u8]> = parities.iter_mut().map(|cell| &mut cell[..]).collect();
        code.encode(&inputs, &mut outputs);
        for (parity, row) in rows.iter().enumerate() {
            assert_eq!(usize::from(row[0]), parity);
            assert_eq!(parities[parity][0], row[1 + column], "c({parity}, {column})");
        }
    }
}
