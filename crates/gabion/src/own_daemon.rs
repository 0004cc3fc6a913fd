//! A daemon of one's own: a child that ends when this does. The quickstart has one, and Gabion under measurement.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::client::Client;
use api::{Error, ErrorKind};
use rustix::process::{Pid, Signal, kill_process};

/// How long the daemon may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running daemon.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts a daemon whose sockets and state are in `directory`, with `more` arguments and a variable in its environment, and waits
    /// until it serves what it served before. It logs to `log`.
    ///
    /// # Errors
    /// When it does not come up; its last words are in the message.
    pub(crate) async fn start(
        directory: &Path,
        log: &Path,
        more: &[String],
        variable: Option<(String, OsString)>,
        client: &Client,
    ) -> Result<Self> {
        let log = log.to_owned();
        let out = std::fs::File::options().create(true).append(true).open(&log)?;
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            // The daemon is ours, whatever the user has set for his own.
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
            .args(more)
            .envs(variable)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .context("starting the daemon")?;
        let mut daemon = Self { child, log };
        // This loop notices a daemon that ends at once.
        let client = client.clone().start_wait(Duration::ZERO);
        let deadline = Instant::now() + PATIENCE;
        while !client.get_daemon().await.is_ok_and(|daemon| daemon.ready) {
            if let Some(status) = daemon.child.try_wait().context("looking after the daemon")? {
                return Err(daemon.failed(format!("the daemon ended at once ({status})")).into());
            }
            if Instant::now() > deadline {
                return Err(daemon.failed("the daemon does not come up".into()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(daemon)
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    fn failed(&self, message: String) -> Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it logged nothing");
        Error::new(ErrorKind::Internal, format!("{message}; its last words: {last}"))
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// When it fails at that.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.end().context("ending the daemon")?;
        if !status.success() {
            return Err(self.failed(format!("the daemon ended badly ({status})")).into());
        }
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<std::process::ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        let deadline = Instant::now() + PATIENCE;
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

impl Drop for Daemon {
    fn drop(&mut self) {
        // Whatever went wrong before: nothing of ours stays.
        let _ = self.end();
    }
}
