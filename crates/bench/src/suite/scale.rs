//! Scales a suite to this machine: one case per job, number of instances and queue depth.
//!
//! Invariant: every difference from the suite is reported.

use serde::{Deserialize, Serialize};

use super::{Job, Suite, SuiteError};

/// The user's reductions of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Factor on durations and sizes.
    pub factor: f64,
    /// Reduce the whole run to less than two minutes.
    pub quick: bool,
    /// Overrides the measured seconds per job.
    pub seconds: Option<f64>,
    /// Overrides the numbers of instances.
    pub instances: Vec<u32>,
    /// Maximum threads per instance.
    pub threads: Option<u32>,
    /// The profile; the first one by default.
    pub profile: Option<String>,
    /// Only jobs whose name contains this text.
    pub only: String,
    /// Processors of the machine.
    pub cpus: u32,
    /// Maximum bytes of the load's buffers.
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

/// One measurement: a job with a number of instances and a queue depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Name, unique within the run.
    pub name: String,
    /// The job, with the depth and the threads of this case.
    pub job: Job,
    /// Number of instances.
    pub instances: u32,
}

/// The measurements of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaledSuite {
    /// The cases, in order; those with a failed drive come last.
    pub cases: Vec<Case>,
    /// Ramp-up in seconds.
    pub ramp_s: f64,
    /// Measured seconds.
    pub run_s: f64,
    /// Seconds between the starts of instances in staggered order.
    pub stagger_s: f64,
    /// Maximum bytes per instance.
    pub instance_bytes: Option<u64>,
    /// The differences from the suite, as text.
    #[serde(alias = "said")]
    pub differences: Vec<String>,
}

/// Measured seconds, and ramp-up, of a quick run.
const QUICK_RUN_S: f64 = 2.0;
const QUICK_RAMP_S: f64 = 1.0;
/// Bytes per instance in a quick run, which must be written first, possibly by slow drives.
const QUICK_BYTES: u64 = 96 << 20;
/// Maximum number of cases in a quick run.
const QUICK_CASES: usize = 12;
/// Clients per thread and objects per client in a quick run of objects.
const QUICK_CLIENTS: u32 = 8;
const QUICK_OBJECTS: u64 = 2;
const RUN_MIN_S: f64 = 2.0;
/// Minimum number of latency-target intervals per measurement.
const WINDOWS_MIN: f64 = 8.0;
const RAMP_MIN_S: f64 = 1.0;
/// Smallest part of a volume for a meaningful measurement, in bytes.
const INSTANCE_MIN: u64 = 64 << 20;

impl Suite {
    /// Returns the cases at a scale.
    ///
    /// # Errors
    /// If no case remains.
    pub fn scaled(&self, scaling: &Scaling) -> Result<ScaledSuite, SuiteError> {
        let invalid = |message| SuiteError::Invalid { suite: self.name.clone(), message };
        let jobs = self.chosen(scaling).map_err(invalid)?;
        let mut changes = Vec::new();
        let instances = self.counts(scaling, &mut changes);
        let mut cases = Vec::new();
        for &count in &instances {
            for job in &jobs {
                let depths = if job.depths.is_empty() { vec![job.depth] } else { job.depths.clone() };
                for depth in depths {
                    let mut job = (*job).clone();
                    job.depth = depth;
                    fit(&mut job, count, scaling, &mut changes);
                    fit_objects(&mut job, count, scaling, &mut changes);
                    cases.push(Case { name: label(&job, depth, count, &instances), job, instances: count });
                }
            }
        }
        let is_objects = self.workload() == super::Workload::Objects;
        // A failed drive is not restored within a run.
        cases.sort_by_key(|case| case.job.degraded);
        if scaling.quick && cases.len() > QUICK_CASES {
            changes.push(format!("{QUICK_CASES} of {} cases, spread over the list", cases.len()));
            cases = spread(cases, QUICK_CASES);
        }
        let (ramp_s, run_s) = self.times(scaling, &mut changes);
        // A dropped case takes its preparation along; the first remaining case prepares the volumes
        // instead.
        if let Some(first) = cases.first_mut().filter(|_| !is_objects) {
            first.job.prepare = Some(super::Prepare::Sequential);
        }
        let mut instance_bytes = self.instance_bytes.map(|bytes| share(bytes, scaling.factor));
        if scaling.quick && !is_objects {
            instance_bytes = Some(instance_bytes.unwrap_or(u64::MAX).min(QUICK_BYTES));
        }
        if let Some(part) = instance_bytes.filter(|_| instance_bytes != self.instance_bytes) {
            let whole =
                self.instance_bytes.map_or("the whole target".into(), |whole| format!("{} MiB", whole >> 20));
            changes.push(format!("{} MiB per instance instead of {whole}", part >> 20));
        }
        changes.dedup();
        fit_windows(&mut cases, run_s, &mut changes);
        let stagger_s = if run_s < self.run_s { self.stagger_s * run_s / self.run_s } else { self.stagger_s };
        Ok(ScaledSuite { cases, ramp_s, run_s, stagger_s, instance_bytes, differences: changes })
    }

