//! The superblock: the complete state of a pool except its data and maps. Every drive has a copy,
//! in two slots that are written alternately.
//!
//! Layout in docs/format.md. The fields that identify a pool (magic, version, length) can be read
//! without knowing the rest of the layout. The MAC key is stored in the superblock itself: the MAC
//! protects against damage, and record headers against forgery by guests, but not against an
//! attacker who can write to the drives.

mod check;

use crate::checked::narrow;
use crate::drive::DriveRecord;
use crate::error::assert_storable;
use crate::limits::{
    BLOCK, DRIVES_MAX, LINEAGE_MAX, NAME_MAX, RECENT_SEGMENTS_MAX, SHARDS_MAX, SUPERBLOCK_SLOT,
};
use crate::mac::MAC_BYTES;
use crate::scrub::ScrubRecord;
use crate::stamp::{PoolOpening, StateStamp};
use crate::tables::{read_entry, read_segment, write_entry, write_segment};
use crate::wire::{Reader, Writer};
use crate::{
    DriveId, DriveIndex, FORMAT_VERSION, FormatError, Generation, Incarnation, MapEntry, PoolId, PoolKey,
    Row, Scheme, SegmentId, SegmentRecord, Sequence,
};

const MAGIC: [u8; 8] = *b"GABIONSB";
const MAC_AT: usize = 16;
/// Bytes that [`UnverifiedSuperblock::parse`] reads.
const FRONT: usize = 32;

/// A shard of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    /// The root of the shard's last checkpoint; absent before the first.
    pub root: MapEntry,
    /// The last record that is included in the checkpoint.
    pub checkpointed: Sequence,
    /// Every segment that may contain records newer than the checkpoint, with the row of the first
    /// such record.
    pub recent: Vec<(SegmentId, Row, SegmentRecord)>,
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the pool.
    pub pool: PoolId,
    /// Secret key for MACs.
    pub key: PoolKey,
    /// Name of the pool.
    pub name: String,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// The last openings, newest last; at least one.
    pub lineage: Vec<PoolOpening>,
    /// Version of this state within the newest opening.
    pub generation: Generation,
    /// Scheme of new segments.
    pub scheme: Scheme,
    /// Number of columns that a segment record has room for.
    pub table_width: u8,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Offset of the first zone in bytes, the same on every drive.
    pub data_start: u64,
    /// True if the pool was closed cleanly: all records of the log are complete.
    pub clean: bool,
    /// The lowest incarnation that was never assigned to a segment.
    pub next_incarnation: Incarnation,
    /// The drives, by index.
    pub drives: Vec<DriveRecord>,
    /// The shards, by index.
    pub shards: Vec<ShardRecord>,
    /// State of scrubbing.
    pub scrub: ScrubRecord,
}

/// The identified but unverified contents of a slot.
pub struct UnverifiedSuperblock {
    length: usize,
}

impl UnverifiedSuperblock {
    /// Parses the first bytes of a slot.
    ///
    /// # Errors
    /// [`FormatError::BadMagic`] if there is no pool, [`FormatError::Version`] if another release
    /// wrote it.
    pub fn parse(slot: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::new(slot);
        if input.array::<8>()? != MAGIC {
            return Err(FormatError::BadMagic);
        }
        let version = input.u32()?;
        if version != FORMAT_VERSION {
            return Err(FormatError::Version { found: version });
        }
        let length = input.u32()? as usize;
        if length < FRONT || length as u64 > SUPERBLOCK_SLOT {
            return Err(FormatError::Invalid("superblock length"));
        }
        Ok(Self { length })
    }

    /// Returns the number of bytes to read from the start of the slot, in whole blocks.
    pub fn stored_bytes(&self) -> usize {
        self.length.next_multiple_of(BLOCK)
    }

