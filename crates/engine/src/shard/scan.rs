//! Recovery, first half: find the end of the log and make its last rows whole, before anything new is written.
//!
//! Reads the headers of every segment that may hold records newer than the checkpoint, puts them in order and takes them
//! up to the first gap. Records that were known durable when a later one was written are taken as they are; each after
//! that is read whole, and where a power cut left some of its cells unwritten they are written now, from the others.
//! What cannot be made whole was never answered as durable: the log ends before it.

use codec::{ColumnSet, crc32c};
use format::limits::{BLOCK, HEADER_BLOCKS_MAX};
use format::{
    Address, Column, DriveIndex, Header, RecordPlace, Row, Scheme, SegmentId, SegmentRecord, Sequence,
    ShardRecord, UnverifiedHeader,
};
use reactor::{Buffer, IoResult, Span};

use crate::error::{Error, Place, Result};
use crate::geometry::RecordLayout;
use crate::log::Identity;
use crate::rows::{RowSpan, Rows, combinations};
use crate::segments::Cell;

/// Rows of a column that the scan reads ahead.
const READ_AHEAD: u32 = 64;
/// Rows that a header takes at most.
#[allow(clippy::cast_possible_truncation)]
const HEADER_ROWS: u32 = HEADER_BLOCKS_MAX as u32;

/// A record that recovery found.
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) layout: RecordLayout,
    scheme: Scheme,
    /// CRC32C of each header block: what its cell must hold.
    header_crcs: Vec<u32>,
}

/// What the first half of a recovery found out.
pub(crate) struct Examined {
    /// Records to replay, in order.
    pub(crate) records: Vec<Found>,
    /// The last record of the shard's history.
    pub(crate) last: Sequence,
    /// Records after it that were begun but never answered as durable.
    pub(crate) dropped: usize,
    /// Cells that a crash had left unwritten, written now, or left as they are if nothing may be written.
    pub(crate) completed: Vec<Address>,
    /// Drives that did not take them, and are out of use.
    pub(crate) failed: Vec<DriveIndex>,
}

/// Finds and completes the log behind `shard`'s checkpoint. The segments it lists are in `rows` already.
///
/// With `read_only`, incomplete cells are counted and left as they are.
///
/// # Errors
/// `Corrupt` if a record that was durable cannot be read; I/O errors of drives beyond what the scheme bears.
pub(crate) async fn examine(
    rows: &Rows,
    identity: &Identity,
    shard: &ShardRecord,
    read_only: bool,
) -> Result<Examined> {
    let mut found = Vec::new();
    for (id, from, record) in &shard.recent {
        scan_segment(rows, identity, *id, *from, record, &mut found).await?;
    }
    found.sort_by_key(|record| record.header.place.sequence);
    let durable = found.iter().map(|record| record.header.place.durable).max().unwrap_or_default();
    let all = found.len();
    let mut records: Vec<Found> = Vec::new();
    let mut last = shard.checkpointed;
    let mut completed = Vec::new();
    let mut failed = Vec::new();
    let mut older = 0;
    for record in found {
        let sequence = record.header.place.sequence;
        if sequence <= shard.checkpointed {
            older += 1;
            continue;
        }
        if sequence != last.next() {
            break;
        }
        if sequence > durable {
            match complete(rows, &record, read_only, &mut failed).await {
                Some(cells) => completed.extend(cells),
                None => break,
            }
        }
        last = sequence;
        records.push(record);
    }
    if last < durable {
        let message = format!(
            "shard {}: record {} was durable and cannot be read; records up to {durable} are lost with it",
            identity.shard,
            last.next()
        );
        return Err(Error::corrupt(message, Place::default(), None));
    }
    let dropped = all - older - records.len();
    cut_segments(rows, shard, &records);
    Ok(Examined { records, last, dropped, completed, failed })
}

/// Ends every listed segment after the last record that was taken from it.
fn cut_segments(rows: &Rows, shard: &ShardRecord, records: &[Found]) {
    let mut segments = rows.segments.borrow_mut();
    for (id, from, _) in &shard.recent {
        let taken = records.iter().filter(|record| record.header.place.segment == *id);
        let end = taken.map(|record| record.layout.end()).max().unwrap_or(*from).max(*from);
        segments.cut(*id, *from, end, |drive| rows.drives.is_online(drive));
    }
}

