//! Volumes.

use api::Size;
use api::types::{QosLimits, Volume, VolumeUsage};

use super::table::table;
use super::time::utc;
use crate::commands::image::Moved;

/// A list of volumes.
pub(crate) fn volumes(volumes: &[Volume]) -> String {
    if volumes.is_empty() {
        return "no volumes; 'gabion volume create POOL/NAME --size SIZE' makes one".into();
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

/// A table of the space that volumes and snapshots use.
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
    let mut words = Vec::new();
    words.extend(qos.iops.map(|iops| format!("{iops} IOPS")));
    words.extend(qos.bandwidth.map(|bytes| format!("{}/s", Size(bytes))));
    if words.is_empty() {
        words.push("none".into());
    } else if qos.burst_ms > 0 {
        words.push(format!("burst {} s", f64::from(qos.burst_ms) / 1000.0));
    }
    words.push(format!("weight {}", qos.weight));
    if qos.thick {
        words.push("thick".into());
    }
    words.join(", ")
}

/// One volume, in full.
pub(crate) fn volume(volume: &Volume) -> String {
    format!(
        "{} {}/{}: {}\n\nsize     {} ({} bytes), in sectors of {} bytes\nstored   {} of its own{}\n\
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
        many => format!("{many}, from number {} on", volume.first_shard),
    }
}

/// An image that was written.
pub(crate) fn image_exported(moved: &Moved) -> String {
    let taken = moved.taken.map(|taken| format!(", takes {}", Size(taken))).unwrap_or_default();
    format!(
        "{} is {} of {}, {}{taken}; {}",
        moved.file.display(),
        moved.volume,
        Size(moved.size),
        moved.format,
        pace(moved)
    )
}

/// A volume that was made of an image.
pub(crate) fn image_imported(moved: &Moved) -> String {
    format!("volume {} of {} holds {}; {}", moved.volume, Size(moved.size), moved.file.display(), pace(moved))
}

fn pace(moved: &Moved) -> String {
    let seconds = moved.seconds;
    match (moved.data, moved.bytes_per_second) {
        (Some(data), Some(rate)) => {
            format!("{} of data copied in {seconds:.1} s ({}/s)", Size(data), Size(rate))
        }
        _ => format!("copied in {seconds:.1} s"),
    }
}
