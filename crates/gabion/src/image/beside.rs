//! A new file that is not there until it is whole.
//!
//! Always true: under its own name there is never part of it; dropped before it is put in place, nothing of it is left.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use api::{Error, ErrorKind};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{invalid, of_file};

/// A file beside the one that it will be.
pub(crate) struct Beside {
    to: PathBuf,
    at: PathBuf,
    file: File,
    replace: bool,
    placed: bool,
}

fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Exists, format!("{} is there already", path.display()))
        .hint("choose another name, or replace it with --force")
}

impl Beside {
    /// Makes the file that will be `path`. `replace`: instead of one that is there. Only its owner may read it: it will hold
    /// all that a disk holds.
    ///
    /// # Errors
    /// When there is one already, or nothing can be written there.
    pub(crate) fn new(path: &Path, replace: bool) -> Result<Self> {
        let mut to = std::path::absolute(path).map_err(|error| of_file(path, &error))?;
        match std::fs::symlink_metadata(&to) {
            Ok(_) if !replace => return Err(exists(path).into()),
            Ok(_) => {
                // What a link leads to is replaced, not the link.
                to = to.canonicalize().map_err(|error| of_file(path, &error))?;
                let about = to.metadata().map_err(|error| of_file(path, &error))?;
                if !about.is_file() {
                    return Err(invalid(format!("{} is not a file", path.display()))
                        .hint("an image is written to a file, never to a directory or a device")
                        .into());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(of_file(path, &error).into()),
        }
        let (Some(directory), Some(name)) = (to.parent(), to.file_name()) else {
            return Err(invalid(format!("{} names no file", path.display())).into());
        };
        let mut own = std::ffi::OsString::from(".");
        own.push(name);
        own.push(format!(".part-{}", std::process::id()));
        let at = directory.join(own);
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&at);
        let file = opened.map_err(|error| of_file(path, &error))?;
        Ok(Self { to, at, file, replace, placed: false })
    }

    /// Where it is now.
    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// Where it will be.
    pub(crate) fn target(&self) -> &Path {
        &self.to
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that it takes where it is.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn taken(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let about = self.file.metadata().map_err(|error| of_file(&self.to, &error))?;
        Ok(about.blocks() * 512)
    }

    /// Makes it durable, then gives it its name.
    ///
    /// # Errors
    /// When that fails, or a file of this name was made meanwhile; nothing is left then.
    pub(crate) fn place(mut self) -> Result<()> {
        let to = self.to.clone();
        self.file.sync_all().map_err(|error| of_file(&to, &error))?;
        if self.replace {
            std::fs::rename(&self.at, &to).map_err(|error| of_file(&to, &error))?;
        } else {
            match renameat_with(CWD, &self.at, CWD, &to, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => return Err(exists(&to).into()),
                // File systems that cannot promise it: a look before is the best there is.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    if std::fs::symlink_metadata(&to).is_ok() {
                        return Err(exists(&to).into());
                    }
                    std::fs::rename(&self.at, &to).map_err(|error| of_file(&to, &error))?;
                }
                Err(error) => return Err(of_file(&to, &error.into()).into()),
            }
        }
        self.placed = true;
        let directory = to.parent().unwrap_or(Path::new("/"));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| of_file(&to, &error))?;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.placed {
            // Nobody is left to be told.
            let _ = std::fs::remove_file(&self.at);
        }
    }
}
