//! The QEMU process of a machine: identification, liveness and termination.
//!
//! Always true: a process is identified by its PID and its start time, and is referenced by a pidfd
//! while it is waited for or killed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::accelerator::Accelerator;
use crate::error::{Error, ErrorKind, Result};
use crate::placement::Placement;
use crate::qmp::Qmp;

/// Timeout for QEMU to exit after a quit command or a signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A running machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// PID of its QEMU process.
    pub pid: u32,
    /// Start time of the process, in clock ticks since boot (proc_pid_stat(5)).
    pub begun: u64,
    /// Time of the start, in seconds since 1970.
    pub since: u64,
    /// The accelerator in use.
    pub accelerator: Accelerator,
    /// The reason why KVM is not used, if it was tried first and failed.
    pub instead: Option<String>,
    /// The CPUs that it runs on.
    pub placement: Placement,
}

impl Running {
    /// Returns true if the process is alive.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.begun)
    }

    /// Returns a pidfd of the process, if it is alive.
    fn handle(&self) -> Option<OwnedFd> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The check follows the opening of the pidfd, so the pidfd refers to this process.
        self.is_alive().then_some(handle)
    }
}

/// Returns the start time of a live process, in clock ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field after the command is the third field of the file.
    if fields.first() == Some(&"Z") { None } else { fields.get(22 - 3)?.parse().ok() }
}

/// Waits for a process to exit; returns false if the timeout expires first.
fn wait_for_exit(handle: &OwnedFd, time: Duration) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

/// Stops a running machine: by its power button, waiting up to `timeout` for the guest to shut
/// down; or, without a timeout, by force.
///
/// # Errors
/// `Busy` if the guest does not shut down in time; it keeps running. Other errors if QEMU cannot be
/// reached or terminated.
pub fn stop(name: &str, running: &Running, qmp: &Path, timeout: Option<Duration>) -> Result<()> {
    let Some(handle) = running.handle() else { return Ok(()) };
    match timeout {
        Some(timeout) => {
            let sent = Qmp::connect(qmp).and_then(|mut qmp| qmp.execute("system_powerdown"));
            if wait_for_exit(&handle, if sent.is_ok() { timeout } else { Duration::ZERO }) {
                return Ok(());
            }
            sent?;
            let message =
                format!("machine '{name}' still runs {} s after the power button event", timeout.as_secs());
            Err(Error::new(ErrorKind::Busy, message).hint(
                "the guest may ignore power button events; use '--force' to stop it like a power failure",
            ))
        }
        None => {
            let sent = Qmp::connect(qmp).and_then(|mut qmp| qmp.execute("quit"));
            if sent.is_ok() && wait_for_exit(&handle, EXIT_TIMEOUT) {
                return Ok(());
            }
            kill(&handle, running.pid)
        }
    }
}

fn kill(handle: &OwnedFd, pid: u32) -> Result<()> {
    let failed = |why: String| Error::new(ErrorKind::Qemu, format!("cannot stop QEMU process {pid}: {why}"));
    match pidfd_send_signal(handle, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(failed(error.to_string())),
    }
    if wait_for_exit(handle, EXIT_TIMEOUT) {
        Ok(())
    } else {
        Err(failed("it may be waiting for a device".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()
    }

    fn running(pid: u32, begun: u64) -> Running {
        let placement = Placement::default();
        Running { pid, begun, since: 0, accelerator: Accelerator::Tcg, instead: None, placement }
    }

    #[test]
    fn only_the_process_that_was_started_is_stopped() {
        let mut child = sleeper();
        let running_machine = running(child.id(), start_time(child.id()).unwrap());
        assert!(running_machine.is_alive());
        // Another process has the PID now.
        let reused_pid = running(child.id(), running_machine.begun + 1);
        assert!(!reused_pid.is_alive());
        stop("web", &reused_pid, Path::new("/nowhere"), None).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        // QEMU does not respond to QMP: a forced stop works nevertheless, the power button does
        // not.
        let error =
            stop("web", &running_machine, Path::new("/nowhere"), Some(Duration::from_secs(60))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        stop("web", &running_machine, Path::new("/nowhere"), None).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!running_machine.is_alive());
        stop("web", &running_machine, Path::new("/nowhere"), None).unwrap();
    }
}
