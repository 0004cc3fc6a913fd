//! Making a pool: finding out whether the drives may be used comes first, destroying what is on them last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use engine::CreateOptions;
use format::Scheme;
use format::limits::{DRIVES_MAX, SHARDS_MAX};
use reactor::{Access, DriveOptions};

use super::slot::{Status, Transition};
use super::{OpenPool, Pools};
use crate::blocking::blocking;
use crate::drives::{OpenDrive, as_sources};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, Inspection, Openers};
use crate::operations::Progress;
use crate::request;
use api::types::{CreatePool, FileDrives};

/// Segments that a shard should find: fewer, and what each keeps back would be a large part of the pool.
const SEGMENTS_PER_SHARD: u64 = 64;

/// Files made for a pool. Dropped, they are removed again.
struct NewFiles {
    paths: Vec<PathBuf>,
    kept: bool,
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if !self.kept {
            for path in &self.paths {
                if let Err(error) = std::fs::remove_file(path) {
                    tracing::warn!(path = %path.display(), %error, "a new file drive could not be removed again");
                }
            }
        }
    }
}

impl Pools {
    /// Makes a pool and opens it.
    ///
    /// # Errors
    /// For a request that makes no pool, drives that may not or cannot be used. Drives are left as they were but for
    /// what `wipe` allowed.
    pub(crate) async fn create(self: &Arc<Self>, request: CreatePool, progress: &Progress) -> Result<()> {
        engine::check_name(&request.name)?;
        let scheme = scheme_of(&request)?;
        self.state.check_writable()?;
        let transition = Transition::begin_new(self, &request.name, "being created")?;
        match self.make(&request, scheme, progress).await {
            Ok(pool) => {
                transition.set_drives(Some(pool.pool.id().to_string()), pool.stable_paths());
                transition.end(Status::Open(Arc::new(pool)));
                self.remember(&request.name, true)
            }
            Err(error) => {
                transition.end_removed();
                Err(error)
            }
        }
    }

    async fn make(&self, request: &CreatePool, scheme: Scheme, progress: &Progress) -> Result<OpenPool> {
        let mut files = match &request.files {
            Some(files) => Some(make_files(&request.name, files, progress).await?),
            None => None,
        };
        let paths = match &files {
            Some(files) => files.paths.clone(),
            None => request.drives.iter().map(|path| request::path(path)).collect::<Result<Vec<_>>>()?,
        };
        let inspected = inspect_all(paths, progress).await?;
        check_distinct(&inspected)?;
        check_free(&inspected)?;
        // From here on they are ours: nobody can begin to use them behind our back.
        let drives = claim(&inspected, progress).await?;
        if request.wipe {
            wipe_all(&inspected, progress).await?;
        } else {
            check_empty(&inspected)?;
        }
        self.write(request, scheme, &drives, progress).await?;
        let pool = self.open_on(&request.name, drives, false, progress).await?;
        if let Some(files) = &mut files {
            files.kept = true;
        }
        Ok(pool)
    }

    async fn write(
        &self,
        request: &CreatePool,
        scheme: Scheme,
        drives: &[Arc<OpenDrive>],
        progress: &Progress,
    ) -> Result<()> {
        progress.step(format!("writing the pool's state to {} drives", drives.len()));
        let mut entropy = [0; 32];
        request::fill_random(&mut entropy)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let shards = request.shards.unwrap_or_else(|| self.shards_for(scheme, drives));
        let options =
            CreateOptions { name: request.name.clone(), scheme, shards, zone_bytes: None, now, entropy };
        let sources = as_sources(drives);
        self.reactors.next().call(move || async move { engine::create(&sources, &options).await }).await??;
        Ok(())
    }

    /// One shard for each reactor, up to the next power of two; fewer where the pool is too small for that.
    fn shards_for(&self, scheme: Scheme, drives: &[Arc<OpenDrive>]) -> u16 {
        let zones: u64 = drives.iter().map(|drive| (drive.size() >> 20).min(2048)).sum();
        let segments = zones / u64::from(scheme.width());
        let wanted = self.reactors.all().len().next_power_of_two().min(SHARDS_MAX) as u64;
        u16::try_from((segments / SEGMENTS_PER_SHARD).clamp(1, wanted)).unwrap_or(1)
    }
}

/// The protection that was asked for.
fn scheme_of(request: &CreatePool) -> Result<Scheme> {
    let invalid = |message: &str, hint: &str| Err(Error::new(ErrorKind::Invalid, message).hint(hint));
    let drives = match &request.files {
        Some(_) if !request.drives.is_empty() => {
            return invalid("drives and files to be made are given", "give either of them");
        }
        Some(files) => usize::from(files.count),
        None => request.drives.len(),
    };
    if drives == 0 {
        return invalid(
            "no drives are given",
            "name them with --drives, or let files be made: --files DIR --file-size 10G --count 5",
        );
    }
    if drives > DRIVES_MAX {
        let message = format!("{drives} drives are more than the {DRIVES_MAX} that a pool may have");
        return Err(Error::new(ErrorKind::Invalid, message).hint("make several pools"));
    }
    let scheme: Scheme = match (&request.scheme, &request.level) {
        (Some(scheme), None) => scheme.parse().map_err(|error: format::SchemeError| {
            Error::new(ErrorKind::Invalid, error.to_string())
                .hint("4+1 is RAID 5 on five drives, 1+1 a mirror")
        })?,
        (None, Some(level)) => scheme_of_level(level, drives)?,
        _ => {
            return invalid(
                "how the pool protects its data must be said once",
                "give --scheme k+m (4+1, 1+1) or --level 0|1|5|6|10",
            );
        }
    };
    let width = usize::from(scheme.width());
    if drives < width {
        let message = format!("scheme {scheme} needs {width} drives, {drives} are given");
        return Err(Error::new(ErrorKind::Invalid, message).hint("give more drives, or a smaller scheme"));
    }
    Ok(scheme)
}

