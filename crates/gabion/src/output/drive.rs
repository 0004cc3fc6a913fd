//! Formatting of drives and of the report of the offline verifier.

use api::Size;
use api::types::{CheckReport, Damage, IdentifiedDrive, PoolDrive};

use super::table::table;
use super::time::{format_duration, utc};
use super::{size, word};

/// Maximum number of listed findings of a check.
const FINDINGS: usize = 50;

/// Formats drives of pools as a table.
pub(crate) fn drives(drives: &[PoolDrive]) -> String {
    if drives.is_empty() {
        return "no drives: there are no pools".into();
    }
    let smart = has_smart(drives);
    let row = |drive: &PoolDrive| {
        let mut row = vec![drive.pool.clone()];
        row.extend(columns(drive, smart));
        row
    };
    table(&[&["POOL"], heads(smart)].concat(), drives.iter().map(row))
}

/// Formats the drives of one pool as a table.
pub(super) fn drives_of_pool(drives: &[PoolDrive]) -> String {
    let smart = has_smart(drives);
    table(heads(smart), drives.iter().map(|drive| columns(drive, smart)))
}

/// Returns true if a drive has SMART data, which then has columns of its own.
fn has_smart(drives: &[PoolDrive]) -> bool {
    drives.iter().any(|drive| drive.smart.is_some())
}

fn heads(smart: bool) -> &'static [&'static str] {
    if smart {
        &[">INDEX", "STATE", ">SIZE", ">USED", ">READ ERRORS", ">WEAR", ">TEMP", "PATH"]
    } else {
        &[">INDEX", "STATE", ">SIZE", ">USED", ">READ ERRORS", "PATH"]
    }
}

fn columns(drive: &PoolDrive, smart: bool) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let failing = if drive.failing == Some(true) { ", failing" } else { "" };
    let predicted = drive.smart.as_ref().is_some_and(|smart| smart.passed == Some(false));
    let predicted = if predicted { ", SMART failed" } else { "" };
    let mut columns = vec![
        number(drive.index.map(u64::from)),
        format!("{}{failing}{predicted}", word(&drive.state)),
        size(drive.size),
        size(drive.used),
        errors(drive),
    ];
    if smart {
        let report = drive.smart.as_ref();
        let wear = report.and_then(|smart| smart.wear_percent);
        let temperature = report.and_then(|smart| smart.temperature);
        columns.push(wear.map_or("-".into(), |percent| format!("{percent} %")));
        columns.push(temperature.map_or("-".into(), |degrees| format!("{degrees} °C")));
    }
    columns.push(drive.path.clone());
    columns
}

/// Formats the read errors of a drive.
fn errors(drive: &PoolDrive) -> String {
    match (drive.read_errors, drive.checksum_errors, drive.last_error) {
        (None, ..) => "-".into(),
        (Some(all), Some(wrong), Some(last)) if all > 0 => {
            format!("{} unreadable, {wrong} with wrong data, last {}", all.saturating_sub(wrong), utc(last))
        }
        (Some(all), ..) => all.to_string(),
    }
}

/// Formats the type, use and contents of drives.
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
        let member = pool.index.map_or_else(String::new, |index| format!("drive {index} of "));
        let clean = if pool.clean { "closed cleanly" } else { "in use, or not closed cleanly" };
        lines.push(format!(
            "  pool     {member}pool '{}' ({}, {} drives), {clean}",
            pool.name,
            pool.scheme,
            pool.drives.len()
        ));
        lines.push(format!("           id {}", pool.id));
    }
    lines.extend(drive.used_by.iter().map(|user| format!("  used by  {user}")));
    lines.extend(drive.contents.iter().map(|found| match found.offset {
        Some(offset) => format!("  contents {} at byte {offset}", found.description),
        None => format!("  contents {}", found.description),
    }));
    if drive.used_by.is_empty() && drive.contents.is_empty() {
        lines.push("  contents none: all sampled blocks are zeros; a pool can use the drive".into());
    }
    lines.join("\n") + "\n"
}

/// Formats the report of the offline verifier.
pub(crate) fn check_report(report: &CheckReport) -> String {
    let mut lines = Vec::new();
    let verdict = match (report.sound, report.degraded) {
        (true, false) => "sound",
        (true, true) => "degraded but sound: all data was reconstructed without the missing drives",
        (false, false) => "NOT sound",
        (false, true) => "NOT sound, and degraded",
    };
    lines.push(format!("pool '{}' ({}) is {verdict}", report.pool, report.id));
    let worst = |damage| report.findings.iter().filter(|finding| finding.damage == damage).count();
    for (damage, meaning) in [
        (
            Damage::Inconsistent,
            "inconsistencies of the pool's metadata, which no drive fault can cause: please report them",
        ),
        (Damage::Lost, "places with lost data"),
        (Damage::Repairable, "damaged places with data that the other drives reconstruct"),
    ] {
        let count = worst(damage);
        if count > 0 {
            lines.push(format!("  {count} {meaning}"));
        }
    }
    for path in &report.missing {
        lines.push(format!("  drive missing or failed: {path}"));
    }
    lines.push(String::new());
    let closed =
        if report.clean { "closed cleanly" } else { "not closed cleanly: the next open replays the log" };
    lines.push(format!("closed    {closed}"));
    if report.records > 0 || report.incomplete > 0 {
        lines.push(format!("to replay {} records, {} blocks to complete", report.records, report.incomplete));
    }
    if !report.damaged_superblocks.is_empty() {
        lines.push(format!(
            "to rewrite one of two superblock copies on {}: damaged, or incomplete after a crash",
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
        format_duration(report.seconds)
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
