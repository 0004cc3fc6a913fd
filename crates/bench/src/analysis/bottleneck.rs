//! Determines the bottleneck of a case, with evidence.
//!
//! Pure functions of the observation.

use serde::Serialize;

use super::{Resources, in_flight, own_cpu};
use crate::compare::Series;
use crate::human;
use crate::lab::DriveLimits;
use crate::network;
use crate::observe::{DriveWork, Observation};
use crate::suite::Case;

/// Utilisation from which a resource counts as saturated.
const SATURATED: f64 = 0.9;
/// Share of a processor from which a thread probably limits its program.
const ONE_THREAD: f64 = 0.93;

/// The kind of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// All drives are saturated.
    Drives,
    /// Some drives are saturated, and the load waits for them.
    SomeDrives,
    /// The link of this host to the system is saturated.
    Network,
    /// The machine's processors are saturated.
    Processors,
    /// The machine's processors are saturated by unrelated programs.
    Others,
    /// The load limits its depth to meet a latency target.
    LatencyTarget,
    /// Probably one thread of a program.
    OneThread,
    /// Nothing is saturated: the latency of operations limits the rate.
    Latency,
    /// Nothing that is observed is saturated, and the system's hosts are not observed.
    Unobserved,
}

/// A bottleneck and its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The kind.
    pub cause: Cause,
    /// Short description.
    pub what: String,
    /// Evidence.
    pub evidence: Vec<String>,
}

