//! Creating pools. All checks of the drives come first, erasing their contents last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::CreateOptions;
use format::Scheme;
use format::limits::{DRIVES_MAX, SHARDS_MAX};
use reactor::{Access, DriveOptions};

use super::checks::{check_empty, check_free, inspect_all};
use super::slot::{Status, Transition};
use super::{OpenPool, Pools};
use crate::blocking::blocking;
use crate::drives::{OpenDrive, as_sources};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, Inspection};
use crate::operations::Progress;
use crate::request;
use crate::unix_time::unix_time;
use api::types::{CreatePool, FileDrives};

/// Smallest number of segments per shard: with fewer, the reserves of the shards would be a large
/// part of the pool.
const SEGMENTS_PER_SHARD: u64 = 64;

/// File drives created for a pool, removed on drop unless `kept`.
struct NewFiles {
    paths: Vec<PathBuf>,
    kept: bool,
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if !self.kept {
            for path in &self.paths {
                if let Err(error) = std::fs::remove_file(path) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a new file drive after an error");
                }
            }
        }
    }
}

impl Pools {
    /// Creates a pool and opens it.
    ///
    /// # Errors
    /// For an invalid request, and for drives in use, with contents, or with errors. The drives are
    /// unchanged then, except that with `wipe` their contents may be erased.
    pub(crate) async fn create(self: &Arc<Self>, request: CreatePool, progress: &Progress) -> Result<()> {
        engine::check_name(&request.name)?;
        let scheme = scheme_of(&request)?;
        self.state.check_writable()?;
        let transition = Transition::begin_new(self, &request.name, "being created")?;
        match self.create_and_open(&request, scheme, progress).await {
            Ok(pool) => {
                transition.set_drives(Some(pool.pool.id().to_string()), pool.stable_paths());
                transition.end(Status::Open(Arc::new(pool)));
                self.persist(&request.name, true)
            }
            Err(error) => {
                transition.end_removed();
                Err(error)
            }
        }
    }

    async fn create_and_open(
        &self,
        request: &CreatePool,
        scheme: Scheme,
        progress: &Progress,
    ) -> Result<OpenPool> {
        let mut files = match &request.files {
            Some(files) => Some(create_files(&request.name, files, progress).await?),
            None => None,
        };
        let paths = match &files {
            Some(files) => files.paths.clone(),
            None => request.drives.iter().map(|path| request::path(path)).collect::<Result<Vec<_>>>()?,
        };
        let inspected = inspect_all(paths, self.drive_owners().await?, progress).await?;
        check_distinct(&inspected)?;
        check_free(&inspected)?;
        // From here on the drives are locked: no other process can start to use them.
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
        progress.step(format!("writing superblocks to {} drives", drives.len()));
        let mut entropy = [0; 32];
        request::fill_random(&mut entropy)?;
        let now = unix_time();
        let shards = request.shards.unwrap_or_else(|| self.shards_for(scheme, drives));
        let options =
            CreateOptions { name: request.name.clone(), scheme, shards, zone_bytes: None, now, entropy };
        let sources = as_sources(drives);
        self.reactors.next().call(move || async move { engine::create(&sources, &options).await }).await??;
        Ok(())
    }

    /// Returns the default number of shards: the number of reactors, rounded up to a power of two;
    /// less for a small pool.
    fn shards_for(&self, scheme: Scheme, drives: &[Arc<OpenDrive>]) -> u16 {
        let zones: u64 = drives.iter().map(|drive| (drive.size() >> 20).min(2048)).sum();
        let segments = zones / u64::from(scheme.width());
        let wanted = self.reactors.all().len().next_power_of_two().min(SHARDS_MAX) as u64;
        u16::try_from((segments / SEGMENTS_PER_SHARD).clamp(1, wanted)).unwrap_or(1)
    }
}

