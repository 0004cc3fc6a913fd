//! The directory of a quickstart: creation, detection of earlier runs, removal.
//!
//! Always true: only a directory with a quickstart's marker file is ever removed.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Error, ErrorKind, Size};
use serde::{Deserialize, Serialize};

const MARKER: &str = "gabion-quickstart.json";
/// Minimum free space.
const FREE_MIN: u64 = 2 << 30;
const MIB: u64 = 1 << 20;

/// The marker file of a quickstart directory.
#[derive(Serialize, Deserialize)]
struct Marker {
    version: String,
    /// True if the run kept the directory.
    kept: bool,
}

/// The directory, removed on drop unless it is kept.
pub(super) struct WorkDir {
    directory: PathBuf,
    kept: bool,
}

/// The state of the directory before a run.
pub(super) enum EarlierRun {
    None,
    /// Files of an interrupted run.
    Interrupted,
}

/// Returns the default directory.
pub(super) fn default_directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    PathBuf::from(format!("/var/tmp/gabion-quickstart-{user}"))
}

impl WorkDir {
    /// Creates the directory, after a check for earlier runs.
    ///
    /// # Errors
    /// If the directory has other content, the daemon of an earlier run is still running, or an
    /// earlier run was kept and `fresh` is not set.
    pub(super) fn create(directory: &Path, fresh: bool) -> Result<(Self, EarlierRun)> {
        let directory = std::path::absolute(directory)?;
        let earlier_run = find_earlier_run(&directory, fresh)?;
        if matches!(earlier_run, EarlierRun::Interrupted) {
            std::fs::remove_dir_all(&directory).with_context(|| {
                format!("removing the files of an interrupted run in {}", directory.display())
            })?;
        }
        private_directories()
            .create(&directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        check_private(&directory)?;
        let work_dir = Self { directory, kept: false };
        work_dir.mark(false)?;
        for folder in ["drives", "results"] {
            private_directories()
                .create(work_dir.path(folder))
                .with_context(|| work_dir.display_path(folder))?;
        }
        Ok((work_dir, earlier_run))
    }

    fn mark(&self, kept: bool) -> Result<()> {
        let marker = Marker { version: env!("CARGO_PKG_VERSION").into(), kept };
        std::fs::write(self.path(MARKER), serde_json::to_vec(&marker)?)
            .with_context(|| self.display_path(MARKER))
    }

    /// Keeps the directory.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.mark(true)?;
        self.kept = true;
        Ok(())
    }

    /// Returns the path of a file in the directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of a file in the directory as text.
    pub(super) fn display_path(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the size of each drive in bytes: a share of the free space, so that even a full pool
    /// leaves some.
    pub(super) fn drive_size(&self, requested: Option<Size>) -> Result<u64> {
        if let Some(size) = requested {
            return Ok(size.bytes());
        }
        let stat = rustix::fs::statvfs(&self.directory).context("reading the free space")?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < FREE_MIN {
            let message = format!(
                "{} has {} free, but the quickstart needs {}",
                self.directory.display(),
                Size(free),
                Size(FREE_MIN)
            );
            return Err(Error::new(ErrorKind::NoSpace, message)
                .hint("choose another directory with --dir, or smaller drives with --drive-size")
                .into());
        }
        Ok((free / 12).clamp(256 * MIB, 4 << 30) / MIB * MIB)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = std::fs::remove_dir_all(&self.directory)
        {
            eprintln!("gabion: cannot remove {}: {error}", self.directory.display());
        }
    }
}

/// Returns a builder of directories with mode 0700: the sockets in them give access to data.
fn private_directories() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Checks that no other user can replace a socket or a drive in the directory.
fn check_private(directory: &Path) -> Result<()> {
    let metadata = std::fs::symlink_metadata(directory)
        .with_context(|| format!("inspecting {}", directory.display()))?;
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if is_own && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("{} exists, and other users may write in it", directory.display());
    Err(Error::new(ErrorKind::Denied, message)
        .hint("choose another directory with --dir, or run 'chmod 700' on this one if it is yours")
        .into())
}

fn find_earlier_run(directory: &Path, fresh: bool) -> Result<EarlierRun> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries.count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(EarlierRun::None),
        Err(error) => return Err(error).with_context(|| directory.display().to_string()),
    };
    if entries == 0 {
        return Ok(EarlierRun::None);
    }
    let path = directory.display();
    let marker = std::fs::read(directory.join(MARKER)).ok();
    let Some(marker) = marker.and_then(|bytes| serde_json::from_slice::<Marker>(&bytes).ok()) else {
        let message = format!("{path} exists and was not created by a quickstart");
        return Err(Error::new(ErrorKind::Exists, message)
            .hint("choose another directory with --dir")
            .into());
    };
    if UnixStream::connect(directory.join("gabion.sock")).is_ok() {
        let message = format!("an earlier quickstart in {path} is still running");
        return Err(Error::new(ErrorKind::Busy, message)
            .hint(format!(
                "wait for its end; 'gabion pool status --socket {path}/gabion.sock' shows its pool"
            ))
            .into());
    }
    if marker.kept && !fresh {
        let message =
            format!("{path} holds the pool of an earlier run with --keep (gabion {})", marker.version);
        return Err(Error::new(ErrorKind::Exists, message)
            .hint(format!(
                "'{}' serves it; 'gabion quickstart --fresh' removes it and starts again",
                serve_command(directory)
            ))
            .into());
    }
    Ok(EarlierRun::Interrupted)
}

/// Returns the command that starts a daemon for a kept pool.
pub(super) fn serve_command(directory: &Path) -> String {
    let path = directory.display();
    format!(
        "gabion serve --socket {path}/gabion.sock --state-dir {path}/state --nbd-socket {path}/nbd.sock \
         --vhost-directory {path}/vhost"
    )
}