    /// Verifies the MAC and decodes the superblock; also returns the drive that the copy belongs
    /// to.
    ///
    /// # Errors
    /// If the MAC does not match, or a field has a value that no writer stores.
    pub fn verify(&self, slot: &[u8]) -> Result<(Superblock, DriveId), FormatError> {
        let bytes = slot.get(..self.length).ok_or(FormatError::Truncated)?;
        let (before, rest) = bytes.split_at_checked(MAC_AT).ok_or(FormatError::Truncated)?;
        let (mac, after) = rest.split_at_checked(MAC_BYTES).ok_or(FormatError::Truncated)?;
        let mut input = Reader::new(after);
        let pool = PoolId(input.array()?);
        let key = PoolKey(input.array()?);
        let drive = DriveId(input.array()?);
        if key.mac(&[before, after]) != *mac {
            return Err(FormatError::Checksum);
        }
        Ok((decode_body(pool, key, &mut input)?, drive))
    }
}

impl Superblock {
    /// Encodes the copy of this superblock for `drive`, padded to whole blocks.
    ///
    /// # Panics
    /// If a limit is exceeded: the engine keeps the state within the limits.
    pub fn encode(&self, drive: DriveId) -> Vec<u8> {
        assert_storable(self.check());
        self.write(drive)
    }

    pub(crate) fn write(&self, drive: DriveId) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.raw(&MAGIC);
        out.u32(FORMAT_VERSION);
        out.u32(0);
        out.raw(&[0; MAC_BYTES]);
        out.raw(&self.pool.0);
        out.raw(&self.key.0);
        out.raw(&drive.0);
        self.encode_body(&mut out);
        let length: u32 = narrow(bytes.len(), "superblock bytes");
        assert!(u64::from(length) <= SUPERBLOCK_SLOT, "a superblock of {length} bytes");
        let length = length.to_le_bytes();
        if let Some(place) = bytes.get_mut(MAC_AT - 4..MAC_AT) {
            place.copy_from_slice(&length);
        }
        let (before, rest) = bytes.split_at_mut(MAC_AT);
        let (place, after) = rest.split_at_mut(MAC_BYTES);
        place.copy_from_slice(&self.key.mac(&[before, after]));
        let padded = bytes.len().next_multiple_of(BLOCK);
        bytes.resize(padded, 0);
        bytes
    }

    /// Returns the newest opening.
    pub fn epoch(&self) -> PoolOpening {
        self.lineage.last().map_or_else(PoolOpening::default, |opening| *opening)
    }

    /// Returns true if this state is newer than or the same as `other`: a later opening, or a later
    /// generation of the same opening.
    pub fn is_at_least(&self, other: &Self) -> bool {
        (self.epoch().epoch, self.generation) >= (other.epoch().epoch, other.generation)
    }

    /// Returns the stamp of this state.
    pub fn stamp(&self) -> StateStamp {
        StateStamp { opening: self.epoch(), generation: self.generation }
    }

    /// Returns true if `older`, read from drive `drive`, is this state or one of its predecessors:
    /// the newest opening of `older` is among the last openings of this state, or is one of the two
    /// openings in the drive's record. The record of a drive that was away for a long time still
    /// lists its openings, so a fork is detected no matter how many openings later.
    pub fn accounts_for(&self, older: &Self, drive: DriveId) -> bool {
        let opening = older.epoch();
        let recorded = || {
            let record = self.drives.iter().find(|record| record.id == drive);
            record.is_some_and(|record| {
                opening == record.confirmed.opening || opening == record.left_at.opening
            })
        };
        self.pool == older.pool && (self.lineage.contains(&opening) || recorded())
    }

    /// Returns the record of a drive.
    pub fn drive(&self, index: DriveIndex) -> Option<&DriveRecord> {
        self.drives.get(index.index())
    }

    fn encode_body(&self, out: &mut Writer<'_>) {
        out.text(&self.name, NAME_MAX);
        out.u64(self.created);
        out.u8(narrow(self.lineage.len().min(LINEAGE_MAX), "lineage"));
        for opening in self.lineage.iter().skip(self.lineage.len().saturating_sub(LINEAGE_MAX)) {
            out.u64(opening.epoch);
            out.u64(opening.nonce);
        }
        out.u64(self.generation.get());
        out.u8(self.scheme.data());
        out.u8(self.scheme.parity());
        out.u8(self.table_width);
        out.u8(u8::from(self.clean));
        out.u64(self.zone_bytes);
        out.u64(self.data_start);
        out.u64(self.next_incarnation.get());
        out.u16(narrow(self.drives.len(), "C5"));
        out.u16(narrow(self.shards.len(), "C5"));
        self.drives.iter().for_each(|drive| drive.encode(out));
        for shard in &self.shards {
            write_entry(out, shard.root);
            out.u64(shard.checkpointed.get());
            out.u16(narrow(shard.recent.len(), "recent segments"));
            for (id, from, segment) in &shard.recent {
                out.u32(id.get());
                out.u32(from.get());
                write_segment(out, segment, self.table_width);
            }
        }
        self.scrub.encode(out, self.shards.len());
    }
}

