//! Formatting of volumes.

use std::path::PathBuf;

use api::Size;
use api::types::{QosLimits, Volume, VolumeUsage};
use serde::Serialize;

use super::table::table;
use super::time::utc;

/// The result of a copy between an image and a volume.
#[derive(Serialize)]
pub(crate) struct ImageCopy {
    /// The volume or snapshot.
    pub(crate) volume: String,
    pub(crate) file: PathBuf,
    pub(crate) format: String,
    /// Bytes of the volume.
    pub(crate) size: u64,
    /// Copied bytes; `None` if another program copied them, which does not report the number.
    pub(crate) data: Option<u64>,
    /// Bytes on disk of a new image.
    pub(crate) taken: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_second: Option<u64>,
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
pub(crate) fn image_exported(copy: &ImageCopy) -> String {
    let taken = copy.taken.map(|taken| format!(", {} on disk", Size(taken))).unwrap_or_default();
    format!(
        "{}: image of {}, {}, {}{taken}; {}",
        copy.file.display(),
        copy.volume,
        Size(copy.size),
        copy.format,
        throughput(copy)
    )
}

/// Formats the result of `volume import`.
pub(crate) fn image_imported(copy: &ImageCopy) -> String {
    format!(
        "volume {} ({}) created from {}; {}",
        copy.volume,
        Size(copy.size),
        copy.file.display(),
        throughput(copy)
    )
}

fn throughput(copy: &ImageCopy) -> String {
    let seconds = copy.seconds;
    match (copy.data, copy.bytes_per_second) {
        (Some(data), Some(rate)) => {
            format!("{} of data copied in {seconds:.1} s ({}/s)", Size(data), Size(rate))
        }
        _ => format!("copied in {seconds:.1} s"),
    }
}
