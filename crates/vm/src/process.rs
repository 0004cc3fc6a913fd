//! The process of a machine: which it is, whether it lives, and its end.
//!
//! Always true: a process is told from all others by its number and the time of its beginning, and is held by a handle of
//! the kernel's while it is waited for or killed.

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

/// How long QEMU may take to end when it is told to.
const END: Duration = Duration::from_secs(10);

/// A machine that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// When that began, in ticks since the start of the host (proc_pid_stat(5)).
    pub begun: u64,
    /// When it was started, in seconds since 1970.
    pub since: u64,
    /// By what its processors run.
    pub accelerator: Accelerator,
    /// Why they do not run by KVM, where that was tried first.
    pub instead: Option<String>,
    /// Where they run.
    pub placement: Placement,
}

impl Running {
    /// True if the process lives.
    pub fn lives(&self) -> bool {
        begun(self.pid) == Some(self.begun)
    }

    /// A handle on the process, if it lives.
    fn handle(&self) -> Option<OwnedFd> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Looked at after the handle is there: then it is this very process's.
        self.lives().then_some(handle)
    }
}

/// When a living process began, in ticks since the start of the host.
pub(crate) fn begun(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field here is the third there.
    if fields.first() == Some(&"Z") { None } else { fields.get(22 - 3)?.parse().ok() }
}

/// Waits until a process has ended; false if it has not within this time.
fn ended_within(handle: &OwnedFd, time: Duration) -> bool {
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

/// Ends a machine that runs: by its power button, and waits `patience` for what the guest does then; or by force, at once.
///
/// # Errors
/// `Busy` when the guest does not end within that time: it goes on. When QEMU cannot be ended.
pub fn stop(name: &str, running: &Running, qmp: &Path, patience: Option<Duration>) -> Result<()> {
    let Some(handle) = running.handle() else { return Ok(()) };
    match patience {
        Some(patience) => {
            let told = Qmp::connect(qmp).and_then(|mut qmp| qmp.execute("system_powerdown"));
            if ended_within(&handle, if told.is_ok() { patience } else { Duration::ZERO }) {
                return Ok(());
            }
            told?;
            let message = format!(
                "machine '{name}' still runs {} s after its power button was pressed",
                patience.as_secs()
            );
            Err(Error::new(ErrorKind::Busy, message)
                .hint("its system may not listen for the button: '--force' ends it as a power cut does"))
        }
        None => {
            let told = Qmp::connect(qmp).and_then(|mut qmp| qmp.execute("quit"));
            if told.is_ok() && ended_within(&handle, END) {
                return Ok(());
            }
            kill(&handle, running.pid)
        }
    }
}

fn kill(handle: &OwnedFd, pid: u32) -> Result<()> {
    let failed =
        |why: String| Error::new(ErrorKind::Qemu, format!("QEMU's process {pid} does not end: {why}"));
    match pidfd_send_signal(handle, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(failed(error.to_string())),
    }
    if ended_within(handle, END) { Ok(()) } else { Err(failed("it may wait for a device".into())) }
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
    fn only_the_very_process_is_ended() {
        let mut child = sleeper();
        let ours = running(child.id(), begun(child.id()).unwrap());
        assert!(ours.lives());
        // Somebody else has the number now.
        let other = running(child.id(), ours.begun + 1);
        assert!(!other.lives());
        stop("web", &other, Path::new("/nowhere"), None).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        // QEMU does not take orders: by force it ends all the same, by the button it does not.
        let error = stop("web", &ours, Path::new("/nowhere"), Some(Duration::from_secs(60))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        stop("web", &ours, Path::new("/nowhere"), None).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!ours.lives());
        stop("web", &ours, Path::new("/nowhere"), None).unwrap();
    }
}