/// Returns the scheme of a RAID level on so many drives.
fn scheme_of_level(level: &str, drives: usize) -> Result<Scheme> {
    let columns = api::columns_of_level(level, drives)?;
    let narrow = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    Scheme::new(narrow(columns.data), narrow(columns.parity)).map_err(|error| {
        Error::new(ErrorKind::Invalid, error.to_string()).hint(
            "use --scheme k+m with fewer columns: a pool can have more drives than its scheme has columns",
        )
    })
}

async fn make_files(pool: &str, request: &FileDrives, progress: &Progress) -> Result<NewFiles> {
    progress.step(format!("making {} files", request.count));
    let directory = request::path(&request.directory)?;
    let size = request.size;
    if !size.is_multiple_of(4096) {
        let message = format!("files of {size} bytes are not made of whole blocks of 4096 bytes");
        return Err(Error::new(ErrorKind::Invalid, message).hint("round the size"));
    }
    let paths: Vec<PathBuf> =
        (0..request.count).map(|index| directory.join(format!("{pool}-{index}.drive"))).collect();
    let make = move || {
        let mut files = NewFiles { paths: Vec::new(), kept: false };
        Access::OWNER.make_directories(&directory).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot make the directory {}: {error}", directory.display()))
                .hint("give a directory that the daemon may write in")
        })?;
        for path in paths {
            reactor::create_file(&path, size)?;
            files.paths.push(path);
        }
        Ok(files)
    };
    blocking(make).await?
}

pub(super) async fn inspect_all(paths: Vec<PathBuf>, progress: &Progress) -> Result<Vec<Inspection>> {
    progress.step(format!("looking at {} drives", paths.len()));
    let total = paths.len() as u64;
    let mut inspected = Vec::new();
    let openers = Arc::new(blocking(Openers::scan).await?);
    for path in paths {
        let openers = openers.clone();
        inspected.push(blocking(move || inspect::inspect(&path, &openers)).await??);
        progress.done(inspected.len() as u64, total);
    }
    Ok(inspected)
}

/// No drive is there twice, under whatever name.
fn check_distinct(drives: &[Inspection]) -> Result<()> {
    let mut seen: BTreeMap<_, &Path> = BTreeMap::new();
    for drive in drives {
        if let Some(other) = seen.insert(drive.same, &drive.path) {
            let message = if other == drive.path {
                format!("{} is given twice", other.display())
            } else {
                format!("{} and {} are the same drive", other.display(), drive.path.display())
            };
            return Err(Error::new(ErrorKind::Invalid, message).hint("give each drive once"));
        }
    }
    Ok(())
}

/// Nobody uses them.
pub(super) fn check_free(drives: &[Inspection]) -> Result<()> {
    refuse_used(drives.iter().map(|drive| (drive.path.as_path(), drive.users.as_slice())))
}

/// Refuses drives that somebody uses, with who does.
pub(super) fn refuse_used<'a>(drives: impl Iterator<Item = (&'a Path, &'a [String])>) -> Result<()> {
    let used: Vec<String> = drives
        .filter(|(_, users)| !users.is_empty())
        .map(|(path, users)| format!("{}: {}", path.display(), users.join(", ")))
        .collect();
    if used.is_empty() {
        return Ok(());
    }
    let message = format!("drives are in use: {}", used.join("; "));
    Err(Error::new(ErrorKind::Busy, message)
        .hint("unmount or stop what uses them, or give other drives; --wipe does not change this"))
}

/// They hold nothing that would be destroyed.
pub(super) fn check_empty(drives: &[Inspection]) -> Result<()> {
    let full: Vec<String> = drives
        .iter()
        .filter(|drive| !drive.holds.is_empty())
        .map(|drive| format!("{} holds {}", drive.path.display(), drive.holdings()))
        .collect();
    if full.is_empty() {
        return Ok(());
    }
    let message = format!("drives hold something already: {}", full.join("; "));
    Err(Error::new(ErrorKind::Occupied, message)
        .hint("check that these are the right drives; --wipe destroys what is on them"))
}

/// Opens and locks them all.
pub(super) async fn claim(drives: &[Inspection], progress: &Progress) -> Result<Vec<Arc<OpenDrive>>> {
    progress.step(format!("opening {} drives", drives.len()));
    let mut opened = Vec::new();
    for drive in drives {
        let path = inspect::stable_path(&drive.path);
        opened.push(blocking(move || OpenDrive::open(&path, DriveOptions::default())).await??);
        progress.done(opened.len() as u64, drives.len() as u64);
    }
    Ok(opened)
}

pub(super) async fn wipe_all(drives: &[Inspection], progress: &Progress) -> Result<()> {
    progress.step(format!("wiping {} drives", drives.len()));
    for (done, drive) in (1..).zip(drives) {
        if !drive.holds.is_empty() {
            tracing::warn!(path = %drive.path.display(), holds = drive.holdings(), "wiping a drive, as asked");
        }
        let path = drive.path.clone();
        blocking(move || inspect::wipe(&path)).await??;
        progress.done(done, drives.len() as u64);
    }
    Ok(())
}
