//! Other people's programs: tools that are run to their end, and servers that live while something is measured.
//!
//! Always true: they are not in our process group, so that a Ctrl-C reaches us alone and they end in order; a server is on file
//! while it lives, and ends with its value. Must not know: what they serve.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::leftover;

/// How long a server may take to start, and to end in order.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);

/// What a program did wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program} failed: {message}")]
    Failed { program: String, message: String },
    #[error("{program} does not answer; its log is {log}")]
    Silent { program: String, log: PathBuf },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// True if there is such a program.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Tools of the system's administrator need not be in everybody's path.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|folder| folder.join(program).is_file())
}

fn name(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A call of a program.
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

/// Runs a program to its end; gives what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, ProgramError> {
    let program = name(command);
    let output =
        command.output().map_err(|source| ProgramError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect();
    let status = format!("it ended with {}", output.status);
    if lines.is_empty() {
        lines.push(&status);
    }
    Err(ProgramError::Failed { program, message: lines.join("; ") })
}

/// A program that serves.
#[derive(Debug)]
pub(crate) struct Server {
    program: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it; what it says goes to a file in `folder`.
    pub(crate) fn start(mut command: Command, folder: &Path, called: &str) -> Result<Self, ProgramError> {
        let program = name(&command);
        let log = folder.join(format!("{called}.log"));
        let file = |source| ProgramError::File { path: log.clone(), source };
        let out = std::fs::File::options().create(true).append(true).open(&log).map_err(file)?;
        let both = out.try_clone().map_err(file)?;
        leftover::mark(&mut command, folder)
            .map_err(|source| ProgramError::File { path: folder.into(), source })?;
        let started = command.stdout(out).stderr(both).spawn();
        let child = started.map_err(|source| ProgramError::Start { program: program.clone(), source })?;
        Ok(Self { program, child, log })
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `is_ready`, as long as it lives.
    pub(crate) fn wait_until(
        &mut self,
        patience: Duration,
        stop: &AtomicBool,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<(), ProgramError> {
        let deadline = Instant::now() + patience;
        while !is_ready() {
            if stop.load(Ordering::Relaxed) {
                return Err(ProgramError::Interrupted);
            }
            let status = self.child.try_wait();
            let started = |source| ProgramError::Start { program: self.program.clone(), source };
            if let Some(status) = status.map_err(started)? {
                return Err(ProgramError::Failed {
                    program: self.program.clone(),
                    message: self.last(status),
                });
            }
            if Instant::now() > deadline {
                return Err(ProgramError::Silent { program: self.program.clone(), log: self.log.clone() });
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Waits until it has made all these sockets.
    pub(crate) fn wait_for(&mut self, sockets: &[PathBuf], stop: &AtomicBool) -> Result<(), ProgramError> {
        self.wait_until(PATIENCE, stop, || sockets.iter().all(|socket| socket.exists()))
    }

    fn last(&self, status: std::process::ExitStatus) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(|| format!("it ended with {status}"), |line| line.trim().to_owned())
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> Result<(), ProgramError> {
        self.end().map_err(|source| ProgramError::Start { program: self.program.clone(), source })
    }

    fn end(&mut self) -> std::io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
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
            std::thread::sleep(STEP);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whatever went wrong before: nothing of ours stays.
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
    fn what_a_program_says_is_told() {
        assert_eq!(run(&mut shell("echo out; echo err >&2")).unwrap(), "out\n");
        let error = run(&mut shell("echo out; echo no such luck >&2; exit 3")).unwrap_err().to_string();
        assert_eq!(error, "sh failed: no such luck");
        let error = run(&mut shell("exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(run(&mut command("/nonexistent/x")).unwrap_err().to_string().contains("cannot be started"));
        assert!(is_there("sh") && !is_there("no-such-program-anywhere"));
    }

    #[test]
    fn a_server_lives_as_long_as_its_value_and_says_why_it_does_not() {
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
        let mut server = Server::start(shell("exec sleep 600"), place.path(), "three").unwrap();
        let stop = AtomicBool::new(true);
        assert!(matches!(server.wait_until(PATIENCE, &stop, || false), Err(ProgramError::Interrupted)));
        assert!(matches!(server.wait_until(Duration::ZERO, &go, || false), Err(ProgramError::Silent { .. })));
    }
}
