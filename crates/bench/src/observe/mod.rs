//! Observes the machine during a measurement: processor use by process, the work of each drive, and
//! disturbances by other programs.

mod counters;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use counters::{Counters, Drive};
use serde::{Deserialize, Serialize};

/// Sampling interval.
const INTERVAL: Duration = Duration::from_millis(500);
/// Maximum share of the machine that other programs may use in an undisturbed measurement.
const OTHERS_MAX: f64 = 0.05;
/// Maximum steal time of an undisturbed measurement, as a share of the machine.
const STEAL_MAX: f64 = 0.02;

/// The processes and drives to observe.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Processes of the measured system and of the load, by kind; their children count for the same
    /// kind.
    pub processes: Vec<(String, u32)>,
    /// Block devices.
    pub drives: Vec<PathBuf>,
    /// The kind of this process.
    pub here: String,
}

/// The result of an observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Observed seconds.
    pub seconds: f64,
    /// Processors of the machine.
    pub cpus: u32,
    /// Processors in use, in total.
    pub cpu_busy: f64,
    /// Processors in use by each kind of process; `kernel` is kernel threads and interrupts,
    /// `others` is all programs unrelated to the measurement.
    pub cpu: BTreeMap<String, f64>,
    /// Share of a processor that the busiest thread of each kind of process uses, except `kernel`
    /// and `others`; empty in results of releases that did not observe threads.
    #[serde(default)]
    pub busiest_thread: BTreeMap<String, f64>,
    /// Stolen processors.
    pub cpu_steal: f64,
    /// The drives, in the order of the watch.
    pub drives: Vec<DriveWork>,
    /// Bytes received and sent per second, except loopback.
    pub network: [f64; 2],
    /// Disturbances, as text; empty if there were none.
    pub disturbed: Vec<String>,
}

impl Observation {
    /// Returns the mean latencies of reads and writes of all drives in milliseconds, and their mean
    /// utilisation in percent; `None` without observed drives.
    pub fn drive_means(&self) -> Option<[f64; 3]> {
        let drives = &self.drives;
        let count = u32::try_from(drives.len()).ok().filter(|count| *count > 0)?;
        let sum = |value: fn(&DriveWork) -> f64| drives.iter().map(value).sum::<f64>();
        let mean =
            |total: f64, operations: f64| if operations > 0.0 { total / operations / 1e3 } else { 0.0 };
        Some([
            mean(sum(|one| one.read_us * one.read_iops), sum(|one| one.read_iops)),
            mean(sum(|one| one.write_us * one.write_iops), sum(|one| one.write_iops)),
            sum(|one| one.utilisation) / f64::from(count) * 100.0,
        ])
    }
}

/// The work of a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveWork {
    /// Name.
    pub name: String,
    /// Reads per second.
    pub read_iops: f64,
    /// Bytes read per second.
    pub read_bps: f64,
    /// Mean read latency in microseconds.
    pub read_us: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// Bytes written per second.
    pub write_bps: f64,
    /// Mean write latency in microseconds.
    pub write_us: f64,
    /// Share of the time with I/O in flight.
    pub utilisation: f64,
    /// Reads and writes per second, for each sampling interval.
    pub timeline: Vec<[f64; 2]>,
}

/// Samples the machine on a thread until it is stopped.
pub struct Observer {
    watch: Watch,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Instant, Counters)>>,
}

