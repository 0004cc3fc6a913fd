//! The superblock: the whole small state of a pool, a copy on every drive, in two slots that are written in turn.
//!
//! Layout in docs/format.md. The part that identifies a pool (magic, version, length) can be read knowing nothing
//! else. The MAC is made with the key that the superblock itself carries: it protects against damage, and headers
//! against guests; not against somebody who can write the drives.

use crate::drive::DriveRecord;
use crate::error::assert_storable;
use crate::limits::{BLOCK, LINEAGE_MAX, NAME_MAX, SUPERBLOCK_SLOT};
use crate::mac::MAC_BYTES;
use crate::scrub::ScrubRecord;
use crate::superblock_check::{check_counts, check_recent};
use crate::tables::{read_entry, read_segment, write_entry, write_segment};
use crate::wire::{Reader, Writer};
use crate::{
    DriveId, DriveIndex, FORMAT_VERSION, FormatError, Generation, Incarnation, MapEntry, PoolId, PoolKey,
    Row, Scheme, SegmentId, SegmentRecord, Sequence,
};

const MAGIC: [u8; 8] = *b"GABIONSB";
const MAC_AT: usize = 16;
/// Bytes that [`UnverifiedSuperblock::parse`] looks at.
const FRONT: usize = 32;

/// A shard of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    /// The root of its last checkpoint; absent before the first.
    pub root: MapEntry,
    /// The last record whose effects the checkpoint holds.
    pub checkpointed: Sequence,
    /// Every segment that may hold records newer than the checkpoint, with the row of the first of them.
    pub recent: Vec<(SegmentId, Row, SegmentRecord)>,
}

/// One opening of the pool. Two drives that both went on alone show different openings after a common one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOpening {
    /// Number of the opening, from 1.
    pub epoch: u64,
    /// Random number of the opening.
    pub nonce: u64,
}

/// Names one state of a pool: an opening, and a generation within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateStamp {
    /// The opening; epoch 0 for no state.
    pub opening: PoolOpening,
    /// Version of the superblock within the opening.
    pub generation: Generation,
}

impl StateStamp {
    /// True if the stamp names a state.
    pub fn is_set(&self) -> bool {
        self.opening.epoch > 0
    }

    /// True if this state comes before `other`, both being of one history.
    pub fn is_before(&self, other: &Self) -> bool {
        (self.opening.epoch, self.generation) < (other.opening.epoch, other.generation)
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.opening.epoch);
        out.u64(self.opening.nonce);
        out.u64(self.generation.get());
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        let opening = PoolOpening { epoch: input.u64()?, nonce: input.u64()? };
        Ok(Self { opening, generation: Generation::new(input.u64()?) })
    }
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity.
    pub pool: PoolId,
    /// Secret for MACs.
    pub key: PoolKey,
    /// Name.
    pub name: String,
    /// Seconds since 1970 when it was created.
    pub created: u64,
    /// Openings so far, newest last; at least one.
    pub lineage: Vec<PoolOpening>,
    /// Version of this state within the newest opening.
    pub generation: Generation,
    /// Scheme of new segments.
    pub scheme: Scheme,
    /// Columns that a segment record has room for.
    pub table_width: u8,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Byte at which the first zone starts, on every drive.
    pub data_start: u64,
    /// True if the pool was closed in order: there is nothing to replay.
    pub clean: bool,
    /// The next life of a segment that has never been given out.
    pub next_incarnation: Incarnation,
    /// The drives, by index.
    pub drives: Vec<DriveRecord>,
    /// The shards, by index.
    pub shards: Vec<ShardRecord>,
    /// Scrubbing.
    pub scrub: ScrubRecord,
}

/// What is seen at first glance in a slot.
pub struct UnverifiedSuperblock {
    length: usize,
}

impl UnverifiedSuperblock {
    /// Looks at the first bytes of a slot.
    ///
    /// # Errors
    /// [`FormatError::BadMagic`] if there is no pool, [`FormatError::Version`] if another release wrote it.
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

    /// Bytes to read from the start of the slot, in whole blocks.
    pub fn stored_bytes(&self) -> usize {
        self.length.next_multiple_of(BLOCK)
    }

    /// Verifies the MAC and decodes; gives the superblock and which drive's copy it is.
    ///
    /// # Errors
    /// Anything that does not verify or that no writer stores.
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
    /// The copy of this superblock for `drive`, padded to whole blocks.
    ///
    /// # Panics
    /// If it breaks a limit: the engine keeps the state within them.
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
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
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

    /// The newest opening.
    pub fn epoch(&self) -> PoolOpening {
        self.lineage.last().copied().unwrap_or_default()
    }

    /// True if this state comes after `other` or is the same: later opening, or later in the same opening.
    pub fn is_at_least(&self, other: &Self) -> bool {
        (self.epoch().epoch, self.generation) >= (other.epoch().epoch, other.generation)
    }

    /// Names this state.
    pub fn stamp(&self) -> StateStamp {
        StateStamp { opening: self.epoch(), generation: self.generation }
    }

    /// True if `older`, found on the drive `drive`, is this state or one that its history went through: the newest opening of
    /// `older` is among the last ones of this state, or is one of the two that the drive's record names. Each drive that was
    /// away for long is accounted for by its own record, so a proof of a fork does not age.
    pub fn accounts_for(&self, older: &Self, drive: DriveId) -> bool {
        let theirs = older.epoch();
        let recorded = || {
            let record = self.drives.iter().find(|record| record.id == drive);
            record
                .is_some_and(|record| theirs == record.confirmed.opening || theirs == record.left_at.opening)
        };
        self.pool == older.pool && (self.lineage.contains(&theirs) || recorded())
    }

    /// The record of a drive.
    pub fn drive(&self, index: DriveIndex) -> Option<&DriveRecord> {
        self.drives.get(index.index())
    }

    fn encode_body(&self, out: &mut Writer<'_>) {
        out.text(&self.name, NAME_MAX);
        out.u64(self.created);
        out.u8(u8::try_from(self.lineage.len().min(LINEAGE_MAX)).unwrap_or(0));
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
        out.u16(u16::try_from(self.drives.len()).unwrap_or(u16::MAX));
        out.u16(u16::try_from(self.shards.len()).unwrap_or(u16::MAX));
        self.drives.iter().for_each(|drive| drive.encode(out));
        for shard in &self.shards {
            write_entry(out, shard.root);
            out.u64(shard.checkpointed.get());
            out.u16(u16::try_from(shard.recent.len()).unwrap_or(u16::MAX));
            for (id, from, segment) in &shard.recent {
                out.u32(id.get());
                out.u32(from.get());
                write_segment(out, segment, self.table_width);
            }
        }
        self.scrub.encode(out, self.shards.len());
    }
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
