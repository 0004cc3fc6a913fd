//! The order of a run's measurements: pure functions.
//!
//! The drives themselves are measured first. Then, in each round, systems that can run at the same
//! time alternate at each case; systems that use the drives exclusively alternate per round, each
//! round starting with another one, so that a drift of the machine does not favour one of them.

use serde::{Deserialize, Serialize};

use super::RunPlan;
use crate::human;
use crate::suite::{Case, Engine, Job, Order};

/// The target name of measurements of the drives themselves.
pub const RAW: &str = "drives";
/// Queue depth per drive.
const RAW_DEPTH: u32 = 32;
/// Queue depth per drive for long operations.
const RAW_DEPTH_LONG: u32 = 8;
const LONG: u64 = 256 << 10;
/// Longest operation for measuring drives, in bytes: longer operations only measure bandwidth, and
/// take long to complete.
const RAW_BLOCK_MAX: u64 = 1 << 20;

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Key, by which the step is recognised as done.
    pub key: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// The measurement.
    pub kind: StepKind,
}

impl Step {
    /// Returns the number of results of the complete step.
    pub(super) fn results(&self, plan: &RunPlan) -> usize {
        if matches!(self.kind, StepKind::Blend { .. }) { plan.scaled.cases.len() } else { 1 }
    }
}

/// The measurement of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepKind {
    /// All drives together.
    Raw(Case),
    /// A case on a target.
    Case {
        /// Index of the target.
        target: usize,
        /// Index of the case.
        case: usize,
    },
    /// All cases on a target in staggered order.
    Blend {
        /// Index of the target.
        target: usize,
    },
}

/// Returns the cases for measuring the drives: each kind of operation of the suite once.
pub fn raw_cases(cases: &[Case], drives: usize) -> Vec<Case> {
    let mut found: Vec<Case> = Vec::new();
    for case in cases {
        let mut job = case.job.clone();
        job.block_bytes = job.block_bytes.min(RAW_BLOCK_MAX);
        let same = |other: &Job| {
            (other.block_bytes, other.random, other.read_percent)
                == (job.block_bytes, job.random, job.read_percent)
        };
        if found.iter().any(|other| same(&other.job)) {
            continue;
        }
        let long = job.block_bytes >= LONG;
        let mut raw = job.clone();
        raw.name = shape(&job);
        raw.depth = if long { RAW_DEPTH_LONG } else { RAW_DEPTH };
        raw.threads = 1;
        raw.depths.clear();
        raw.degraded = false;
        raw.latency = None;
        raw.prepare = None;
        raw.objects = None;
        raw.offset_increment_percent = None;
        // io_uring first submits without waiting, which fails once for long operations; a throttled
        // device counts them twice.
        raw.engine = if long { Engine::Libaio } else { Engine::IoUring };
        let instances = u32::try_from(drives).unwrap_or(u32::MAX);
        found.push(Case { name: raw.name.clone(), job: raw, instances });
    }
    found
}

/// Returns a kind of operation as text, such as "4 KiB random read".
fn shape(job: &Job) -> String {
    let size = human::size(job.block_bytes);
    let order = if job.random { "random" } else { "sequential" };
    let direction = match job.read_percent {
        100 => "read".to_owned(),
        0 => "write".into(),
        reads => format!("{reads}:{}", 100 - reads),
    };
    format!("{size} {order} {direction}")
}

/// Returns all steps in order. `takes_drives` has an element for each target: true if it uses the
/// drives exclusively.
pub fn steps(plan: &RunPlan, takes_drives: &[bool]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    if !plan.drives.is_empty() {
        steps.extend(raw_cases(&plan.scaled.cases, plan.drives.len()).into_iter().map(|case| Step {
            key: format!("{RAW}/{}", case.name),
            repeat: 1,
            kind: StepKind::Raw(case),
        }));
    }
    let targets: Vec<usize> = (0..plan.targets.len()).collect();
    let takes = |target: &&usize| takes_drives.get(**target).copied().unwrap_or(false);
    let (alone, together): (Vec<usize>, Vec<usize>) =
        targets.iter().copied().partition(|target| takes(&target));
    for repeat in 1..=plan.repeats {
        for turn in 0..alone.len() {
            let turn = (turn + repeat as usize - 1) % alone.len();
            for kind in alone.get(turn).into_iter().flat_map(|&target| list(plan, target)) {
                steps.push(step(plan, repeat, kind));
            }
        }
        let lists: Vec<Vec<StepKind>> = together.iter().map(|&target| list(plan, target)).collect();
        for index in 0..lists.iter().map(Vec::len).max().unwrap_or(0) {
            for kind in lists.iter().filter_map(|list| list.get(index)) {
                steps.push(step(plan, repeat, kind.clone()));
            }
        }
    }
    steps
}

/// Returns the steps of one target in a round.
fn list(plan: &RunPlan, target: usize) -> Vec<StepKind> {
    match plan.suite.order {
        Order::Together => (0..plan.scaled.cases.len()).map(|case| StepKind::Case { target, case }).collect(),
        Order::Staggered => vec![StepKind::Blend { target }],
    }
}

fn step(plan: &RunPlan, repeat: u32, kind: StepKind) -> Step {
    let target = |index: &usize| plan.targets.get(*index).map_or("?", |target| target.name.as_str());
    let key = match &kind {
        StepKind::Raw(case) => format!("{RAW}/{}", case.name),
        StepKind::Case { target: index, case } => {
            let case = plan.scaled.cases.get(*case).map_or("?", |case| case.name.as_str());
            format!("{repeat}/{}/{case}", target(index))
        }
        StepKind::Blend { target: index } => format!("{repeat}/{}/all", target(index)),
    };
    Step { key, repeat, kind }
}
