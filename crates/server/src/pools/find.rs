//! Finding the drives of a pool: where they were last seen, where the request says, and wherever else they went.
//!
//! Always true: nothing is written; only drives of the pool stay open.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{DriveContents, PoolLabel};
use format::DriveState;
use reactor::{DriveOptions, Remote};

use crate::blocking::blocking;
use crate::drives::OpenDrive;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect;

/// Which pool is looked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Its name.
    pub(super) name: String,
    /// Its identity, if it has been seen before.
    pub(super) id: Option<String>,
}

/// Where its drives may be.
pub(super) enum Places {
    /// Where they were last; those that are not there are looked for among all drives of this machine.
    LastFound(Vec<PathBuf>),
    /// Where somebody says that they are; others are looked for as well.
    Named(Vec<PathBuf>),
    /// Where somebody says that they are, and nowhere else.
    OnlyNamed(Vec<PathBuf>),
}

/// The drives of a pool.
#[derive(Default)]
pub(super) struct Found {
    members: Vec<(Arc<OpenDrive>, PoolLabel)>,
    /// Why other drives are not among them.
    pub(super) refused: Vec<Error>,
}

impl Found {
    /// The drives that were found.
    pub(super) fn drives(&self) -> Vec<Arc<OpenDrive>> {
        self.members.iter().map(|(drive, _)| drive.clone()).collect()
    }

    /// The pool's state that is newest among them.
    pub(super) fn newest(&self) -> Option<&PoolLabel> {
        self.members.iter().map(|(_, pool)| pool).max_by_key(|pool| pool.written)
    }

    /// The drives that the pool was last seen to use and that were not found, by path.
    pub(super) fn absent(&self) -> Vec<String> {
        self.not_found(DriveState::is_in_use)
    }

    /// What there is to say of drives that are copies of others.
    pub(super) fn copies(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (at, (drive, pool)) in self.members.iter().enumerate() {
            let other = self.members.iter().take(at).find(|(_, other)| other.drive == pool.drive);
            said.extend(other.map(|(other, _)| {
                let (one, two) = (other.path().display(), drive.path().display());
                format!("{one} and {two} hold the same drive: one is a copy of the other")
            }));
        }
        said
    }

    /// The drives in such a state that were not found, by path.
    fn not_found(&self, wanted: fn(DriveState) -> bool) -> Vec<String> {
        let Some(newest) = self.newest() else { return Vec::new() };
        let here =
            |member: &&engine::MemberDrive| self.members.iter().any(|(_, pool)| pool.drive == member.id);
        let those = newest.members.iter().filter(|member| wanted(member.state));
        those.filter(|member| !here(member)).map(|member| member.path.clone()).collect()
    }
}

/// Looks for the drives of a pool.
///
/// # Errors
/// When the reactor is gone. Drives that cannot be had are in what it gives.
pub(super) async fn find(reactor: &Remote, wanted: &Wanted, places: &Places) -> Result<Found> {
    let mut found = Found::default();
    let (Places::LastFound(paths) | Places::Named(paths) | Places::OnlyNamed(paths)) = places;
    // Side by side: each waits for a while if somebody else has the drive.
    let opening: Vec<_> =
        paths.iter().map(|path| start_opening(path.clone(), DriveOptions::default())).collect();
    for opened in opening {
        match open_member(reactor, wanted, opened.await).await? {
            Ok(member) => found.members.push(member),
            Err(error) => found.refused.push(error),
        }
    }
    if matches!(places, Places::OnlyNamed(_)) {
        return Ok(found);
    }
    if found.members.is_empty() || !found.absent().is_empty() {
        search(reactor, wanted, &mut found).await?;
    }
    // Those that were missing may be where they were again. Nobody waits for them.
    for path in found.not_found(|state| state == DriveState::Missing) {
        let here = DriveOptions { busy_timeout: std::time::Duration::ZERO, ..DriveOptions::default() };
        let opened = start_opening(PathBuf::from(path), here).await;
        if let Ok(member) = open_member(reactor, wanted, opened).await? {
            found.members.push(member);
        }
    }
    Ok(found)
}

/// Keeps a drive that was opened if it belongs to the pool.
async fn open_member(
    reactor: &Remote,
    wanted: &Wanted,
    opened: Result<Result<Arc<OpenDrive>>>,
) -> Result<Result<(Arc<OpenDrive>, PoolLabel)>> {
    let drive = match opened? {
        Ok(drive) => drive,
        Err(error) => return Ok(Err(error)),
    };
    let found = identify(reactor, &drive).await?;
    Ok(belongs(wanted, &drive, found).map(|pool| (drive, pool)))
}

