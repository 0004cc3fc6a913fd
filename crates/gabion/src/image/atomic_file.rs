//! A new file that appears under its name when it is complete.
//!
//! Always true: the target name never refers to a partial file; a drop before `persist` removes the
//! temporary file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use api::{Error, ErrorKind};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{invalid, of_file};

/// A temporary file in the directory of its target.
pub(crate) struct AtomicFile {
    target_path: PathBuf,
    temporary_path: PathBuf,
    file: File,
    replace: bool,
    persisted: bool,
}

fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Exists, format!("{} already exists", path.display()))
        .hint("choose another name, or replace the file with --force")
}

impl AtomicFile {
    /// Creates the temporary file of `path`, readable by its owner only, as an image holds all data
    /// of a disk. `replace` allows the replacement of an existing file.
    ///
    /// # Errors
    /// If the file exists without `replace`, or cannot be created.
    pub(crate) fn new(path: &Path, replace: bool) -> Result<Self> {
        let mut target_path = std::path::absolute(path).map_err(|error| of_file(path, &error))?;
        match std::fs::symlink_metadata(&target_path) {
            Ok(_) if !replace => return Err(exists(path).into()),
            Ok(_) => {
                // Replaces the target of a symbolic link, not the link.
                target_path = target_path.canonicalize().map_err(|error| of_file(path, &error))?;
                let metadata = target_path.metadata().map_err(|error| of_file(path, &error))?;
                if !metadata.is_file() {
                    return Err(invalid(format!("{} is not a file", path.display()))
                        .hint("images are written to regular files only")
                        .into());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(of_file(path, &error).into()),
        }
        let (Some(directory), Some(name)) = (target_path.parent(), target_path.file_name()) else {
            return Err(invalid(format!("{} is not a file name", path.display())).into());
        };
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".part-{}", std::process::id()));
        let temporary_path = directory.join(temporary_name);
        let opened =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&temporary_path);
        let file = opened.map_err(|error| of_file(path, &error))?;
        Ok(Self { target_path, temporary_path, file, replace, persisted: false })
    }

    /// Returns the path of the temporary file.
    pub(super) fn path(&self) -> &Path {
        &self.temporary_path
    }

    /// Returns the path of the target.
    pub(crate) fn target(&self) -> &Path {
        &self.target_path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the bytes on disk of the file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn disk_usage(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.file.metadata().map_err(|error| of_file(&self.target_path, &error))?;
        Ok(metadata.blocks() * 512)
    }

    /// Makes the file durable and renames it to its target.
    ///
    /// # Errors
    /// If that fails, or another file was created at the target; the temporary file is removed
    /// then.
    pub(crate) fn persist(mut self) -> Result<()> {
        let target_path = self.target_path.clone();
        self.file.sync_all().map_err(|error| of_file(&target_path, &error))?;
        if self.replace {
            std::fs::rename(&self.temporary_path, &target_path)
                .map_err(|error| of_file(&target_path, &error))?;
        } else {
            match renameat_with(CWD, &self.temporary_path, CWD, &target_path, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => return Err(exists(&target_path).into()),
                // On file systems without RENAME_NOREPLACE, an earlier check must do.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    if std::fs::symlink_metadata(&target_path).is_ok() {
                        return Err(exists(&target_path).into());
                    }
                    std::fs::rename(&self.temporary_path, &target_path)
                        .map_err(|error| of_file(&target_path, &error))?;
                }
                Err(error) => return Err(of_file(&target_path, &error.into()).into()),
            }
        }
        self.persisted = true;
        let directory = target_path.parent().unwrap_or(Path::new("/"));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| of_file(&target_path, &error))?;
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