/// Collects the headers of a segment from row `from` on, up to the first row that holds none.
async fn scan_segment(
    rows: &Rows,
    identity: &Identity,
    id: SegmentId,
    from: Row,
    record: &SegmentRecord,
    found: &mut Vec<Found>,
) -> Result<()> {
    let mut reader = HeaderReader::starting_at(rows, identity, id, record, from);
    while let Some(record) = reader.next().await? {
        found.push(record);
    }
    Ok(())
}

/// A header and the CRC32C of each of its blocks.
type Read = (Header, Vec<u32>);

fn block_crcs(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK).map(crc32c).collect()
}

/// Reads the headers of one segment in order, mostly from its first column, some rows ahead.
pub(super) struct HeaderReader<'a> {
    rows: &'a Rows,
    identity: &'a Identity,
    id: SegmentId,
    record: &'a SegmentRecord,
    /// Cells of column 0 that were read ahead, from this row on.
    ahead: Option<(Row, Buffer)>,
    /// Where the next record starts.
    row: Row,
}

impl<'a> HeaderReader<'a> {
    /// From the first record on.
    pub(super) fn new(
        rows: &'a Rows,
        identity: &'a Identity,
        id: SegmentId,
        record: &'a SegmentRecord,
    ) -> Self {
        Self::starting_at(rows, identity, id, record, Row::new(0))
    }

    fn starting_at(
        rows: &'a Rows,
        identity: &'a Identity,
        id: SegmentId,
        record: &'a SegmentRecord,
        row: Row,
    ) -> Self {
        Self { rows, identity, id, record, ahead: None, row }
    }

    /// Takes these cells of column 0, from `row` on, as read: what they hold is verified like anything else.
    pub(super) fn feed(&mut self, row: Row, cells: Buffer) {
        self.ahead = Some((row, cells));
    }

    /// The next record; `None` at the first row that holds no header, or at the segment's end.
    pub(super) async fn next(&mut self) -> Result<Option<Found>> {
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
        Ok(Some(Found { header, layout, scheme, header_crcs }))
    }

    /// The header of the record that starts at `row`, if there is one.
    async fn header_at(&mut self, row: Row) -> Result<Option<Read>> {
        if let Some(header) = self.read_ahead(row).await {
            return Ok(Some(header));
        }
        // The end of the log, or a first column that is lost or damaged: any k columns tell.
        self.rebuild(row).await
    }

    /// Tries the first column alone.
    async fn read_ahead(&mut self, row: Row) -> Option<Read> {
        let cached = self.ahead.as_ref().is_some_and(|(first, buffer)| {
            let offset = (row.get().checked_sub(first.get())).unwrap_or(u32::MAX) as usize;
            offset < buffer.len() / BLOCK
        });
        if !cached {
            let count = READ_AHEAD.min(self.record.rows - row.get());
            let buffer = Buffer::new(count as usize * BLOCK);
            let address = Address::new(self.id, Column::new(0), row);
            let (_, io) = self.rows.start_read(address, &[buffer.span()])?;
            io.await.ok()?;
            self.ahead = Some((row, buffer));
        }
        let (first, buffer) = self.ahead.as_ref()?;
        let offset = (row.get() - first.get()) as usize * BLOCK;
        let rest = buffer.as_slice().get(offset..)?;
        let unverified = UnverifiedHeader::parse(rest).ok()?;
        let blocks = usize::from(unverified.blocks());
        let bytes = rest.get(..blocks * BLOCK)?;
        let header = unverified.verify(bytes, &self.identity.key).ok()?;
        // Several header blocks lie one below the other only if the record has as many rows.
        let rows = self.record.scheme.rows_for(header.blocks());
        (rows as usize >= blocks && self.belongs(&header.place, row)).then(|| (header, block_crcs(bytes)))
    }