fn belongs(wanted: &Wanted, drive: &OpenDrive, found: DriveContents) -> Result<PoolLabel> {
    let path = drive.path().display();
    let refuse = |kind, message: String, hint: String| Err(Error::new(kind, message).hint(hint));
    match found {
        DriveContents::Pool(pool) if pool.name != wanted.name => refuse(
            ErrorKind::NotAPool,
            format!("{path} belongs to pool '{}', not to '{}'", pool.name, wanted.name),
            format!("'gabion pool open {} --drives ...' opens that pool", pool.name),
        ),
        DriveContents::Pool(pool) if wanted.id.as_ref().is_some_and(|id| *id != pool.pool.to_string()) => {
            refuse(
                ErrorKind::NotAPool,
                format!("{path} belongs to another pool that is called '{}' too ({})", pool.name, pool.pool),
                format!("'gabion pool close {} --forget' makes room for that one", pool.name),
            )
        }
        DriveContents::Pool(pool) => Ok(*pool),
        DriveContents::Damaged => refuse(
            ErrorKind::Corrupt,
            format!("{path} was a pool's drive, and both copies of its superblock are damaged"),
            "open the pool from its other drives; this one counts as missing".into(),
        ),
        DriveContents::OtherVersion(version) => refuse(
            ErrorKind::Version,
            format!(
                "{path} holds a pool of format version {version}, this release reads version {}",
                format::FORMAT_VERSION
            ),
            "use the release that wrote it".into(),
        ),
        DriveContents::NoPool => refuse(
            ErrorKind::NotAPool,
            format!("{path} holds no pool"),
            format!("'gabion drive identify {path}' shows what it holds"),
        ),
        DriveContents::Unreadable(error) => refuse(
            ErrorKind::Io,
            format!("{path} cannot be read: {error}"),
            "look at 'dmesg' and 'smartctl -a', and at its cables".into(),
        ),
    }
}

/// Looks for the pool's drives under other names, and takes those that are still wanted.
async fn search(reactor: &Remote, wanted: &Wanted, found: &mut Found) -> Result<()> {
    let id = found.newest().map(|pool| pool.pool.to_string()).or_else(|| wanted.id.clone());
    let wanted = Wanted { name: wanted.name.clone(), id };
    let told =
        found.newest().map(|pool| pool.members.iter().map(|member| PathBuf::from(&member.path)).collect());
    let mut candidates: Vec<PathBuf> = told.unwrap_or_default();
    candidates.extend(
        blocking(|| inspect::all_by_id().into_iter().map(|(path, _)| path).collect::<Vec<_>>()).await?,
    );
    let mut seen =
        found.members.iter().filter_map(|(drive, _)| inspect::which(drive.path()).ok()).collect::<Vec<_>>();
    for path in candidates {
        let Ok(same) = inspect::which(&path) else { continue };
        if seen.contains(&same) {
            continue;
        }
        seen.push(same);
        // First without a claim on it: most of these are somebody else's.
        let look = DriveOptions {
            read_only: true,
            busy_timeout: std::time::Duration::ZERO,
            ..DriveOptions::default()
        };
        let Ok(drive) = start_opening(path.clone(), look).await? else { continue };
        let ours = belongs(&wanted, &drive, identify(reactor, &drive).await?);
        drop(drive);
        let Ok(ours) = ours else { continue };
        // A copy of a drive that is there already takes the place of none.
        if found.members.iter().any(|(_, pool)| pool.drive == ours.drive) {
            continue;
        }
        let opened = start_opening(inspect::stable_path(&path), DriveOptions::default()).await;
        match open_member(reactor, &wanted, opened).await? {
            Ok(member) => {
                tracing::info!(pool = wanted.name, path = %path.display(), "found a drive of the pool in another place");
                found.members.push(member);
            }
            Err(error) => found.refused.push(error),
        }
    }
    Ok(())
}

/// Begins to open a drive, where that may block.
fn start_opening(
    path: PathBuf,
    options: DriveOptions,
) -> impl Future<Output = Result<Result<Arc<OpenDrive>>>> {
    blocking(move || OpenDrive::open(&path, options))
}

/// What of ours is on a drive.
async fn identify(reactor: &Remote, drive: &Arc<OpenDrive>) -> Result<DriveContents> {
    let drive = drive.clone();
    Ok(reactor.call(move || async move { engine::identify(&*drive).await }).await?)
}
