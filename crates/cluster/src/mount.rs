//! A mount of the file system of a cluster by `ceph-fuse`.
//!
//! Always true: the mount point is a directory that this module created or found empty, and only
//! the directory itself is removed, never anything below it.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::places::HostPlace;
use crate::services::FILE_SYSTEM_USER;
use crate::workspace::Workspace;
use ceph::{CONF_FILE, Error, ErrorKind, Result, keyring_path};

/// The program that mounts, which is also the name of its package.
const PROGRAM: &str = "ceph-fuse";
/// Limit of waiting for the end of the program after an unmount.
const EXIT_WAIT: Duration = Duration::from_secs(10);
/// Limit of waiting for the last user of a file system before an unmount.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Limit of waiting for a mount.
const MOUNT_WAIT: Duration = Duration::from_secs(60);
/// Attribute of a directory with the pool of the data of new files.
const POOL_ATTRIBUTE: &str = "ceph.dir.layout.pool";

/// The circumstances of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions<'a> {
    /// The host in whose network the program runs; that of this process if absent.
    pub place: Option<&'a HostPlace>,
    /// The directory of the file system that is mounted, as `/a/b`; all of it if absent.
    pub subtree: Option<&'a str>,
    /// A variable in the environment of the program.
    pub variable: Option<(String, OsString)>,
    /// The file to which the program logs.
    pub log: &'a Path,
}

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct FileSystemMount {
    directory: PathBuf,
    program: Child,
    mounted: bool,
}

