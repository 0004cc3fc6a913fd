//! Drives, and what was found on them.

use api::Size;
use api::types::{CheckReport, Damage, IdentifiedDrive, PoolDrive};

use super::table::table;
use super::time::{length, utc};
use super::{size, word};

/// Findings of a check that are shown one by one.
const FINDINGS: usize = 50;

/// A list of drives of pools.
pub(crate) fn drives(drives: &[PoolDrive]) -> String {
    if drives.is_empty() {
        return "no drives: there are no pools".into();
    }
    let row = |drive: &PoolDrive| {
        let mut row = vec![drive.pool.clone()];
        row.extend(columns(drive));
        row
    };
    table(&["POOL", ">DRIVE", "STATE", ">SIZE", ">USED", ">READ ERRORS", "PATH"], drives.iter().map(row))
}

/// The drives of one pool.
pub(super) fn drives_of_pool(drives: &[PoolDrive]) -> String {
    table(&[">DRIVE", "STATE", ">SIZE", ">USED", ">READ ERRORS", "PATH"], drives.iter().map(columns))
}

fn columns(drive: &PoolDrive) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let failing = if drive.failing == Some(true) { ", failing" } else { "" };
    vec![
        number(drive.index.map(u64::from)),
        format!("{}{failing}", word(&drive.state)),
        size(drive.size),
        size(drive.used),
        errors(drive),
        drive.path.clone(),
    ]
}

/// Reads that it did not answer as it should.
fn errors(drive: &PoolDrive) -> String {
    match (drive.read_errors, drive.checksum_errors, drive.last_error) {
        (None, ..) => "-".into(),
        (Some(all), Some(wrong), Some(last)) if all > 0 => {
            format!("{} unreadable, {wrong} wrong, last {}", all.saturating_sub(wrong), utc(last))
        }
        (Some(all), ..) => all.to_string(),
    }
}

/// What drives are and hold.
pub(crate) fn identified(drives: &[IdentifiedDrive]) -> String {
    drives.iter().map(identified_one).collect::<Vec<_>>().join("\n")
}

fn identified_one(drive: &IdentifiedDrive) -> String {
    if let Some(error) = &drive.error {
        return format!("{}: {error}\n", drive.path);
    }
    let mut lines =
        vec![format!("{}: {} of {}", drive.path, drive.kind.as_deref().unwrap_or("drive"), size(drive.size))];
    if let Some(stable) = drive.stable_path.as_ref().filter(|stable| **stable != drive.path) {
        lines.push(format!("  also     {stable}"));
    }
    if let Some(pool) = &drive.pool {
        let place = pool.index.map_or_else(String::new, |index| format!("drive {index} of "));
        let clean = if pool.clean { "closed in order" } else { "in use, or not closed in order" };
        lines.push(format!(
            "  pool     {place}pool '{}' ({}, {} drives), {clean}",
            pool.name,
            pool.scheme,
            pool.drives.len()
        ));
        lines.push(format!("           id {}", pool.id));
    }
    lines.extend(drive.used_by.iter().map(|user| format!("  in use   {user}")));
    lines.extend(drive.contents.iter().map(|found| match found.offset {
        Some(offset) => format!("  holds    {} at byte {offset}", found.description),
        None => format!("  holds    {}", found.description),
    }));
    if drive.used_by.is_empty() && drive.contents.is_empty() {
        lines.push("  holds    nothing: zeros wherever it was looked at, so that a pool may take it".into());
    }
    lines.join("\n") + "\n"
}

/// What the verifier saw.
pub(crate) fn check_report(report: &CheckReport) -> String {
    let mut lines = Vec::new();
    let verdict = match (report.sound, report.degraded) {
        (true, false) => "sound",
        (true, true) => "degraded but sound: everything could be computed without the missing drives",
        (false, false) => "NOT sound",
        (false, true) => "NOT sound, and degraded",
    };
    lines.push(format!("pool '{}' ({}) is {verdict}", report.pool, report.id));
    let worst = |damage| report.findings.iter().filter(|finding| finding.damage == damage).count();
    for (damage, meaning) in [
        (
            Damage::Inconsistent,
            "contradictions in the pool's own structures, which no drive causes: please report this",
        ),
        (Damage::Lost, "places whose data is lost"),
        (Damage::Repairable, "damaged places whose data the other drives give back"),
    ] {
        let count = worst(damage);
        if count > 0 {
            lines.push(format!("  {count} {meaning}"));
        }
    }
    for path in &report.missing {
        lines.push(format!("  drive missing or out of use: {path}"));
    }
    lines.push(String::new());
    let closed =
        if report.clean { "closed in order" } else { "not closed in order: an opening replays its log" };
    lines.push(format!("closed    {closed}"));
    if report.records > 0 || report.incomplete > 0 {
        lines.push(format!("to replay {} records, {} blocks to complete", report.records, report.incomplete));
    }
    if !report.damaged_superblocks.is_empty() {
        lines.push(format!(
            "to rewrite one of two superblock copies on {}: damaged, or being written at a crash",
            report.damaged_superblocks.join(", ")
        ));
    }
    lines.push(format!(
        "verified  {} of data in {} volumes, {} of maps and tables, {} segments, {} rows, in {}",
        Size(report.data_bytes),
        report.volumes,
        Size(report.meta_bytes),
        report.segments,
        report.rows,
        length(report.seconds)
    ));
    if !report.findings.is_empty() {
        lines.push(String::new());
        lines.extend(report.findings.iter().take(FINDINGS).map(|finding| {
            let drive = finding.drive.map_or_else(String::new, |drive| format!("drive {drive}: "));
            format!("{}: {drive}{}", word(&finding.damage), finding.message)
        }));
        if let Some(more) = report.findings.len().checked_sub(FINDINGS).filter(|more| *more > 0) {
            lines.push(format!("... and {more} more: --json shows all"));
        }
    }
    lines.join("\n") + "\n"
}