    /// Computes the header from every choice of columns, until one gives a header that belongs here: a cell may hold
    /// what a drive kept of other times or places, and look perfectly sound.
    async fn rebuild(&mut self, row: Row) -> Result<Option<Read>> {
        let scheme = self.record.scheme;
        let width: Vec<u8> = (0..scheme.width()).collect();
        let count = HEADER_ROWS.min(self.record.rows - row.get());
        let mut span = RowSpan { id: self.id, row, count, cells: Vec::new() };
        self.rows.read_columns(&mut span, &width).await;
        let present: ColumnSet = span.cells.iter().map(|(column, _)| *column).collect();
        let mut found = None;
        combinations(present, scheme.data(), |sources| {
            found = self.header_from(sources, &span, row);
            found.is_some()
        });
        Ok(found)
    }

    /// The header that a choice of columns gives.
    fn header_from(&self, sources: ColumnSet, span: &RowSpan, row: Row) -> Option<Read> {
        let block = |index: usize| {
            let mut block = vec![0; BLOCK];
            let (scheme, first) = (self.record.scheme, Column::new(0));
            let decoded = self.rows.decode_cell(scheme, sources, first, &span.cells, index, &mut block);
            decoded.then_some(block)
        };
        let mut bytes = block(0)?;
        let unverified = UnverifiedHeader::parse(&bytes).ok()?;
        if u32::from(unverified.blocks()) > span.count {
            return None;
        }
        for index in 1..usize::from(unverified.blocks()) {
            bytes.extend_from_slice(&block(index)?);
        }
        let header = unverified.verify(&bytes, &self.identity.key).ok()?;
        self.belongs(&header.place, row).then(|| (header, block_crcs(&bytes)))
    }

    fn belongs(&self, place: &RecordPlace, row: Row) -> bool {
        place.pool == self.identity.pool
            && place.shard == self.identity.shard
            && place.segment == self.id
            && place.incarnation == self.record.incarnation
            && place.row == row
    }
}

/// Verifies a record whole and writes the cells that are not as they should be. Gives which; `None` if the record
/// cannot be had. A drive that does not take its cell is out of use, as it would be in service.
async fn complete(
    rows: &Rows,
    record: &Found,
    read_only: bool,
    failed: &mut Vec<DriveIndex>,
) -> Option<Vec<Address>> {
    let place = &record.header.place;
    let width: Vec<u8> = (0..record.scheme.width()).collect();
    let mut span =
        RowSpan { id: place.segment, row: place.row, count: record.layout.rows, cells: Vec::new() };
    rows.read_columns(&mut span, &width).await;
    let mut wrong: Vec<(Column, Row, Buffer)> = Vec::new();
    for row in (0..record.layout.rows).map(|row| place.row.plus(row)) {
        match row_repairs(rows, record, &span, row) {
            Some(cells) => wrong.extend(cells.into_iter().map(|(column, cell)| (column, row, cell))),
            None => return None,
        }
    }
    let mut completed = Vec::new();
    for (column, row, cell) in wrong {
        let address = Address::new(place.segment, column, row);
        let place = rows.segments.borrow().cell(address).filter(|cell| rows.drives.is_online(cell.drive));
        let Some(place) = place else { continue };
        if !read_only && let Err(error) = write_cell(rows, place, &cell.span()).await {
            tracing::error!(drive = %place.drive, %error, "a drive does not take the last rows of the log: it is lost");
            rows.drives.lose(place.drive);
            failed.push(place.drive);
            continue;
        }
        completed.push(address);
    }
    Some(completed)
}

/// What the cells of a row of a record should be where they are not: every data cell by its CRC, the parity by the data.
/// `span` holds the cells that could be read, of this row among others. `None` if the row is damaged beyond repair.
pub(super) fn row_repairs(
    rows: &Rows,
    record: &Found,
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

/// What a data cell of a record must be: a header or payload block with its CRC, or zeros.
pub(super) fn expected(record: &Found, column: u8, row: Row) -> impl Fn(&[u8]) -> bool + '_ {
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

/// Writes a cell where its row should hold it, on a drive that is in use.
async fn write_cell(rows: &Rows, place: Cell, cell: &Span) -> IoResult {
    match rows.drives.write(place.drive, place.offset, std::slice::from_ref(cell)) {
        Some(io) => io.await,
        None => Ok(0),
    }
}
