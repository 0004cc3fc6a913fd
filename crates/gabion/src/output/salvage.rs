//! Formatting of salvage reports.

use std::path::Path;

use api::Size;
use api::types::{ByteRange, SalvageReport, SalvagedImage, SalvagedVolume};
use serde::Serialize;

use super::table::table;
use super::time::format_duration;

/// Maximum number of listed problems, and of listed ranges of one volume.
const SHOWN: usize = 20;

/// Formats the volumes, and the problems of the pool.
pub(crate) fn salvaged(report: &SalvageReport) -> String {
    let mut lines = vec![headline(report)];
    for drive in report.drives.iter().filter(|drive| !drive.present) {
        lines.push(format!("  drive {} is missing: {}", drive.index, drive.path));
    }
    let problems = report.problems.iter().map(|problem| format!("  ! {}", problem.message));
    lines.extend(truncated(problems, "problems"));
    lines.push(String::new());
    if report.volumes.is_empty() {
        lines.push("no volume could be recovered".into());
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
    lines.push(table(&["VOLUME", ">SIZE", ">READABLE", ">STALE", ">LOST"], report.volumes.iter().map(row)));
    for volume in report.volumes.iter().filter(|volume| volume.lost_bytes > 0) {
        lines.push(format!("unreadable ranges of '{}':", volume.name));
        lines.extend(ranges(&volume.lost));
    }
    lines.extend(notes(report));
    lines.join("\n") + "\n"
}

fn headline(report: &SalvageReport) -> String {
    let closed = if report.clean { "closed cleanly" } else { "not closed cleanly" };
    format!(
        "pool '{}' ({}, {}), {closed}, open number {}",
        report.pool, report.id, report.scheme, report.opening
    )
}

/// Returns the notes below the list.
fn notes(report: &SalvageReport) -> Vec<String> {
    let mut lines = Vec::new();
    let stale = report.volumes.iter().any(|volume| volume.stale || volume.stale_bytes > 0);
    if stale && !report.accepts_stale {
        lines.push(
            "STALE: may be older than the newest write, or deleted since; readable only with --accept-stale"
                .into(),
        );
    }
    if !report.verified {
        lines.push("assumes that the present drives are intact; --verify reads and verifies all data".into());
    }
    lines
}

fn ranges(ranges: &[ByteRange]) -> Vec<String> {
    let shown = ranges.iter().map(|range| {
        format!("  bytes {} to {} ({})", range.offset, range.offset + range.length - 1, Size(range.length))
    });
    truncated(shown, "ranges")
}

/// Returns the first lines, and the number of further ones.
fn truncated(lines: impl ExactSizeIterator<Item = String>, noun: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = lines.take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("  ... and {more} more {noun}: --json shows all"));
    }
    shown
}

/// Formats the result of one image.
pub(crate) fn salvaged_image(image: &SalvagedImage) -> String {
    let mut lines = vec![format!(
        "{}: {} of {} written in {}",
        image.file,
        Size(image.written_bytes),
        Size(image.size),
        format_duration(image.seconds)
    )];
    if image.lost_bytes > 0 {
        lines.push(format!("{} unreadable, holes in the image:", Size(image.lost_bytes)));
        let shown = image.lost.iter().map(|range| {
            format!(
                "  bytes {} to {} ({}): {}",
                range.offset,
                range.offset + range.length - 1,
                Size(range.length),
                range.reason
            )
        });
        lines.extend(truncated(shown, "ranges"));
    }
    if image.stale_bytes > 0 {
        lines.push(format!("{} possibly older than the newest write:", Size(image.stale_bytes)));
        lines.extend(ranges(&image.stale_ranges));
    }
    lines.join("\n") + "\n"
}

/// The NBD URI of a volume.
#[derive(Serialize)]
pub(crate) struct SalvageUri {
    volume: String,
    uri: String,
}

/// Returns the NBD URIs of the volumes.
pub(crate) fn salvage_uris(report: &SalvageReport, socket: &Path) -> Vec<SalvageUri> {
    let uri = |volume: &SalvagedVolume| SalvageUri {
        volume: volume.name.clone(),
        uri: format!("nbd+unix:///{}/{}?socket={}", report.pool, volume.name, socket.display()),
    };
    report.volumes.iter().map(uri).collect()
}

/// Formats the NBD URIs of the volumes.
pub(crate) fn salvage_served(report: &SalvageReport, socket: &Path) -> String {
    let mut lines = vec![headline(report)];
    let problems = report.problems.iter().map(|problem| format!("  ! {}", problem.message));
    lines.extend(truncated(problems, "problems"));
    lines.push("exported read-only until interrupted:".into());
    lines.extend(salvage_uris(report, socket).into_iter().map(|served| format!("  {}", served.uri)));
    lines.join("\n") + "\n"
}
