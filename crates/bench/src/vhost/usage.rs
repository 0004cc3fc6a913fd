//! How much of the processors a back end uses: the time of its threads, as the kernel counts it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Whose time is counted.
#[derive(Clone, Debug)]
pub(super) enum Worker {
    /// A process: all its threads.
    Process(PathBuf),
    /// Threads of this process.
    Threads(Vec<PathBuf>),
}

impl Worker {
    /// The process at the other end of a socket.
    pub(super) fn behind(stream: &UnixStream) -> Option<Self> {
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        Some(Self::Process(format!("/proc/{}/task", peer.pid.as_raw_nonzero()).into()))
    }

    /// Threads of this process, by their numbers.
    pub(super) fn threads(ids: &[i32]) -> Self {
        Self::Threads(ids.iter().map(|id| format!("/proc/self/task/{id}").into()).collect())
    }

    /// The process, if it is another one.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Self::Process(tasks) => tasks.parent()?.file_name()?.to_str()?.parse().ok(),
            Self::Threads(_) => None,
        }
    }

    /// Nanoseconds on a processor so far; `None` where the kernel does not count them or we may not look.
    pub(super) fn nanos(&self) -> Option<u64> {
        match self {
            Self::Process(tasks) => {
                let mut sum = 0;
                for task in std::fs::read_dir(tasks).ok()? {
                    // A thread that has ended in between counts no more.
                    sum += nanos_of(&task.ok()?.path()).unwrap_or(0);
                }
                Some(sum)
            }
            Self::Threads(threads) => threads.iter().map(|thread| nanos_of(thread)).sum(),
        }
    }
}

/// A thread's time on a processor: the first number of its `schedstat`.
fn nanos_of(task: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
