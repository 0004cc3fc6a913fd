//! Files that are replaced atomically, and private directories.

use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{Error, Result};

/// Creates a directory and its parents, accessible to this user only.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| Error::file(path, &error))
}

/// Atomically creates or replaces a file that only this user can access.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| Error::file(path, &error);
    let directory = path.parent().unwrap_or(Path::new("/"));
    make_directory(directory)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    // The leading dot makes it an invalid name for a machine or template.
    let new = directory.join(format!(".{}", name.to_string_lossy()));
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}
