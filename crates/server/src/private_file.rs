//! Files that only the daemon's user can read, replaced atomically.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// Reads a file; `None` if there is none.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::Io, format!("cannot read {}: {error}", path.display()))),
    }
}

/// Replaces a file: after a crash at any point it has its old or its new contents.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("cannot write {}: {error}", path.display()))
    };
    let new = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(failed)
}