impl Observer {
    /// Starts sampling.
    pub fn start(watch: Watch) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let names: Vec<String> = watch.drives.iter().map(|path| drive_name(path)).collect();
        let (shared, of_start) = (stop.clone(), watch.clone());
        let thread = std::thread::spawn(move || {
            // A process that is watched later is a child of this one.
            let has_threads = |counters: &Counters, id| is_own(&kind(&of_start, counters, id));
            let mut samples = Vec::new();
            loop {
                samples.push((Instant::now(), Counters::read(&names, has_threads)));
                if shared.load(Ordering::Relaxed) {
                    return samples;
                }
                std::thread::park_timeout(INTERVAL);
            }
        });
        Self { watch, stop, thread }
    }

    /// Adds a process that started later.
    pub fn watch(&mut self, kind: &str, process: u32) {
        self.watch.processes.push((kind.into(), process));
    }

    /// Returns the observation of the last `seconds` before `ended` in which all watched processes
    /// lived, or of the whole time if that is shorter.
    pub fn finish(self, seconds: f64, ended: Option<Instant>) -> Observation {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let mut samples = self.thread.join().unwrap_or_default();
        cut(&self.watch, &mut samples, ended);
        let Some((end, _)) = samples.last() else { return Observation::default() };
        let begin = end.checked_sub(Duration::from_secs_f64(seconds.max(0.0)));
        let within = |at: Instant| begin.is_none_or(|begin| at >= begin);
        summarise(&self.watch, &samples_within(&samples, within))
    }

    /// Returns the observation between two times, in seconds from the first sample.
    pub fn between(self, begin: f64, end: f64) -> Observation {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let samples = self.thread.join().unwrap_or_default();
        let Some((first, _)) = samples.first() else { return Observation::default() };
        let within = |at: Instant| {
            let seconds = (at - *first).as_secs_f64();
            seconds >= begin && seconds <= end
        };
        summarise(&self.watch, &samples_within(&samples, within))
    }
}

/// Drops samples after the end of a watched process or of the load.
fn cut(watch: &Watch, samples: &mut Vec<(Instant, Counters)>, ended: Option<Instant>) {
    // The time of a process that has exited is known only up to its last sample.
    let lives = |counters: &Counters| {
        watch.processes.iter().all(|(_, process)| counters.processes.contains_key(process))
    };
    let counts = |look: &(Instant, Counters)| ended.is_none_or(|ended| look.0 <= ended) && lives(&look.1);
    if let Some(last) = samples.iter().rposition(counts).filter(|last| *last > 0) {
        samples.truncate(last + 1);
    }
}

/// Returns the samples within a time; all of them if those are too few to compare.
fn samples_within(
    samples: &[(Instant, Counters)],
    within: impl Fn(Instant) -> bool,
) -> Vec<&(Instant, Counters)> {
    let some: Vec<&(Instant, Counters)> = samples.iter().filter(|(at, _)| within(*at)).collect();
    if some.len() < 2 { samples.iter().collect() } else { some }
}

