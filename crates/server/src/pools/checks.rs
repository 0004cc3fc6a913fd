//! Checks of drives before a pool uses them: their users and their contents.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, Inspection, Openers, PoolDrives};
use crate::operations::Progress;

/// Programs that probe drives, such as udev and losetup, have them open for a moment: a drive
/// counts as in use if each of this many further inspections finds users.
const REPEATS: u32 = 10;
const REPEAT_INTERVAL: Duration = Duration::from_millis(50);

/// Inspects drives; again if some have users, as in [`REPEATS`].
///
/// # Errors
/// If one of them is not a drive, or cannot be read.
pub(super) async fn inspect_all(
    paths: Vec<PathBuf>,
    in_pools: PoolDrives,
    progress: &Progress,
) -> Result<Vec<Inspection>> {
    progress.step(format!("inspecting {} drives", paths.len()));
    let inspect = || inspect_each(&paths, &in_pools, progress);
    repeat_while(|drives: &Vec<Inspection>| drives.iter().any(Inspection::is_used), inspect).await
}

async fn inspect_each(
    paths: &[PathBuf],
    in_pools: &PoolDrives,
    progress: &Progress,
) -> Result<Vec<Inspection>> {
    let mut inspected = Vec::new();
    let openers = scan(in_pools).await?;
    for path in paths {
        let (path, openers) = (path.clone(), openers.clone());
        inspected.push(blocking(move || inspect::inspect(&path, &openers)).await??);
        progress.done(inspected.len() as u64, paths.len() as u64);
    }
    Ok(inspected)
}

/// Refuses a drive with users. Accepts a path without a drive.
pub(super) async fn check_users(path: &Path, in_pools: &PoolDrives) -> Result<()> {
    let inspect = || async {
        let (path, openers) = (path.to_owned(), scan(in_pools).await?);
        blocking(move || inspect::users(&path, &openers).unwrap_or_default()).await
    };
    let users = repeat_while(|users: &Vec<String>| !users.is_empty(), inspect).await?;
    refuse_used(std::iter::once((path, users.as_slice())))
}

async fn scan(in_pools: &PoolDrives) -> Result<Arc<Openers>> {
    let in_pools = in_pools.clone();
    Ok(Arc::new(blocking(move || Openers::scan(in_pools)).await?))
}

/// Inspects, and again up to [`REPEATS`] times while the result shows users.
async fn repeat_while<T, F: Future<Output = Result<T>>>(
    is_used: impl Fn(&T) -> bool,
    inspect: impl Fn() -> F,
) -> Result<T> {
    let mut found = inspect().await?;
    for _ in 0..REPEATS {
        if !is_used(&found) {
            break;
        }
        tokio::time::sleep(REPEAT_INTERVAL).await;
        found = inspect().await?;
    }
    Ok(found)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns whether the drive counts as in use, and the number of inspections.
    async fn inspected(used_for: u32) -> (bool, u32) {
        let inspections = Cell::new(0);
        let inspect = || async {
            inspections.set(inspections.get() + 1);
            Ok(inspections.get() <= used_for)
        };
        (repeat_while(|used| *used, inspect).await.unwrap(), inspections.get())
    }

    #[tokio::test]
    async fn users_that_leave_are_no_users() {
        assert_eq!(inspected(0).await, (false, 1));
        assert_eq!(inspected(1).await, (false, 2));
        assert_eq!(inspected(REPEATS).await, (false, REPEATS + 1));
        assert_eq!(inspected(REPEATS + 1).await, (true, REPEATS + 1));
    }
}
