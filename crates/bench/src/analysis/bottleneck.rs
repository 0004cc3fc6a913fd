//! What held a case back, with what shows it.
//!
//! Pure: from what the machine did meanwhile. Must not know: bounds.

use serde::Serialize;

use super::{own_cpu, under_way};
use crate::compare::Series;
use crate::human;
use crate::lab::DriveLimits;
use crate::observe::{DriveWork, Observation};
use crate::suite::Case;

/// What is used to this share of what there is, is full.
const FULL: f64 = 0.9;
/// A program is likely to be one thread if it uses between this and the next of a processor.
const ONE_THREAD: (f64, f64) = (0.93, 1.03);

/// What held a case back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// All drives do what they can.
    Drives,
    /// Some drives do what they can, and the others wait for them.
    SomeDrives,
    /// The machine's processors are in use.
    Processors,
    /// The same, but by programs that have nothing to do with it.
    Others,
    /// The load keeps a latency, and so is no deeper.
    LatencyTarget,
    /// Likely one thread of a program.
    OneThread,
    /// Nothing is full: operations wait for one another.
    Latency,
}

/// What held a case back, and how that is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The kind of it.
    pub cause: Cause,
    /// In a few words.
    pub what: String,
    /// What shows it.
    pub evidence: Vec<String>,
}

