//! The record of a volume or snapshot: one block of the pool's catalogue.
//!
//! The catalogue is itself a layer (layer 1 of shard 0); block v contains record number v. A record
//! therefore changes atomically, its map entry has its checksum, and it is protected like any data.

use crate::error::assert_storable;
use crate::limits::{BLOCK, NAME_MAX, SHARDS_MAX, VOLUME_MAX};
use crate::wire::{Reader, Writer};
use crate::{FORMAT_VERSION, FormatError, LayerId, VolumeId};

/// The kind of a catalogue record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// A writable volume.
    Volume,
    /// A read-only snapshot of a volume.
    Snapshot,
}

/// The lifecycle state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// In use.
    Ready,
    /// Being deleted: its blocks are being freed, and it can no longer be opened.
    Deleting,
}

/// The QoS limits of a volume, and its weight under contention. All zero for the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QosLimits {
    /// Weight relative to other volumes; 0 for the default of 100.
    pub weight: u16,
    /// Milliseconds for which a volume may exceed its limits after it was idle.
    pub burst_ms: u32,
    /// Maximum operations per second; 0 for no limit.
    pub operations: u64,
    /// Maximum bytes per second; 0 for no limit.
    pub bytes: u64,
}

/// The shards that hold the blocks of a volume. All zero for every shard of the pool, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpread {
    /// The shard of the first slice.
    pub first: u16,
    /// Number of consecutive shards, starting at `first` and wrapping around; 0 for all.
    pub shards: u16,
}

impl VolumeSpread {
    /// Returns true if a pool with this many shards has all shards of the spread.
    pub fn fits(self, shards: usize) -> bool {
        usize::from(self.shards) <= shards
            && match self.shards {
                0 => self.first == 0,
                _ => usize::from(self.first) < shards,
            }
    }
}

/// A volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Catalogue slot of the volume.
    pub id: VolumeId,
    /// Name of the volume, unique among volumes (snapshots: `volume@snapshot`).
    pub name: String,
    /// Kind of the volume: volume or snapshot.
    pub kind: VolumeKind,
    /// Lifecycle state of the volume.
    pub state: VolumeState,
    /// Size in bytes, a multiple of the sector size.
    pub size: u64,
    /// Logical sector size: 512 or 4096 bytes.
    pub sector: u32,
    /// The layer with its own blocks.
    pub layer: LayerId,
    /// The parent layer, if any.
    pub parent: Option<LayerId>,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// QoS limits of the volume.
    pub qos: QosLimits,
    /// True if space is reserved for its full size (thick provisioning).
    pub thick: bool,
    /// The shards with its blocks.
    pub spread: VolumeSpread,
}

impl VolumeRecord {
    const MAGIC: u32 = u32::from_le_bytes(*b"GVOL");
    /// Bytes of the longest `volume@snapshot`.
    const NAME_BYTES: usize = 2 * NAME_MAX + 1;
    /// Flag: space is reserved for the full size.
    const THICK: u16 = 1;

    /// Returns true if space is reserved for the volume.
    pub fn reserves_space(&self) -> bool {
        self.thick && self.state == VolumeState::Ready && self.kind == VolumeKind::Volume
    }

    /// Checks that the record is valid: encoding asserts this, decoding refuses invalid records.
    /// The length of the name is checked by reading and writing the text.
    fn check(&self) -> Result<(), FormatError> {
        let whole = matches!(self.sector, 512 | 4096) && self.size.is_multiple_of(u64::from(self.sector));
        if !whole || self.size > VOLUME_MAX {
            return Err(FormatError::Invalid("volume size"));
        }
        if self.layer < LayerId::FIRST_USER {
            return Err(FormatError::Invalid("layer of a volume"));
        }
        if self.parent.is_some_and(|parent| parent < LayerId::FIRST_USER || parent == self.layer) {
            return Err(FormatError::Invalid("layer below a volume"));
        }
        if !self.spread.fits(SHARDS_MAX) {
            return Err(FormatError::Invalid("volume spread"));
        }
        Ok(())
    }

    /// Encodes the record as a block.
    ///
    /// # Panics
    /// If the record is invalid.
    pub fn encode(&self) -> Vec<u8> {
        assert_storable(self.check());
        self.write()
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK);
        let mut out = Writer::new(&mut bytes);
        out.u32(Self::MAGIC);
        out.u32(FORMAT_VERSION);
        out.u32(self.id.get());
        out.u8(match self.kind {
            VolumeKind::Volume => 1,
            VolumeKind::Snapshot => 2,
        });
        out.u8(match self.state {
            VolumeState::Ready => 1,
            VolumeState::Deleting => 2,
        });
        out.u16(if self.thick { Self::THICK } else { 0 });
        out.u64(self.size);
        out.u32(self.sector);
        out.u32(self.layer.get());
        out.u32(self.parent.map_or(0, LayerId::get));
        out.u64(self.created);
        out.text(&self.name, Self::NAME_BYTES);
        out.u16(self.qos.weight);
        out.u32(self.qos.burst_ms);
        out.u64(self.qos.operations);
        out.u64(self.qos.bytes);
        out.u16(self.spread.first);
        out.u16(self.spread.shards);
        out.pad_to(BLOCK);
        bytes
    }

    /// Decodes the record in a block with a verified CRC.
    ///
    /// # Errors
    /// If a field has a value that no writer stores.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::for_block_with_magic(block, Self::MAGIC)?;
        let id = VolumeId::new(input.u32()?);
        let kind = match input.u8()? {
            1 => VolumeKind::Volume,
            2 => VolumeKind::Snapshot,
            _ => return Err(FormatError::Invalid("volume kind")),
        };
        let state = match input.u8()? {
            1 => VolumeState::Ready,
            2 => VolumeState::Deleting,
            _ => return Err(FormatError::Invalid("volume state")),
        };
        let thick = match input.u16()? {
            0 => false,
            Self::THICK => true,
            _ => return Err(FormatError::Invalid("volume flags")),
        };
        let size = input.u64()?;
        let sector = input.u32()?;
        let layer = LayerId::new(input.u32()?);
        let parent = Some(LayerId::new(input.u32()?)).filter(|parent| parent.get() != 0);
        let created = input.u64()?;
        let name = input.text(Self::NAME_BYTES)?;
        // Older records have zeros here.
        let qos = QosLimits {
            weight: input.u16()?,
            burst_ms: input.u32()?,
            operations: input.u64()?,
            bytes: input.u64()?,
        };
        let spread = VolumeSpread { first: input.u16()?, shards: input.u16()? };
        let record = Self { id, name, kind, state, size, sector, layer, parent, created, qos, thick, spread };
        record.check()?;
        Ok(record)
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
