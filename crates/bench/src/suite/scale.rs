//! From a suite to what is run here: one case for each job, count of instances and depth, at a scale that fits the machine.
//!
//! Always true: whatever differs from the suite is said.

use serde::{Deserialize, Serialize};

use super::{Job, Suite, SuiteError};

/// What a user makes smaller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Share of the durations and sizes.
    pub factor: f64,
    /// Under two minutes altogether.
    pub quick: bool,
    /// Seconds that a job is measured, instead.
    pub seconds: Option<f64>,
    /// Counts of instances, instead.
    pub instances: Vec<u32>,
    /// Threads of an instance, at most.
    pub threads: Option<u32>,
    /// The profile; the first without one.
    pub profile: Option<String>,
    /// Only jobs whose name contains this.
    pub only: String,
    /// Processors of the machine.
    pub cpus: u32,
    /// Bytes that the load's buffers may take.
    pub buffer_bytes: u64,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            factor: 1.0,
            quick: false,
            seconds: None,
            instances: Vec::new(),
            threads: None,
            profile: None,
            only: String::new(),
            cpus: 1,
            buffer_bytes: u64::MAX,
        }
    }
}

/// One measurement: a job with a count of instances and a depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Its name, which no other case of the run has.
    pub name: String,
    /// What is done, with the depth and the threads of this case.
    pub job: Job,
    /// By how many.
    pub instances: u32,
}

/// What is run here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaled {
    /// The measurements, in their order; those with a drive lost come last.
    pub cases: Vec<Case>,
    /// Seconds of load before each.
    pub ramp_s: f64,
    /// Seconds that each takes.
    pub run_s: f64,
    /// Seconds between the beginnings of instances that go their own ways.
    pub stagger_s: f64,
    /// Bytes that each instance works on, at most.
    pub instance_bytes: Option<u64>,
    /// What differs from the suite, for people.
    pub said: Vec<String>,
}

/// Seconds of a measurement, and before it, when it is to be quick.
const QUICK_RUN_S: f64 = 2.0;
const QUICK_RAMP_S: f64 = 1.0;
/// Bytes that an instance works on then: they are written first, by drives that may be slow.
const QUICK_BYTES: u64 = 96 << 20;
/// Cases of a quick run, at most.
const QUICK_CASES: usize = 12;
const RUN_MIN_S: f64 = 2.0;
/// Windows that a measurement with a latency target should have.
const WINDOWS_MIN: f64 = 8.0;
const RAMP_MIN_S: f64 = 1.0;
/// Smallest share of a volume that is worth a measurement.
const INSTANCE_MIN: u64 = 64 << 20;

impl Suite {
    /// What is run of it at a scale.
    ///
    /// # Errors
    /// When nothing is left.
    pub fn scaled(&self, scaling: &Scaling) -> Result<Scaled, SuiteError> {
        let invalid = |message| SuiteError::Invalid { suite: self.name.clone(), message };
        let jobs = self.chosen(scaling).map_err(invalid)?;
        let mut said = Vec::new();
        let instances = self.counts(scaling, &mut said);
        let mut cases = Vec::new();
        for &count in &instances {
            for job in &jobs {
                let depths = if job.depths.is_empty() { vec![job.depth] } else { job.depths.clone() };
                for depth in depths {
                    let mut job = (*job).clone();
                    job.depth = depth;
                    fit(&mut job, count, scaling, &mut said);
                    cases.push(Case { name: label(&job, depth, count, &instances), job, instances: count });
                }
            }
        }
        // A lost drive does not come back within a run.
        cases.sort_by_key(|case| case.job.degraded);
        if scaling.quick && cases.len() > QUICK_CASES {
            said.push(format!("{QUICK_CASES} of {} cases, spread over the list", cases.len()));
            cases = spread(cases, QUICK_CASES);
        }
        let (ramp_s, run_s) = self.times(scaling, &mut said);
        // What is left out takes its preparation along, unless the first case has it.
        if let Some(first) = cases.first_mut() {
            first.job.prepare = Some(super::Prepare::Sequential);
        }
        let mut instance_bytes = self.instance_bytes.map(|bytes| share(bytes, scaling.factor));
        if scaling.quick {
            instance_bytes = Some(instance_bytes.unwrap_or(u64::MAX).min(QUICK_BYTES));
        }
        if let Some(part) = instance_bytes.filter(|_| instance_bytes != self.instance_bytes) {
            let whole =
                self.instance_bytes.map_or("all there is".into(), |whole| format!("{} MiB", whole >> 20));
            said.push(format!("{} MiB for each instance instead of {whole}", part >> 20));
        }
        said.dedup();
        fit_windows(&mut cases, run_s, &mut said);
        let stagger_s = if run_s < self.run_s { self.stagger_s * run_s / self.run_s } else { self.stagger_s };
        Ok(Scaled { cases, ramp_s, run_s, stagger_s, instance_bytes, said })
    }

