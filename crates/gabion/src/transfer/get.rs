//! Gets of objects into files and to standard output.
//!
//! The body is written to a temporary file in the directory of its destination, which receives its
//! name when the body is complete and matches the checksum of the object.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Error, ErrorKind};
use s3_client::{Checksum, Download, S3Error};
use tempfile::NamedTempFile;

use super::progress::TransferProgress;
use super::session::ObjectSession;
use crate::image::Interrupt;

/// The destination of a body.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// Standard output.
    Stdout,
    /// A file; one that exists is replaced only if the flag is set.
    File(PathBuf, bool),
}

impl Destination {
    /// Reads an argument: `-` is standard output, a directory stands for the file in it with the
    /// last part of the key.
    pub(crate) fn of(path: Option<&Path>, key: &str, replace: bool) -> Result<Self> {
        let name = key.rsplit('/').next().unwrap_or_default();
        match path {
            Some(path) if path == Path::new("-") => Ok(Self::Stdout),
            Some(path) if !path.is_dir() => Ok(Self::File(path.to_owned(), replace)),
            _ if name.is_empty() => {
                let message = format!("the key '{key}' ends with '/' and gives no name for the file");
                Err(Error::new(ErrorKind::Invalid, message).hint("give the file as the last argument").into())
            }
            directory => Ok(Self::File(directory.unwrap_or(Path::new("")).join(name), replace)),
        }
    }

    fn open(&self) -> Result<Output> {
        let Self::File(path, replace) = self else { return Ok(Output::Stdout(std::io::stdout())) };
        if !replace && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".gabion-").permissions(readable()).tempfile_in(directory);
        let file = file.with_context(|| format!("cannot create a file in {}", directory.display()))?;
        Ok(Output::File { file, path: path.clone(), replace: *replace })
    }
}

/// The permissions of a new file, before those that the umask removes.
fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

fn exists(path: &Path) -> anyhow::Error {
    let message = format!("the file {} exists", path.display());
    Error::new(ErrorKind::Exists, message).hint("use --force to replace it, or name another file").into()
}

enum Output {
    Stdout(std::io::Stdout),
    File { file: NamedTempFile, path: PathBuf, replace: bool },
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(bytes).context("writing to standard output"),
            Self::File { file, path, .. } => {
                file.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Stdout(mut out) => out.flush().context("writing to standard output"),
            Self::File { file, path, replace } => {
                // A power cut must not leave the name without the contents.
                file.as_file().sync_all().with_context(|| format!("cannot write {}", path.display()))?;
                let named = if replace { file.persist(&path) } else { file.persist_noclobber(&path) };
                match named {
                    Ok(_) => Ok(()),
                    Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                        Err(exists(&path))
                    }
                    Err(error) => {
                        Err(error.error).with_context(|| format!("cannot create {}", path.display()))
                    }
                }
            }
        }
    }
}

/// Gets an object. Returns the checksum and length of its body.
///
/// # Errors
/// For a destination that cannot be written; those of the service; after a signal. No part of a
/// file is left behind.
pub(crate) async fn get(
    session: &ObjectSession,
    key: &str,
    destination: &Destination,
    quiet: bool,
) -> Result<Checksum> {
    let mut output = destination.open()?;
    let progress = TransferProgress::new(format!("get {}/{key}", session.bucket), None, quiet);
    let checksum = Interrupt::new()?.or(receive(session, key, &mut output, progress)).await?;
    output.finish()?;
    Ok(checksum)
}

async fn receive(
    session: &ObjectSession,
    key: &str,
    output: &mut Output,
    mut progress: TransferProgress,
) -> Result<Checksum> {
    let bucket = &session.bucket.volume;
    let open = async || session.client.get_object(bucket, key, None, None).await;
    let mut download = session.retry(key, open).await?;
    let (head, mut checksum) = (download.head.clone(), Checksum::default());
    progress.set_total(head.length);
    while checksum.length() < head.length {
        match download.next().await {
            Ok(Some(bytes)) => {
                output.write(&bytes)?;
                checksum.update(&bytes);
                progress.add(bytes.len() as u64);
            }
            Ok(None) => break,
            // The rest of the same object follows on another connection.
            Err(error) if error.is_transient() => {
                let rest = checksum.length()..head.length;
                let open = async || {
                    session.client.get_object(bucket, key, Some(rest.clone()), Some(&head.etag)).await
                };
                download = session.retry(key, open).await?;
                check_rest(&download, rest.end - rest.start).map_err(|error| session.explain(key, error))?;
            }
            Err(error) => return Err(session.explain(key, error)),
        }
    }
    let found = checksum.to_base64();
    match head.checksum {
        Some(wanted) if wanted != found => Err(session.explain(key, S3Error::Checksum { found, wanted })),
        _ => Ok(checksum),
    }
}

fn check_rest(download: &Download, wanted: u64) -> s3_client::Result<()> {
    if download.head.length == wanted {
        return Ok(());
    }
    Err(S3Error::Response(format!("a range of {wanted} bytes has {} bytes", download.head.length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_for_a_file_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = |path: Option<&Path>, key: &str| match Destination::of(path, key, false).unwrap() {
            Destination::File(path, _) => path,
            Destination::Stdout => panic!("standard output"),
        };
        assert_eq!(file(Some(directory.path()), "a/b.jpg"), directory.path().join("b.jpg"));
        assert_eq!(file(None, "a/b.jpg"), Path::new("b.jpg"));
        assert_eq!(file(Some(Path::new("c.jpg")), "a/b.jpg"), Path::new("c.jpg"));
        assert!(matches!(Destination::of(Some(Path::new("-")), "a/", false).unwrap(), Destination::Stdout));
        assert!(Destination::of(None, "a/", false).is_err());
    }
}
