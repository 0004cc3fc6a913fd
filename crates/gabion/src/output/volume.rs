//! Volumes.

use api::Size;
use api::types::{Service, Usage, Volume};

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
        Volume { kept_by: others @ 1.., .. } => format!("deleted, shared by {others}"),
        Volume { deleting: true, .. } => "deleting".into(),
        Volume { exported: true, .. } => "exported".into(),
        Volume { snapshot: true, .. } => "snapshot".into(),
        Volume { .. } => "ready".into(),
    }
}

/// What volumes and snapshots hold.
pub(crate) fn usages(usages: &[Usage]) -> String {
    let row = |usage: &Usage| {
        vec![
            format!("{}/{}", usage.pool, usage.name),
            Size(usage.shown).to_string(),
            Size(usage.alone).to_string(),
            Size(usage.shared).to_string(),
        ]
    };
    let rows = table(&["NAME", ">SHOWS", ">ALONE", ">SHARED"], usages.iter().map(row));
    format!("{rows}\nDeleting one frees what it holds ALONE.")
}

/// What a volume may take.
pub(crate) fn service(service: &Service) -> String {
    let mut words = Vec::new();
    words.extend(service.iops.map(|iops| format!("{iops} operations a second")));
    words.extend(service.bandwidth.map(|bytes| format!("{} a second", Size(bytes))));
    if words.is_empty() {
        words.push("none".into());
    } else if service.burst_ms > 0 {
        words.push(format!("{} s more of that after a rest", f64::from(service.burst_ms) / 1000.0));
    }
    words.push(format!("weight {}", service.weight));
    if service.thick {
        words.push("thick: room is kept for all of it".into());
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
        service(&volume.service),
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