/// Returns the kernel's name of a device.
fn drive_name(path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[allow(clippy::cast_precision_loss)]
fn summarise(watch: &Watch, samples: &[&(Instant, Counters)]) -> Observation {
    let (Some((begin, first)), Some((end, last))) = (samples.first(), samples.last()) else {
        return Observation::default();
    };
    let seconds = (*end - *begin).as_secs_f64().max(1e-3);
    let hz = rustix::param::clock_ticks_per_second() as f64;
    let cores = |ticks: u64| ticks as f64 / hz / seconds;
    let cpus = u32::try_from(std::thread::available_parallelism().map_or(1, usize::from)).unwrap_or(1);
    let busy = cores(last.cpu.busy.saturating_sub(first.cpu.busy));
    let mut cpu = by_kind(watch, first, last, &cores);
    // Processes that lived only between two samples have no entry.
    let interrupts = cores(last.cpu.interrupts.saturating_sub(first.cpu.interrupts));
    *cpu.entry(KERNEL_KIND.into()).or_insert(0.0) += interrupts;
    let known: f64 = cpu.iter().filter(|(kind, _)| *kind != OTHERS_KIND).map(|(_, used)| used).sum();
    let others = cpu.entry(OTHERS_KIND.into()).or_insert(0.0);
    *others = others.max(busy - known).max(0.0);
    let (others, steal) = (*others, cores(last.cpu.steal.saturating_sub(first.cpu.steal)));
    let mut disturbed = Vec::new();
    if others > OTHERS_MAX * f64::from(cpus) {
        disturbed.push(format!("other programs used {others:.2} of {cpus} processors"));
    }
    if steal > STEAL_MAX * f64::from(cpus) {
        disturbed.push(format!("the hypervisor stole {steal:.2} of {cpus} processors"));
    }
    let network = |index: usize| {
        let of = |counters: &Counters| counters.network.get(index).copied().unwrap_or(0);
        of(last).saturating_sub(of(first)) as f64 / seconds
    };
    Observation {
        seconds,
        cpus,
        // The two counters are read at different moments.
        cpu_busy: busy.max(known),
        cpu,
        busiest_thread: busiest_threads(watch, first, last, &cores),
        cpu_steal: steal,
        drives: watch.drives.iter().map(|path| drive_work(&drive_name(path), samples)).collect(),
        network: [network(0), network(1)],
        disturbed,
    }
}

/// Returns the processors in use by each kind of process.
fn by_kind(
    watch: &Watch,
    first: &Counters,
    last: &Counters,
    cores: &impl Fn(u64) -> f64,
) -> BTreeMap<String, f64> {
    let mut used = BTreeMap::<String, f64>::new();
    for (id, process) in &last.processes {
        let before = first.processes.get(id).map_or(0, |before| before.ticks);
        let kind = kind(watch, last, *id);
        *used.entry(kind).or_insert(0.0) += cores(process.ticks.saturating_sub(before));
    }
    used
}

/// Returns the processors in use by the busiest thread of each kind of process.
fn busiest_threads(
    watch: &Watch,
    first: &Counters,
    last: &Counters,
    cores: &impl Fn(u64) -> f64,
) -> BTreeMap<String, f64> {
    let mut busiest = BTreeMap::<String, f64>::new();
    for (thread @ (process, _), ticks) in &last.threads {
        let before = first.threads.get(thread).copied().unwrap_or(0);
        let used = cores(ticks.saturating_sub(before));
        let of_kind = busiest.entry(kind(watch, last, *process)).or_insert(0.0);
        *of_kind = of_kind.max(used);
    }
    busiest.retain(|kind, _| is_own(kind));
    busiest
}

/// True for the kinds of processes of the measurement.
fn is_own(kind: &str) -> bool {
    kind != KERNEL_KIND && kind != OTHERS_KIND
}

/// The kind of kernel threads and interrupts.
const KERNEL_KIND: &str = "kernel";
/// The kind of programs unrelated to the measurement.
const OTHERS_KIND: &str = "others";
/// The parent of all kernel threads.
const KERNEL: u32 = 2;

/// Returns the kind of a process: that of its nearest watched ancestor.
fn kind(watch: &Watch, counters: &Counters, id: u32) -> String {
    let mut id = id;
    let mut seen = BTreeSet::new();
    while seen.insert(id) {
        if id == KERNEL {
            return KERNEL_KIND.into();
        }
        if id == std::process::id() {
            // Any other child of this process belongs to the load.
            return if seen.len() > 1 { "load".into() } else { watch.here.clone() };
        }
        if let Some((kind, _)) = watch.processes.iter().find(|(_, watched)| *watched == id) {
            return kind.clone();
        }
        match counters.processes.get(&id) {
            Some(process) => id = process.parent,
            None => break,
        }
    }
    OTHERS_KIND.into()
}

#[allow(clippy::cast_precision_loss)]
fn drive_work(name: &str, samples: &[&(Instant, Counters)]) -> DriveWork {
    let of = |look: &(Instant, Counters)| look.1.drives.get(name).copied().unwrap_or_default();
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return DriveWork::default() };
    let seconds = (last.0 - first.0).as_secs_f64().max(1e-3);
    let (before, after) = (of(first), of(last));
    let grown = |pick: fn(&Drive) -> u64| pick(&after).saturating_sub(pick(&before)) as f64;
    let mean_us = |milliseconds: f64, operations: f64| {
        if operations > 0.0 { milliseconds * 1000.0 / operations } else { 0.0 }
    };
    let (reads, writes) = (grown(|drive| drive.reads), grown(|drive| drive.writes));
    let timeline = samples.iter().zip(samples.iter().skip(1)).map(|(left, right)| {
        let seconds = (right.0 - left.0).as_secs_f64().max(1e-3);
        let (before, after) = (of(left), of(right));
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds).round();
        [rate(after.reads, before.reads), rate(after.writes, before.writes)]
    });
    DriveWork {
        name: name.into(),
        read_iops: reads / seconds,
        read_bps: grown(|drive| drive.read_bytes) / seconds,
        read_us: mean_us(grown(|drive| drive.read_ms), reads),
        write_iops: writes / seconds,
        write_bps: grown(|drive| drive.written_bytes) / seconds,
        write_us: mean_us(grown(|drive| drive.write_ms), writes),
        utilisation: (grown(|drive| drive.busy_ms) / 1000.0 / seconds).min(1.0),
        timeline: timeline.collect(),
    }
}
