//! Start of a machine: QEMU starts with paused vCPUs, its threads are pinned, and the vCPUs are
//! resumed.
//!
//! Always true: a failed start leaves no process, and the error contains QEMU's own message.

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

use crate::accelerator::{Accelerator, KvmSupport};
use crate::cpulist::CpuList;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Boot, Machine};
use crate::placement::Placement;
use crate::process::{Running, start_time};
use crate::qemu::{RuntimePaths, command};
use crate::qmp::Qmp;
use crate::seed::Seed;
use crate::store::Store;

/// Timeout for QEMU to accept QMP connections; it first connects to the disks and clears huge
/// pages.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two connection attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Options of a machine's start.
#[derive(Clone, Debug)]
pub struct StartOptions<'a> {
    /// The machine. The caller holds its lock.
    pub machine: &'a Machine,
    /// The vhost-user sockets of its disks, in the order of the disks.
    pub disks: Vec<PathBuf>,
    /// CPU placement of the machine.
    pub placement: Placement,
    /// Environment variables in addition to those of this process.
    pub environment: Vec<(String, OsString)>,
}

/// Starts a machine.
///
/// # Errors
/// `Busy` if it is running; other errors if a file or memory is missing, or QEMU does not start.
pub fn start(store: &Store, start: StartOptions<'_>) -> Result<Running> {
    let StartOptions { machine, disks, placement, environment } = start;
    let name = &machine.name;
    if let Some(running) = store.running(name)? {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("machine '{name}' is already running (process {})", running.pid),
        ));
    }
    machine.check()?;
    assert_eq!(disks.len(), machine.disks.len(), "number of disk sockets");
    let accelerators = machine.accelerator.candidates(KvmSupport::detect())?;
    check_files(machine)?;
    check_memory(machine)?;
    let seed = write_seed(store, machine)?;
    let paths = RuntimePaths {
        disks,
        qmp: store.qmp(name),
        console: store.console(name),
        console_log: store.console_log(name),
        seed,
    };
    let mut last_error: Option<Error> = None;
    for accelerator in accelerators {
        let command = command(machine, &paths, *accelerator, placement.node);
        let instead = last_error.as_ref().map(ToString::to_string);
        match start_once(store, name, (&command, &environment), *accelerator, instead, &placement) {
            Ok(running) => return Ok(running),
            Err(error) => last_error = Some(error),
        }
    }
    Err(last_error.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "no accelerator is available")))
}

/// A command, and environment variables in addition to those of this process.
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
    // A process that has already exited has no start time; the exit is detected below.
    let (pid, begun, placement) = (child.id(), start_time(child.id()).unwrap_or(0), placement.clone());
    let running = Running { pid, begun, since, accelerator, instead, placement };
    let started = store.set_running(name, &running);
    match started.and_then(|()| resume_when_ready(&mut child, store, name, &running.placement)) {
        Ok(()) => Ok(running),
        Err(error) => {
            // QEMU may already have exited.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Checks that the kernel files are readable, for a better error message than QEMU's.
fn check_files(machine: &Machine) -> Result<()> {
    let Boot::Kernel { kernel, initramfs, .. } = &machine.boot else { return Ok(()) };
    for path in std::iter::once(kernel).chain(initramfs) {
        File::open(path).map_err(|error| Error::file(path, &error))?;
    }
    Ok(())
}

/// Checks that enough huge pages are free: otherwise QEMU would be killed by a signal later.
fn check_memory(machine: &Machine) -> Result<()> {
    let Some(size) = machine.memory.pages.huge() else { return Ok(()) };
    let pool = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size >> 10));
    let path = pool.join("free_hugepages");
    let free = std::fs::read_to_string(&path).map_err(|error| Error::file(&path, &error))?;
    let free: u64 = free.trim().parse().unwrap_or(0);
    let needed = machine.memory.bytes / size;
    if free >= needed {
        return Ok(());
    }
    let message = format!("{needed} huge pages of {} MiB are needed, but only {free} are free", size >> 20);
    Err(Error::new(ErrorKind::Invalid, message).hint(format!(
        "reserve them as root, soon after boot: echo NUMBER > {}",
        pool.join("nr_hugepages").display()
    )))
}

