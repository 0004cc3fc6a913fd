//! Checks of drives before a pool uses them: their users and their contents.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, Inspection, Openers, PoolDrives};
use crate::operations::Progress;

/// Programs that probe drives, such as udev and losetup, have them open for a moment: a drive
/// counts as in use if it has users for this long.
const PROBE_TIME: Duration = Duration::from_millis(500);
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// Inspects drives. Drives with users are inspected again for up to [`PROBE_TIME`].
///
/// # Errors
/// If one of them is not a drive, or cannot be read.
pub(super) async fn inspect_all(
    paths: Vec<PathBuf>,
    in_pools: PoolDrives,
    progress: &Progress,
) -> Result<Vec<Inspection>> {
    progress.step(format!("inspecting {} drives", paths.len()));
    let total = paths.len() as u64;
    let mut inspected = Vec::new();
    let openers = scan(&in_pools).await?;
    for path in paths {
        inspected.push(inspect_one(path, openers.clone()).await?);
        progress.done(inspected.len() as u64, total);
    }
    let start = Instant::now();
    while inspected.iter().any(Inspection::is_used) && start.elapsed() < PROBE_TIME {
        tokio::time::sleep(PROBE_PAUSE).await;
        let openers = scan(&in_pools).await?;
        for drive in inspected.iter_mut().filter(|drive| drive.is_used()) {
            *drive = inspect_one(drive.path.clone(), openers.clone()).await?;
        }
    }
    Ok(inspected)
}

async fn inspect_one(path: PathBuf, openers: Arc<Openers>) -> Result<Inspection> {
    blocking(move || inspect::inspect(&path, &openers)).await?
}

async fn scan(in_pools: &PoolDrives) -> Result<Arc<Openers>> {
    let in_pools = in_pools.clone();
    Ok(Arc::new(blocking(move || Openers::scan(in_pools)).await?))
}

/// Refuses a drive that has users for [`PROBE_TIME`]. Accepts a path without a drive.
pub(super) async fn check_users(path: &Path, in_pools: &PoolDrives) -> Result<()> {
    let start = Instant::now();
    loop {
        let (inspected, openers) = (path.to_owned(), scan(in_pools).await?);
        let Ok(users) = blocking(move || inspect::users(&inspected, &openers)).await? else { return Ok(()) };
        if users.is_empty() || start.elapsed() >= PROBE_TIME {
            return refuse_used(std::iter::once((path, users.as_slice())));
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
}

/// Refuses drives in use.
pub(super) fn check_free(drives: &[Inspection]) -> Result<()> {
    refuse_used(drives.iter().map(|drive| (drive.path.as_path(), drive.users.as_slice())))
}

/// Refuses drives with users, and names the users.
fn refuse_used<'a>(drives: impl Iterator<Item = (&'a Path, &'a [String])>) -> Result<()> {
    let used: Vec<String> = drives
        .filter(|(_, users)| !users.is_empty())
        .map(|(path, users)| format!("{}: {}", path.display(), users.join(", ")))
        .collect();
    if used.is_empty() {
        return Ok(());
    }
    let message = format!("drives are in use: {}", used.join("; "));
    Err(Error::new(ErrorKind::Busy, message)
        .hint("unmount or stop their users, or give other drives; --wipe does not apply to drives in use"))
}

/// Refuses drives with contents.
pub(super) fn check_empty(drives: &[Inspection]) -> Result<()> {
    let occupied: Vec<String> = drives
        .iter()
        .filter(|drive| !drive.contents.is_empty())
        .map(|drive| format!("{} holds {}", drive.path.display(), drive.contents_text()))
        .collect();
    if occupied.is_empty() {
        return Ok(());
    }
    let message = format!("drives are not empty: {}", occupied.join("; "));
    Err(Error::new(ErrorKind::Occupied, message)
        .hint("check that these are the right drives; --wipe erases their contents"))
}
