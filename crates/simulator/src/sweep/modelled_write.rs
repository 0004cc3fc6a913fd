//! A write whose value the model records.

use engine::AttachedVolume;
use reactor::Buffer;

use super::operation::SECTOR;
use crate::model::{VolumeModel, content, is_atomic};

/// Writes `value` at the model time `2 * value`: values double as the model's clock. The offset
/// counts from the start of the modelled part of the volume. Bytes after its end are not written.
pub(super) async fn write(
    volume: &AttachedVolume,
    model: &mut VolumeModel,
    value: u64,
    offset: u64,
    length: u64,
) -> engine::Result<()> {
    let length = length.min(model.size().saturating_sub(offset));
    if length == 0 {
        return Ok(());
    }
    let (first, count) = (offset / u64::from(SECTOR), length / u64::from(SECTOR));
    let start = volume.size() - model.size();
    let atomic = is_atomic(volume.atomic_write_bytes(), start + offset, length);
    let token = model.begin_write(2 * value, first, count, value, atomic);
    let bytes: Vec<u8> = (first..first + count).flat_map(|cell| content(value, cell, SECTOR)).collect();
    let result = volume.write(start + offset, &Buffer::copy_of(&bytes).span()).await;
    model.end_write(token, 2 * value + 1, result.is_ok());
    result
}
