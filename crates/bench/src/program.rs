//! External programs: tools that run to completion, and servers that run during a measurement.
//!
//! Invariants: the programs are in a process group of their own, so that Ctrl-C reaches only this
//! process, which ends them in order; a server is tagged with the run's folder and ends when its
//! value is dropped.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::stale_processes;

/// Maximum time for a server to start or to exit.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A failure of a program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program} failed: {message}")]
    Failed { program: String, message: String },
    #[error("{program} does not respond; see its log {log}")]
    Unresponsive { program: String, log: PathBuf },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// True if the program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Administration tools need not be in the PATH of ordinary users.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|folder| folder.join(program).is_file())
}

fn name(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a command that starts the program in its own process group.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    if !program.contains('/') {
        let found = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
        let in_path = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
        if let Some(found) = found.into_iter().find(|path| !in_path && path.is_file()) {
            command = Command::new(found);
        }
    }
    command.process_group(0).stdin(Stdio::null());
    command
}

/// Runs a program to completion and returns its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, ProgramError> {
    let program = name(command);
    let output =
        command.output().map_err(|source| ProgramError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut lines: Vec<&str> =
        stderr.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect();
    let status = format!("it exited with {}", output.status);
    if lines.is_empty() {
        lines.push(&status);
    }
    Err(ProgramError::Failed { program, message: lines.join("; ") })
}

/// A running server program.
#[derive(Debug)]
pub(crate) struct Server {
    program: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server. Its output is appended to `{log_name}.log` in `folder`.
    pub(crate) fn start(mut command: Command, folder: &Path, log_name: &str) -> Result<Self, ProgramError> {
        let program = name(&command);
        let log = folder.join(format!("{log_name}.log"));
        let file = |source| ProgramError::File { path: log.clone(), source };
        let out = std::fs::File::options().create(true).append(true).open(&log).map_err(file)?;
        let both = out.try_clone().map_err(file)?;
        stale_processes::tag(&mut command, folder)
            .map_err(|source| ProgramError::File { path: folder.into(), source })?;
        let started = command.stdout(out).stderr(both).spawn();
        let child = started.map_err(|source| ProgramError::Start { program: program.clone(), source })?;
        Ok(Self { program, child, log })
    }

    /// Returns its process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `is_ready` returns true. Fails if the server exits or `timeout` passes.
    pub(crate) fn wait_until(
        &mut self,
        timeout: Duration,
        stop: &AtomicBool,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<(), ProgramError> {
        let deadline = Instant::now() + timeout;
        while !is_ready() {
            if stop.load(Ordering::Relaxed) {
                return Err(ProgramError::Interrupted);
            }
            let status = self.child.try_wait();
            let started = |source| ProgramError::Start { program: self.program.clone(), source };
            if let Some(status) = status.map_err(started)? {
                return Err(ProgramError::Failed {
                    program: self.program.clone(),
                    message: self.last_log_line(status),
                });
            }
            if Instant::now() > deadline {
                return Err(ProgramError::Unresponsive {
                    program: self.program.clone(),
                    log: self.log.clone(),
                });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits until the server has created all these sockets.
    pub(crate) fn wait_for(&mut self, sockets: &[PathBuf], stop: &AtomicBool) -> Result<(), ProgramError> {
        self.wait_until(SERVER_TIMEOUT, stop, || sockets.iter().all(|socket| socket.exists()))
    }

    /// Waits until the program exits with success. Fails if `timeout` passes.
    pub(crate) fn wait_for_exit(&mut self, timeout: Duration, stop: &AtomicBool) -> Result<(), ProgramError> {
        let deadline = Instant::now() + timeout;
        loop {
            let started = |source| ProgramError::Start { program: self.program.clone(), source };
            match self.child.try_wait().map_err(started)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let (program, message) = (self.program.clone(), self.last_log_line(status));
                    return Err(ProgramError::Failed { program, message });
                }
                None if stop.load(Ordering::Relaxed) => return Err(ProgramError::Interrupted),
                None if Instant::now() > deadline => {
                    let (program, log) = (self.program.clone(), self.log.clone());
                    return Err(ProgramError::Unresponsive { program, log });
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    fn last_log_line(&self, status: std::process::ExitStatus) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last_log_line = log.lines().rev().find(|line| !line.trim().is_empty());
        last_log_line.map_or_else(|| format!("it exited with {status}"), |line| line.trim().to_owned())
    }

    /// Stops the server.
    pub(crate) fn stop(mut self) -> Result<(), ProgramError> {
        self.end().map_err(|source| ProgramError::Start { program: self.program.clone(), source })
    }

    fn end(&mut self) -> std::io::Result<()> {
        let deadline = Instant::now() + SERVER_TIMEOUT;
        if self.child.try_wait()?.is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            kill_process(pid, Signal::TERM)?;
        }
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Stopped in any case: no process may outlive the run.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_errors_of_a_program_are_returned() {
        assert_eq!(run(&mut shell("echo out; echo err >&2")).unwrap(), "out\n");
        let error = run(&mut shell("echo out; echo no such luck >&2; exit 3")).unwrap_err().to_string();
        assert_eq!(error, "sh failed: no such luck");
        let error = run(&mut shell("exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(run(&mut command("/nonexistent/x")).unwrap_err().to_string().contains("cannot start"));
        assert!(is_installed("sh") && !is_installed("no-such-program-anywhere"));
    }

    #[test]
    fn a_server_stops_with_its_value_and_reports_its_failure() {
        let place = tempfile::tempdir().unwrap();
        let (go, socket) = (AtomicBool::new(false), place.path().join("x.sock"));
        let script = format!("touch {}; exec sleep 600", socket.display());
        let mut server = Server::start(shell(&script), place.path(), "one").unwrap();
        server.wait_for(&[socket], &go).unwrap();
        let stat = PathBuf::from(format!("/proc/{}", server.process()));
        assert!(stat.exists());
        server.stop().unwrap();
        assert!(!stat.exists());
        let mut server = Server::start(shell("echo so it is; exit 1"), place.path(), "two").unwrap();
        let error = server.wait_for(&[place.path().join("y")], &go).unwrap_err().to_string();
        assert_eq!(error, "sh failed: so it is");
        let mut server = Server::start(shell("true"), place.path(), "exit").unwrap();
        server.wait_for_exit(SERVER_TIMEOUT, &go).unwrap();
        let mut server = Server::start(shell("echo no; exit 1"), place.path(), "fail").unwrap();
        assert_eq!(server.wait_for_exit(SERVER_TIMEOUT, &go).unwrap_err().to_string(), "sh failed: no");
        let mut server = Server::start(shell("exec sleep 600"), place.path(), "three").unwrap();
        let stop = AtomicBool::new(true);
        assert!(matches!(server.wait_until(SERVER_TIMEOUT, &stop, || false), Err(ProgramError::Interrupted)));
        assert!(matches!(
            server.wait_until(Duration::ZERO, &go, || false),
            Err(ProgramError::Unresponsive { .. })
        ));
    }
}
