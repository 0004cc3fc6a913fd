//! Volumes.

use server::Size;
use server::wire::Volume;

use super::table::table;
use super::time::utc;

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
            state(volume).to_owned(),
        ]
    };
    table(&["VOLUME", ">SIZE", ">STORED", ">SECTOR", "STATE"], volumes.iter().map(row))
}

fn state(volume: &Volume) -> &'static str {
    if volume.deleting {
        "deleting"
    } else if volume.exported {
        "exported"
    } else {
        "ready"
    }
}

/// One volume, in full.
pub(crate) fn volume(volume: &Volume) -> String {
    format!(
        "volume {}/{}: {}\n\nsize     {} ({} bytes), in sectors of {} bytes\nstored   {}, the rest reads as zeros\n\
         created  {}\n",
        volume.pool,
        volume.name,
        state(volume),
        Size(volume.size),
        volume.size,
        volume.sector,
        Size(volume.stored),
        utc(volume.created),
    )
}
