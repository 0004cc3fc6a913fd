//! Files of a run on the file system of a cluster, mounted on this machine: once, or in the network
//! of each storage host.
//!
//! Always true: the files are in a directory of the file system with the name of the run and of its
//! target, and only this directory is removed; nothing is removed through a mount point itself.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::cluster::{FileSystemMount, HostPlace, MountOptions, Workspace, remove_stale_mount};
use anyhow::{Context, Result};
use bench::load::Target;
use bench::stale_processes::environment_tag;
use bench::system::TargetExtent;

/// Ending of the mount points in the folder of a run.
const MOUNT_ENDING: &str = ".cephfs";

/// The files to create.
pub(super) struct FilesPlan<'a> {
    pub(super) workspace: &'a Workspace,
    /// Folder of the run.
    pub(super) folder: &'a Path,
    /// Name of the target.
    pub(super) name: &'a str,
    /// Name of the directory in the file system.
    pub(super) directory: &'a str,
    /// The hosts in whose network it is mounted; that of this process if it is empty.
    pub(super) places: &'a [HostPlace],
    pub(super) count: u32,
    pub(super) bytes: u64,
    pub(super) pool: Option<&'a str>,
}

/// Files on mounted file systems.
pub(super) struct RunningFiles {
    mounts: Vec<FileSystemMount>,
    /// Name of the directory in the file system.
    directory: String,
    extents: Vec<TargetExtent>,
}

impl RunningFiles {
    /// Mounts the file system and creates the files, distributed over the mounts.
    ///
    /// # Errors
    /// If that fails; no file remains.
    pub(super) fn start(plan: &FilesPlan<'_>) -> Result<Self> {
        let mut running =
            Self { mounts: Vec::new(), directory: plan.directory.to_owned(), extents: Vec::new() };
        match running.set_up(plan) {
            Ok(()) => Ok(running),
            Err(error) => Err(match running.remove() {
                Ok(()) => error,
                Err(left) => error.context(format!("files of the run remain: {left:#}")),
            }),
        }
    }

    fn set_up(&mut self, plan: &FilesPlan<'_>) -> Result<()> {
        if plan.places.is_empty() {
            self.mount(plan, plan.name, None)?;
        }
        for place in plan.places.iter().take(plan.count as usize) {
            self.mount(plan, &format!("{}-{}", plan.name, place.name), Some(place))?;
        }
        let Some(first) = self.mounts.first() else { return Ok(()) };
        let directory = first.directory().join(&self.directory);
        // Of a process of this run that was killed.
        remove_directory(&directory)?;
        std::fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        if let Some(pool) = plan.pool {
            first.set_pool(&directory, pool)?;
        }
        for number in 0..plan.count {
            let Some(mount) = self.mounts.get(number as usize % self.mounts.len()) else { continue };
            let path = mount.directory().join(&self.directory).join(format!("file{number}"));
            let file = File::create_new(&path).with_context(|| path.display().to_string())?;
            file.set_len(plan.bytes).with_context(|| path.display().to_string())?;
            self.extents.push(TargetExtent { target: Target::File(path), bytes: plan.bytes });
        }
        Ok(())
    }

    fn mount(&mut self, plan: &FilesPlan<'_>, name: &str, place: Option<&HostPlace>) -> Result<()> {
        let log = plan.folder.join(format!("{name}.log"));
        // Allows a resumed run to find the program if this process is killed.
        let variable = Some(environment_tag(plan.folder)?);
        let options = MountOptions { place, variable, log: &log };
        let directory = plan.folder.join(format!("{name}{MOUNT_ENDING}"));
        self.mounts.push(FileSystemMount::mount(plan.workspace, &directory, options)?);
        Ok(())
    }

    pub(super) fn extents(&self) -> &[TargetExtent] {
        &self.extents
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.mounts.iter().map(FileSystemMount::process)
    }

    /// Removes the files and unmounts the file systems.
    ///
    /// # Errors
    /// The first failure; everything else is removed.
    pub(super) fn remove(self) -> Result<()> {
        let first = self.mounts.first().map(|mount| mount.directory().join(&self.directory));
        let mut result = first.map_or(Ok(()), |directory| remove_directory(&directory));
        for mount in self.mounts {
            result = result.and(mount.unmount().map_err(anyhow::Error::from));
        }
        result
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

/// Unmounts what a killed process of this run has mounted for a target.
///
/// # Errors
/// If a mount is in use.
pub(super) fn remove_stale_mounts(folder: &Path, name: &str) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let file = path.file_name().and_then(|name| name.to_str());
        let rest = file.and_then(|file| file.strip_suffix(MOUNT_ENDING)?.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    for path in paths.filter(is_ours) {
        remove_stale_mount(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_of_the_target_alone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ceph.cephfs", "ceph-node1.cephfs", "cephalo.cephfs", "ceph.directory"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove_stale_mounts(folder.path(), "ceph").unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["ceph.directory", "cephalo.cephfs"]);
    }
}
