//! Some rows of a segment, each cell as far as it is to be had: one bad place does not take a long read with it.

use format::limits::BLOCK;
use format::{Address, Column, Row, SegmentId};
use reactor::Buffer;

use super::{RowReader, RowSpan};

/// See the module.
pub(crate) struct PartialRows {
    /// Columns of which at least one row could be read; what could not is zero.
    pub(crate) span: RowSpan,
    /// Column and row, counted from the piece's first, of cells that their drives did not give.
    pub(crate) unreadable: Vec<(u8, u32)>,
}

impl PartialRows {
    /// One of its rows, with the cells of it that were read.
    pub(crate) fn row(&self, index: u32, is_there: impl Fn(u8) -> bool) -> RowSpan {
        let columns = self.span.cells.iter().map(|(column, _)| *column).filter(|column| is_there(*column));
        let cells =
            columns.filter_map(|column| Some((column, Buffer::copy_of(self.cell(column, index)?)))).collect();
        RowSpan { id: self.span.id, row: self.span.row.plus(index), count: 1, cells }
    }

    /// The cell of `column` in row `index`, counted from the piece's first, if it was read.
    pub(crate) fn cell(&self, column: u8, index: u32) -> Option<&[u8]> {
        if self.unreadable.contains(&(column, index)) {
            return None;
        }
        let cells = &self.span.cells.iter().find(|(of, _)| *of == column)?.1;
        cells.as_slice().get(index as usize * BLOCK..(index as usize + 1) * BLOCK)
    }
}

impl RowReader {
    /// Reads all columns of some rows: each as one run, or row by row where that cannot be read, or is missing in part. Cells that are not
    /// on a drive in use are left out.
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
                    // Its drive may have gone just now.
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
