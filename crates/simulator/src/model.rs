//! A plain model of volume content, to compare the engine with.
//!
//! A volume is an array of sectors. Every write has a start, an end and possibly an
//! acknowledgement, on one logical clock. A read may return a write unless a later write, begun
//! after the first one ended, was acknowledged before the read began. After a crash the same rule
//! applies with the last acknowledged flush in place of the read, or, on drives without volatile
//! caches, with the last acknowledged write. The content read after a crash becomes the model's new
//! base.

use std::collections::BTreeMap;

use format::limits::{BLOCK_BYTES, SLICE};

use crate::random::{Random, mix};

/// Bytes of the tag at the start of a sector, which identifies the write that stored the sector.
const TAG: usize = 8;

/// A write in the model's history.
#[derive(Clone, Debug)]
struct ModelWrite {
    start: u64,
    /// Time of the reply to the caller, success or error.
    end: Option<u64>,
    acknowledged: bool,
    /// The written value; 0 for zeros.
    value: u64,
    first: u64,
    count: u64,
    /// The write must survive a crash completely or not at all.
    atomic: bool,
}

#[derive(Clone, Debug, Default)]
struct SectorState {
    /// The value at the last time when the content was certain.
    base: u64,
    /// Indices of the writes since then.
    writes: Vec<u32>,
}

/// The expected content of one volume.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    /// Sector size in bytes.
    pub sector: u32,
    cells: Vec<SectorState>,
    writes: Vec<ModelWrite>,
    /// Writes acknowledged by this time are durable: the start of the last acknowledged flush.
    flushed: u64,
    /// Writes are durable when they are acknowledged.
    write_through: bool,
}

/// Identifies a write that has begun.
#[derive(Clone, Copy, Debug)]
pub struct WriteToken(u32);