impl FileSystemMount {
    /// Mounts the file system on `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// `NotFound` without `services` or the program; `Invalid` for a directory with contents;
    /// `Unreachable` if the cluster does not answer; `Io`.
    pub fn mount(workspace: &Workspace, directory: &Path, options: MountOptions<'_>) -> Result<Self> {
        let MountOptions { place, subtree, variable, log } = options;
        let keyring = keyring_path(workspace.directory(), FILE_SYSTEM_USER);
        if !keyring.is_file() {
            let message = format!("cluster '{}' has no file system", workspace.name());
            return Err(Error::new(ErrorKind::NotFound, message).hint(format!(
                "give hosts the role mds, and run 'gabion cluster services {}'",
                workspace.name()
            )));
        }
        prepare_directory(directory)?;
        let out = File::options().create(true).append(true).open(log);
        let out = out.map_err(|error| Error::file(log, &error))?;
        let mut command = place.map_or_else(|| Command::new(PROGRAM), |place| place.command(PROGRAM));
        command.arg("-f").arg("-c").arg(workspace.path(CONF_FILE));
        command.args(["-n", &format!("client.{FILE_SYSTEM_USER}"), "-k"]).arg(&keyring);
        command.args(["--log-file=/dev/null", "--admin-socket="]).arg(directory).envs(variable);
        if let Some(subtree) = subtree {
            command.args(["-r", subtree]);
        }
        // A group of its own: Ctrl-C must not unmount the file system under its users.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
        let program = command.spawn().map_err(|error| {
            Error::new(ErrorKind::NotFound, format!("cannot start {PROGRAM}: {error}"))
                .hint(format!("install the package {PROGRAM}"))
        })?;
        let mut mounted = Self { directory: directory.to_owned(), program, mounted: true };
        let start = Instant::now();
        while !is_mount_point(directory).map_err(|error| Error::file(directory, &error))? {
            if let Ok(Some(status)) = mounted.program.try_wait() {
                mounted.mounted = false;
                // Empty; the failure of the program says more than this one.
                let _ = remove_directory(directory);
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
                return Err(Error::new(ErrorKind::Io, format!("{PROGRAM} exited ({status}): {last}")));
            }
            if start.elapsed() > MOUNT_WAIT {
                // It could mount later otherwise.
                let _ = mounted.program.kill();
                let _ = mounted.program.wait();
                mounted.mounted = false;
                let _ = remove_stale_mount(directory);
                let message = format!("{} is not mounted within 60 s", directory.display());
                return Err(Error::new(ErrorKind::Unreachable, message));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(mounted)
    }

    /// The process id of the program.
    pub fn process(&self) -> u32 {
        self.program.id()
    }

    /// The mount point.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Stores the data of new files of a directory of the file system in a pool.
    ///
    /// # Errors
    /// `NotFound` if the pool is no pool of the file system; `Io`.
    pub fn set_pool(&self, directory: &Path, pool: &str) -> Result<()> {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(directory, POOL_ATTRIBUTE, pool.as_bytes(), flags).map_err(|error| {
            let message =
                format!("cannot store the files of {} in pool '{pool}': {error}", directory.display());
            Error::new(ErrorKind::NotFound, message).hint(format!(
                "'gabion cluster services CLUSTER --pool {pool}=ec:2+2,cephfs' adds a pool to the file system"
            ))
        })
    }

    /// Unmounts the file system, and removes the mount point.
    ///
    /// # Errors
    /// `Busy` if it is in use.
    pub fn unmount(mut self) -> Result<()> {
        unmount(&self.directory)?;
        self.mounted = false;
        self.end();
        Ok(())
    }

    /// Waits a limited time until the program has ended, which an unmount causes, and kills it
    /// otherwise.
    fn end(&mut self) {
        let start = Instant::now();
        while matches!(self.program.try_wait(), Ok(None)) {
            if start.elapsed() > EXIT_WAIT {
                // It has ended in the meantime if this fails.
                let _ = self.program.kill();
                let _ = self.program.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for FileSystemMount {
    fn drop(&mut self) {
        if self.mounted {
            // A mount in use goes away with its last user.
            let _ = detach(&self.directory);
            self.end();
        }
    }
}

/// Unmounts a file system that a killed process left on `directory`, and removes the directory. A
/// missing directory is no error.
///
/// # Errors
/// `Busy` if it is in use.
pub fn remove_stale_mount(directory: &Path) -> Result<()> {
    match is_mount_point(directory) {
        Ok(true) => unmount(directory),
        // The process of the mount has ended.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => {
            detach(directory)
        }
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(()),
        _ => remove_directory(directory),
    }
}

fn unmount(directory: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match rustix::mount::unmount(directory, rustix::mount::UnmountFlags::empty()) {
            Ok(()) => return remove_directory(directory),
            // A child that another thread started holds the open files of this process until it
            // executes its program.
            Err(rustix::io::Errno::BUSY) if start.elapsed() < BUSY_WAIT => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => {
                let message = format!("{} stays mounted: {error}", directory.display());
                return Err(Error::new(ErrorKind::Busy, message));
            }
        }
    }
}

fn detach(directory: &Path) -> Result<()> {
    rustix::mount::unmount(directory, rustix::mount::UnmountFlags::DETACH).map_err(|error| {
        Error::new(ErrorKind::Busy, format!("{} stays mounted: {error}", directory.display()))
    })?;
    remove_directory(directory)
}

fn remove_directory(directory: &Path) -> Result<()> {
    std::fs::remove_dir(directory).map_err(|error| Error::file(directory, &error))
}

fn prepare_directory(directory: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::file(directory, &error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    if std::fs::read_dir(directory).map_err(failed)?.next().is_none() {
        return Ok(());
    }
    let message = format!("{} has contents: it cannot be a mount point", directory.display());
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Returns true if a file system is mounted on a directory.
fn is_mount_point(directory: &Path) -> std::io::Result<bool> {
    let parent = directory.parent().unwrap_or(directory);
    Ok(std::fs::metadata(directory)?.dev() != std::fs::metadata(parent)?.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_contents_is_no_mount_point() {
        let base = tempfile::tempdir().unwrap();
        prepare_directory(&base.path().join("a/b")).unwrap();
        std::fs::write(base.path().join("a/b/file"), "").unwrap();
        assert_eq!(prepare_directory(&base.path().join("a/b")).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(!is_mount_point(&base.path().join("a")).unwrap());
        assert!(is_mount_point(Path::new("/proc")).unwrap());
    }

    #[test]
    fn a_stale_mount_point_is_removed_without_its_contents() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("mount");
        remove_stale_mount(&directory).unwrap();
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
        remove_stale_mount(&directory).unwrap_err();
        assert!(directory.join("file").exists());
        std::fs::remove_file(directory.join("file")).unwrap();
        remove_stale_mount(&directory).unwrap();
        assert!(!directory.exists());
    }
}