/// Writes a machine's cloud-init seed disk, if cloud-init is configured, and returns its path.
///
/// # Errors
/// If a template or one of its values is missing, or the disk cannot be written.
pub fn write_seed(store: &Store, machine: &Machine) -> Result<Option<PathBuf>> {
    let path = store.seed(&machine.name);
    match Seed::for_machine(machine, &store.templates())? {
        Some(seed) => {
            crate::atomic_file::write(&path, &seed.image()?)?;
            Ok(Some(path))
        }
        None => Ok(None),
    }
}

fn spawn((command, environment): Invocation<'_>, log: &Path) -> Result<Child> {
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(log);
    let file = file.map_err(|error| Error::file(log, &error))?;
    // QEMU creates its sockets and the console log with default modes.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let spawned = Command::new(&command.program)
        .args(&command.arguments)
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        // Terminal signals, such as Ctrl-C, must not reach the machine.
        .process_group(0)
        .spawn();
    rustix::process::umask(umask);
    spawned.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("'{}' is not on the PATH", command.program))
                .hint("on Debian and Ubuntu, install the package qemu-system-x86")
        }
        _ => Error::new(ErrorKind::Qemu, format!("cannot start '{}': {error}", command.program)),
    })
}

/// Waits until QEMU accepts QMP commands, pins its threads, and resumes the vCPUs.
fn resume_when_ready(child: &mut Child, store: &Store, name: &str, placement: &Placement) -> Result<()> {
    let socket = store.qmp(name);
    let end = Instant::now() + READY_TIMEOUT;
    let mut qmp = loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(start_error(store, name, &format!("QEMU exited ({status})")));
        }
        match Qmp::connect(&socket) {
            Ok(qmp) => break qmp,
            Err(_) if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(start_error(store, name, &error.to_string())),
        }
    };
    set_affinity(&mut qmp, child.id(), placement)?;
    qmp.execute("cont").map(drop)
}

/// Builds the error of a failed start, with the last line of QEMU's log.
fn start_error(store: &Store, name: &str, message: &str) -> Error {
    let path = store.qemu_log(name);
    let log = std::fs::read_to_string(&path).unwrap_or_default();
    let error = Error::new(
        ErrorKind::Qemu,
        match log.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("cannot start machine '{name}': {message}; last line of its log: {last}"),
            None => format!("cannot start machine '{name}': {message}"),
        },
    );
    error.hint(format!("QEMU's log is {}", path.display()))
}

/// Pins the vCPU threads and QEMU's other threads.
fn set_affinity(qmp: &mut Qmp, pid: u32, placement: &Placement) -> Result<()> {
    if placement.cpus.is_empty() {
        return Ok(());
    }
    let response = qmp.execute("query-cpus-fast")?;
    let thread =
        |cpu: &Value| cpu.get("thread-id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    let threads: Vec<u32> = response.as_array().into_iter().flatten().filter_map(thread).collect();
    // TCG may run all vCPUs in one thread.
    for (thread, cpus) in threads.iter().zip(&placement.cpus) {
        set_thread_affinity(*thread, cpus)?;
    }
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = std::fs::read_dir(&tasks).map_err(|error| Error::file(&tasks, &error))?;
    let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for thread in all.filter(|thread| !threads.contains(thread)) {
        set_thread_affinity(thread, &placement.rest)?;
    }
    Ok(())
}

fn set_thread_affinity(thread: u32, cpus: &CpuList) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.0.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU) {
        set.set(*cpu as usize);
    }
    let pid = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
    match sched_setaffinity(pid, &set) {
        // ESRCH: the thread has just exited.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => {
            Err(Error::new(ErrorKind::Invalid, format!("cannot pin a machine to CPUs {cpus}: {error}"))
                .hint("'gabion vm topology' lists the CPUs; --pin selects them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_qemu_are_private_to_its_user() {
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
