//! Analysis of results: efficiency relative to bounds, bottlenecks with evidence, growth with load,
//! and the cost of a failed drive.
//!
//! Invariant: conclusions follow from counters only; uncertain ones are marked as probable. Does
//! not know how they are displayed.

mod bottleneck;
mod growth;
#[cfg(test)]
pub(crate) mod tests;

use serde::Serialize;

pub use bottleneck::{Bottleneck, Cause};
pub use growth::{Along, Curve, Point};

use crate::bounds::{Bound, Layout, bounds, tightest};
use crate::compare::{Series, series};
use crate::lab::DriveLimits;
use crate::network::{self, NetworkPath};
use crate::observe::{DriveWork, Observation};
use crate::run::{Measured, RAW, RunPlan, SystemRecord};
use crate::suite::{Case, Job, Order};

/// A drive that exceeded this share of its limit was not throttled.
const ABOVE_LIMIT: f64 = 1.05;

/// Minimum observed seconds for that conclusion.
const LOOK_MIN_S: f64 = 5.0;

/// The analysis of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The limits of each drive, and their source.
    pub limits: Option<DriveLimitsInfo>,
    /// Each case of each target, the drives themselves first.
    pub cases: Vec<Finding>,
    /// Growth of rates with load.
    pub curves: Vec<Curve>,
    /// Cost of failed drives.
    pub lost: Vec<FailedDriveCost>,
    /// Reasons for doubt about the results.
    pub doubts: Vec<String>,
}

/// The limits of each drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveLimitsInfo {
    /// Limits per second.
    pub limits: DriveLimits,
    /// Their source, as text.
    pub from: String,
}

/// The analysis of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The target.
    pub target: String,
    /// Name of the case.
    pub case: String,
    /// The job.
    pub job: Job,
    /// Number of instances.
    pub instances: u32,
    /// The results.
    pub series: Series,
    /// Efficiency relative to each bound, the tightest one first.
    pub efficiency: Vec<Efficiency>,
    /// The bottleneck.
    pub bottleneck: Bottleneck,
    /// Processor time per operation in microseconds, of all processes of the measurement.
    pub cpu_us: Option<f64>,
    /// State of the system, such as a failed drive.
    pub state: Option<String>,
}

/// The efficiency relative to a bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Efficiency {
    /// The bound.
    pub bound: Bound,
    /// The measured share of it.
    pub share: f64,
}

/// A job with a failed drive, compared with the healthy system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedDriveCost {
    /// The target.
    pub target: String,
    /// The case with all drives.
    pub healthy: String,
    /// The case with a failed drive.
    pub degraded: String,
    /// Rate relative to the healthy system.
    pub rate: f64,
    /// Factor on the 99.95th percentile of the latency.
    pub p9995: Option<f64>,
}

/// Analyses the results of a run.
pub fn analyse(plan: &RunPlan, systems: &[SystemRecord], results: &[Measured]) -> Analysis {
    let limits = known_limits(plan, results);
    let drives = u32::try_from(plan.drives.len()).unwrap_or(u32::MAX);
    let mut cases = Vec::new();
    let names = [RAW].into_iter().chain(plan.targets.iter().map(|target| target.name.as_str()));
    for name in names {
        let about = systems.iter().find(|system| system.target == name).map(|system| &system.about);
        let layout = if name == RAW {
            (drives > 0).then_some(Layout { drives, data: 1, parity: 0, pools: 1 })
        } else {
            about.and_then(|about| about.layout)
        };
        let network = about.and_then(|about| about.network.as_ref()).filter(|_| name != RAW);
        for (case, job, series) in series(results, name) {
            // The counters of the last repeat are used.
            let of_case = |one: &&Measured| one.target == name && one.case.name == case && one.all.is_some();
            let Some(last) = results.iter().rfind(of_case) else { continue };
            let mixed = name != RAW && plan.suite.order == Order::Staggered;
            let is_remote = name != RAW && about.is_some_and(|about| about.is_remote);
            let resources = Resources { limits: limits.as_ref(), layout, network, mixed, is_remote };
            cases.push(finding(case, &job, series, last, resources));
        }
    }
    Analysis {
        curves: growth::curves(&cases),
        lost: lost(&cases),
        doubts: doubts(plan, results),
        limits,
        cases,
    }
}