/// Returns the most utilised limit of a drive, and its utilisation.
#[allow(clippy::cast_precision_loss)]
pub(super) fn fullness(drive: &DriveWork, limits: &DriveLimits) -> (&'static str, f64) {
    let shares = [
        ("reads per second", drive.read_iops, limits.read_iops),
        ("bytes read per second", drive.read_bps, limits.read_bps),
        ("writes per second", drive.write_iops, limits.write_iops),
        ("bytes written per second", drive.write_bps, limits.write_bps),
    ];
    let share = |(what, done, limit): (&'static str, f64, u64)| (what, done / (limit as f64).max(1.0));
    shares.into_iter().map(share).max_by(|left, right| left.1.total_cmp(&right.1)).unwrap_or(("", 0.0))
}

struct DriveUtilisation {
    what: &'static str,
    mean: f64,
    fullest: f64,
    name: String,
    full: usize,
    count: usize,
}

/// Returns the utilisation of the drives with I/O.
#[allow(clippy::cast_precision_loss)]
fn drives(seen: &Observation, limits: Option<&DriveLimits>) -> Option<DriveUtilisation> {
    let limits = limits?;
    let busy = seen.drives.iter().filter(|drive| drive.read_iops + drive.write_iops > 0.0);
    let shares: Vec<(&str, (&'static str, f64))> =
        busy.map(|drive| (drive.name.as_str(), fullness(drive, limits))).collect();
    let (name, (what, fullest)) = *shares.iter().max_by(|left, right| left.1.1.total_cmp(&right.1.1))?;
    Some(DriveUtilisation {
        what,
        mean: shares.iter().map(|(_, (_, share))| share).sum::<f64>() / shares.len() as f64,
        fullest,
        name: name.into(),
        full: shares.iter().filter(|(_, (_, share))| *share >= SATURATED).count(),
        count: shares.len(),
    })
}

/// Determines the bottleneck.
pub(super) fn find(case: &Case, series: &Series, seen: &Observation, resources: Resources<'_>) -> Bottleneck {
    let limits = resources.limits.map(|known| &known.limits);
    let drives = drives(seen, limits);
    let own_bps = resources.network.and_then(|path| path.own_bps);
    let network = own_bps.map(|bps| network::utilisation(&series.sides, bps));
    let is_network_full = network.as_ref().is_some_and(|(share, _)| *share >= SATURATED);
    let are_drives_known = limits.is_some() && !seen.drives.is_empty();
    // Drives of this host that work for a system of other hosts are those of the system.
    let is_unobserved = resources.is_remote && drives.is_none();
    let (cause, what) = if is_network_full {
        (Cause::Network, "the network: the link of this host".into())
    } else {
        saturated(case, seen, drives.as_ref())
            .unwrap_or_else(|| by_latency(case, series, is_unobserved, are_drives_known))
    };
    let mut evidence = Vec::new();
    if let Some(drives) = &drives {
        evidence.push(format!(
            "the drives are on average at {:.0} % of their {}; {} of {} at {:.0} % or more, the busiest ({}) at {:.0} %",
            drives.mean * 100.0,
            drives.what,
            drives.full,
            drives.count,
            SATURATED * 100.0,
            drives.name,
            drives.fullest * 100.0
        ));
    }
    evidence.extend(network.map(|(_, text)| text));
    if seen.cpus > 0 {
        let used = seen.cpu.iter().filter(|(_, used)| **used >= 0.005);
        let list: Vec<String> = used.map(|(kind, used)| format!("{kind} {used:.2}")).collect();
        evidence.push(format!(
            "{:.2} of {} processors are in use: {}",
            seen.cpu_busy,
            seen.cpus,
            if list.is_empty() { "no significant user".into() } else { list.join(", ") }
        ));
    }
    if is_unobserved {
        evidence.push("the processors and drives of the system's hosts are not observed".into());
    }
    // In a mix of jobs the drives' work is not only this job's.
    if !resources.mixed {
        evidence.extend(amplification(series, case, seen));
        evidence.extend(waiting(case, series, seen));
    }
    evidence.extend(seen.disturbed.iter().cloned());
    Bottleneck { cause, what, evidence }
}

/// Returns the saturated resource, or the target of the load that limits it.
fn saturated(case: &Case, seen: &Observation, drives: Option<&DriveUtilisation>) -> Option<(Cause, String)> {
    let cpus = f64::from(seen.cpus);
    if let Some(drives) = drives.filter(|drives| drives.mean >= SATURATED) {
        return Some((Cause::Drives, format!("the drives' {}", drives.what)));
    }
    let others = seen.cpu.get("others").copied().unwrap_or(0.0);
    if cpus > 0.0 && seen.cpu_busy + seen.cpu_steal >= SATURATED * cpus {
        let own = own_cpu(seen);
        if others + seen.cpu_steal > own {
            return Some((Cause::Others, "processors, used by unrelated programs".into()));
        }
        let most = seen.cpu.iter().filter(|(kind, _)| *kind != "others");
        let most = most.max_by(|left, right| left.1.total_cmp(right.1)).map_or("?", |(kind, _)| kind);
        return Some((Cause::Processors, format!("the machine's processors, mainly used by '{most}'")));
    }
    if let Some(drives) = drives.filter(|drives| drives.fullest >= SATURATED) {
        let what = format!("{} of {} drives: the load is unevenly distributed", drives.full, drives.count);
        return Some((Cause::SomeDrives, what));
    }
    if let Some(latency) = case.job.latency {
        let what = format!(
            "the latency target of the load: {} % of operations within {} ms",
            latency.percentile, latency.target_ms
        );
        return Some((Cause::LatencyTarget, what));
    }
    let threads = seen.busiest_thread.iter().filter(|(kind, used)| *kind != "bench" && **used >= ONE_THREAD);
    if let Some((kind, _)) = threads.max_by(|left, right| left.1.total_cmp(right.1)) {
        return Some((
            Cause::OneThread,
            format!("probably one thread of '{kind}', which saturates one processor"),
        ));
    }
    None
}

/// Describes a load that waits for its operations, while nothing observed is saturated.
fn by_latency(case: &Case, series: &Series, is_unobserved: bool, are_drives_known: bool) -> (Cause, String) {
    let (cause, rest) = match (is_unobserved, are_drives_known) {
        (true, _) => {
            (Cause::Unobserved, "no observed resource is saturated, and the system's hosts are not observed")
        }
        (false, true) => (Cause::Latency, "no resource is saturated"),
        (false, false) => {
            (Cause::Latency, "no observed resource is saturated, and the use of the drives is unknown")
        }
    };
    let mean = human::time(mean_us(series));
    let operations = match in_flight(case) {
        1 => "1 operation".to_owned(),
        count => format!("{count} operations"),
    };
    (cause, format!("latency: {operations} in flight, {mean} each; {rest}"))
}

/// Returns the mean latency of both directions.
fn mean_us(series: &Series) -> f64 {
    let iops: f64 = series.sides.iter().map(|side| side.iops).sum();
    series.sides.iter().map(|side| side.mean_us * side.iops).sum::<f64>() / iops.max(f64::MIN_POSITIVE)
}

/// Returns the bytes that the drives transfer per byte of load.
fn amplification(series: &Series, case: &Case, seen: &Observation) -> Option<String> {
    if seen.drives.is_empty() {
        return None;
    }
    let asked: f64 = series.sides.iter().map(|side| side.bytes_per_s).sum();
    let read: f64 = seen.drives.iter().map(|drive| drive.read_bps).sum();
    let written: f64 = seen.drives.iter().map(|drive| drive.write_bps).sum();
    // In a mixed job the drives' reads and writes cannot be attributed.
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

/// Compares the latency of operations with that of the drives.
fn waiting(case: &Case, series: &Series, seen: &Observation) -> Option<String> {
    let (mut time, mut count) = (0.0, 0.0);
    for drive in &seen.drives {
        time += drive.read_us * drive.read_iops + drive.write_us * drive.write_iops;
        count += drive.read_iops + drive.write_iops;
    }
    (count > 0.0).then(|| {
        format!(
            "an operation takes {}, a drive's operation {}; {} are in flight",
            human::time(mean_us(series)),
            human::time(time / count),
            in_flight(case)
        )
    })
}
