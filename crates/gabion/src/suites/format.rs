//! Formatting of rates, times, jobs and results.

use std::collections::BTreeMap;

use bench::compare::{Series, series};
pub(super) use bench::human::rate;
use bench::human::time;
use bench::objects::{ObjectColumns, object_columns};
use bench::run::{Measured, Missing, RAW, RunPlan};
use bench::{DirectionFigures, Job, Workload};

/// Converts a count for the computation of rates.
#[allow(clippy::cast_precision_loss)]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

/// Indents each line.
pub(super) fn indented(text: &str, by: usize) -> String {
    text.trim().lines().map(|line| format!("{:by$}{line}", "")).collect::<Vec<_>>().join("\n")
}

/// Describes a job of objects on one line.
fn object_job(job: &Job) -> Option<String> {
    let objects = job.objects.as_ref()?;
    let shares =
        [("GET", objects.get), ("STAT", objects.stat), ("PUT", objects.put), ("DELETE", objects.delete)];
    let shares: Vec<String> = shares
        .iter()
        .filter(|(_, share)| *share > 0)
        .map(|(name, share)| format!("{share} % {name}"))
        .collect();
    let size = bench::human::size;
    let sizes = match objects.max_bytes {
        Some(max) => format!("{} to {}", size(job.block_bytes), size(max)),
        None => size(job.block_bytes),
    };
    let mut text = format!(
        "{}, {} objects of {sizes}, {} clients",
        shares.join(", "),
        objects.count,
        job.threads * job.depth
    );
    if let Some(bytes) = objects.range_bytes {
        text.push_str(&format!(", GETs in parallel ranges of {}", size(bytes)));
    }
    if objects.oldest_first {
        text.push_str(", oldest objects deleted first");
    }
    Some(text)
}

/// Describes a job on one line.
pub(super) fn job(job: &Job) -> String {
    if let Some(text) = object_job(job) {
        return text;
    }
    let size = match job.block_bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    };
    let order = if job.random { "random" } else { "sequential" };
    let depth = if job.depths.is_empty() {
        job.depth.to_string()
    } else {
        job.depths.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    };
    let mut text =
        format!("{size} {order}, {} % reads, depth {depth}, {} threads", job.read_percent, job.threads);
    if let Some(latency) = job.latency {
        text.push_str(&format!(", {} % within {} ms", latency.percentile, latency.target_ms));
    }
    if job.degraded {
        text.push_str(", one drive of each pool failed");
    }
    text
}

fn sides(sides: &[DirectionFigures], pick: impl Fn(&DirectionFigures) -> String) -> String {
    if sides.is_empty() { "-".into() } else { sides.iter().map(pick).collect::<Vec<_>>().join(" / ") }
}

/// Formats the rates of a series, reads and writes separately.
fn rates(series: &Series, bandwidth: bool) -> String {
    match series.sides.as_slice() {
        [_, _] => {
            sides(&series.sides, |side| rate(if bandwidth { side.bytes_per_s } else { side.iops }, bandwidth))
        }
        _ => rate(series.rate, bandwidth),
    }
}

/// Formats all results of a run: a table per target, and remarks.
pub(super) fn results(plan: &RunPlan, results: &[Measured]) -> String {
    let mut text = String::new();
    let names = [RAW].into_iter().chain(plan.targets.iter().map(|target| target.name.as_str()));
    for name in names {
        if results.iter().any(|one| one.target == name) {
            text.push_str(&target(name, results));
            text.push('\n');
        }
    }
    text.push_str(&columns_of_objects(plan, results));
    plan.absent.iter().for_each(|absent| text.push_str(&format!("unavailable: {absent}\n")));
    if !plan.scaled.differences.is_empty() {
        text.push_str("scaled: ");
        text.push_str(&plan.scaled.differences.join("; "));
        text.push('\n');
    }
    text
}

