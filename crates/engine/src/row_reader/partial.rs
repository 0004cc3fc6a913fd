//! Reads of whole rows that tolerate unreadable cells: one bad sector does not fail a long read.

use format::limits::BLOCK;
use format::{Address, Column, Row, SegmentId};
use reactor::Buffer;

use super::{RowReader, RowSpan};

/// Rows of a segment with the cells that could be read.
pub(crate) struct PartialRows {
    /// Columns with at least one readable cell; unreadable cells are zero.
    pub(crate) span: RowSpan,
    /// Column and row, relative to the first row, of cells that their drives failed to return.
    pub(crate) unreadable: Vec<(u8, u32)>,
}

impl PartialRows {
    /// Returns one row, with those columns of its readable cells that `include` accepts.
    pub(crate) fn row(&self, index: u32, include: impl Fn(u8) -> bool) -> RowSpan {
        let columns = self.span.cells.iter().map(|(column, _)| *column).filter(|column| include(*column));
        let cells =
            columns.filter_map(|column| Some((column, Buffer::copy_of(self.cell(column, index)?)))).collect();
        RowSpan { id: self.span.id, row: self.span.row.plus(index), count: 1, cells }
    }

    /// Returns the cell of `column` in row `index`, relative to the first row; `None` if it is
    /// unreadable.
    pub(crate) fn cell(&self, column: u8, index: u32) -> Option<&[u8]> {
        if self.unreadable.contains(&(column, index)) {
            return None;
        }
        let cells = &self.span.cells.iter().find(|(of, _)| *of == column)?.1;
        cells.as_slice().get(index as usize * BLOCK..(index as usize + 1) * BLOCK)
    }
}

impl RowReader {
    /// Reads all columns of some rows: each column in one run, or row by row if that fails or part
    /// of the column is missing. Cells on offline drives are left out.
    pub(crate) async fn read_partial(&self, id: SegmentId, row: Row, count: u32) -> PartialRows {
        let width = self.segments.borrow().scheme(id).width();
        let all: Vec<u8> = (0..width).collect();
        let mut span = RowSpan { id, row, count, cells: Vec::new() };
        self.read_columns(&mut span, &all).await;
        let mut unreadable = Vec::new();
        for column in all {
            if span.cells.iter().any(|(known, _)| *known == column) {
                continue;
            }
            let mut whole = Buffer::zeroed(count as usize * BLOCK);
            let mut any = false;
            for index in 0..count {
                let cell = Address::new(id, Column::new(column), row.plus(index));
                let is_there = || {
                    let place = self.segments.borrow().cell(cell);
                    place.is_some_and(|place| self.drives.is_online(place.drive))
                };
                if !is_there() {
                    continue;
                }
                let mut one = RowSpan { id, row: row.plus(index), count: 1, cells: Vec::new() };
                self.read_columns(&mut one, &[column]).await;
                let at = index as usize * BLOCK;
                match (one.cells.first(), whole.as_mut_slice().get_mut(at..at + BLOCK)) {
                    (Some((_, cell)), Some(place)) => {
                        place.copy_from_slice(cell.as_slice());
                        any = true;
                    }
                    // The drive may have been lost during the read.
                    _ if is_there() => unreadable.push((column, index)),
                    _ => {}
                }
            }
            if any {
                span.cells.push((column, whole));
            }
        }
        PartialRows { span, unreadable }
    }
}
