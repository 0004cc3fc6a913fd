//! The order of a run's measurements: pure.
//!
//! The drives themselves come first. Then round after round: within one, systems that can stand side by side take turns
//! at each case; those that take the drives for themselves take turns at the whole list, beginning with another one each
//! round, so that a drift of the machine does not favour one of them.

use serde::{Deserialize, Serialize};

use super::RunPlan;
use crate::human;
use crate::suite::{Case, Engine, Job, Order};

/// The target's name of measurements of the drives themselves.
pub const RAW: &str = "drives";
/// Operations that each drive is given to do at a time.
const RAW_DEPTH: u32 = 32;
/// The same for long operations.
const RAW_DEPTH_LONG: u32 = 8;
const LONG: u64 = 256 << 10;
/// Longest operation that drives are measured with: beyond it only bytes count, and what is under way takes long to end.
const RAW_BLOCK_MAX: u64 = 1 << 20;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name, by which it is known to be done.
    pub key: String,
    /// Which time, from 1.
    pub repeat: u32,
    /// What.
    pub kind: StepKind,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepKind {
    /// The drives themselves, all at once.
    Raw(Case),
    /// A case on a target.
    Case {
        /// Which target.
        target: usize,
        /// Which case.
        case: usize,
    },
    /// All cases on a target, each instance by itself.
    Blend {
        /// Which target.
        target: usize,
    },
}

/// What the drives themselves are measured with: each kind of operation of the cases once.
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
        raw.offset_increment_percent = None;
        // io_uring asks the kernel not to wait, which long operations are refused for once: a throttled device counts
        // them twice.
        raw.engine = if long { Engine::Libaio } else { Engine::IoUring };
        let instances = u32::try_from(drives).unwrap_or(u32::MAX);
        found.push(Case { name: raw.name.clone(), job: raw, instances });
    }
    found
}

/// A kind of operation in words, as "4 KiB random read".
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

/// Everything that a run does, in order. `takes_drives` says of each target whether it takes the drives for itself.
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

/// What one target has to do in a round.
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