/// Formats the columns of a suite of objects: measured, and published.
fn columns_of_objects(plan: &RunPlan, results: &[Measured]) -> String {
    if plan.suite.workload() != Workload::Objects {
        return String::new();
    }
    let line = |workload: &str, system: &str, cells: &[String; 7]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
        format!("{workload:<18} {system:<28}{cells}\n")
    };
    let mut text = line("workload, means", "system", &ObjectColumns::TITLES.map(str::to_owned));
    for case in &plan.scaled.cases {
        for target in &plan.targets {
            let runs = results.iter().filter(|one| one.target == target.name && one.case.name == case.name);
            if let Some(columns) = object_columns(runs) {
                text.push_str(&line(&case.name, &target.name, &columns.cells()));
            }
        }
        for published in &plan.suite.published {
            if let Some(figure) = published.figure(&case.job.name) {
                let columns = ObjectColumns::published(figure, &case.job);
                text.push_str(&line(
                    &case.name,
                    &format!("{}, published", published.system),
                    &columns.cells(),
                ));
            }
        }
    }
    text + "\n"
}

fn target(name: &str, results: &[Measured]) -> String {
    let mut text = format!(
        "{:<42} {:>21} {:>17} {:>17} {:>17}  {:<}\n",
        name, "rate", "mean", "99.95 %", "99.999 %", "CPUs used"
    );
    for (case, job, series) in series(results, name) {
        let of_case = || results.iter().filter(|one| one.target == name && one.case.name == case);
        let mut notes = Vec::new();
        if series.disturbed > 0 {
            notes.push(format!("disturbed {} of {}", series.disturbed, series.repeats));
        }
        if series.unsettled > 0 {
            notes.push(format!("not steady {} of {}", series.unsettled, series.repeats));
        }
        text.push_str(&format!(
            "{case:<42} {:>21} {:>17} {:>17} {:>17}  {}{}\n",
            rates(&series, job.is_bandwidth()),
            sides(&series.sides, |side| time(side.mean_us)),
            sides(&series.sides, |side| time(side.p9995_us)),
            sides(&series.sides, |side| time(side.p99999_us)),
            of_case().next_back().map_or(String::new(), cpu_usage),
            if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) }
        ));
    }
    for (state, cases) in remarks(name, results) {
        text.push_str(&format!("  {state}: {}\n", cases.join(", ")));
    }
    for (reason, cases) in missing(name, results) {
        text.push_str(&format!("  no result: {}: {reason}\n", cases.join(", ")));
    }
    text
}

/// Formats the CPU usage by kind of process.
fn cpu_usage(one: &Measured) -> String {
    let used = one.observation.cpu.iter().filter(|(_, used)| **used >= 0.005);
    let list: Vec<String> = used.map(|(kind, used)| format!("{kind} {used:.2}")).collect();
    format!("{:.2} of {}: {}", one.observation.cpu_busy, one.observation.cpus, list.join(", "))
}

/// Returns the remarks on results, with their cases.
fn remarks(name: &str, results: &[Measured]) -> BTreeMap<String, Vec<String>> {
    let mut remarks = BTreeMap::<String, Vec<String>>::new();
    for one in results.iter().filter(|one| one.target == name) {
        let Some(state) = &one.state else { continue };
        let cases = remarks.entry(state.clone()).or_default();
        if !cases.contains(&one.case.name) {
            cases.push(one.case.name.clone());
        }
    }
    remarks
}

/// Returns the cases without a result, by reason.
fn missing(name: &str, results: &[Measured]) -> BTreeMap<String, Vec<String>> {
    let mut reasons = BTreeMap::<String, Vec<String>>::new();
    for one in results.iter().filter(|one| one.target == name) {
        let reason = match &one.missing {
            Some(Missing::Failed(reason)) => format!("failed: {reason}"),
            Some(Missing::LeftOut(reason)) => format!("skipped: {reason}"),
            None => continue,
        };
        let cases = reasons.entry(reason).or_default();
        if !cases.contains(&one.case.name) {
            cases.push(one.case.name.clone());
        }
    }
    reasons
}
