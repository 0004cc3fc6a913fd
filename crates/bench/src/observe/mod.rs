//! What the machine does while something is measured: who uses its processors, what each drive does, whether somebody
//! else disturbs.
//!
//! Must not know: what is being measured, beyond the names of its processes and drives.

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

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Share of the machine that others may use before a measurement counts as disturbed.
const OTHERS_MAX: f64 = 0.05;
/// Share that may be taken away by whoever runs the machine.
const STEAL_MAX: f64 = 0.02;

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Processes of the system that is measured and of the load, by what they are; their children count for them.
    pub processes: Vec<(String, u32)>,
    /// Block devices.
    pub drives: Vec<PathBuf>,
    /// What this process is.
    pub here: String,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Seconds that it covers.
    pub seconds: f64,
    /// Processors of the machine.
    pub cpus: u32,
    /// Processors in use, altogether.
    pub cpu_busy: f64,
    /// Processors in use by each kind of process; `kernel` are its own threads and interrupts, `others` is all that has
    /// nothing to do with the measurement.
    pub cpu: BTreeMap<String, f64>,
    /// Processors that were taken away.
    pub cpu_steal: f64,
    /// Each drive, in the order of the watch.
    pub drives: Vec<DriveWork>,
    /// Bytes received and sent a second, loopback left out.
    pub network: [f64; 2],
    /// What disturbed, for people; nothing if nothing did.
    pub disturbed: Vec<String>,
}

/// What a drive did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveWork {
    /// Its name.
    pub name: String,
    /// Reads a second.
    pub read_iops: f64,
    /// Bytes read a second.
    pub read_bps: f64,
    /// Mean time of a read in microseconds.
    pub read_us: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes written a second.
    pub write_bps: f64,
    /// Mean time of a write in microseconds.
    pub write_us: f64,
    /// Share of the time in which it had something to do.
    pub utilisation: f64,
    /// Reads and writes a second, look by look.
    pub timeline: Vec<[f64; 2]>,
}

/// Looks at the machine until it is told to stop.
pub struct Observer {
    watch: Watch,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Instant, Counters)>>,
}

impl Observer {
    /// Begins to look.
    pub fn start(watch: Watch) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let names: Vec<String> = watch.drives.iter().map(|path| drive_name(path)).collect();
        let shared = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut looks = Vec::new();
            loop {
                looks.push((Instant::now(), Counters::read(&names)));
                if shared.load(Ordering::Relaxed) {
                    return looks;
                }
                std::thread::park_timeout(INTERVAL);
            }
        });
        Self { watch, stop, thread }
    }

    /// Counts a process that began later.
    pub fn watch(&mut self, kind: &str, process: u32) {
        self.watch.processes.push((kind.into(), process));
    }

    /// What was seen in the last `seconds` in which all watched processes lived, and before `ended`, or in all the time if that
    /// is less.
    pub fn finish(self, seconds: f64, ended: Option<Instant>) -> Observation {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let mut looks = self.thread.join().unwrap_or_default();
        cut(&self.watch, &mut looks, ended);
        let Some((end, _)) = looks.last() else { return Observation::default() };
        let begin = end.checked_sub(Duration::from_secs_f64(seconds.max(0.0)));
        let within = |at: Instant| begin.is_none_or(|begin| at >= begin);
        summarise(&self.watch, &those(&looks, within))
    }

    /// What was seen between two moments, in seconds from the first look on.
    pub fn between(self, begin: f64, end: f64) -> Observation {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let looks = self.thread.join().unwrap_or_default();
        let Some((first, _)) = looks.first() else { return Observation::default() };
        let within = |at: Instant| {
            let seconds = (at - *first).as_secs_f64();
            seconds >= begin && seconds <= end
        };
        summarise(&self.watch, &those(&looks, within))
    }
}

/// Leaves looks out from which on not everything went on any more.
fn cut(watch: &Watch, looks: &mut Vec<(Instant, Counters)>, ended: Option<Instant>) {
    // The time of a process that has ended is known only up to the last look at it.
    let lives = |counters: &Counters| {
        watch.processes.iter().all(|(_, process)| counters.processes.contains_key(process))
    };
    let counts = |look: &(Instant, Counters)| ended.is_none_or(|ended| look.0 <= ended) && lives(&look.1);
    if let Some(last) = looks.iter().rposition(counts).filter(|last| *last > 0) {
        looks.truncate(last + 1);
    }
}

