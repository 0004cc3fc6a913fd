//! Reads the headers of a segment, one record after the other: from its first column, with
//! read-ahead, or from any k columns where that column does not suffice.
//!
//! Always true: a returned header was authenticated, and belongs to this segment and row. Must not
//! know: the meaning of a record.

use codec::{ColumnSet, crc32c};
use format::limits::{BLOCK, HEADER_BLOCKS_MAX};
use format::{
    Address, Column, Header, RecordLocation, Row, Scheme, SegmentId, SegmentRecord, Sequence,
    UnverifiedHeader,
};
use reactor::Buffer;

use crate::error::{Error, ErrorLocation, Result};
use crate::geometry::RecordLayout;
use crate::invariant::part;
use crate::log::Identity;
use crate::row_reader::{PartialRows, RowReader, combinations};

/// Number of rows that are read ahead.
const READ_AHEAD: u32 = 64;
/// Maximum number of rows of a header.
#[allow(clippy::cast_possible_truncation)]
const HEADER_ROWS: u32 = HEADER_BLOCKS_MAX as u32;

/// A record found in the log.
pub(crate) struct ScannedRecord {
    pub(crate) header: Header,
    pub(crate) layout: RecordLayout,
    pub(super) scheme: Scheme,
    /// CRC32C of each header block.
    pub(super) header_crcs: Vec<u32>,
}

/// A header and the CRC32C of each of its blocks.
type HeaderWithCrcs = (Header, Vec<u32>);

fn block_crcs(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK).map(crc32c).collect()
}

/// Returns the columns, except the first, with a readable cell in row `index` of a piece.
fn other_columns(piece: &PartialRows, index: u32) -> ColumnSet {
    let columns = piece.span.cells.iter().map(|(column, _)| *column);
    columns.filter(|column| *column > 0 && piece.cell(*column, index).is_some()).collect()
}

/// Reads the headers of one segment in order.
pub(super) struct HeaderReader<'a> {
    rows: &'a RowReader,
    identity: &'a Identity,
    id: SegmentId,
    record: &'a SegmentRecord,
    /// Cells of column 0 that were read ahead, from this row on.
    ahead: Option<(Row, Buffer)>,
    /// The row up to which column 0 cannot be read in one piece.
    unreadable_to: Row,
    /// All columns of some rows for which the first column did not suffice.
    piece: Option<PartialRows>,
    /// The last header needed other columns: probably the next one does too.
    needs_other_columns: bool,
    /// The row at which the next record starts.
    row: Row,
}

impl<'a> HeaderReader<'a> {
    /// Starts at the first record.
    pub(super) fn new(
        rows: &'a RowReader,
        identity: &'a Identity,
        id: SegmentId,
        record: &'a SegmentRecord,
    ) -> Self {
        Self::starting_at(rows, identity, id, record, Row::new(0))
    }

    /// Starts at the record that begins at `row`.
    pub(super) fn starting_at(
        rows: &'a RowReader,
        identity: &'a Identity,
        id: SegmentId,
        record: &'a SegmentRecord,
        row: Row,
    ) -> Self {
        let unreadable_to = Row::new(0);
        Self {
            rows,
            identity,
            id,
            record,
            ahead: None,
            unreadable_to,
            piece: None,
            needs_other_columns: false,
            row,
        }
    }

    /// Provides cells of column 0, from `row` on, that were already read; they are verified like
    /// any others.
    pub(super) fn provide(&mut self, row: Row, cells: Buffer) {
        self.ahead = Some((row, cells));
    }

    /// Returns the next record; `None` at the first row without a header, or at the segment's end.
    ///
    /// # Errors
    /// `Corrupt` for an authentic header with contents that this release never writes: the record
    /// exists, and its row must not be taken for the end of the log.
    pub(super) async fn next(&mut self) -> Result<Option<ScannedRecord>> {
        if self.row.get() >= self.record.rows {
            return Ok(None);
        }
        let Some((header, header_crcs)) = self.header_at(self.row).await? else { return Ok(None) };
        let scheme = self.record.scheme;
        let layout = RecordLayout::new(scheme, self.row, header.blocks());
        if layout.end().get() > self.record.rows {
            return Ok(None);
        }
        self.row = layout.end();
        Ok(Some(ScannedRecord { header, layout, scheme, header_crcs }))
    }

    /// Returns the header of the record that starts at `row`, if there is one.
    async fn header_at(&mut self, row: Row) -> Result<Option<HeaderWithCrcs>> {
        if let Some(header) = self.read_ahead(row).await? {
            return Ok(Some(header));
        }
        // The end of the log, or a lost or damaged first column: any k columns decide.
        self.rebuild(row).await
    }

