//! Formatting of volumes.

use std::time::Duration;

use api::Size;
use api::types::{ImageCopy, QosLimits, Volume, VolumeUsage};
use serde::Serialize;

use super::table::table;
use super::time::utc;
use crate::image::per_second;

/// The result of a copy between an image and a volume.
#[derive(Serialize)]
pub(crate) struct CopiedImage {
    /// The volume or snapshot.
    volume: String,
    #[serde(flatten)]
    copy: ImageCopy,
    seconds: f64,
    bytes_per_second: Option<u64>,
}

impl CopiedImage {
    /// Returns the result of a copy that took `seconds`.
    pub(crate) fn new(volume: String, copy: ImageCopy, seconds: f64) -> Self {
        let bytes_per_second = copy.copied.map(|bytes| per_second(bytes, Duration::from_secs_f64(seconds)));
        Self { volume, copy, seconds, bytes_per_second }
    }
}

/// Formats volumes as a table.
pub(crate) fn volumes(volumes: &[Volume]) -> String {
    if volumes.is_empty() {
        return "no volumes; 'gabion volume create POOL/NAME --size SIZE' creates one".into();
    }
    let row = |volume: &Volume| {
        vec![
            format!("{}/{}", volume.pool, volume.name),
            Size(volume.size).to_string(),
            Size(volume.stored).to_string(),
            volume.sector.to_string(),
            state(volume),
        ]
    };
    table(&["VOLUME", ">SIZE", ">STORED", ">SECTOR", "STATE"], volumes.iter().map(row))
}

fn state(volume: &Volume) -> String {
    match volume {
        Volume { retained_by: others @ 1.., .. } => format!("deleted, shared by {others}"),
        Volume { deleting: true, .. } => "deleting".into(),
        Volume { exported: true, .. } => "exported".into(),
        Volume { snapshot: true, .. } => "snapshot".into(),
        Volume { .. } => "ready".into(),
    }
}

/// Formats the space used by volumes and snapshots as a table.
pub(crate) fn usages(usages: &[VolumeUsage]) -> String {
    let row = |usage: &VolumeUsage| {
        vec![
            format!("{}/{}", usage.pool, usage.name),
            Size(usage.referenced).to_string(),
            Size(usage.exclusive).to_string(),
            Size(usage.shared).to_string(),
        ]
    };
    let rows = table(&["NAME", ">REFERENCED", ">EXCLUSIVE", ">SHARED"], usages.iter().map(row));
    format!("{rows}\nDeleting a volume or snapshot frees its EXCLUSIVE data.")
}

/// Formats the quality of service of a volume.
pub(crate) fn qos(qos: &QosLimits) -> String {
    let mut parts = Vec::new();
    parts.extend(qos.iops.map(|iops| format!("{iops} IOPS")));
    parts.extend(qos.bandwidth.map(|bytes| format!("{}/s", Size(bytes))));
    if parts.is_empty() {
        parts.push("none".into());
    } else if qos.burst_ms > 0 {
        parts.push(format!("burst {} s", f64::from(qos.burst_ms) / 1000.0));
    }
    parts.push(format!("weight {}", qos.weight));
    if qos.thick {
        parts.push("thick".into());
    }
    parts.join(", ")
}

/// Formats all properties of a volume.
pub(crate) fn volume(volume: &Volume) -> String {
    format!(
        "{} {}/{}: {}\n\nsize     {} ({} bytes), sectors of {} bytes\nstored   {}, without data of its snapshots{}\n\
         created  {}\nshards   {}\nlimits   {}\n",
        if volume.snapshot { "snapshot" } else { "volume" },
        volume.pool,
        volume.name,
        state(volume),
        Size(volume.size),
        volume.size,
        volume.sector,
        Size(volume.stored),
        volume
            .origin
            .as_ref()
            .map_or_else(String::new, |origin| format!("\norigin   {}/{origin}", volume.pool)),
        utc(volume.created),
        shards(volume),
        qos(&volume.qos),
    )
}

fn shards(volume: &Volume) -> String {
    match volume.shards {
        1 => format!("1, number {}", volume.first_shard),
        many => format!("{many}, starting at number {}", volume.first_shard),
    }
}

/// Formats the result of `volume export-image`.
pub(crate) fn image_exported(result: &CopiedImage) -> String {
    let CopiedImage { volume, copy, .. } = result;
    let allocated = copy.allocated.map(|bytes| format!(", {} on disk", Size(bytes))).unwrap_or_default();
    let (size, format) = (Size(copy.size), &copy.format);
    format!("{}: image of {volume}, {size}, {format}{allocated}; {}", copy.file, throughput(result))
}

/// Formats the result of `volume import`.
pub(crate) fn image_imported(result: &CopiedImage) -> String {
    let CopiedImage { volume, copy, .. } = result;
    format!("volume {volume} ({}) created from {}; {}", Size(copy.size), copy.file, throughput(result))
}

fn throughput(result: &CopiedImage) -> String {
    let seconds = result.seconds;
    match (result.copy.copied, result.bytes_per_second) {
        (Some(data), Some(rate)) => {
            format!("{} of data copied in {seconds:.1} s ({}/s)", Size(data), Size(rate))
        }
        _ => format!("copied in {seconds:.1} s"),
    }
}