/// The resources of a system that can saturate.
#[derive(Clone, Copy, Default)]
struct Resources<'a> {
    limits: Option<&'a DriveLimitsInfo>,
    layout: Option<Layout>,
    network: Option<&'a NetworkPath>,
    /// Other jobs ran at the same time.
    mixed: bool,
    /// The processors and drives of the system are on other hosts, and are not observed.
    is_remote: bool,
}

impl Resources<'_> {
    /// Returns the bounds of a job by drives and network, the tightest one first. Instances that
    /// are mixed with other jobs have none of their own.
    fn bounds(self, job: &Job, is_raw: bool) -> Vec<Bound> {
        if self.mixed {
            return Vec::new();
        }
        let known = self.limits.zip(self.layout);
        let mut all = known.map_or_else(Vec::new, |(known, layout)| bounds(job, &known.limits, layout, None));
        if let Some(first) = tightest(&all).cloned() {
            all.retain(|bound| *bound != first);
            all.insert(0, first);
        }
        if is_raw {
            // Independent drives have no stripes and no parity.
            all.truncate(1);
        }
        for bound in self.network.map_or_else(Vec::new, |path| network::bounds(job, path)) {
            let is_tighter = all.first().is_some_and(|first| bound.iops < first.iops);
            all.insert(if is_tighter { 0 } else { all.len() }, bound);
        }
        all.retain(|bound| bound.iops.is_finite() && bound.iops > 0.0);
        all
    }
}

fn finding(case: String, job: &Job, series: Series, last: &Measured, resources: Resources<'_>) -> Finding {
    let iops: f64 = series.sides.iter().map(|side| side.iops).sum();
    // Bounds count operations of `block_bytes`. Objects may be larger, and a protocol may split an
    // operation into several requests.
    #[allow(clippy::cast_precision_loss)]
    let blocks = series.sides.iter().map(|side| side.bytes_per_s).sum::<f64>() / job.block_bytes as f64;
    let all = resources.bounds(job, last.target == RAW);
    let cpu_us = cpu_us(iops, &last.observation).filter(|_| !resources.mixed);
    let mut efficiency: Vec<Efficiency> =
        all.into_iter().map(|bound| Efficiency { share: blocks / bound.iops, bound }).collect();
    let processors = cpu_us.and_then(|cost| processors(cost, &last.observation, resources.is_remote));
    efficiency.extend(processors.map(|bound| Efficiency { share: iops / bound.iops, bound }));
    Finding {
        target: last.target.clone(),
        case,
        job: job.clone(),
        instances: last.case.instances,
        bottleneck: bottleneck::find(&last.case, &series, &last.observation, resources),
        cpu_us,
        series,
        efficiency,
        state: last.state.clone(),
    }
}

/// Returns the processors used by the measurement.
fn own_cpu(seen: &Observation) -> f64 {
    seen.cpu.iter().filter(|(kind, _)| *kind != "others").map(|(_, used)| used).sum()
}

fn cpu_us(iops: f64, seen: &Observation) -> Option<f64> {
    let used = own_cpu(seen);
    (iops > 0.0 && used > 0.0).then(|| used * 1e6 / iops)
}

/// Returns the bound of all processors of the machine at the same cost per operation. The cost of a
/// remote system is that of the load only.
fn processors(cost: f64, seen: &Observation, is_remote: bool) -> Option<Bound> {
    let used_by = if is_remote { "with the load, without the system" } else { "including the load" };
    // Processor counters advance in steps of 10 ms: few steps are not significant.
    (seen.seconds * own_cpu(seen) >= 0.5).then(|| Bound {
        name: "processors".into(),
        iops: f64::from(seen.cpus) * 1e6 / cost,
        saturates: format!("the machine's processors, {used_by}"),
        formula: format!("{} processors / {cost:.1} us per operation", seen.cpus),
    })
}