    fn chosen(&self, scaling: &Scaling) -> Result<Vec<&Job>, String> {
        let known =
            || self.profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>().join(", ");
        let profile = match &scaling.profile {
            Some(name) if !self.profiles.iter().any(|profile| profile.name == *name) => {
                return Err(format!("it has no profile '{name}'; its profiles are: {}", known()));
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
            return Err(format!("no job name contains '{}'", scaling.only));
        }
        Ok(jobs)
    }

    fn counts(&self, scaling: &Scaling, changes: &mut Vec<String>) -> Vec<u32> {
        let list = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let mut counts =
            if scaling.instances.is_empty() { self.instances.clone() } else { scaling.instances.clone() };
        if scaling.quick && scaling.instances.is_empty() {
            let most = scaling.cpus.saturating_mul(2).max(1);
            counts = counts.iter().map(|count| (*count).min(most)).collect();
            counts.dedup();
        }
        if counts != self.instances {
            changes.push(format!("{} instances instead of {}", list(&counts), list(&self.instances)));
        }
        counts
    }

    fn times(&self, scaling: &Scaling, changes: &mut Vec<String>) -> (f64, f64) {
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
            changes.push(format!(
                "{run} s per job after {ramp} s of ramp-up instead of {} s after {} s",
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

/// Reduces threads, then queue depth, to fit the processors and the memory.
fn fit(job: &mut Job, instances: u32, scaling: &Scaling, changes: &mut Vec<String>) {
    let most = match (scaling.threads, scaling.quick) {
        (Some(threads), _) => threads,
        (None, true) => scaling.cpus,
        (None, false) => u32::MAX,
    };
    let mut note = |before: u32, after: u32, what: String| {
        let change = format!("{after} {what} instead of {before}");
        if before != after && !changes.contains(&change) {
            changes.push(change);
        }
    };
    let (mut threads, mut depth) = (job.threads.min(most).max(1), job.depth);
    note(job.threads, threads, "threads per instance".into());
    job.threads = threads;
    let each = job.objects.as_ref().map_or(job.block_bytes, |objects| objects.sizes(job).mean());
    let bytes =
        |threads: u32, depth: u32| u64::from(threads) * u64::from(depth) * u64::from(instances) * each;
    if scaling.quick && job.objects.is_some() {
        depth = depth.min(QUICK_CLIENTS);
        note(job.depth, depth, "clients per thread".into());
        job.depth = depth;
    }
    while bytes(threads, depth) > scaling.buffer_bytes && threads > 1 {
        threads = threads.div_ceil(2);
    }
    while bytes(threads, depth) > scaling.buffer_bytes && depth > 1 {
        depth = depth.div_ceil(2);
    }
    note(job.threads, threads, format!("threads in '{}' (limited by memory for buffers)", job.name));
    note(job.depth, depth, format!("queue depth in '{}' (limited by memory for buffers)", job.name));
    job.threads = threads;
    job.depth = depth;
}

/// Reduces the number of objects.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fit_objects(job: &mut Job, instances: u32, scaling: &Scaling, changes: &mut Vec<String>) {
    let clients = u64::from(instances) * u64::from(job.threads) * u64::from(job.depth);
    let Some(objects) = &mut job.objects else { return };
    let whole = objects.count;
    let part = (whole as f64 * scaling.factor).ceil() as u64;
    let most = if scaling.quick { clients * QUICK_OBJECTS } else { u64::MAX };
    objects.count = part.min(most).max(clients);
    let change = format!("{} objects instead of {whole}", objects.count);
    if objects.count != whole && !changes.contains(&change) {
        changes.push(change);
    }
}

/// Shortens the latency-target intervals to fit a short measurement.
fn fit_windows(cases: &mut [Case], run_s: f64, changes: &mut Vec<String>) {
    for latency in cases.iter_mut().filter_map(|case| case.job.latency.as_mut()) {
        if latency.window_s * WINDOWS_MIN > run_s {
            let window = run_s / WINDOWS_MIN;
            let change =
                format!("the queue depth is adjusted every {window} s instead of {} s", latency.window_s);
            if !changes.contains(&change) {
                changes.push(change);
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
