//! The search for the drives of a pool: at their last known paths, at the paths of the request, and
//! among all drives of the host.
//!
//! Invariants: nothing is written; only drives of the pool stay open.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{DriveContents, PoolLabel};
use format::DriveState;
use reactor::{DriveOptions, Remote};

use crate::blocking::blocking;
use crate::drives::OpenDrive;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, PoolDrives};

/// The pool that is searched for.
#[derive(Clone, Debug)]
pub(super) struct PoolSelector {
    /// The name of the pool.
    pub(super) name: String,
    /// The id of the pool, if the pool has been opened before.
    pub(super) id: Option<String>,
}

/// The paths to search.
pub(super) enum SearchPaths {
    /// The last known paths; missing drives are searched for among all drives of the host.
    LastKnown(Vec<PathBuf>),
    /// The paths of the request; missing drives are searched for among all drives of the host.
    Given(Vec<PathBuf>),
    /// Only the paths of the request.
    OnlyGiven(Vec<PathBuf>),
}

/// The drives of a pool that were found.
#[derive(Default)]
pub(super) struct FoundDrives {
    members: Vec<(Arc<OpenDrive>, PoolLabel)>,
    /// The reasons why other drives were not used.
    pub(super) refused: Vec<Error>,
}

impl FoundDrives {
    /// Returns the drives.
    pub(super) fn drives(&self) -> Vec<Arc<OpenDrive>> {
        self.members.iter().map(|(drive, _)| drive.clone()).collect()
    }

    /// Returns the newest pool state on the drives.
    pub(super) fn newest(&self) -> Option<&PoolLabel> {
        self.members.iter().map(|(_, pool)| pool).max_by_key(|pool| pool.written)
    }

    /// Returns the paths of the drives that are in use in the newest state and were not found.
    pub(super) fn absent(&self) -> Vec<String> {
        self.not_found(DriveState::is_in_use)
    }

    /// Returns a message for each drive that is a copy of another drive.
    pub(super) fn copies(&self) -> Vec<String> {
        let mut messages = Vec::new();
        for (index, (drive, pool)) in self.members.iter().enumerate() {
            let other = self.members.iter().take(index).find(|(_, other)| other.drive == pool.drive);
            messages.extend(other.map(|(other, _)| {
                let (one, two) = (other.path().display(), drive.path().display());
                format!("{one} and {two} hold the same pool drive: one is a copy of the other")
            }));
        }
        messages
    }

    /// Returns the paths of the drives in a matching state that were not found.
    fn not_found(&self, matches: fn(DriveState) -> bool) -> Vec<String> {
        let Some(newest) = self.newest() else { return Vec::new() };
        let is_found =
            |member: &&engine::MemberDrive| self.members.iter().any(|(_, pool)| pool.drive == member.id);
        let matching = newest.members.iter().filter(|member| matches(member.state));
        matching.filter(|member| !is_found(member)).map(|member| member.path.clone()).collect()
    }
}

/// Searches for the drives of a pool, without those of open pools (`in_pools`). The errors of
/// unusable drives are in the result.
///
/// # Errors
/// When the reactor is gone.
pub(super) async fn find(
    reactor: &Remote,
    wanted: &PoolSelector,
    search: &SearchPaths,
    in_pools: PoolDrives,
) -> Result<FoundDrives> {
    let mut found = FoundDrives::default();
    let (SearchPaths::LastKnown(paths) | SearchPaths::Given(paths) | SearchPaths::OnlyGiven(paths)) = search;
    let given = paths.clone();
    let (paths, used) = blocking(move || without_pool_drives(given, &in_pools)).await?;
    found.refused.extend(used);
    // In parallel: each opening waits for a while if another process holds the drive.
    let opening: Vec<_> =
        paths.into_iter().map(|path| start_opening(path, DriveOptions::default())).collect();
    for opened in opening {
        match open_member(reactor, wanted, opened.await).await? {
            Ok(member) => found.members.push(member),
            Err(error) => found.refused.push(error),
        }
    }
    if matches!(search, SearchPaths::OnlyGiven(_)) {
        return Ok(found);
    }
    if found.members.is_empty() || !found.absent().is_empty() {
        search_host(reactor, wanted, &mut found).await?;
    }
    // Drives that the newest state marks as missing may be back at their last known paths.
    for path in found.not_found(|state| state == DriveState::Missing) {
        let options = DriveOptions { busy_timeout: std::time::Duration::ZERO, ..DriveOptions::default() };
        let opened = start_opening(PathBuf::from(path), options).await;
        if let Ok(member) = open_member(reactor, wanted, opened).await? {
            found.members.push(member);
        }
    }
    Ok(found)
}

/// Splits paths into those to search, and an error for each drive of an open pool.
fn without_pool_drives(paths: Vec<PathBuf>, in_pools: &PoolDrives) -> (Vec<PathBuf>, Vec<Error>) {
    let mut errors = Vec::new();
    let is_free = |path: &PathBuf| {
        let pool = inspect::drive_key(path).ok().and_then(|key| in_pools.get(&key));
        errors.extend(pool.map(|pool| {
            let message = format!("{} belongs to the open pool '{pool}'", path.display());
            Error::new(ErrorKind::Busy, message).hint(format!("'gabion pool status {pool}' shows that pool"))
        }));
        pool.is_none()
    };
    let free = paths.into_iter().filter(is_free).collect();
    (free, errors)
}

