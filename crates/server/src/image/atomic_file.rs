//! A new file that appears under its name when it is complete.
//!
//! Always true: the target name never refers to a partial file; a drop before `persist` removes the
//! temporary file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{file_error, invalid};
use crate::error::{Error, ErrorKind, Result};

/// Number of the next temporary file of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A temporary file in the directory of its target.
pub struct AtomicFile {
    target_path: PathBuf,
    temporary_path: PathBuf,
    file: File,
    replace: bool,
    persisted: bool,
}

fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Exists, format!("{} already exists", path.display()))
        .hint("choose another name, or replace the file (--force)")
}

impl AtomicFile {
    /// Creates the temporary file of `path`, readable by its owner only, as an image holds all data
    /// of a disk. `replace` allows the replacement of an existing file.
    ///
    /// # Errors
    /// If the file exists without `replace`, or cannot be created.
    pub fn new(path: &Path, replace: bool) -> Result<Self> {
        let mut target_path = std::path::absolute(path).map_err(|error| file_error(path, &error))?;
        match std::fs::symlink_metadata(&target_path) {
            Ok(_) if !replace => return Err(exists(path)),
            Ok(_) => {
                // Replaces the target of a symbolic link, not the link.
                target_path = target_path.canonicalize().map_err(|error| file_error(path, &error))?;
                let metadata = target_path.metadata().map_err(|error| file_error(path, &error))?;
                if !metadata.is_file() {
                    return Err(invalid(format!("{} is not a file", path.display()))
                        .hint("images are written to regular files only"));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(path, &error)),
        }
        let (Some(directory), Some(name)) = (target_path.parent(), target_path.file_name()) else {
            return Err(invalid(format!("{} is not a file name", path.display())));
        };
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".part-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let temporary_path = directory.join(temporary_name);
        let opened =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&temporary_path);
        let file = opened.map_err(|error| file_error(path, &error))?;
        Ok(Self { target_path, temporary_path, file, replace, persisted: false })
    }

    /// Returns the path of the temporary file.
    pub(super) fn path(&self) -> &Path {
        &self.temporary_path
    }

    /// Returns the path of the target.
    pub fn target(&self) -> &Path {
        &self.target_path
    }

    /// Returns the temporary file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the bytes on disk of the file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn disk_usage(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.file.metadata().map_err(|error| file_error(&self.target_path, &error))?;
        Ok(metadata.blocks() * 512)
    }

    /// Makes the file durable and renames it to its target.
    ///
    /// # Errors
    /// If that fails, or another file was created at the target; the temporary file is removed
    /// then.
    pub fn persist(mut self) -> Result<()> {
        let target_path = self.target_path.clone();
        self.file.sync_all().map_err(|error| file_error(&target_path, &error))?;
        if self.replace {
            std::fs::rename(&self.temporary_path, &target_path)
                .map_err(|error| file_error(&target_path, &error))?;
        } else {
            match renameat_with(CWD, &self.temporary_path, CWD, &target_path, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => return Err(exists(&target_path)),
                // On file systems without RENAME_NOREPLACE, an earlier check must do.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    if std::fs::symlink_metadata(&target_path).is_ok() {
                        return Err(exists(&target_path));
                    }
                    std::fs::rename(&self.temporary_path, &target_path)
                        .map_err(|error| file_error(&target_path, &error))?;
                }
                Err(error) => return Err(file_error(&target_path, &error.into())),
            }
        }
        self.persisted = true;
        let directory = target_path.parent().unwrap_or(Path::new("/"));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| file_error(&target_path, &error))?;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.persisted {
            // A failure cannot be reported here.
            let _ = std::fs::remove_file(&self.temporary_path);
        }
    }
}