/// The looks within a time; all of them if those are too few to compare.
fn those(looks: &[(Instant, Counters)], within: impl Fn(Instant) -> bool) -> Vec<&(Instant, Counters)> {
    let some: Vec<&(Instant, Counters)> = looks.iter().filter(|(at, _)| within(*at)).collect();
    if some.len() < 2 { looks.iter().collect() } else { some }
}

/// The name under which the kernel counts for a device.
fn drive_name(path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[allow(clippy::cast_precision_loss)]
fn summarise(watch: &Watch, looks: &[&(Instant, Counters)]) -> Observation {
    let (Some((begin, first)), Some((end, last))) = (looks.first(), looks.last()) else {
        return Observation::default();
    };
    let seconds = (*end - *begin).as_secs_f64().max(1e-3);
    let hz = rustix::param::clock_ticks_per_second() as f64;
    let cores = |ticks: u64| ticks as f64 / hz / seconds;
    let cpus = u32::try_from(std::thread::available_parallelism().map_or(1, usize::from)).unwrap_or(1);
    let busy = cores(last.cpu.busy.saturating_sub(first.cpu.busy));
    let mut cpu = by_kind(watch, first, last, &cores);
    // What came and went between two looks has no process to count for.
    let interrupts = cores(last.cpu.interrupts.saturating_sub(first.cpu.interrupts));
    *cpu.entry("kernel".into()).or_insert(0.0) += interrupts;
    let known: f64 = cpu.iter().filter(|(kind, _)| *kind != "others").map(|(_, used)| used).sum();
    let others = cpu.entry("others".into()).or_insert(0.0);
    *others = others.max(busy - known).max(0.0);
    let (others, steal) = (*others, cores(last.cpu.steal.saturating_sub(first.cpu.steal)));
    let mut disturbed = Vec::new();
    if others > OTHERS_MAX * f64::from(cpus) {
        disturbed.push(format!("other programs used {others:.2} of {cpus} processors"));
    }
    if steal > STEAL_MAX * f64::from(cpus) {
        disturbed.push(format!("the host took {steal:.2} of {cpus} processors away"));
    }
    let network = |index: usize| {
        let of = |counters: &Counters| counters.network.get(index).copied().unwrap_or(0);
        of(last).saturating_sub(of(first)) as f64 / seconds
    };
    Observation {
        seconds,
        cpus,
        // The two are counted at different moments.
        cpu_busy: busy.max(known),
        cpu,
        cpu_steal: steal,
        drives: watch.drives.iter().map(|path| drive_work(&drive_name(path), looks)).collect(),
        network: [network(0), network(1)],
        disturbed,
    }
}

/// Processors in use by each kind of process.
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

/// The parent of the kernel's own threads.
const KERNEL: u32 = 2;

/// What a process is: the nearest of those that start processes and are watched.
fn kind(watch: &Watch, counters: &Counters, id: u32) -> String {
    let mut id = id;
    let mut seen = BTreeSet::new();
    while seen.insert(id) {
        if id == KERNEL {
            return "kernel".into();
        }
        if id == std::process::id() {
            // Whatever else we have started is load.
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
    "others".into()
}

#[allow(clippy::cast_precision_loss)]
fn drive_work(name: &str, looks: &[&(Instant, Counters)]) -> DriveWork {
    let of = |look: &(Instant, Counters)| look.1.drives.get(name).copied().unwrap_or_default();
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return DriveWork::default() };
    let seconds = (last.0 - first.0).as_secs_f64().max(1e-3);
    let (before, after) = (of(first), of(last));
    let grown = |pick: fn(&Drive) -> u64| pick(&after).saturating_sub(pick(&before)) as f64;
    let mean_us = |milliseconds: f64, operations: f64| {
        if operations > 0.0 { milliseconds * 1000.0 / operations } else { 0.0 }
    };
    let (reads, writes) = (grown(|drive| drive.reads), grown(|drive| drive.writes));
    let timeline = looks.iter().zip(looks.iter().skip(1)).map(|(left, right)| {
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
