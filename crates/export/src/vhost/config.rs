//! Features and configuration space of a device (virtio 1.2, section 5.2.4).
//!
//! Pure functions. Must not know queues.

use super::limits::{RANGE_SECTORS_MAX, RANGES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use super::request::SECTOR;

/// Bytes of the configuration space, up to the end of the discard and write-zeroes fields.
pub(super) const CONFIG_BYTES: usize = 60;
/// Maximum size in bytes of a configuration space in the vhost-user protocol.
pub(super) const CONFIG_MAX: usize = 256;

/// Feature bits.
pub(super) mod feature {
    pub(crate) const SIZE_MAX: u64 = 1 << 1;
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const RO: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

/// The properties of a device that guests can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceConfig {
    /// Size in bytes.
    pub(super) size: u64,
    /// Logical block size in bytes.
    pub(super) sector: u32,
    /// Preferred I/O size in bytes.
    pub(super) preferred: u32,
    pub(super) read_only: bool,
    pub(super) queues: u16,
}

/// Returns the features that the device offers.
pub(super) fn features(device: &DeviceConfig) -> u64 {
    use feature::*;
    let always = SIZE_MAX | SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | MQ;
    let rings = LOG_ALL | INDIRECT | EVENT_INDEX | PROTOCOL | VERSION_1;
    let depends = if device.read_only { RO } else { DISCARD | WRITE_ZEROES };
    always | rings | depends
}

/// Encodes the configuration space.
pub(super) fn config(device: &DeviceConfig) -> [u8; CONFIG_BYTES] {
    let blocks = device.preferred.max(device.sector) / device.sector;
    let mut space = ConfigWriter { bytes: [0; CONFIG_BYTES], at: 0 };
    space.put((device.size / SECTOR).to_le_bytes());
    space.put(SEGMENT_BYTES_MAX.to_le_bytes());
    space.put(SEGMENTS_MAX.to_le_bytes());
    // Cylinders, heads and sectors: not offered.
    space.put([0; 4]);
    space.put(device.sector.to_le_bytes());
    // Logical blocks of a physical block as a power of two, and the alignment offset.
    space.put([u8::try_from(blocks.ilog2()).unwrap_or(0), 0]);
    space.put(u16::try_from(blocks).unwrap_or(u16::MAX).to_le_bytes());
    // No optimal size for long transfers.
    space.put(0u32.to_le_bytes());
    // A write-back cache that is flushed on request. The guest cannot change this.
    space.put([1, 0]);
    space.put(device.queues.to_le_bytes());
    let alignment = u32::try_from(u64::from(device.preferred.max(device.sector)) / SECTOR).unwrap_or(1);
    space.put(RANGE_SECTORS_MAX.to_le_bytes());
    space.put(RANGES_MAX.to_le_bytes());
    space.put(alignment.to_le_bytes());
    space.put(RANGE_SECTORS_MAX.to_le_bytes());
    space.put(RANGES_MAX.to_le_bytes());
    // Zeroing may unmap.
    space.put([1, 0, 0, 0]);
    assert_eq!(space.at, CONFIG_BYTES, "a field of the configuration space is missing");
    space.bytes
}

struct ConfigWriter {
    bytes: [u8; CONFIG_BYTES],
    at: usize,
}

impl ConfigWriter {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + N) {
            place.copy_from_slice(&field);
        }
        self.at += N;
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
