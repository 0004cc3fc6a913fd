//! The kernel's counters of a block device: `/sys/dev/block/MAJOR:MINOR/stat`.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use api::types::{DriveIo, DriveRequests};

/// Bytes of a sector in the counters, whatever the sector size of the device.
const SECTOR: u64 = 512;

/// Returns the device number of a block device; `None` for a file.
pub(crate) fn device_of(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| metadata.rdev())
}

/// Returns the completed requests of a block device.
pub(crate) fn requests(device: u64) -> Option<DriveIo> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // The kernel answers from memory and does not wait for the device.
    parse(&std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

/// Parses the counters: for reads, writes and discards their number, merged ones, sectors and
/// milliseconds; requests in flight, busy and weighted milliseconds after the writes; flushes last.
pub(super) fn parse(stat: &str) -> Option<DriveIo> {
    let values: Vec<u64> = stat.split_whitespace().map_while(|value| value.parse().ok()).collect();
    let value = |index: usize| values.get(index).copied();
    let group = |first: usize| {
        let bytes = value(first + 2)?.saturating_mul(SECTOR);
        Some(DriveRequests { count: value(first)?, bytes, millis: value(first + 3)? })
    };
    let flush = || Some(DriveRequests { count: value(15)?, bytes: 0, millis: value(16)? });
    Some(DriveIo {
        read: group(0)?,
        write: group(4)?,
        busy_millis: value(9)?,
        // Older kernels have fewer counters.
        discard: group(11).unwrap_or_default(),
        flush: flush().unwrap_or_default(),
    })
}
