//! The right contents of the cells of a record's rows, from its checksums and parity.

use codec::crc32c;
use format::limits::BLOCK;
use format::{Column, Row};
use reactor::Buffer;

use super::headers::ScannedRecord;
use crate::row_reader::{RowReader, RowSpan};

/// Returns the right contents of the wrong or missing cells of a record's row: data cells are
/// checked by CRC, parity by the data. `span` holds the readable cells of this row and others.
/// `None` if the row cannot be reconstructed.
pub(super) fn row_repairs(
    rows: &RowReader,
    record: &ScannedRecord,
    span: &RowSpan,
    row: Row,
) -> Option<Vec<(Column, Buffer)>> {
    let scheme = record.scheme;
    let index = (row.get() - span.row.get()) as usize;
    let cell = |column: u8| {
        let cells = &span.cells.iter().find(|(of, _)| *of == column)?.1;
        cells.as_slice().get(index * BLOCK..(index + 1) * BLOCK)
    };
    let mut repairs = Vec::new();
    let mut good: Vec<(u8, Buffer)> = Vec::new();
    for column in 0..scheme.data() {
        if let Some(bytes) = cell(column)
            && expected(record, column, row)(bytes)
        {
            good.push((column, Buffer::copy_of(bytes)));
        }
    }
    for column in scheme.data()..scheme.width() {
        if let Some(bytes) = cell(column) {
            good.push((column, Buffer::copy_of(bytes)));
        }
    }
    let mut data = Vec::with_capacity(usize::from(scheme.data()));
    for column in 0..scheme.data() {
        if let Some(at) = good.iter().position(|(of, _)| *of == column) {
            data.push(Buffer::copy_of(good.get(at)?.1.as_slice()));
            continue;
        }
        let mut block = Buffer::new(BLOCK);
        let accept = expected(record, column, row);
        if !rows.rebuild_cell(scheme, Column::new(column), &good, 0, block.as_mut_slice(), accept) {
            return None;
        }
        repairs.push((Column::new(column), Buffer::copy_of(block.as_slice())));
        data.push(block);
    }
    let inputs: Vec<&[u8]> = data.iter().map(Buffer::as_slice).collect();
    let mut parity: Vec<Buffer> = (0..scheme.parity()).map(|_| Buffer::new(BLOCK)).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Buffer::as_mut_slice).collect();
    rows.code(scheme).encode(&inputs, &mut outputs);
    for (column, right) in (scheme.data()..).zip(parity) {
        if cell(column) != Some(right.as_slice()) {
            repairs.push((Column::new(column), right));
        }
    }
    Some(repairs)
}

/// Returns a check for the contents of a data cell: a header or payload block with its CRC, or
/// zeros.
pub(super) fn expected(record: &ScannedRecord, column: u8, row: Row) -> impl Fn(&[u8]) -> bool + '_ {
    let within = row.get() - record.layout.row.get();
    let index = (u32::from(column) * record.layout.rows + within) as usize;
    let crc = match index.checked_sub(usize::from(record.header.header_blocks)) {
        Some(payload) => record.header.crcs.get(payload),
        None => record.header_crcs.get(index),
    };
    move |bytes| match crc {
        Some(crc) => crc32c(bytes) == *crc,
        None => codec::is_zero(bytes),
    }
}