    fn chosen(&self, scaling: &Scaling) -> Result<Vec<&Job>, String> {
        let known =
            || self.profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>().join(", ");
        let profile = match &scaling.profile {
            Some(name) if !self.profiles.iter().any(|profile| profile.name == *name) => {
                return Err(format!("it has no profile '{name}' (it has: {})", known()));
            }
            Some(name) => Some(name),
            None => self.profiles.first().map(|profile| &profile.name),
        };
        let jobs: Vec<&Job> = self
            .jobs
            .iter()
            .filter(|job| job.profile.as_ref() == profile && job.name.contains(&scaling.only))
            .collect();
        if jobs.is_empty() {
            return Err(format!("no job's name contains '{}'", scaling.only));
        }
        Ok(jobs)
    }

    fn counts(&self, scaling: &Scaling, said: &mut Vec<String>) -> Vec<u32> {
        let list = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let mut counts =
            if scaling.instances.is_empty() { self.instances.clone() } else { scaling.instances.clone() };
        if scaling.quick && scaling.instances.is_empty() {
            let most = scaling.cpus.saturating_mul(2).max(1);
            counts = counts.iter().map(|count| (*count).min(most)).collect();
            counts.dedup();
        }
        if counts != self.instances {
            said.push(format!("{} instances instead of {}", list(&counts), list(&self.instances)));
        }
        counts
    }

    fn times(&self, scaling: &Scaling, said: &mut Vec<String>) -> (f64, f64) {
        let (ramp, run) = match (scaling.seconds, scaling.quick) {
            (Some(seconds), _) => ((seconds / 4.0).clamp(RAMP_MIN_S, self.ramp_s.max(RAMP_MIN_S)), seconds),
            (None, true) => (QUICK_RAMP_S, QUICK_RUN_S),
            (None, false) => {
                ((self.ramp_s * scaling.factor).max(RAMP_MIN_S), (self.run_s * scaling.factor).max(RUN_MIN_S))
            }
        };
        // fio takes whole seconds.
        let (ramp, run) = (ramp.round().max(1.0), run.round().max(1.0));
        if (ramp, run) != (self.ramp_s, self.run_s) {
            said.push(format!(
                "{run} s a job after {ramp} s of load instead of {} s after {} s",
                self.run_s, self.ramp_s
            ));
        }
        (ramp, run)
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn share(bytes: u64, factor: f64) -> u64 {
    let part = (bytes as f64 * factor) as u64;
    part.max(INSTANCE_MIN).min(bytes) >> 20 << 20
}

/// Fewer threads, and then fewer operations under way, where machine or memory ask for it.
fn fit(job: &mut Job, instances: u32, scaling: &Scaling, said: &mut Vec<String>) {
    let most = match (scaling.threads, scaling.quick) {
        (Some(threads), _) => threads,
        (None, true) => scaling.cpus,
        (None, false) => u32::MAX,
    };
    let mut note = |before: u32, after: u32, what: String| {
        let said_so = format!("{after} {what} instead of {before}");
        if before != after && !said.contains(&said_so) {
            said.push(said_so);
        }
    };
    let (mut threads, mut depth) = (job.threads.min(most).max(1), job.depth);
    note(job.threads, threads, "threads an instance".into());
    job.threads = threads;
    let bytes = |threads: u32, depth: u32| {
        u64::from(threads) * u64::from(depth) * u64::from(instances) * job.block_bytes
    };
    while bytes(threads, depth) > scaling.buffer_bytes && threads > 1 {
        threads = threads.div_ceil(2);
    }
    while bytes(threads, depth) > scaling.buffer_bytes && depth > 1 {
        depth = depth.div_ceil(2);
    }
    note(job.threads, threads, format!("threads in '{}' (its buffers would not fit into memory)", job.name));
    note(job.depth, depth, format!("operations under way in '{}' (likewise)", job.name));
    job.threads = threads;
    job.depth = depth;
}

/// Windows in which a latency is to be kept, where a short measurement would hardly have one.
fn fit_windows(cases: &mut [Case], run_s: f64, said: &mut Vec<String>) {
    for latency in cases.iter_mut().filter_map(|case| case.job.latency.as_mut()) {
        if latency.window_s * WINDOWS_MIN > run_s {
            let window = run_s / WINDOWS_MIN;
            let said_so = format!("the depth is changed every {window} s instead of {} s", latency.window_s);
            if !said.contains(&said_so) {
                said.push(said_so);
            }
            latency.window_s = window;
        }
    }
}

fn label(job: &Job, depth: u32, count: u32, counts: &[u32]) -> String {
    let mut name = job.name.clone();
    if counts.len() > 1 {
        name.push_str(&format!(", {count} instance{}", if count == 1 { "" } else { "s" }));
    }
    if !job.depths.is_empty() {
        name.push_str(&format!(", depth {depth}"));
    }
    name
}

/// As many, evenly spread, the first and the last among them.
fn spread(cases: Vec<Case>, count: usize) -> Vec<Case> {
    let last = cases.len().saturating_sub(1);
    let wanted: Vec<usize> = (0..count).map(|index| index * last / (count - 1).max(1)).collect();
    cases.into_iter().enumerate().filter(|(index, _)| wanted.contains(index)).map(|(_, case)| case).collect()
}
