//! The directory of a quickstart: where it is, what an earlier run left in it, and taking it away.
//!
//! Always true: only a directory that a quickstart made, which its marker tells, is ever taken away.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Error, ErrorKind, Size};
use serde::{Deserialize, Serialize};

const MARKER: &str = "gabion-quickstart.json";
/// Free space below which there is no point.
const FREE_MIN: u64 = 2 << 30;
const MIB: u64 = 1 << 20;

/// What tells that a quickstart made the directory.
#[derive(Serialize, Deserialize)]
struct Marker {
    version: String,
    /// The run ended and left it on purpose.
    kept: bool,
}

/// The directory, taken away when this is dropped unless it is kept.
pub(super) struct Place {
    directory: PathBuf,
    kept: bool,
}

/// What was found where a quickstart is to go.
pub(super) enum Found {
    Nothing,
    /// What an interrupted run left.
    Leftover,
}

/// Where a quickstart goes unless told otherwise.
pub(super) fn default_directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    PathBuf::from(format!("/var/tmp/gabion-quickstart-{user}"))
}

impl Place {
    /// Makes the directory, after a look at what is there.
    ///
    /// # Errors
    /// When something else is there, an earlier run's daemon still serves, or what it kept is not to be taken away.
    pub(super) fn make(directory: &Path, fresh: bool) -> Result<(Self, Found)> {
        let directory = std::path::absolute(directory)?;
        let found = look(&directory, fresh)?;
        if matches!(found, Found::Leftover) {
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("taking away what is left in {}", directory.display()))?;
        }
        private_directories()
            .create(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        check_private(&directory)?;
        let place = Self { directory, kept: false };
        place.mark(false)?;
        for folder in ["drives", "results"] {
            private_directories().create(place.path(folder)).with_context(|| place.show(folder))?;
        }
        Ok((place, found))
    }

    fn mark(&self, kept: bool) -> Result<()> {
        let marker = Marker { version: env!("CARGO_PKG_VERSION").into(), kept };
        std::fs::write(self.path(MARKER), serde_json::to_vec(&marker)?).with_context(|| self.show(MARKER))
    }

    /// Leaves the directory where it is.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.mark(true)?;
        self.kept = true;
        Ok(())
    }

    /// Something in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The same as text.
    pub(super) fn show(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes of each drive: a share of what is free, so that even a full pool leaves room.
    pub(super) fn drive_size(&self, wanted: Option<Size>) -> Result<u64> {
        if let Some(size) = wanted {
            return Ok(size.bytes());
        }
        let stat = rustix::fs::statvfs(&self.directory).context("looking for free space")?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < FREE_MIN {
            let message = format!(
                "{} has {} free: a quickstart needs {}",
                self.directory.display(),
                Size(free),
                Size(FREE_MIN)
            );
            return Err(Error::new(ErrorKind::NoSpace, message)
                .hint("choose another place with --dir, or smaller drives with --drive-size")
                .into());
        }
        Ok((free / 12).clamp(256 * MIB, 4 << 30) / MIB * MIB)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = std::fs::remove_dir_all(&self.directory)
        {
            eprintln!("gabion: {} is left behind: {error}", self.directory.display());
        }
    }
}

/// Makes directories that only this user may enter: the sockets in them give access to data.
fn private_directories() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Refuses a directory in which another user could put something in the place of a socket or a drive.
fn check_private(directory: &Path) -> Result<()> {
    let metadata = std::fs::symlink_metadata(directory)
        .with_context(|| format!("looking at {}", directory.display()))?;
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if is_own && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("{} exists, and other users may write in it", directory.display());
    Err(Error::new(ErrorKind::Denied, message)
        .hint("choose another place with --dir, or 'chmod 700' this one if it is yours")
        .into())
}

fn look(directory: &Path, fresh: bool) -> Result<Found> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries.count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error).with_context(|| directory.display().to_string()),
    };
    if entries == 0 {
        return Ok(Found::Nothing);
    }
    let place = directory.display();
    let marker = std::fs::read(directory.join(MARKER)).ok();
    let Some(marker) = marker.and_then(|bytes| serde_json::from_slice::<Marker>(&bytes).ok()) else {
        let message = format!("{place} exists, and no quickstart made it");
        return Err(Error::new(ErrorKind::Exists, message).hint("choose another place with --dir").into());
    };
    if UnixStream::connect(directory.join("gabion.sock")).is_ok() {
        let message = format!("an earlier quickstart of {place} is still running");
        return Err(Error::new(ErrorKind::Busy, message)
            .hint(format!(
                "wait for it, or see what it does: 'gabion pool status --socket {place}/gabion.sock'"
            ))
            .into());
    }
    if marker.kept && !fresh {
        let message = format!("{place} holds a pool that an earlier run kept (gabion {})", marker.version);
        return Err(Error::new(ErrorKind::Exists, message)
            .hint(format!(
                "go on with it: '{}'; take it away and begin anew: 'gabion quickstart --fresh'",
                serve_command(directory)
            ))
            .into());
    }
    Ok(Found::Leftover)
}

/// The command that serves what a run has kept.
pub(super) fn serve_command(directory: &Path) -> String {
    let place = directory.display();
    format!(
        "gabion serve --socket {place}/gabion.sock --state-dir {place}/state --nbd-socket {place}/nbd.sock \
         --vhost-directory {place}/vhost"
    )
}
