//! Starting a machine: QEMU standing still, its processors put where they belong, and go.
//!
//! Always true: when it fails, no process is left, and the error has QEMU's own words.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::Mode;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

use crate::accelerator::{Accelerator, Kvm};
use crate::cpulist::CpuList;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Boot, Machine};
use crate::placement::Placement;
use crate::process::{Running, begun};
use crate::qemu::{Places, command};
use crate::qmp::Qmp;
use crate::seed::Seed;
use crate::store::Store;

/// How long QEMU may take until it listens: it connects to the disks before, and clears huge pages.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// What a machine is started with.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// The machine, whose lock the caller has.
    pub machine: &'a Machine,
    /// The vhost-user sockets of its disks, in their order.
    pub disks: Vec<PathBuf>,
    /// Where it runs.
    pub placement: Placement,
    /// Variables of its environment beside those of this process.
    pub environment: Vec<(String, OsString)>,
}

/// Starts a machine.
///
/// # Errors
/// `Busy` if it runs; when something that it needs is missing; when QEMU does not start.
pub fn start(store: &Store, start: Start<'_>) -> Result<Running> {
    let Start { machine, disks, placement, environment } = start;
    let name = &machine.name;
    if let Some(running) = store.running(name)? {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("machine '{name}' runs already, as process {}", running.pid),
        ));
    }
    machine.check()?;
    assert_eq!(disks.len(), machine.disks.len(), "each disk has its socket");
    let accelerators = machine.accelerator.to_try(Kvm::here())?;
    check_files(machine)?;
    check_memory(machine)?;
    let seed = write_seed(store, machine)?;
    let places = Places {
        disks,
        qmp: store.qmp(name),
        console: store.console(name),
        console_log: store.console_log(name),
        seed,
    };
    let mut before: Option<Error> = None;
    for accelerator in accelerators {
        let command = command(machine, &places, *accelerator, placement.node);
        let instead = before.as_ref().map(ToString::to_string);
        match start_once(store, name, (&command, &environment), *accelerator, instead, &placement) {
            Ok(running) => return Ok(running),
            Err(error) => before = Some(error),
        }
    }
    Err(before.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "there is nothing to run it by")))
}

/// A command, and variables of its environment beside those of this process.
type Invocation<'a> = (&'a crate::qemu::Command, &'a [(String, OsString)]);

fn start_once(
    store: &Store,
    name: &str,
    command: Invocation<'_>,
    accelerator: Accelerator,
    instead: Option<String>,
    placement: &Placement,
) -> Result<Running> {
    let mut child = spawn(command, &store.qemu_log(name))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // A process that has ended already has no beginning; that it has ended is found out below.
    let (pid, begun, placement) = (child.id(), begun(child.id()).unwrap_or(0), placement.clone());
    let running = Running { pid, begun, since, accelerator, instead, placement };
    let started = store.set_running(name, &running);
    match started.and_then(|()| let_go(&mut child, store, name, &running.placement)) {
        Ok(()) => Ok(running),
        Err(error) => {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Refuses what QEMU would only complain about in its own way.
fn check_files(machine: &Machine) -> Result<()> {
    let Boot::Kernel { kernel, initramfs, .. } = &machine.boot else { return Ok(()) };
    for path in std::iter::once(kernel).chain(initramfs) {
        File::open(path).map_err(|error| Error::file(path, &error))?;
    }
    Ok(())
}

/// Refuses huge pages that are not there: QEMU would be killed by a signal later.
fn check_memory(machine: &Machine) -> Result<()> {
    let Some(size) = machine.memory.pages.huge() else { return Ok(()) };
    let pool = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size >> 10));
    let path = pool.join("free_hugepages");
    let free = std::fs::read_to_string(&path).map_err(|error| Error::file(&path, &error))?;
    let free: u64 = free.trim().parse().unwrap_or(0);
    let wanted = machine.memory.bytes / size;
    if free >= wanted {
        return Ok(());
    }
    let message = format!("{wanted} huge pages of {} MiB are needed, and {free} are free", size >> 20);
    Err(Error::new(ErrorKind::Invalid, message).hint(format!(
        "as root: echo NUMBER > {}, soon after the start of the host",
        pool.join("nr_hugepages").display()
    )))
}

/// Writes a machine's disk for cloud-init, if it is told anything, and says where.
///
/// # Errors
/// When a template is missing, or what fills it in; when there is no place for it.
pub fn write_seed(store: &Store, machine: &Machine) -> Result<Option<PathBuf>> {
    let path = store.seed(&machine.name);
    match Seed::of(machine, &store.templates())? {
        Some(seed) => {
            crate::store::write(&path, &seed.image()?)?;
            Ok(Some(path))
        }
        None => Ok(None),
    }
}

fn spawn((command, environment): Invocation<'_>, log: &Path) -> Result<Child> {
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(log);
    let file = file.map_err(|error| Error::file(log, &error))?;
    // QEMU gives its sockets and the log of the console no modes of its own.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let spawned = Command::new(&command.program)
        .args(&command.arguments)
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        // What is typed at this terminal is not for the machine.
        .process_group(0)
        .spawn();
    rustix::process::umask(umask);
    spawned.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("there is no '{}' on the PATH", command.program))
                .hint("on Debian and Ubuntu it is in the package qemu-system-x86")
        }
        _ => Error::new(ErrorKind::Qemu, format!("'{}' does not start: {error}", command.program)),
    })
}

