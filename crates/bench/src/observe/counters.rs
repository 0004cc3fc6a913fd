//! Kernel counters of processors, processes, drives and network, read at one moment.

use std::collections::BTreeMap;
use std::path::Path;

/// All counters at one moment. Each counter only grows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) cpu: Cpu,
    /// Processes by id: parent, name and ticks.
    pub(super) processes: BTreeMap<u32, Process>,
    /// Ticks of the threads of observed processes, by process and thread.
    pub(super) threads: BTreeMap<(u32, u32), u64>,
    /// Block devices by name.
    pub(super) drives: BTreeMap<String, Drive>,
    /// Bytes received and sent by all interfaces except loopback.
    pub(super) network: [u64; 2],
}

/// Ticks of all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    /// Busy ticks.
    pub(super) busy: u64,
    /// Busy ticks spent in interrupts.
    pub(super) interrupts: u64,
    /// Ticks stolen by the hypervisor.
    pub(super) steal: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) ticks: u64,
}

/// I/O counters of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drive {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) read_ms: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) write_ms: u64,
    /// Milliseconds with I/O in flight.
    pub(super) busy_ms: u64,
}

impl Counters {
    /// Reads the counters now: those of drives for `drives` only, and those of threads for the
    /// processes that `has_threads` selects.
    pub(super) fn read(drives: &[String], has_threads: impl Fn(&Self, u32) -> bool) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut all = parse_drives(&text("/proc/diskstats"));
        all.retain(|name, _| drives.contains(name));
        let mut counters = Self {
            cpu: parse_cpu(&text("/proc/stat")),
            processes: processes(),
            threads: BTreeMap::new(),
            drives: all,
            network: parse_network(&text("/proc/net/dev")),
        };
        let ids = counters.processes.keys().copied();
        let observed: Vec<u32> = ids.filter(|id| has_threads(&counters, *id)).collect();
        counters.threads = observed.into_iter().flat_map(threads).collect();
        counters
    }
}

/// Parses /proc/stat (proc_stat(5)).
pub(super) fn parse_cpu(text: &str) -> Cpu {
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    let interrupts = field(5) + field(6);
    Cpu { busy: field(0) + field(1) + field(2) + interrupts, interrupts, steal: field(7) }
}

/// Parses /proc/diskstats (the kernel's Documentation/admin-guide/iostats.rst). Sectors are always
/// of 512 bytes.
pub(super) fn parse_drives(text: &str) -> BTreeMap<String, Drive> {
    let line = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?.to_owned();
        let fields: Vec<u64> = words.filter_map(|field| field.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        let drive = Drive {
            reads: field(0),
            read_bytes: field(2) * 512,
            read_ms: field(3),
            writes: field(4),
            written_bytes: field(6) * 512,
            write_ms: field(7),
            busy_ms: field(9),
        };
        Some((name, drive))
    };
    text.lines().filter_map(line).collect()
}

/// Parses /proc/net/dev: bytes of all interfaces except loopback (proc_net(5)).
pub(super) fn parse_network(text: &str) -> [u64; 2] {
    let mut sum = [0, 0];
    for line in text.lines() {
        let Some((name, fields)) = line.split_once(':') else { continue };
        let fields: Vec<u64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        if let (Some(received), Some(sent)) = (fields.first(), fields.get(8))
            && name.trim() != "lo"
        {
            let [all_received, all_sent] = &mut sum;
            *all_received += received;
            *all_sent += sent;
        }
    }
    sum
}

fn processes() -> BTreeMap<u32, Process> {
    tasks(Path::new("/proc"))
}

/// Returns the ticks of each thread of a process.
fn threads(process: u32) -> impl Iterator<Item = ((u32, u32), u64)> {
    let threads = tasks(&Path::new("/proc").join(process.to_string()).join("task"));
    threads.into_iter().map(move |(thread, task)| ((process, thread), task.ticks))
}

/// Returns the processes or threads with a folder in `folder`.
fn tasks(folder: &Path) -> BTreeMap<u32, Process> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let task = |entry: std::fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((id, parse_process(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?))
    };
    entries.filter_map(task).collect()
}

/// Parses /proc/PID/stat (proc_pid_stat(5)). The name may contain any character, including
/// brackets.
pub(super) fn parse_process(text: &str) -> Option<Process> {
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let parent = u32::try_from(field(4)?).ok()?;
    Some(Process { parent, name, ticks: field(14)? + field(15)? })
}