/// Returns the content of sector `cell` after a write of `value`.
pub fn content(value: u64, cell: u64, sector: u32) -> Vec<u8> {
    let mut bytes = vec![0; sector as usize];
    if value != 0 {
        Random::new(mix(value) ^ cell).fill(&mut bytes);
        bytes.iter_mut().zip(value.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }
    bytes
}

/// Returns true if a crash leaves all of this write or nothing of it. Writes within one slice are
/// atomic up to `max` bytes, counted in whole blocks.
pub(crate) fn is_atomic(max: u64, offset: u64, length: u64) -> bool {
    let end = offset + length;
    let covered = end.next_multiple_of(BLOCK_BYTES) - offset / BLOCK_BYTES * BLOCK_BYTES;
    covered <= max && offset / SLICE == (end - 1) / SLICE
}

impl VolumeModel {
    /// Creates a volume of zeros.
    pub fn new(size: u64, sector: u32) -> Self {
        let cells = vec![SectorState::default(); usize::try_from(size / u64::from(sector)).unwrap_or(0)];
        Self { sector, cells, writes: Vec::new(), flushed: 0, write_through: false }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.cells.len() as u64 * u64::from(self.sector)
    }

    /// Changes the size. No operation may be running.
    pub fn resize(&mut self, size: u64) {
        let cells = usize::try_from(size / u64::from(self.sector)).unwrap_or(0);
        self.cells.resize(cells, SectorState::default());
        // A write across the new end is no longer complete.
        let cells = cells as u64;
        self.writes
            .iter_mut()
            .filter(|write| write.first + write.count > cells)
            .for_each(|write| write.atomic = false);
    }

    /// Records that a write of `value` (0 for zeros) over `count` sectors from `first` begins at
    /// `now`.
    pub fn begin_write(&mut self, now: u64, first: u64, count: u64, value: u64, atomic: bool) -> WriteToken {
        let number = u32::try_from(self.writes.len()).unwrap_or(u32::MAX);
        self.writes.push(ModelWrite {
            start: now,
            end: None,
            acknowledged: false,
            value,
            first,
            count,
            atomic,
        });
        for cell in self.range(first, count) {
            cell.writes.push(number);
        }
        WriteToken(number)
    }

    /// Records the end of a write.
    pub fn end_write(&mut self, token: WriteToken, now: u64, acknowledged: bool) {
        if let Some(write) = self.writes.get_mut(token.0 as usize) {
            write.end = Some(now);
            write.acknowledged = acknowledged;
        }
        if acknowledged && self.write_through {
            self.note_flush(now);
        }
    }

    /// Records that a write changed nothing.
    pub(crate) fn forget_write(&mut self, token: WriteToken, now: u64) {
        let Some(write) = self.writes.get_mut(token.0 as usize) else { return };
        write.end = Some(now);
        let (first, count) = (write.first, std::mem::take(&mut write.count));
        for cell in self.range(first, count) {
            cell.writes.retain(|number| *number != token.0);
        }
    }

    /// Returns true if a read between the times `start` and `end` can return nothing but `bytes`.
    pub(crate) fn is_certain(&self, first: u64, bytes: &[u8], start: u64, end: u64) -> bool {
        (first..).zip(bytes.chunks(self.sector as usize)).all(|(number, sector)| {
            let cell = usize::try_from(number).ok().and_then(|number| self.cells.get(number));
            cell.is_some_and(|cell| self.allowed(cell, start, end) == [sector_tag(sector)])
        })
    }

    /// Sets whether writes are durable when they are acknowledged, because no drive has a volatile
    /// cache.
    pub fn set_write_through(&mut self, write_through: bool) {
        self.write_through = write_through;
    }

    /// Returns true if no write is running.
    pub fn is_idle(&self) -> bool {
        self.writes.iter().all(|write| write.end.is_some())
    }

    /// Records an acknowledged flush: writes acknowledged by `start`, the time when the flush
    /// began, are durable.
    pub fn note_flush(&mut self, start: u64) {
        self.flushed = self.flushed.max(start);
    }

    fn range(&mut self, first: u64, count: u64) -> impl Iterator<Item = &mut SectorState> {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        self.cells.iter_mut().skip(first).take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Returns the values that a sector may hold. Writes that were acknowledged by
    /// `acknowledged_by` supersede earlier ones. Writes that began after `until` do not count.
    fn allowed(&self, cell: &SectorState, acknowledged_by: u64, until: u64) -> Vec<u64> {
        let writes: Vec<&ModelWrite> =
            cell.writes.iter().filter_map(|number| self.writes.get(*number as usize)).collect();
        let superseded = |end: Option<u64>| {
            let Some(end) = end else { return false };
            let later = |write: &&&ModelWrite| {
                write.acknowledged
                    && write.start >= end
                    && write.end.is_some_and(|end| end <= acknowledged_by)
            };
            writes.iter().find(later).is_some()
        };
        let mut values = Vec::new();
        if !superseded(Some(0)) {
            values.push(cell.base);
        }
        let seen = writes.iter().filter(|write| write.start <= until && !superseded(write.end));
        values.extend(seen.map(|write| write.value));
        values
    }

    /// Checks data that was read from sector `first` on, between the times `start` and `end`.
    ///
    /// # Errors
    /// Describes the first sector with a wrong value.
    pub fn check_read(&self, first: u64, bytes: &[u8], start: u64, end: u64) -> Result<(), String> {
        for (number, sector) in (first..).zip(bytes.chunks(self.sector as usize)) {
            let Some(cell) = usize::try_from(number).ok().and_then(|number| self.cells.get(number)) else {
                return Err(format!("cell {number} does not exist"));
            };
            let allowed = self.allowed(cell, start, end);
            let value = sector_tag(sector);
            if !allowed.contains(&value) || sector != content(value, number, self.sector) {
                return Err(format!(
                    "cell {number} ({} bytes): found {}, allowed {allowed:?} between {start} and {end}; history {}",
                    self.sector,
                    describe(sector, number, self.sector),
                    self.history(cell)
                ));
            }
        }
        Ok(())
    }

    /// Checks that each sector of `bytes`, read from sector `first` on, holds zeros or a complete
    /// write to that sector. Torn and misplaced sectors are errors.
    ///
    /// # Errors
    /// Describes the first wrong sector.
    pub fn check_origin(&self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (number, sector) in (first..).zip(bytes.chunks(self.sector as usize)) {
            if sector != content(sector_tag(sector), number, self.sector) {
                let found = describe(sector, number, self.sector);
                return Err(format!("cell {number} ({} bytes): found {found}", self.sector));
            }
        }
        Ok(())
    }

    /// Makes the content found after a crash the new base, if the content is allowed.
    ///
    /// # Errors
    /// Describes the violation: a flushed write is missing, a sector holds data that was never
    /// written, or an atomic write is torn.
    pub fn adopt_after_crash(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut found = Vec::with_capacity(self.cells.len());
        for (number, (sector, cell)) in (0u64..).zip(bytes.chunks(self.sector as usize).zip(&self.cells)) {
            let allowed = self.allowed(cell, self.flushed, u64::MAX);
            let value = sector_tag(sector);
            if !allowed.contains(&value) || sector != content(value, number, self.sector) {
                return Err(format!(
                    "after the crash, cell {number} ({} bytes): found {}, allowed {allowed:?}, flushed at {}; history {}",
                    self.sector,
                    describe(sector, number, self.sector),
                    self.flushed,
                    self.history(cell)
                ));
            }
            found.push(value);
        }
        self.check_atomic(&found)?;
        self.adopt(&found);
        Ok(())
    }

    /// Copies the durable point of another model.
    pub fn copy_durable_point(&mut self, other: &Self) {
        self.flushed = other.flushed;
    }

    /// Makes the content of a snapshot the new base, if the content is allowed: it must contain
    /// everything that was acknowledged by the time `complete_to`. That is the begin of the
    /// snapshot or, if later, of the newest write that it contains ([`newest_write`]).
    ///
    /// # Errors
    /// Describes the violation.
    pub fn adopt_snapshot(&mut self, bytes: &[u8], complete_to: u64) -> Result<(), String> {
        self.flushed = complete_to;
        self.adopt_after_crash(bytes)
    }

    /// Checks that each atomic write that no other write overlaps in time or overwrites is complete
    /// or absent.
    fn check_atomic(&self, found: &[u64]) -> Result<(), String> {
        for (number, write) in
            self.writes.iter().enumerate().filter(|(_, write)| write.atomic && write.value != 0)
        {
            let cells = || {
                let first = usize::try_from(write.first).unwrap_or(usize::MAX);
                let count = usize::try_from(write.count).unwrap_or(usize::MAX);
                self.cells.iter().zip(found).skip(first).take(count)
            };
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let alone = cells().all(|(cell, _)| {
                let mut others = cell.writes.iter().filter(|other| **other != number);
                cell.writes.last() == Some(&number)
                    && others.all(|other| {
                        let before = self.writes.get(*other as usize).and_then(|other| other.end);
                        before.is_some_and(|end| end <= write.start)
                    })
            });
            let present = cells().filter(|(_, value)| **value == write.value).count() as u64;
            if alone && present != 0 && present != write.count {
                return Err(format!(
                    "a write of {} cells from {} is torn: {present} of them are present",
                    write.count, write.first
                ));
            }
        }
        Ok(())
    }

    /// Makes `found` the new base. No write may be running.
    fn adopt(&mut self, found: &[u64]) {
        for (cell, value) in self.cells.iter_mut().zip(found) {
            cell.base = *value;
            cell.writes.clear();
        }
        self.writes.clear();
    }

    /// Forgets writes that no read can return any more. Keeps the values that a crash could bring
    /// back, and does nothing while a write is running.
    pub fn prune(&mut self) {
        if self.writes.iter().any(|write| write.end.is_none()) {
            return;
        }
        let keep: Vec<Vec<u64>> =
            self.cells.iter().map(|cell| self.allowed(cell, self.flushed, u64::MAX)).collect();
        if keep.iter().all(|values| values.len() == 1) {
            let found: Vec<u64> = keep.iter().filter_map(|values| values.first().copied()).collect();
            self.adopt(&found);
        }
    }

    fn history(&self, cell: &SectorState) -> String {
        let mut text = format!("base {}", cell.base);
        for write in cell.writes.iter().filter_map(|number| self.writes.get(*number as usize)) {
            text.push_str(&format!(
                "; {} at {}..{:?}{}",
                write.value,
                write.start,
                write.end,
                if write.acknowledged { "" } else { " not acknowledged" }
            ));
        }
        text
    }
}

/// Returns the time at which the newest write in `bytes` began; 0 without writes.
pub(crate) fn newest_write(bytes: &[u8], sector: u32) -> u64 {
    // A value is the time at which its write began.
    bytes.chunks(sector as usize).map(sector_tag).max().unwrap_or(0)
}

pub(crate) fn sector_tag(sector: &[u8]) -> u64 {
    sector.first_chunk::<TAG>().map_or(0, |tag| u64::from_le_bytes(*tag))
}

fn describe(sector: &[u8], cell: u64, size: u32) -> String {
    let value = sector_tag(sector);
    if sector == content(value, cell, size) {
        return format!("value {value}");
    }
    let wrong = sector.iter().zip(content(value, cell, size)).filter(|(a, b)| **a != *b).count();
    format!("bytes tagged {value} of which {wrong} are wrong")
}

/// The models of the existing volumes, by name.
pub type Volumes = BTreeMap<String, VolumeModel>;