    /// Returns the newest record that is listed as durable by headers at or after the row at which
    /// [`HeaderReader::next`] ended: records behind a gap may prove that the records in the gap
    /// were durable.
    ///
    /// Checks each row up to the segment's end, in the first column, or in one choice of k others
    /// where that is lost.
    pub(super) async fn durable_after(&mut self) -> Sequence {
        let mut newest = Sequence::default();
        let mut row = self.row;
        while row.get() < self.record.rows {
            let count = READ_AHEAD.min(self.record.rows - row.get());
            let cells = self.first_column(row, count).await;
            for (row, block) in (row.get()..).map(Row::new).zip(cells.as_slice().chunks(BLOCK)) {
                newest = self.durable_in(row, block).map_or(newest, |durable| newest.max(durable));
            }
            row = row.plus(count);
        }
        newest
    }

    /// Advances to the next row behind the current one that holds a header of one block. Returns
    /// false if there is none.
    pub(super) async fn skip_to_next(&mut self) -> bool {
        let mut row = self.row.plus(1);
        while row.get() < self.record.rows {
            let count = READ_AHEAD.min(self.record.rows - row.get());
            let cells = self.first_column(row, count).await;
            let mut rows = (row.get()..).map(Row::new).zip(cells.as_slice().chunks(BLOCK));
            if let Some((found, _)) = rows.find(|(row, block)| self.durable_in(*row, block).is_some()) {
                self.row = found;
                return true;
            }
            row = row.plus(count);
        }
        self.row = row;
        false
    }

    /// Returns the row at which the next record starts, if it is within the segment.
    pub(super) fn row(&self) -> Option<Row> {
        Some(self.row).filter(|row| row.get() < self.record.rows)
    }

    /// Returns true if a header in the current row could be read: its cell is readable, or enough
    /// others of the row are.
    pub(super) async fn is_header_readable(&self) -> bool {
        let piece = self.rows.read_partial(self.id, self.row, 1).await;
        let readable = piece.span.cells.iter().filter(|(column, _)| piece.cell(*column, 0).is_some());
        piece.cell(0, 0).is_some() || readable.count() >= usize::from(self.record.scheme.data())
    }

    /// Returns cells of the first column; a cell that can be neither read nor computed is zeros.
    async fn first_column(&self, row: Row, count: u32) -> Buffer {
        let buffer = Buffer::new(count as usize * BLOCK);
        let address = Address::new(self.id, Column::new(0), row);
        if let Some((_, io)) = self.rows.start_read(address, &[buffer.span()])
            && io.await.is_ok()
        {
            return buffer;
        }
        let piece = self.rows.read_partial(self.id, row, count).await;
        let mut column = Buffer::zeroed(count as usize * BLOCK);
        for (index, block) in (0..).zip(column.as_mut_slice().chunks_mut(BLOCK)) {
            let sources =
                other_columns(&piece, index).iter().take(usize::from(self.record.scheme.data())).collect();
            let decoded = || self.decode_first(&piece, sources, index);
            if let Some(cell) = piece.cell(0, index).map(<[u8]>::to_vec).or_else(decoded) {
                block.copy_from_slice(&cell);
            }
        }
        column
    }

    /// Returns the newest durable record that a header of one block at `row` lists. Longer headers
    /// are ignored: most are short.
    fn durable_in(&self, row: Row, block: &[u8]) -> Option<Sequence> {
        let unverified = UnverifiedHeader::parse(block).ok()?;
        if unverified.blocks() != 1 {
            return None;
        }
        let header = unverified.authenticate(block, &self.identity.key).ok()?;
        self.belongs(header.location(), row).then_some(header.location().durable)
    }

    /// Decodes an authentic header; `None` if it belongs elsewhere.
    fn decode(&self, header: &format::AuthenticatedHeader<'_>, row: Row) -> Result<Option<Header>> {
        if !self.belongs(header.location(), row) {
            return Ok(None);
        }
        header.decode().map(Some).map_err(|error| {
            let message = format!(
                "shard {}: the header of record {} is authentic, and its contents are invalid: this is a bug of the release \
                 that wrote it, and the records from there on are not read",
                self.identity.shard,
                header.location().sequence
            );
            let address = Some(Address::new(self.id, Column::new(0), row));
            Error::corrupt(message, ErrorLocation { address, ..ErrorLocation::default() }, Some(error))
        })
    }

