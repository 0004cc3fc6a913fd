//! The remains of a pool that is salvaged.

use std::path::Path;

use api::Size;
use api::types::{ByteRange, SalvageReport, SalvagedImage, SalvagedVolume};
use serde::Serialize;

use super::table::table;
use super::time::length;

/// Problems and ranges of one volume that are shown one by one.
const SHOWN: usize = 20;

/// The list of volumes, with the problems of the pool.
pub(crate) fn salvaged(found: &SalvageReport) -> String {
    let mut lines = vec![headline(found)];
    for drive in found.drives.iter().filter(|drive| !drive.present) {
        lines.push(format!("  drive {} is missing: {}", drive.index, drive.path));
    }
    let problems = found.problems.iter().map(|problem| format!("  ! {}", problem.message));
    lines.extend(shortened(problems, "problems"));
    lines.push(String::new());
    if found.volumes.is_empty() {
        lines.push("no volume is left".into());
        return lines.join("\n") + "\n";
    }
    let row = |volume: &SalvagedVolume| {
        let bytes = |bytes: u64| if bytes == 0 { "-".to_owned() } else { Size(bytes).to_string() };
        vec![
            volume.name.clone(),
            Size(volume.size).to_string(),
            bytes(volume.readable_bytes),
            bytes(volume.stale_bytes),
            bytes(volume.lost_bytes),
        ]
    };
    lines.push(table(&["VOLUME", ">SIZE", ">READABLE", ">STALE", ">LOST"], found.volumes.iter().map(row)));
    for volume in found.volumes.iter().filter(|volume| volume.lost_bytes > 0) {
        lines.push(format!("'{}' cannot be read at", volume.name));
        lines.extend(ranges(&volume.lost));
    }
    lines.extend(advice(found));
    lines.join("\n") + "\n"
}

fn headline(found: &SalvageReport) -> String {
    let closed = if found.clean { "closed cleanly" } else { "not closed cleanly" };
    format!(
        "pool '{}' ({}, {}), {closed}, as of opening {}",
        found.pool, found.id, found.scheme, found.opening
    )
}

/// Notes on the list.
fn advice(found: &SalvageReport) -> Vec<String> {
    let mut lines = Vec::new();
    let stale = found.volumes.iter().any(|volume| volume.stale || volume.stale_bytes > 0);
    if stale && !found.accepts_stale {
        lines.push(
            "stale: may be older than the newest write, or deleted since; read with --accept-stale only"
                .into(),
        );
    }
    if !found.verified {
        lines.push("by the map and the drives that are there; --verify reads everything to find out".into());
    }
    lines
}

fn ranges(ranges: &[ByteRange]) -> Vec<String> {
    let shown = ranges.iter().map(|range| {
        format!("  bytes {} to {} ({})", range.offset, range.offset + range.length - 1, Size(range.length))
    });
    shortened(shown, "ranges")
}

/// The first of some lines, and how many more there are.
fn shortened(lines: impl ExactSizeIterator<Item = String>, what: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = lines.take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("  ... and {more} more {what}: --json shows all"));
    }
    shown
}

/// The result of one image.
pub(crate) fn salvaged_image(image: &SalvagedImage) -> String {
    let mut lines = vec![format!(
        "{}: {} of {} written in {}",
        image.file,
        Size(image.written_bytes),
        Size(image.size),
        length(image.seconds)
    )];
    if image.lost_bytes > 0 {
        lines.push(format!("{} cannot be read and are holes in the image:", Size(image.lost_bytes)));
        let shown = image.lost.iter().map(|range| {
            format!(
                "  bytes {} to {} ({}): {}",
                range.offset,
                range.offset + range.length - 1,
                Size(range.length),
                range.reason
            )
        });
        lines.extend(shortened(shown, "ranges"));
    }
    if image.stale_bytes > 0 {
        lines.push(format!("{} may be older than the newest write:", Size(image.stale_bytes)));
        lines.extend(ranges(&image.stale_ranges));
    }
    lines.join("\n") + "\n"
}

/// The URI of a volume.
#[derive(Serialize)]
pub(crate) struct SalvageUri {
    volume: String,
    uri: String,
}

/// The URIs of the volumes.
pub(crate) fn salvage_uris(found: &SalvageReport, socket: &Path) -> Vec<SalvageUri> {
    let uri = |volume: &SalvagedVolume| SalvageUri {
        volume: volume.name.clone(),
        uri: format!("nbd+unix:///{}/{}?socket={}", found.pool, volume.name, socket.display()),
    };
    found.volumes.iter().map(uri).collect()
}

/// The same, for people.
pub(crate) fn salvage_served(found: &SalvageReport, socket: &Path) -> String {
    let mut lines = vec![headline(found)];
    let problems = found.problems.iter().map(|problem| format!("  ! {}", problem.message));
    lines.extend(shortened(problems, "problems"));
    lines.push("served read-only until interrupted:".into());
    lines.extend(salvage_uris(found, socket).into_iter().map(|served| format!("  {}", served.uri)));
    lines.join("\n") + "\n"
}