/// Returns an opened drive and its label if the drive belongs to the pool.
async fn open_member(
    reactor: &Remote,
    wanted: &PoolSelector,
    opened: Result<Result<Arc<OpenDrive>>>,
) -> Result<Result<(Arc<OpenDrive>, PoolLabel)>> {
    let drive = match opened? {
        Ok(drive) => drive,
        Err(error) => return Ok(Err(error)),
    };
    let contents = identify(reactor, &drive).await?;
    Ok(check_membership(wanted, &drive, contents).map(|pool| (drive, pool)))
}

fn check_membership(wanted: &PoolSelector, drive: &OpenDrive, contents: DriveContents) -> Result<PoolLabel> {
    let path = drive.path().display();
    let refuse = |kind, message: String, hint: String| Err(Error::new(kind, message).hint(hint));
    match contents {
        DriveContents::Pool(pool) if pool.name != wanted.name => refuse(
            ErrorKind::NotAPool,
            format!("{path} belongs to pool '{}', not to '{}'", pool.name, wanted.name),
            format!("'gabion pool open {} --drives ...' opens that pool", pool.name),
        ),
        DriveContents::Pool(pool) if wanted.id.as_ref().is_some_and(|id| *id != pool.pool.to_string()) => {
            refuse(
                ErrorKind::NotAPool,
                format!("{path} belongs to another pool with the name '{}' ({})", pool.name, pool.pool),
                format!(
                    "to open that pool, unregister this one first: 'gabion pool close {} --forget'",
                    pool.name
                ),
            )
        }
        DriveContents::Pool(pool) => Ok(*pool),
        DriveContents::Damaged => refuse(
            ErrorKind::Corrupt,
            format!("both superblock copies on {path} are damaged"),
            "open the pool from its other drives, without this drive".into(),
        ),
        DriveContents::OtherVersion(version) => refuse(
            ErrorKind::Version,
            format!(
                "{path} holds a pool of format version {version}; this release reads version {}",
                format::FORMAT_VERSION
            ),
            "use the release that wrote the pool".into(),
        ),
        DriveContents::NoPool => refuse(
            ErrorKind::NotAPool,
            format!("{path} holds no pool"),
            format!("'gabion drive identify {path}' shows its contents"),
        ),
        DriveContents::Unreadable(error) => refuse(
            ErrorKind::Io,
            format!("{path} cannot be read: {error}"),
            "examine it with 'dmesg' and 'smartctl -a', and check its cables".into(),
        ),
    }
}

/// Searches all drives of the host for the drives of the pool that were not found yet.
async fn search_host(reactor: &Remote, wanted: &PoolSelector, found: &mut FoundDrives) -> Result<()> {
    let id = found.newest().map(|pool| pool.pool.to_string()).or_else(|| wanted.id.clone());
    let wanted = PoolSelector { name: wanted.name.clone(), id };
    let recorded =
        found.newest().map(|pool| pool.members.iter().map(|member| PathBuf::from(&member.path)).collect());
    let mut candidates: Vec<PathBuf> = recorded.unwrap_or_default();
    candidates.extend(
        blocking(|| inspect::all_by_id().into_iter().map(|(path, _)| path).collect::<Vec<_>>()).await?,
    );
    let mut seen = found
        .members
        .iter()
        .filter_map(|(drive, _)| inspect::drive_key(drive.path()).ok())
        .collect::<Vec<_>>();
    for path in candidates {
        let Ok(key) = inspect::drive_key(&path) else { continue };
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        // First read-only and without waiting: most of these drives do not belong to the pool.
        let read_only = DriveOptions {
            read_only: true,
            busy_timeout: std::time::Duration::ZERO,
            ..DriveOptions::default()
        };
        let Ok(drive) = start_opening(path.clone(), read_only).await? else { continue };
        let label = check_membership(&wanted, &drive, identify(reactor, &drive).await?);
        drop(drive);
        let Ok(label) = label else { continue };
        // A copy of a drive that was found already is not used.
        if found.members.iter().any(|(_, pool)| pool.drive == label.drive) {
            continue;
        }
        let opened = start_opening(inspect::stable_path(&path), DriveOptions::default()).await;
        match open_member(reactor, &wanted, opened).await? {
            Ok(member) => {
                tracing::info!(pool = wanted.name, path = %path.display(), "found a drive of the pool at another path");
                found.members.push(member);
            }
            Err(error) => found.refused.push(error),
        }
    }
    Ok(())
}

/// Opens a drive on a thread that may block, starting immediately.
fn start_opening(
    path: PathBuf,
    options: DriveOptions,
) -> impl Future<Output = Result<Result<Arc<OpenDrive>>>> {
    blocking(move || OpenDrive::open(&path, options))
}

/// Returns the pool data on a drive.
async fn identify(reactor: &Remote, drive: &Arc<OpenDrive>) -> Result<DriveContents> {
    let drive = drive.clone();
    Ok(reactor.call(move || async move { engine::identify(&*drive).await }).await?)
}