/// Waits until QEMU takes orders, puts its threads where they belong, and lets the machine go.
fn let_go(child: &mut Child, store: &Store, name: &str, placement: &Placement) -> Result<()> {
    let socket = store.qmp(name);
    let end = Instant::now() + PATIENCE;
    let mut qmp = loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(ended(store, name, &format!("QEMU ended at once ({status})")));
        }
        match Qmp::connect(&socket) {
            Ok(qmp) => break qmp,
            Err(_) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(error) => return Err(ended(store, name, &error.to_string())),
        }
    };
    tie(&mut qmp, child.id(), placement)?;
    qmp.execute("cont").map(drop)
}

/// What QEMU said last.
fn ended(store: &Store, name: &str, message: &str) -> Error {
    let path = store.qemu_log(name);
    let log = std::fs::read_to_string(&path).unwrap_or_default();
    let error = Error::new(
        ErrorKind::Qemu,
        match log.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("machine '{name}' does not start: {message}; its last words: {last}"),
            None => format!("machine '{name}' does not start: {message}"),
        },
    );
    error.hint(format!("all that it said is in {}", path.display()))
}

/// Puts the machine's processors, and the rest of QEMU, on their processors of the host.
fn tie(qmp: &mut Qmp, pid: u32, placement: &Placement) -> Result<()> {
    if placement.cpus.is_empty() {
        return Ok(());
    }
    let answer = qmp.execute("query-cpus-fast")?;
    let thread =
        |cpu: &Value| cpu.get("thread-id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    let threads: Vec<u32> = answer.as_array().into_iter().flatten().filter_map(thread).collect();
    // One thread runs them all where the translator has no more.
    for (thread, cpus) in threads.iter().zip(&placement.cpus) {
        tie_one(*thread, cpus)?;
    }
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = std::fs::read_dir(&tasks).map_err(|error| Error::file(&tasks, &error))?;
    let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for thread in all.filter(|thread| !threads.contains(thread)) {
        tie_one(thread, &placement.rest)?;
    }
    Ok(())
}

fn tie_one(thread: u32, cpus: &CpuList) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.0.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU) {
        set.set(*cpu as usize);
    }
    let pid = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
    match sched_setaffinity(pid, &set) {
        // A thread that has just ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => {
            Err(Error::new(ErrorKind::Invalid, format!("a machine cannot run on processors {cpus}: {error}"))
                .hint("'gabion vm topology' shows those that there are; --pin chooses"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_qemu_makes_is_its_users_alone() {
        let home = tempfile::tempdir().unwrap();
        let made = home.path().join("made");
        let arguments = vec!["-c".into(), "umask; : > \"$0\"".into(), made.clone().into_os_string()];
        let command = crate::qemu::Command { program: "sh".into(), arguments };
        let before = rustix::process::umask(Mode::empty());
        let mut child = spawn((&command, &[]), &home.path().join("log")).unwrap();
        let after = rustix::process::umask(before);
        assert!(child.wait().unwrap().success());
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&made).unwrap().permissions());
        assert_eq!((mode & 0o777, after), (0o600, Mode::empty()));
    }
}
