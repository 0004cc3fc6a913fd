//! Counters of the kernel, read at one moment: processors, processes, drives, network.
//!
//! Must not know: what is being measured.

use std::collections::BTreeMap;
use std::path::Path;

/// Everything at one moment. All of it only grows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) cpu: Cpu,
    /// Each process: who started it, its name, its ticks.
    pub(super) processes: BTreeMap<u32, Process>,
    /// Each block device, by its name.
    pub(super) drives: BTreeMap<String, Drive>,
    /// Bytes received and sent by all interfaces but the loopback.
    pub(super) network: [u64; 2],
}

/// Ticks of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    /// Doing something.
    pub(super) busy: u64,
    /// Of those, for devices: interrupts.
    pub(super) interrupts: u64,
    /// Taken away by whoever runs this machine.
    pub(super) steal: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) ticks: u64,
}

/// What a drive has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drive {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) read_ms: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) write_ms: u64,
    /// Milliseconds in which it had something to do.
    pub(super) busy_ms: u64,
}

impl Counters {
    /// The counters now, those of drives only for `drives`.
    pub(super) fn read(drives: &[String]) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut all = parse_drives(&text("/proc/diskstats"));
        all.retain(|name, _| drives.contains(name));
        Self {
            cpu: parse_cpu(&text("/proc/stat")),
            processes: processes(),
            drives: all,
            network: parse_network(&text("/proc/net/dev")),
        }
    }
}

/// proc_stat(5).
pub(super) fn parse_cpu(text: &str) -> Cpu {
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    let interrupts = field(5) + field(6);
    Cpu { busy: field(0) + field(1) + field(2) + interrupts, interrupts, steal: field(7) }
}

/// The kernel's Documentation/admin-guide/iostats.rst. Sectors there are always of 512 bytes.
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

/// Bytes of all interfaces but the loopback (proc_net(5)).
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
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: std::fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((
            id,
            parse_process(
                &std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).ok()?,
            )?,
        ))
    };
    entries.filter_map(process).collect()
}

/// proc_pid_stat(5). The name may hold anything, brackets too.
pub(super) fn parse_process(text: &str) -> Option<Process> {
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let parent = u32::try_from(field(4)?).ok()?;
    Some(Process { parent, name, ticks: field(14)? + field(15)? })
}
