//! Semantic checks of a suite that parses.

use super::{Job, Order, Suite, SuiteError, Workload};

/// Longest operation that fio and the exports support, in bytes.
const BLOCK_MAX: u64 = 64 << 20;
const DEPTH_MAX: u32 = 4096;
const THREADS_MAX: u32 = 1024;
const INSTANCES_MAX: u32 = 1024;
const SECONDS_MAX: f64 = 86_400.0;

pub(super) fn check(suite: &Suite) -> Result<(), SuiteError> {
    let found = head(suite)
        .or_else(|| suite.jobs.iter().find_map(|job| wrong(suite, job)))
        .or_else(|| figures(suite));
    match found {
        None => Ok(()),
        Some(message) => Err(SuiteError::Invalid { suite: suite.name.clone(), message }),
    }
}

fn seconds(value: f64) -> bool {
    value.is_finite() && (0.0..=SECONDS_MAX).contains(&value)
}

fn head(suite: &Suite) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if suite.name.is_empty() || suite.name.len() > 40 || !suite.name.bytes().all(plain) {
        return Some("its name must be 1 to 40 letters, digits or '-'".into());
    }
    if suite.jobs.is_empty() {
        return Some("it contains no jobs".into());
    }
    if suite.instances.is_empty() || suite.instances.iter().any(|count| !(1..=INSTANCES_MAX).contains(count))
    {
        return Some(format!("instances must be 1 to {INSTANCES_MAX}"));
    }
    if !seconds(suite.ramp_s) || !seconds(suite.run_s) || suite.run_s < 1.0 || !seconds(suite.stagger_s) {
        return Some(format!("times must be at most {SECONDS_MAX} s, and run_s at least 1"));
    }
    if suite.jobs.iter().any(|job| job.objects.is_some() != (suite.workload() == Workload::Objects)) {
        return Some("either all jobs have the key 'objects' or none".into());
    }
    if suite.order == Order::Staggered && suite.workload() == Workload::Objects {
        return Some("jobs of objects require the order 'together'".into());
    }
    if !(1..=100).contains(&suite.repeats) {
        return Some("repeats must be 1 to 100".into());
    }
    if suite.order == Order::Staggered && suite.jobs.iter().any(|job| job.degraded) {
        return Some("degraded jobs require the order 'together'".into());
    }
    let twice = |(index, job): (usize, &Job)| {
        let same = |other: &&Job| other.name == job.name && other.profile == job.profile;
        suite
            .jobs
            .iter()
            .take(index)
            .any(|other| same(&other))
            .then(|| format!("duplicate job '{}'", job.name))
    };
    suite.jobs.iter().enumerate().find_map(twice)
}

fn wrong(suite: &Suite, job: &Job) -> Option<String> {
    let name = &job.name;
    if job.block_bytes == 0 || !job.block_bytes.is_multiple_of(512) || job.block_bytes > BLOCK_MAX {
        return Some(format!("job '{name}': invalid block size of {} bytes", job.block_bytes));
    }
    let depths = job.depths.iter().chain([&job.depth]);
    if job.read_percent > 100
        || !(1..=THREADS_MAX).contains(&job.threads)
        || depths.into_iter().any(|depth| !(1..=DEPTH_MAX).contains(depth))
    {
        return Some(format!(
            "job '{name}': read_percent is above 100, or depth or threads are out of range"
        ));
    }
    if let Some(problem) = job.objects.as_ref().and_then(|objects| objects.problem(job)) {
        return Some(format!("job '{name}': {problem}"));
    }
    if job.offset_increment_percent.is_some_and(|percent| percent > 100) {
        return Some(format!("job '{name}': offset_increment_percent is above 100"));
    }
    if let Some(latency) = job.latency {
        let sound = latency.target_ms > 0.0
            && latency.window_s > 0.0
            && (0.0..=100.0).contains(&latency.percentile)
            && latency.target_ms.is_finite()
            && seconds(latency.window_s);
        if !sound {
            return Some(format!("job '{name}': the latency target is out of range"));
        }
    }
    let known = |of: &String| suite.profiles.iter().any(|profile| profile.name == *of);
    match &job.profile {
        Some(profile) if !known(profile) => {
            Some(format!("job '{name}' belongs to profile '{profile}', which is not listed"))
        }
        None if !suite.profiles.is_empty() => {
            Some(format!("job '{name}' belongs to no profile, and the suite has profiles"))
        }
        _ => None,
    }
}

fn figures(suite: &Suite) -> Option<String> {
    let all = suite.published.iter().flat_map(|of| of.figures.iter().map(move |figure| (of, figure)));
    for (published, figure) in all {
        let Some(job) = suite.jobs.iter().find(|job| job.name == figure.job) else {
            return Some(format!("{} has a figure for unknown job '{}'", published.system, figure.job));
        };
        let sides = if job.is_mixed() { 2 } else { 1 };
        if figure.value.len() != sides {
            return Some(format!(
                "{}: '{}' needs {sides} values, not {}",
                published.system,
                job.name,
                figure.value.len()
            ));
        }
    }
    None
}
