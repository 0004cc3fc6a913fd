//! The layout of the volume: two superblocks, the region of the index, and the region of bodies.
//!
//! | bytes | contents |
//! |---|---|
//! | 0 to 4 KiB, 4 to 8 KiB | superblock, in turns; the one with the larger generation counts |
//! | from 1 MiB | the index |
//! | from `index_end` to the end | bodies |
//!
//! Always true: the newer superblock is durable before the index depends on it.

use std::io;

use crate::volume::{BLOCK, BlockVolume};

const MAGIC: &[u8; 8] = b"GABIONOS";
const VERSION: u32 = 2;
/// The encoded fields and their checksum, in bytes.
const FIELDS: usize = 8 + 4 + 4 + 8 + 8 + 8 + 8;
const SECTOR: usize = 4096;
/// The start of the index in bytes.
pub(crate) const INDEX_START: u64 = 1 << 20;
/// The largest index in bytes, and its share of a small volume.
const INDEX_MAX: u64 = 1 << 40;
const INDEX_SHARE: u64 = 4;
/// The smallest volume in bytes.
const VOLUME_MIN: u64 = 16 << 20;

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectSuperblock {
    /// Increases with every write.
    generation: u64,
    /// The end of the region of the index, in bytes of the volume.
    pub(crate) index_end: u64,
    /// The length of the index in bytes.
    pub(crate) index_len: u64,
    /// True once the index is complete: before, a crash leaves an index that cannot be opened.
    pub(crate) is_created: bool,
}

impl ObjectSuperblock {
    /// Reads the newest superblock; `None` on an empty volume.
    ///
    /// # Errors
    /// When the volume cannot be read, or holds other data.
    pub(crate) fn load(volume: &dyn BlockVolume) -> io::Result<Option<Self>> {
        let mut newest: Option<Self> = None;
        let mut is_empty = true;
        for slot in 0..2 {
            let mut bytes = vec![0; SECTOR];
            volume.read(slot * BLOCK, &mut bytes)?;
            is_empty &= bytes.iter().all(|byte| *byte == 0);
            if let Some(found) = Self::decode(&bytes)?
                && newest.is_none_or(|newest| newest.generation < found.generation)
            {
                newest = Some(found);
            }
        }
        match newest {
            None if !is_empty => Err(invalid("the volume holds no object store")),
            newest => Ok(newest),
        }
    }

    /// Writes the superblock of a new store, after the one of an incomplete store if there is one.
    ///
    /// # Errors
    /// When the volume is too small or cannot be written.
    pub(crate) fn create(volume: &dyn BlockVolume, before: Option<Self>) -> io::Result<Self> {
        let size = volume.size();
        if size < VOLUME_MIN {
            return Err(invalid("the volume is too small for an object store"));
        }
        let index_bytes = (size / INDEX_SHARE).min(INDEX_MAX) / BLOCK * BLOCK;
        let index_end = INDEX_START + index_bytes;
        let generation = before.map_or(0, |before| before.generation);
        let first = Self { generation, index_end, index_len: 0, is_created: false };
        first.store(volume)
    }

    /// Returns the superblock of a complete index.
    pub(crate) fn created(self) -> Self {
        Self { is_created: true, ..self }
    }

    /// Returns the superblock with another length of the index.
    pub(crate) fn with_index_len(self, index_len: u64) -> Self {
        Self { index_len, ..self }
    }

    /// Writes the superblock with the next generation over the older one, and flushes it.
    ///
    /// # Errors
    /// When the volume cannot be written.
    pub(crate) fn store(self, volume: &dyn BlockVolume) -> io::Result<Self> {
        let next = Self { generation: self.generation + 1, ..self };
        volume.write((next.generation % 2) * BLOCK, &next.encode())?;
        volume.flush()?;
        Ok(next)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SECTOR);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for field in [self.generation, self.index_end, self.index_len, u64::from(self.is_created)] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        bytes.resize(SECTOR, 0);
        bytes
    }

    fn decode(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some((fields, rest)) = bytes.split_at_checked(FIELDS) else { return Ok(None) };
        let Some(sum) = rest.first_chunk::<8>() else { return Ok(None) };
        if !fields.starts_with(MAGIC) || u64::from_le_bytes(*sum) != checksum(fields) {
            return Ok(None);
        }
        let version = fields.get(8..).and_then(|rest| rest.first_chunk()).map(|raw| u32::from_le_bytes(*raw));
        if version != Some(VERSION) {
            return Err(invalid("another release of Gabion wrote the object store"));
        }
        let field = |index: usize| {
            let raw = fields.get(16 + index * 8..).and_then(|rest| rest.first_chunk());
            raw.map_or(0, |raw| u64::from_le_bytes(*raw))
        };
        let is_created = field(3) == 1;
        Ok(Some(Self { generation: field(0), index_end: field(1), index_len: field(2), is_created }))
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