/// Returns the limits of the lab, or else the best results of the drives themselves.
fn known_limits(plan: &RunPlan, results: &[Measured]) -> Option<DriveLimitsInfo> {
    if let Some(limits) = plan.limits {
        return Some(DriveLimitsInfo { limits, from: "limits of the lab".into() });
    }
    let raw = series(results, RAW);
    let drives = plan.drives.len();
    if drives == 0 || raw.is_empty() {
        return None;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let best = |percent: u8, bytes: bool| {
        let of_kind = raw.iter().filter(|(_, job, _)| job.read_percent == percent);
        let rate = |series: &Series| {
            series.sides.iter().map(|side| if bytes { side.bytes_per_s } else { side.iops }).sum::<f64>()
        };
        of_kind.map(|(.., series)| (rate(series) / drives as f64) as u64).max().unwrap_or(0)
    };
    let limits = DriveLimits {
        read_iops: best(100, false),
        write_iops: best(0, false),
        read_bps: best(100, true),
        write_bps: best(0, true),
    };
    Some(DriveLimitsInfo { limits, from: "the best results of the drives themselves in this run".into() })
}

fn lost(cases: &[Finding]) -> Vec<FailedDriveCost> {
    let same = |left: &Finding, right: &Finding| {
        let kind = |job: &Job| {
            (job.block_bytes, job.read_percent, job.random, job.depth, job.threads, job.profile.clone())
        };
        left.target == right.target
            && left.instances == right.instances
            && kind(&left.job) == kind(&right.job)
    };
    let pair = |degraded: &Finding| {
        let healthy = cases.iter().find(|other| !other.job.degraded && same(other, degraded))?;
        let tail = |finding: &Finding| finding.series.sides.first().map(|side| side.p9995_us);
        let tails = tail(healthy).zip(tail(degraded)).filter(|(healthy, _)| *healthy > 0.0);
        (healthy.series.rate > 0.0).then(|| FailedDriveCost {
            target: degraded.target.clone(),
            healthy: healthy.case.clone(),
            degraded: degraded.case.clone(),
            rate: degraded.series.rate / healthy.series.rate,
            p9995: tails.map(|(healthy, degraded)| degraded / healthy),
        })
    };
    cases.iter().filter(|finding| finding.job.degraded).filter_map(pair).collect()
}

/// Returns the reasons for doubt, each kind once.
fn doubts(plan: &RunPlan, results: &[Measured]) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut say = |text: &str, cases: Vec<String>| {
        if !cases.is_empty() {
            doubts.push(format!("{text}: {}", cases.join(", ")));
        }
    };
    let with: Vec<&Measured> = results.iter().filter(|one| one.all.is_some()).collect();
    let mut all: Vec<(&str, &str)> =
        with.iter().map(|one| (one.target.as_str(), one.case.name.as_str())).collect();
    all.sort_unstable();
    all.dedup();
    let count = all.len();
    let named = |is: &dyn Fn(&Measured) -> bool| {
        let mut names: Vec<String> = Vec::new();
        for one in with.iter().filter(|one| is(one)) {
            let name = format!("{} on {}", one.case.name, one.target);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        // A list of all cases is shortened.
        if names.len() > 2 && names.len() == count {
            vec![format!("all {count} measurements")]
        } else {
            names
        }
    };
    say(
        "other programs used the machine; these results may be too low",
        named(&|one| !one.observation.disturbed.is_empty()),
    );
    say("did not reach a steady state", named(&|one| one.steady.is_some_and(|steady| !steady.steady)));
    say("too short to detect a steady state", named(&|one| one.steady.is_none()));
    if let (Some(limits), Some(_)) = (plan.limits, &plan.lab) {
        let above = named(&|one| {
            let fullness = |drive| fullness(drive, &limits);
            // Budgets are granted per tenth of a second, so a short observation may see one more or
            // less.
            let long = one.observation.seconds >= LOOK_MIN_S;
            long && one.observation.drives.iter().any(|drive| fullness(drive) > ABOVE_LIMIT)
        });
        say("a drive exceeded the lab's limit, which did not apply to all of its users", above);
    }
    doubts
}

/// Returns the utilisation of a drive relative to its tightest limit.
pub fn fullness(drive: &DriveWork, limits: &DriveLimits) -> f64 {
    bottleneck::fullness(drive, limits).1
}

/// Returns the operations in flight of a case.
fn in_flight(case: &Case) -> u64 {
    u64::from(case.instances) * u64::from(case.job.threads) * u64::from(case.job.depth)
}