/// What a drive is fullest of, and how full.
#[allow(clippy::cast_precision_loss)]
pub(super) fn fullness(drive: &DriveWork, limits: &DriveLimits) -> (&'static str, f64) {
    let shares = [
        ("reads a second", drive.read_iops, limits.read_iops),
        ("bytes read a second", drive.read_bps, limits.read_bps),
        ("writes a second", drive.write_iops, limits.write_iops),
        ("bytes written a second", drive.write_bps, limits.write_bps),
    ];
    let share = |(what, done, limit): (&'static str, f64, u64)| (what, done / (limit as f64).max(1.0));
    shares.into_iter().map(share).max_by(|left, right| left.1.total_cmp(&right.1)).unwrap_or(("", 0.0))
}

struct Drives {
    what: &'static str,
    mean: f64,
    fullest: f64,
    name: String,
    full: usize,
    count: usize,
}

/// How full the drives are that do anything.
#[allow(clippy::cast_precision_loss)]
fn drives(seen: &Observation, limits: Option<&DriveLimits>) -> Option<Drives> {
    let limits = limits?;
    let busy = seen.drives.iter().filter(|drive| drive.read_iops + drive.write_iops > 0.0);
    let shares: Vec<(&str, (&'static str, f64))> =
        busy.map(|drive| (drive.name.as_str(), fullness(drive, limits))).collect();
    let (name, (what, fullest)) = *shares.iter().max_by(|left, right| left.1.1.total_cmp(&right.1.1))?;
    Some(Drives {
        what,
        mean: shares.iter().map(|(_, (_, share))| share).sum::<f64>() / shares.len() as f64,
        fullest,
        name: name.into(),
        full: shares.iter().filter(|(_, (_, share))| *share >= FULL).count(),
        count: shares.len(),
    })
}

/// What held it back. `mixed` says that other jobs went on at the same time, so that the drives' work is not this one's alone.
pub(super) fn find(
    case: &Case,
    series: &Series,
    seen: &Observation,
    limits: Option<&DriveLimits>,
    mixed: bool,
) -> Bottleneck {
    let drives = drives(seen, limits);
    let (cause, what) = cause(case, series, seen, drives.as_ref());
    let mut evidence = Vec::new();
    if let Some(drives) = &drives {
        evidence.push(format!(
            "the drives are at {:.0} % of their {} in the mean; {} of {} at {:.0} % or more, the fullest ({}) at {:.0} %",
            drives.mean * 100.0,
            drives.what,
            drives.full,
            drives.count,
            FULL * 100.0,
            drives.name,
            drives.fullest * 100.0
        ));
    }
    if seen.cpus > 0 {
        let used = seen.cpu.iter().filter(|(_, used)| **used >= 0.005);
        let list: Vec<String> = used.map(|(kind, used)| format!("{kind} {used:.2}")).collect();
        evidence.push(format!(
            "{:.2} of {} processors are in use: {}",
            seen.cpu_busy,
            seen.cpus,
            if list.is_empty() { "nothing to speak of".into() } else { list.join(", ") }
        ));
    }
    if !mixed {
        evidence.extend(amplification(series, case, seen));
        evidence.extend(waiting(case, series, seen));
    }
    evidence.extend(seen.disturbed.iter().cloned());
    Bottleneck { cause, what, evidence }
}

fn cause(case: &Case, series: &Series, seen: &Observation, drives: Option<&Drives>) -> (Cause, String) {
    let cpus = f64::from(seen.cpus);
    if let Some(drives) = drives.filter(|drives| drives.mean >= FULL) {
        return (Cause::Drives, format!("the drives' {}", drives.what));
    }
    let others = seen.cpu.get("others").copied().unwrap_or(0.0);
    if cpus > 0.0 && seen.cpu_busy + seen.cpu_steal >= FULL * cpus {
        let own = own_cpu(seen);
        if others + seen.cpu_steal > own {
            return (Cause::Others, "processors, taken by programs that have nothing to do with it".into());
        }
        let most = seen.cpu.iter().filter(|(kind, _)| *kind != "others");
        let most = most.max_by(|left, right| left.1.total_cmp(right.1)).map_or("?", |(kind, _)| kind);
        return (Cause::Processors, format!("the machine's processors, most of all for '{most}'"));
    }
    if let Some(drives) = drives.filter(|drives| drives.fullest >= FULL) {
        let what =
            format!("{} of {} drives: the load is uneven, and the others wait", drives.full, drives.count);
        return (Cause::SomeDrives, what);
    }
    if let Some(latency) = case.job.latency {
        let what = format!(
            "the load itself, which keeps {} % of operations within {} ms",
            latency.percentile, latency.target_ms
        );
        return (Cause::LatencyTarget, what);
    }
    let one_thread = |used: f64| used >= ONE_THREAD.0 && used <= ONE_THREAD.1;
    let by_us = |kind: &str| !["others", "kernel", "bench"].contains(&kind);
    if let Some((kind, _)) = seen.cpu.iter().find(|(kind, used)| by_us(kind) && one_thread(**used)) {
        return (Cause::OneThread, format!("likely one thread of '{kind}', which uses one processor whole"));
    }
    let mean = human::time(mean_us(series));
    let what =
        format!("latency: {} operations under way, {mean} each, and nothing else is full", under_way(case));
    (Cause::Latency, what)
}

/// Mean latency of both directions.
fn mean_us(series: &Series) -> f64 {
    let iops: f64 = series.sides.iter().map(|side| side.iops).sum();
    series.sides.iter().map(|side| side.mean_us * side.iops).sum::<f64>() / iops.max(f64::MIN_POSITIVE)
}

/// What the drives do for each byte that is asked for.
fn amplification(series: &Series, case: &Case, seen: &Observation) -> Option<String> {
    if seen.drives.is_empty() {
        return None;
    }
    let asked: f64 = series.sides.iter().map(|side| side.bytes_per_s).sum();
    let read: f64 = seen.drives.iter().map(|drive| drive.read_bps).sum();
    let written: f64 = seen.drives.iter().map(|drive| drive.write_bps).sum();
    // Which of them is for what cannot be told apart where a job does both.
    (asked > 0.0).then(|| match case.job.read_percent {
        100 => format!("for each byte read the drives read {:.2}", read / asked),
        0 => format!(
            "for each byte written the drives write {:.2} and read {:.2}",
            written / asked,
            read / asked
        ),
        _ => format!(
            "for each byte of load the drives read {:.2} and write {:.2}",
            read / asked,
            written / asked
        ),
    })
}

/// How much of an operation's time drives take.
fn waiting(case: &Case, series: &Series, seen: &Observation) -> Option<String> {
    let (mut time, mut count) = (0.0, 0.0);
    for drive in &seen.drives {
        time += drive.read_us * drive.read_iops + drive.write_us * drive.write_iops;
        count += drive.read_iops + drive.write_iops;
    }
    (count > 0.0).then(|| {
        format!(
            "an operation takes {}, one of a drive {}; {} are kept under way",
            human::time(mean_us(series)),
            human::time(time / count),
            under_way(case)
        )
    })
}
