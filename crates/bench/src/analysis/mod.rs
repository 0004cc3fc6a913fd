//! What results mean: how near each came to its bounds, what held it back and how that is known, how it grows with load, and
//! what a lost drive costs.
//!
//! Always true: nothing is concluded that was not counted; what is only likely is called so. Must not know: how it is shown.

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
use crate::observe::{DriveWork, Observation};
use crate::run::{Measured, RAW, RunPlan, SystemRecord};
use crate::suite::{Case, Job, Order};

/// A drive that did more than this share of its limit was not limited.
const ABOVE_LIMIT: f64 = 1.05;

/// Seconds of counters from which that can be told.
const LOOK_MIN_S: f64 = 5.0;

/// Everything that a run's results mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// What each drive can do, and where that is known from.
    pub limits: Option<Known>,
    /// Each case of each target, the drives themselves first.
    pub cases: Vec<Finding>,
    /// How rates grow with load.
    pub curves: Vec<Curve>,
    /// What lost drives cost.
    pub lost: Vec<Lost>,
    /// What makes figures less believable.
    pub doubts: Vec<String>,
}

/// What each drive can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Known {
    /// In a second.
    pub limits: DriveLimits,
    /// Where it is known from, for people.
    pub from: String,
}

/// What is to be said of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The target.
    pub target: String,
    /// The case.
    pub case: String,
    /// What was done.
    pub job: Job,
    /// By how many instances.
    pub instances: u32,
    /// What was measured.
    pub series: Series,
    /// How near it came to each bound, the one that counts first.
    pub efficiency: Vec<Efficiency>,
    /// What held it back.
    pub bottleneck: Bottleneck,
    /// Processor time for each operation, in microseconds, of all that belongs to the measurement.
    pub cpu_us: Option<f64>,
    /// What was done to the system before.
    pub state: Option<String>,
}

/// How near a rate came to a bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Efficiency {
    /// The bound.
    pub bound: Bound,
    /// The measured share of it.
    pub share: f64,
}

/// A job with a drive lost, beside the same without.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lost {
    /// The target.
    pub target: String,
    /// The case with all drives.
    pub healthy: String,
    /// The case without one.
    pub degraded: String,
    /// What is left of the rate.
    pub rate: f64,
    /// How much longer 99.95 % of operations take, as a factor.
    pub p9995: Option<f64>,
}

