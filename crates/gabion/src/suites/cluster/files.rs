//! Files of a run on the file system of a cluster, mounted on this machine: once, or in the network
//! of each storage host.
//!
//! Always true: the files are in a directory of the file system with the name of the run and of its
//! target, and only this directory is removed. The mounts are outside of the folder of the run, so
//! that its removal cannot reach the files. They show only this directory, except for one mount
//! during its creation and removal.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::cluster::{FileSystemMount, HostPlace, MountOptions, Workspace, remove_stale_mount};
use anyhow::{Context, Result};
use bench::load::Target;
use bench::stale_processes::environment_tag;
use bench::system::TargetExtent;

/// Directory of the mount points of all runs.
const MOUNTS_DIR: &str = "/run/gabion-bench";
/// Name of the mount point of the whole file system, for the creation and the removal of the run's
/// directory.
const WHOLE: &str = ".whole";
/// Name of the mount point in the network of this process.
const CLIENT: &str = ".client";

/// The directory of a run's target in the file system.
#[derive(Clone, Debug)]
pub(super) struct RunDirectory {
    pub(super) workspace: Workspace,
    /// Name of the directory, and of that of its mount points.
    pub(super) name: String,
    /// Folder of the run, for logs.
    pub(super) folder: PathBuf,
    /// Name of the target.
    pub(super) target: String,
}

impl RunDirectory {
    fn mount_points(&self) -> PathBuf {
        Path::new(MOUNTS_DIR).join(&self.name)
    }

    /// Mounts the whole file system, or only this directory of it, in the network of a host.
    fn mount(&self, whole: bool, place: Option<&HostPlace>) -> Result<FileSystemMount> {
        let host = place.map_or(CLIENT, |place| place.name.as_str());
        let point = self.mount_points().join(if whole { WHOLE } else { host });
        let log = match place {
            Some(place) => format!("{}-{}.log", self.target, place.name),
            None => format!("{}.log", self.target),
        };
        let subtree = format!("/{}", self.name);
        let options = MountOptions {
            place,
            subtree: (!whole).then_some(subtree.as_str()),
            // Allows a resumed run to find the program if this process is killed.
            variable: Some(environment_tag(&self.folder)?),
            log: &self.folder.join(log),
        };
        Ok(FileSystemMount::mount(&self.workspace, &point, options)?)
    }

    /// Calls a function with the whole file system mounted, and with the path of this directory.
    fn with_file_system(&self, act: impl FnOnce(&FileSystemMount, &Path) -> Result<()>) -> Result<()> {
        let mount = self.mount(true, None)?;
        let acted = act(&mount, &mount.directory().join(&self.name));
        let unmounted = mount.unmount().map_err(anyhow::Error::from);
        acted.and(unmounted)
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// If that fails; a directory that could not be removed is named.
    fn create(&self, pool: Option<&str>) -> Result<()> {
        let created = self.with_file_system(|mount, directory| {
            std::fs::create_dir(directory).with_context(|| directory.display().to_string())?;
            let Some(pool) = pool else { return Ok(()) };
            mount.set_pool(directory, pool).map_err(|error| match remove_directory(directory) {
                Ok(()) => error.into(),
                Err(left) => anyhow::Error::from(error).context(format!("a directory remains: {left:#}")),
            })
        });
        if created.is_err() {
            // Empty, unless the file system stays mounted.
            let _ = std::fs::remove_dir(self.mount_points());
        }
        created
    }

    /// Removes the directory with the files, and all mounts, also those of a killed process.
    ///
    /// # Errors
    /// If a mount is in use, or the cluster does not answer.
    pub(super) fn remove(&self) -> Result<()> {
        remove_mounts(&self.mount_points())?;
        self.with_file_system(|_, directory| remove_directory(directory))?;
        let points = self.mount_points();
        std::fs::remove_dir(&points).with_context(|| points.display().to_string())
    }
}

/// Unmounts all file systems in a directory of mount points.
fn remove_mounts(points: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(points) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| points.display().to_string())?,
    };
    for entry in entries {
        remove_stale_mount(&entry?.path())?;
    }
    Ok(())
}

/// The files to create.
pub(super) struct FilesPlan<'a> {
    pub(super) directory: RunDirectory,
    /// The hosts in whose network it is mounted; that of this process if it is empty.
    pub(super) places: &'a [HostPlace],
    pub(super) count: u32,
    pub(super) bytes: u64,
    pub(super) pool: Option<&'a str>,
}

/// Files on mounted file systems.
pub(super) struct RunningFiles {
    directory: RunDirectory,
    mounts: Vec<FileSystemMount>,
    extents: Vec<TargetExtent>,
}

impl RunningFiles {
    /// Mounts the file system and creates the files, distributed over the mounts.
    ///
    /// # Errors
    /// If that fails; no file remains.
    pub(super) fn start(plan: FilesPlan<'_>) -> Result<Self> {
        plan.directory.create(plan.pool)?;
        let mut running = Self { directory: plan.directory.clone(), mounts: Vec::new(), extents: Vec::new() };
        match running.set_up(&plan) {
            Ok(()) => Ok(running),
            Err(error) => Err(match running.remove() {
                Ok(()) => error,
                Err(left) => error.context(format!("files of the run remain: {left:#}")),
            }),
        }
    }

    fn set_up(&mut self, plan: &FilesPlan<'_>) -> Result<()> {
        if plan.places.is_empty() {
            self.mounts.push(self.directory.mount(false, None)?);
        }
        for place in plan.places.iter().take(plan.count as usize) {
            self.mounts.push(self.directory.mount(false, Some(place))?);
        }
        for number in 0..plan.count {
            let Some(mount) = self.mounts.get(number as usize % self.mounts.len()) else { continue };
            let path = mount.directory().join(format!("file{number}"));
            let file = File::create_new(&path).with_context(|| path.display().to_string())?;
            file.set_len(plan.bytes).with_context(|| path.display().to_string())?;
            self.extents.push(TargetExtent { target: Target::File(path), bytes: plan.bytes });
        }
        Ok(())
    }

    pub(super) fn extents(&self) -> &[TargetExtent] {
        &self.extents
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.mounts.iter().map(FileSystemMount::process)
    }

    /// Unmounts the file systems and removes the files.
    ///
    /// # Errors
    /// The first failure; everything else is removed.
    pub(super) fn remove(self) -> Result<()> {
        let mut result = Ok(());
        for mount in self.mounts {
            result = result.and(mount.unmount().map_err(anyhow::Error::from));
        }
        result.and(self.directory.remove())
    }
}

/// Removes a directory with its contents, if it exists.
fn remove_directory(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| directory.display().to_string())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_removed_without_contents() {
        let base = tempfile::tempdir().unwrap();
        let points = base.path().join("bench-sweep-a1b2c3-fs");
        remove_mounts(&points).unwrap();
        for name in [WHOLE, CLIENT, "node1"] {
            std::fs::create_dir_all(points.join(name)).unwrap();
        }
        remove_mounts(&points).unwrap();
        assert_eq!(std::fs::read_dir(&points).unwrap().count(), 0);
        std::fs::create_dir(points.join(CLIENT)).unwrap();
        std::fs::write(points.join(CLIENT).join("file"), "").unwrap();
        remove_mounts(&points).unwrap_err();
        assert!(points.join(CLIENT).join("file").exists());
    }
}
