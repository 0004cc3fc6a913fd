//! Runs of `radosgw-admin`.

use std::process::Stdio;

use serde::de::DeserializeOwned;
use tokio::process::Command;

use super::{Gateways, PROGRAM};
use crate::clusters::unanswered;
use crate::error::{Error, ErrorKind, Result};

/// Directories of programs, which may be missing from the PATH of a service.
const SYSTEM_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// Exit statuses for a user or bucket that does not exist: ENOENT, EINVAL and EACCES by command,
/// and the number 2002 of RGW for buckets.
const MISSING: [i32; 4] = [2, 13, 22, 2002 & 0xff];
/// Exit status for a name in use: EEXIST.
const EXISTS: i32 = 17;

/// A run that reported a failure.
#[derive(Debug)]
pub(super) struct Refusal {
    cluster: String,
    code: Option<i32>,
    message: String,
}

impl Refusal {
    /// Returns true if the user, key or bucket of the command does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.code.is_some_and(|code| MISSING.contains(&code))
    }

    /// Returns true if the name is in use, or the object is.
    pub(super) fn is_in_use(&self) -> bool {
        self.code == Some(EXISTS)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let Refusal { cluster, message, .. } = refusal;
        Self::new(ErrorKind::Io, format!("{PROGRAM} failed on cluster '{cluster}': {message}"))
            .hint(format!("'gabion cluster status {cluster}' shows the problems of the cluster"))
    }
}

impl Gateways {
    /// Runs a command on a cluster and parses its output.
    ///
    /// # Errors
    /// As [`Gateways::run`]; the refusal of the command as `Io`.
    pub(super) async fn read<T: DeserializeOwned>(&self, cluster: &str, command: &[&str]) -> Result<T> {
        parse(&self.run(cluster, command).await??)
    }

    /// Runs a command on a cluster. Returns its output, or its refusal.
    ///
    /// # Errors
    /// `NotFound` if the cluster has no gateways or the program is not installed; `Unreachable` if
    /// the cluster does not answer in time.
    pub(super) async fn run(
        &self,
        cluster: &str,
        command: &[&str],
    ) -> Result<std::result::Result<Vec<u8>, Refusal>> {
        let directory = self.directory_of(cluster)?;
        let keyring = ceph::keyring_path(&directory, ceph::GATEWAY_USER);
        if let Err(error) = std::fs::metadata(&keyring) {
            let message =
                format!("cluster '{cluster}' has no object gateway: {}: {error}", keyring.display());
            return Err(Error::new(ErrorKind::NotFound, message).hint(format!(
                "give a host the role rgw in the policy, then run 'gabion cluster services {cluster}'"
            )));
        }
        let path = match std::env::var("PATH") {
            Ok(path) => format!("{path}:{SYSTEM_PATH}"),
            Err(_) => SYSTEM_PATH.into(),
        };
        let mut child = Command::new(&self.program);
        child.arg("--conf").arg(directory.join(ceph::CONF_FILE)).arg("--keyring").arg(keyring);
        child.arg(format!("--name=client.{}", ceph::GATEWAY_USER)).args(command);
        child.env("PATH", path).env("LC_ALL", "C").env_remove("CEPH_ARGS").kill_on_drop(true);
        child.stdin(Stdio::null());
        let output = async {
            let _permit = self.runs.acquire().await;
            child.output().await
        };
        let output = match tokio::time::timeout(self.limit, output).await {
            Ok(output) => output.map_err(|error| start_error(&error))?,
            Err(_) => return Err(unanswered(cluster)),
        };
        if output.status.success() {
            return Ok(Ok(output.stdout));
        }
        let (code, message) = (output.status.code(), last_line(&output.stderr));
        Ok(Err(Refusal { cluster: cluster.to_owned(), code, message }))
    }
}

/// Parses the output of a run. An error does not show the output, which may contain secrets.
///
/// # Errors
/// `Internal`.
pub(super) fn parse<T: DeserializeOwned>(output: &[u8]) -> Result<T> {
    serde_json::from_slice(output).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        Error::new(ErrorKind::Internal, format!("unexpected output of {PROGRAM} at {place}"))
    })
}

fn start_error(error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::new(ErrorKind::NotFound, format!("{PROGRAM} is not installed"))
            .hint("install the package ceph-common on the daemon's host");
    }
    Error::new(ErrorKind::Io, format!("cannot run {PROGRAM}: {error}"))
}

/// Returns the last line of the messages, without the time and thread before it.
fn last_line(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last = last.map_or("it failed without a message", |line| {
        line.split_once(" -1 ").map_or(line, |(_, message)| message)
    });
    last.trim().to_owned()
}