/// What the results of a run mean.
pub fn analyse(plan: &RunPlan, systems: &[SystemRecord], results: &[Measured]) -> Analysis {
    let limits = known_limits(plan, results);
    let drives = u32::try_from(plan.drives.len()).unwrap_or(u32::MAX);
    let mut cases = Vec::new();
    let names = [RAW].into_iter().chain(plan.targets.iter().map(|target| target.name.as_str()));
    for name in names {
        let layout = if name == RAW {
            (drives > 0).then_some(Layout { drives, data: 1, parity: 0, pools: 1 })
        } else {
            systems.iter().find(|system| system.target == name).and_then(|system| system.about.layout)
        };
        for (case, job, series) in series(results, name) {
            // Of several repeats the last one's counters are looked at.
            let of_case = |one: &&Measured| one.target == name && one.case.name == case && one.all.is_some();
            let Some(last) = results.iter().rfind(of_case) else { continue };
            // What each instance did by itself, mixed with other jobs of others, has no bound of its own.
            let mixed = name != RAW && plan.suite.order == Order::Staggered;
            let layout = layout.filter(|_| !mixed);
            cases.push(finding(case, &job, series, last, limits.as_ref(), layout, mixed));
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

fn finding(
    case: String,
    job: &Job,
    series: Series,
    last: &Measured,
    limits: Option<&Known>,
    layout: Option<Layout>,
    mixed: bool,
) -> Finding {
    let iops: f64 = series.sides.iter().map(|side| side.iops).sum();
    let known = limits.zip(layout);
    let mut all = known.map_or_else(Vec::new, |(known, layout)| bounds(job, &known.limits, layout, None));
    if let Some(first) = tightest(&all).cloned() {
        all.retain(|bound| *bound != first);
        all.insert(0, first);
    }
    if last.target == RAW {
        // Drives have no stripes and no parity.
        all.truncate(1);
    }
    all.retain(|bound| bound.iops.is_finite() && bound.iops > 0.0);
    let cpu_us = cpu_us(iops, &last.observation).filter(|_| !mixed);
    all.extend(cpu_us.and_then(|cost| processors(cost, &last.observation)));
    let efficiency = all.into_iter().map(|bound| Efficiency { share: iops / bound.iops, bound }).collect();
    Finding {
        target: last.target.clone(),
        case,
        job: job.clone(),
        instances: last.case.instances,
        bottleneck: bottleneck::find(
            &last.case,
            &series,
            &last.observation,
            limits.map(|known| &known.limits),
            mixed,
        ),
        cpu_us,
        series,
        efficiency,
        state: last.state.clone(),
    }
}

/// Processors in use by what belongs to the measurement.
fn own_cpu(seen: &Observation) -> f64 {
    seen.cpu.iter().filter(|(kind, _)| *kind != "others").map(|(_, used)| used).sum()
}

fn cpu_us(iops: f64, seen: &Observation) -> Option<f64> {
    let used = own_cpu(seen);
    (iops > 0.0 && used > 0.0).then(|| used * 1e6 / iops)
}

/// What all processors of the machine would give at the same cost of each operation.
fn processors(cost: f64, seen: &Observation) -> Option<Bound> {
    // Counters of processors go in steps of ten milliseconds: a few of them say nothing.
    (seen.seconds * own_cpu(seen) >= 0.5).then(|| Bound {
        name: "processors".into(),
        iops: f64::from(seen.cpus) * 1e6 / cost,
        saturates: "the machine's processors, load included".into(),
        formula: format!("{} processors / {cost:.1} us for each operation", seen.cpus),
    })
}

/// The lab's limits, or else the best that the drives did when they were measured.
fn known_limits(plan: &RunPlan, results: &[Measured]) -> Option<Known> {
    if let Some(limits) = plan.limits {
        return Some(Known { limits, from: "set by the lab".into() });
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
    Some(Known { limits, from: "the best that the drives themselves did in this run".into() })
}

fn lost(cases: &[Finding]) -> Vec<Lost> {
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
        (healthy.series.rate > 0.0).then(|| Lost {
            target: degraded.target.clone(),
            healthy: healthy.case.clone(),
            degraded: degraded.case.clone(),
            rate: degraded.series.rate / healthy.series.rate,
            p9995: tails.map(|(healthy, degraded)| degraded / healthy),
        })
    };
    cases.iter().filter(|finding| finding.job.degraded).filter_map(pair).collect()
}

/// What makes figures less believable, each kind once.
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
        // A list of everything is no list.
        if names.len() > 2 && names.len() == count {
            vec![format!("all {count} measurements")]
        } else {
            names
        }
    };
    say(
        "somebody else used the machine, so that these may be too low",
        named(&|one| !one.observation.disturbed.is_empty()),
    );
    say("had not settled", named(&|one| one.steady.is_some_and(|steady| !steady.steady)));
    say("too short to tell whether they had settled", named(&|one| one.steady.is_none()));
    if let (Some(limits), Some(_)) = (plan.limits, &plan.lab) {
        let above = named(&|one| {
            let fullness = |drive| fullness(drive, &limits);
            // Budgets come in pieces of a tenth of a second, of which a short look sees one more or less.
            let long = one.observation.seconds >= LOOK_MIN_S;
            long && one.observation.drives.iter().any(|drive| fullness(drive) > ABOVE_LIMIT)
        });
        say("a drive did more than the lab's limit, which did not hold for all that used it", above);
    }
    doubts
}

/// How full a drive was, as a share of the limit that it was nearest to.
pub fn fullness(drive: &DriveWork, limits: &DriveLimits) -> f64 {
    bottleneck::fullness(drive, limits).1
}

/// Operations that a case keeps under way.
fn under_way(case: &Case) -> u64 {
    u64::from(case.instances) * u64::from(case.job.threads) * u64::from(case.job.depth)
}
