//! A daemon as a child process. Used by the quickstart and by benchmark targets.
//!
//! Always true: the daemon is stopped when its owner is dropped.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::cluster::HostPlace;
use anyhow::{Context, Result};
use api::client::Client;
use api::{Error, ErrorKind};
use rustix::process::{Pid, Signal, kill_process};

/// Time limit for start and shutdown.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running daemon.
pub(crate) struct ChildDaemon {
    child: Child,
    log: PathBuf,
}

impl ChildDaemon {
    /// Starts a daemon with its sockets and state in `directory`, with additional arguments and an
    /// environment variable, and waits until its pools and exports are ready. The daemon logs to
    /// `log`.
    ///
    /// # Errors
    /// If the daemon does not become ready; the message holds the last line of its log.
    pub(crate) async fn start(
        directory: &Path,
        log: &Path,
        extra_arguments: &[String],
        variable: Option<(String, OsString)>,
        client: &Client,
    ) -> Result<Self> {
        Self::start_command(command_in(None)?, directory, log, extra_arguments, variable, client).await
    }

    /// As [`ChildDaemon::start`], in the network of `place`, or that of this process. A Ctrl-C at
    /// the terminal does not reach the daemon: the caller handles it, and needs the daemon to
    /// remove its volumes.
    ///
    /// # Errors
    /// As [`ChildDaemon::start`].
    pub(crate) async fn start_shielded(
        place: Option<&HostPlace>,
        directory: &Path,
        log: &Path,
        extra_arguments: &[String],
        variable: Option<(String, OsString)>,
        client: &Client,
    ) -> Result<Self> {
        let mut command = command_in(place)?;
        command.process_group(0);
        Self::start_command(command, directory, log, extra_arguments, variable, client).await
    }

    async fn start_command(
        mut command: Command,
        directory: &Path,
        log: &Path,
        extra_arguments: &[String],
        variable: Option<(String, OsString)>,
        client: &Client,
    ) -> Result<Self> {
        let log = log.to_owned();
        let out = std::fs::File::options().create(true).append(true).open(&log)?;
        for (name, _) in std::env::vars_os() {
            // Variables of the user must not change this daemon.
            if name.to_string_lossy().starts_with("GABION_") {
                command.env_remove(name);
            }
        }
        let child = command
            .arg("serve")
            .args(["--config", "/dev/null"])
            .arg("--socket")
            .arg(directory.join("gabion.sock"))
            .arg("--state-dir")
            .arg(directory.join("state"))
            .arg("--nbd-socket")
            .arg(directory.join("nbd.sock"))
            .arg("--vhost-directory")
            .arg(directory.join("vhost"))
            .arg("--fuse-directory")
            .arg(directory.join("fuse"))
            .arg("--ublk-directory")
            .arg(directory.join("ublk"))
            .args(extra_arguments)
            .envs(variable)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .context("starting the daemon")?;
        let mut daemon = Self { child, log };
        // The loop detects a daemon that exits at start.
        let client = client.clone().start_wait(Duration::ZERO);
        let deadline = Instant::now() + TIMEOUT;
        while !client.get_daemon().await.is_ok_and(|daemon| daemon.ready) {
            if let Some(status) = daemon.child.try_wait().context("waiting for the daemon")? {
                return Err(daemon.failed(format!("the daemon exited at start ({status})")).into());
            }
            if Instant::now() > deadline {
                return Err(daemon.failed("the daemon did not become ready within 60 s".into()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(daemon)
    }

    /// Process id of the daemon.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn failed(&self, message: String) -> Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("empty");
        Error::new(ErrorKind::Internal, format!("{message}; last line of its log: {last}"))
    }

    /// Shuts the daemon down.
    ///
    /// # Errors
    /// If the daemon fails during shutdown.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.terminate().context("stopping the daemon")?;
        if !status.success() {
            return Err(self.failed(format!("the daemon failed during shutdown ({status})")).into());
        }
        Ok(())
    }

    fn terminate(&mut self) -> std::io::Result<std::process::ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        let deadline = Instant::now() + TIMEOUT;
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child.kill()?;
        self.child.wait()
    }
}

/// Returns a command that runs this program in the network of `place`.
fn command_in(place: Option<&HostPlace>) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(match place {
        Some(place) => place.command(program),
        None => Command::new(program),
    })
}

impl Drop for ChildDaemon {
    fn drop(&mut self) {
        // The process must not outlive this one.
        let _ = self.terminate();
    }
}