    /// Tries to read a header from the first column alone.
    async fn read_ahead(&mut self, row: Row) -> Result<Option<HeaderWithCrcs>> {
        let cached = self.ahead.as_ref().is_some_and(|(first, buffer)| {
            let offset = row.get().checked_sub(first.get());
            offset.is_some_and(|offset| (offset as usize) < buffer.len() / BLOCK)
        });
        if !cached {
            if row < self.unreadable_to {
                return Ok(None);
            }
            let count = READ_AHEAD.min(self.record.rows - row.get());
            let buffer = Buffer::new(count as usize * BLOCK);
            let address = Address::new(self.id, Column::new(0), row);
            let read = match self.rows.start_read(address, &[buffer.span()]) {
                Some((_, io)) => io.await.is_ok(),
                None => false,
            };
            if !read {
                self.unreadable_to = row.plus(count);
                return Ok(None);
            }
            self.ahead = Some((row, buffer));
        }
        let Some((first, buffer)) = &self.ahead else { return Ok(None) };
        let offset = (row.get() - first.get()) as usize * BLOCK;
        let rest = part(buffer.as_slice(), offset..buffer.len(), "R3");
        let Ok(unverified) = UnverifiedHeader::parse(rest) else { return Ok(None) };
        let blocks = usize::from(unverified.blocks());
        let Some(bytes) = rest.get(..blocks * BLOCK) else { return Ok(None) };
        let Ok(header) = unverified.authenticate(bytes, &self.identity.key) else { return Ok(None) };
        let header = self.decode(&header, row)?;
        // Several header blocks are in consecutive rows only if the record has that many rows.
        let header = header.filter(|header| self.record.scheme.rows_for(header.blocks()) as usize >= blocks);
        Ok(header.map(|header| (header, block_crcs(bytes))))
    }

    /// Reads the header from its own cells one by one, or computes it from every choice of other
    /// columns, until a header that belongs here is found: a cell may hold old or misplaced data
    /// that is internally consistent.
    async fn rebuild(&mut self, row: Row) -> Result<Option<HeaderWithCrcs>> {
        let left = self.record.rows - row.get();
        let end = |piece: &PartialRows| piece.span.row.plus(piece.span.count);
        let header_end = row.plus(HEADER_ROWS.min(left));
        let holds = |piece: &PartialRows| piece.span.row <= row && header_end <= end(piece);
        let piece = match self.piece.take().filter(holds) {
            Some(piece) => piece,
            None => {
                let count = if self.needs_other_columns { READ_AHEAD } else { HEADER_ROWS };
                self.rows.read_partial(self.id, row, count.min(left)).await
            }
        };
        let index = row.get() - piece.span.row.get();
        let mut found = self.header_of(&piece, row, |at| Some(piece.cell(0, at)?.to_vec()));
        if matches!(found, Ok(None)) {
            combinations(other_columns(&piece, index), self.record.scheme.data(), |sources| {
                found = self.header_of(&piece, row, |at| self.decode_first(&piece, sources, at));
                !matches!(found, Ok(None))
            });
        }
        self.needs_other_columns = matches!(found, Ok(Some(_)));
        self.piece = Some(piece);
        found
    }

    /// Computes the cell of the first column in row `at` of a piece from other columns.
    fn decode_first(&self, piece: &PartialRows, sources: ColumnSet, at: u32) -> Option<Vec<u8>> {
        if sources.iter().any(|column| piece.cell(column, at).is_none()) {
            return None;
        }
        let mut block = vec![0; BLOCK];
        let (scheme, first, cells) = (self.record.scheme, Column::new(0), &piece.span.cells);
        self.rows.decode_cell(scheme, sources, first, cells, at as usize, &mut block).then_some(block)
    }

    /// Returns the header at `row`, if these cells of the first column hold one. `cell` is called
    /// with rows of the piece.
    fn header_of(
        &self,
        piece: &PartialRows,
        row: Row,
        cell: impl Fn(u32) -> Option<Vec<u8>>,
    ) -> Result<Option<HeaderWithCrcs>> {
        let first = row.get() - piece.span.row.get();
        let Some(mut bytes) = cell(first) else { return Ok(None) };
        let Ok(unverified) = UnverifiedHeader::parse(&bytes) else { return Ok(None) };
        if first + u32::from(unverified.blocks()) > piece.span.count {
            return Ok(None);
        }
        for index in 1..u32::from(unverified.blocks()) {
            let Some(next) = cell(first + index) else { return Ok(None) };
            bytes.extend_from_slice(&next);
        }
        let Ok(header) = unverified.authenticate(&bytes, &self.identity.key) else { return Ok(None) };
        Ok(self.decode(&header, row)?.map(|header| (header, block_crcs(&bytes))))
    }

    fn belongs(&self, place: &RecordLocation, row: Row) -> bool {
        place.pool == self.identity.pool
            && place.shard == self.identity.shard
            && place.segment == self.id
            && place.incarnation == self.record.incarnation
            && place.row == row
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
