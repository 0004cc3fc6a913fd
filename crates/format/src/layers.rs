//! The layer table of a checkpoint: the layers of a shard, and the targets of merged layers.

use crate::error::assert_storable;
use crate::limits::{BLOCK, HEIGHT_MAX};
use crate::tables::{read_entry, write_entry};
use crate::wire::{Reader, Writer};
use crate::{FormatError, Incarnation, LayerId, MapEntry};

/// Layer records in a table block.
pub const LAYERS_PER_BLOCK: usize = BLOCK / LAYER_BYTES;

const LAYER_BYTES: usize = 32;

/// A layer, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRecord {
    /// The layer's number.
    pub layer: LayerId,
    /// Levels of its map: 0 for an empty map, 1 for a single leaf.
    pub height: u8,
    /// Root node of the layer; absent if the height is 0.
    pub root: MapEntry,
    /// Blocks that the layer stores.
    pub stored: u64,
}

/// A layer that was merged into another one. Record headers still contain its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedRecord {
    /// The layer that was merged.
    pub layer: LayerId,
    /// The layer that received its blocks.
    pub into: LayerId,
    /// The newest segment with records that may contain the layer's number; `None` while the merge
    /// is in progress.
    pub until: Option<Incarnation>,
}

/// A record of the layer table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerEntry {
    /// A layer.
    Layer(LayerRecord),
    /// A layer that was merged into another one.
    Merged(MergedRecord),
}

impl LayerEntry {
    /// Checks that the record is valid: encoding asserts this, decoding refuses invalid records.
    fn check(&self) -> Result<(), FormatError> {
        match self {
            Self::Layer(layer) => {
                let is_empty = layer.root.address().is_none();
                if layer.layer.get() == 0 {
                    return Err(FormatError::Invalid("layer number"));
                }
                if layer.height > HEIGHT_MAX || (layer.height == 0) != is_empty {
                    return Err(FormatError::Invalid("layer height"));
                }
            }
            Self::Merged(merged) => {
                if merged.layer.get() == 0 || merged.into.get() == 0 || merged.into == merged.layer {
                    return Err(FormatError::Invalid("merged layer"));
                }
                if merged.until == Some(Incarnation::new(0)) {
                    return Err(FormatError::Invalid("incarnation of a merged layer"));
                }
            }
        }
        Ok(())
    }
}

const LAYER: u8 = 1;
const MERGED: u8 = 2;

/// Encodes a table block of up to [`LAYERS_PER_BLOCK`] layers.
///
/// # Panics
/// If there are more layers, or one is invalid.
pub fn encode_layers(entries: &[LayerEntry]) -> Vec<u8> {
    assert!(entries.len() <= LAYERS_PER_BLOCK, "too many layers for a table block");
    entries.iter().for_each(|entry| assert_storable(entry.check()));
    write_layers(entries)
}

fn write_layers(entries: &[LayerEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    let mut out = Writer::new(&mut bytes);
    for entry in entries {
        match entry {
            LayerEntry::Layer(layer) => {
                out.u32(layer.layer.get());
                out.u8(LAYER);
                out.u8(layer.height);
                out.u16(0);
                write_entry(&mut out, layer.root);
                out.u64(layer.stored);
            }
            LayerEntry::Merged(merged) => {
                out.u32(merged.layer.get());
                out.u8(MERGED);
                out.raw(&[0; 3]);
                out.u32(merged.into.get());
                out.raw(&[0; 12]);
                out.u64(merged.until.map_or(0, Incarnation::get));
            }
        }
    }
    out.pad_to(BLOCK);
    bytes
}

/// Decodes the layers of a table block.
///
/// # Errors
/// If a record has a value that no writer stores.
pub fn decode_layers(block: &[u8]) -> Result<Vec<LayerEntry>, FormatError> {
    let mut input = Reader::for_block(block)?;
    let mut entries = Vec::new();
    for _ in 0..LAYERS_PER_BLOCK {
        let layer = LayerId::new(input.u32()?);
        let kind = input.u8()?;
        if layer.get() == 0 {
            input.raw(27)?;
            continue;
        }
        let entry = match kind {
            LAYER => LayerEntry::Layer(read_layer(layer, &mut input)?),
            MERGED => LayerEntry::Merged(read_merged(layer, &mut input)?),
            _ => return Err(FormatError::Invalid("layer kind")),
        };
        entry.check()?;
        entries.push(entry);
    }
    Ok(entries)
}

fn read_layer(layer: LayerId, input: &mut Reader<'_>) -> Result<LayerRecord, FormatError> {
    let height = input.u8()?;
    input.u16()?;
    let root = read_entry(input)?;
    let stored = input.u64()?;
    Ok(LayerRecord { layer, height, root, stored })
}

fn read_merged(layer: LayerId, input: &mut Reader<'_>) -> Result<MergedRecord, FormatError> {
    input.raw(3)?;
    let into = LayerId::new(input.u32()?);
    input.raw(12)?;
    let until = Some(Incarnation::new(input.u64()?)).filter(|until| until.get() != 0);
    Ok(MergedRecord { layer, into, until })
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
