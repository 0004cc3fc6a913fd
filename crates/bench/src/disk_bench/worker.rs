//! Processor time of a back end, from the kernel's accounting of its threads.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::Window;

/// The threads to account.
#[derive(Clone, Debug)]
pub(crate) enum Worker {
    /// All threads of a process.
    Process(PathBuf),
    /// Threads of this process.
    Threads(Vec<PathBuf>),
}

impl Worker {
    /// Returns the process at the other end of a socket.
    pub(crate) fn behind(stream: &UnixStream) -> Option<Self> {
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        Some(Self::Process(format!("/proc/{}/task", peer.pid.as_raw_nonzero()).into()))
    }

    /// Returns threads of this process, by id.
    pub(crate) fn threads(ids: &[i32]) -> Self {
        Self::Threads(ids.iter().map(|id| format!("/proc/self/task/{id}").into()).collect())
    }

    /// Returns the process id, unless it is this process.
    pub(crate) fn process(&self) -> Option<u32> {
        match self {
            Self::Process(tasks) => tasks.parent()?.file_name()?.to_str()?.parse().ok(),
            Self::Threads(_) => None,
        }
    }

    /// Returns the processor time in nanoseconds; `None` if the kernel does not provide it or
    /// access is denied.
    pub(crate) fn nanos(&self) -> Option<u64> {
        match self {
            Self::Process(tasks) => {
                let mut sum = 0;
                for task in std::fs::read_dir(tasks).ok()? {
                    // A thread that has exited no longer counts.
                    sum += nanos_of(&task.ok()?.path()).unwrap_or(0);
                }
                Some(sum)
            }
            Self::Threads(threads) => threads.iter().map(|thread| nanos_of(thread)).sum(),
        }
    }

    /// Waits for the end of the window, and returns the processors that were used within it.
    pub(crate) fn cores_within(&self, window: &Window) -> Option<f64> {
        let now = || Some((Instant::now(), self.nanos()?));
        std::thread::sleep(window.warm_up.saturating_sub(window.start.elapsed()));
        let (start, before) = now()?;
        std::thread::sleep((window.warm_up + window.length).saturating_sub(window.start.elapsed()));
        let (end, after) = now()?;
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
        let used = after.saturating_sub(before) as f64 / 1e9;
        Some(used / (end - start).as_secs_f64())
    }
}

/// Returns a thread's processor time: the first number of its `schedstat`.
fn nanos_of(task: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