/// Checks the numbers of drives and shards.
fn check_counts(drives: usize, shards: usize) -> Result<(), FormatError> {
    if drives == 0 || drives > DRIVES_MAX || shards == 0 || shards > SHARDS_MAX {
        return Err(FormatError::Invalid("number of drives or shards"));
    }
    Ok(())
}

/// Checks the number of recent segments of a shard.
fn check_recent(segments: usize) -> Result<(), FormatError> {
    if segments > RECENT_SEGMENTS_MAX {
        return Err(FormatError::Invalid("number of recent segments"));
    }
    Ok(())
}

fn decode_body(pool: PoolId, key: PoolKey, input: &mut Reader<'_>) -> Result<Superblock, FormatError> {
    let name = input.text(NAME_MAX)?;
    let created = input.u64()?;
    let openings = usize::from(input.u8()?);
    if openings == 0 || openings > LINEAGE_MAX {
        return Err(FormatError::Invalid("lineage"));
    }
    let lineage = (0..openings)
        .map(|_| Ok(PoolOpening { epoch: input.u64()?, nonce: input.u64()? }))
        .collect::<Result<Vec<_>, FormatError>>()?;
    let generation = Generation::new(input.u64()?);
    let (data, parity) = (input.u8()?, input.u8()?);
    let scheme = Scheme::new(data, parity).map_err(|_| FormatError::Invalid("scheme"))?;
    let table_width = input.u8()?;
    let clean = match input.u8()? {
        0 => false,
        1 => true,
        _ => return Err(FormatError::Invalid("clean flag")),
    };
    let zone_bytes = input.u64()?;
    let data_start = input.u64()?;
    let next_incarnation = Incarnation::new(input.u64()?);
    let drives = usize::from(input.u16()?);
    let shards = usize::from(input.u16()?);
    check_counts(drives, shards)?;
    let drives = (0..drives).map(|_| DriveRecord::decode(input)).collect::<Result<Vec<_>, _>>()?;
    let shards = (0..shards).map(|_| decode_shard(input, table_width)).collect::<Result<Vec<_>, _>>()?;
    let scrub = ScrubRecord::decode(input, shards.len())?;
    input.end()?;
    let superblock = Superblock {
        pool,
        key,
        name,
        created,
        lineage,
        generation,
        scheme,
        table_width,
        zone_bytes,
        data_start,
        clean,
        next_incarnation,
        drives,
        shards,
        scrub,
    };
    superblock.check()?;
    Ok(superblock)
}

fn decode_shard(input: &mut Reader<'_>, table_width: u8) -> Result<ShardRecord, FormatError> {
    let root = read_entry(input)?;
    let checkpointed = Sequence::new(input.u64()?);
    let recent = usize::from(input.u16()?);
    check_recent(recent)?;
    let recent = (0..recent)
        .map(|_| {
            let id = SegmentId::new(input.u32()?);
            let from = Row::new(input.u32()?);
            let segment = read_segment(input, table_width)?.ok_or(FormatError::Invalid("recent segment"))?;
            Ok((id, from, segment))
        })
        .collect::<Result<Vec<_>, FormatError>>()?;
    Ok(ShardRecord { root, checkpointed, recent })
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
pub(crate) mod tests;