/// Returns the scheme of a request.
fn scheme_of(request: &CreatePool) -> Result<Scheme> {
    let invalid = |message: &str, hint: &str| Err(Error::new(ErrorKind::Invalid, message).hint(hint));
    let drives = match &request.files {
        Some(_) if !request.drives.is_empty() => {
            return invalid("both drives and new files are given", "give either --drives or --files");
        }
        Some(files) => usize::from(files.count),
        None => request.drives.len(),
    };
    if drives == 0 {
        return invalid(
            "no drives are given",
            "list them with --drives, or create files: --files DIR --file-size 10G --count 5",
        );
    }
    if drives > DRIVES_MAX {
        let message = format!("{drives} drives are more than the maximum of {DRIVES_MAX} per pool");
        return Err(Error::new(ErrorKind::Invalid, message).hint("create several pools"));
    }
    let scheme: Scheme = match (&request.scheme, &request.level) {
        (Some(scheme), None) => scheme.parse().map_err(|error: format::SchemeError| {
            Error::new(ErrorKind::Invalid, error.to_string())
                .hint("4+1 corresponds to RAID 5 on five drives, 1+1 to a mirror")
        })?,
        (None, Some(level)) => scheme_of_level(level, drives)?,
        _ => {
            return invalid(
                "a pool needs either a scheme or a RAID level",
                "give --scheme k+m (4+1, 1+1) or --level 0|1|5|6|10",
            );
        }
    };
    let width = usize::from(scheme.width());
    if drives < width {
        let message = format!("scheme {scheme} needs at least {width} drives; {drives} are given");
        return Err(Error::new(ErrorKind::Invalid, message).hint("give more drives, or a smaller scheme"));
    }
    Ok(scheme)
}

/// Returns the scheme of a RAID level for this number of drives.
fn scheme_of_level(level: &str, drives: usize) -> Result<Scheme> {
    let columns = api::columns_of_level(level, drives)?;
    let narrow = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    Scheme::new(narrow(columns.data), narrow(columns.parity)).map_err(|error| {
        Error::new(ErrorKind::Invalid, error.to_string()).hint(
            "use --scheme k+m with fewer columns: a pool can have more drives than its scheme has columns",
        )
    })
}

async fn create_files(pool: &str, request: &FileDrives, progress: &Progress) -> Result<NewFiles> {
    progress.step(format!("creating {} files", request.count));
    let directory = request::path(&request.directory)?;
    let size = request.size;
    if !size.is_multiple_of(4096) {
        let message = format!("a file size of {size} bytes is not a multiple of 4096 bytes");
        return Err(Error::new(ErrorKind::Invalid, message).hint("round the size to a multiple of 4096"));
    }
    let paths: Vec<PathBuf> =
        (0..request.count).map(|index| directory.join(format!("{pool}-{index}.drive"))).collect();
    let create = move || {
        let mut files = NewFiles { paths: Vec::new(), kept: false };
        Access::OWNER.make_directories(&directory).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot create the directory {}: {error}", directory.display()))
                .hint("use a directory that the daemon's user can write to")
        })?;
        for path in paths {
            reactor::create_file(&path, size)?;
            files.paths.push(path);
        }
        Ok(files)
    };
    blocking(create).await?
}

/// Refuses a drive that is given twice, even by different paths.
fn check_distinct(drives: &[Inspection]) -> Result<()> {
    let mut seen: BTreeMap<_, &Path> = BTreeMap::new();
    for drive in drives {
        if let Some(other) = seen.insert(drive.key, &drive.path) {
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

/// Opens and locks the drives.
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
    progress.step(format!("erasing {} drives", drives.len()));
    for (done, drive) in (1..).zip(drives) {
        if !drive.contents.is_empty() {
            tracing::warn!(path = %drive.path.display(), contents = drive.contents_text(), "erasing a drive on request");
        }
        let path = drive.path.clone();
        blocking(move || inspect::wipe(&path)).await??;
        progress.done(done, drives.len() as u64);
    }
    Ok(())
}
