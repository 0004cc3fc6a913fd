//! Volumes of a Kubernetes cluster as a benchmark target: claims of a storage class, each with a
//! pod that runs fio.
//!
//! Always true: the objects carry the label of the run, and only those are deleted.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use api::Size;
use bench::load::Target;
use bench::pods::{Kubectl, PodPlan, VolumeMode, run_label};
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::cleanup_record::CleanupRecord;
use crate::failure::Usage;

/// Default image: that of KBench, which has fio.
const IMAGE: &str = "docker.io/yasker/kbench:latest";
/// Default bytes of an instance, without a suite's.
const INSTANCE_BYTES: u64 = 1 << 30;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The benchmark target.
pub(super) struct KubernetesTarget {
    name: String,
    class: String,
    image: String,
    /// Size of a claim in bytes; `None` for the suite's with room for the file system.
    size: Option<u64>,
    mode: VolumeMode,
    kubectl: Kubectl,
    shape: String,
    running: Option<RunningPods>,
}

/// The objects of a run, and the volumes of its pods.
struct RunningPods {
    /// Folder of the run.
    folder: PathBuf,
    /// Label of the objects.
    run: String,
    extents: Vec<TargetExtent>,
}

impl KubernetesTarget {
    /// Parses the options of the target.
    ///
    /// # Errors
    /// If an option is invalid, or the storage class is missing.
    pub(super) fn parse(name: &str, options: &str) -> Result<Self> {
        let mut class = None;
        let kubectl = Kubectl { program: "kubectl".into(), context: None, namespace: "default".into() };
        let mut system = Self {
            name: name.into(),
            class: String::new(),
            image: IMAGE.into(),
            size: None,
            mode: VolumeMode::Filesystem,
            kubectl,
            shape: String::new(),
            running: None,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("class", value)) if !value.is_empty() => class = Some(value.to_owned()),
                Some(("namespace", value)) if !value.is_empty() => system.kubectl.namespace = value.into(),
                Some(("context", value)) if !value.is_empty() => system.kubectl.context = Some(value.into()),
                Some(("image", value)) if !value.is_empty() => system.image = value.into(),
                Some(("kubectl", value)) if value.starts_with('/') => {
                    system.kubectl.program = PathBuf::from(value);
                }
                Some(("mode", "filesystem")) => system.mode = VolumeMode::Filesystem,
                Some(("mode", "block")) => system.mode = VolumeMode::Block,
                Some(("size", value)) => {
                    let size = Size::from_str(value).map_err(|error| Usage(format!("{option}: {error}")))?;
                    system.size = Some(size.bytes());
                }
                _ => {
                    let message = format!(
                        "invalid option '{option}' of the target 'kubernetes': see 'gabion bench run --help'"
                    );
                    return Err(Usage(message).into());
                }
            }
        }
        system.class = class.ok_or_else(|| {
            Usage("the target 'kubernetes' needs a storage class, as in kubernetes:class=gabion".into())
        })?;
        Ok(system)
    }

    fn start(&mut self, requirements: &Requirements<'_>) -> Result<()> {
        self.remove_stale(requirements.folder)?;
        let record = CleanupRecord::new(requirements.folder, &self.name)?;
        record.store(requirements.folder, &self.name)?;
        let run = run_label(&record.name);
        let instances = requirements.instances.max(1);
        let (size, bytes) = sizes(self.size, requirements.instance_bytes, self.mode);
        let plan = PodPlan {
            run: run.clone(),
            instances,
            class: self.class.clone(),
            bytes: size,
            mode: self.mode,
            image: self.image.clone(),
        };
        // Also deletes what could be created, should the creation fail or be interrupted.
        let folder = requirements.folder.to_owned();
        self.running = Some(RunningPods { folder, run, extents: Vec::new() });
        let pods = self.kubectl.create(&plan, requirements.stop).context("creating volumes and pods")?;
        let extent = |pod: String| {
            let (kubectl, file) = (self.kubectl.clone(), self.mode.path().into());
            TargetExtent { target: Target::Pod { kubectl, pod, file }, bytes }
        };
        let extents = pods.into_iter().map(extent).collect();
        if let Some(running) = &mut self.running {
            running.extents = extents;
        }
        self.shape = format!(
            "{instances} pods running fio, each with {} of {} of the storage class '{}'",
            match self.mode {
                VolumeMode::Filesystem => "a file system",
                VolumeMode::Block => "a block device",
            },
            Size(size),
            self.class,
        );
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        self.kubectl.delete(&running.run).context("deleting volumes and pods")?;
        CleanupRecord::forget(&running.folder, &self.name)
    }

    /// Removes objects of a killed process of this run, or of a failed removal.
    fn remove_stale(&self, folder: &Path) -> Result<()> {
        let Some(record) = CleanupRecord::find(folder, &self.name)? else { return Ok(()) };
        self.kubectl.delete(&run_label(&record.name)).context("deleting volumes and pods of a killed run")?;
        CleanupRecord::forget(folder, &self.name)
    }
}

/// Returns the size of a claim, and the bytes of it that a load uses. A file system needs a part of
/// the volume: the document's volumes of 33 GiB had files of 30 GiB.
fn sizes(size: Option<u64>, instance: Option<u64>, mode: VolumeMode) -> (u64, u64) {
    let in_mib = |bytes: u64| bytes / MIB * MIB;
    match (size, mode) {
        (Some(size), VolumeMode::Block) => (size, in_mib(instance.unwrap_or(size).min(size))),
        (Some(size), VolumeMode::Filesystem) => {
            let room = size / 11 * 10;
            (size, in_mib(instance.unwrap_or(room).min(room)))
        }
        (None, VolumeMode::Block) => {
            let bytes = instance.unwrap_or(INSTANCE_BYTES);
            (bytes.next_multiple_of(GIB), in_mib(bytes))
        }
        (None, VolumeMode::Filesystem) => {
            let bytes = instance.unwrap_or(INSTANCE_BYTES);
            ((bytes / 10 * 11).next_multiple_of(GIB), in_mib(bytes))
        }
    }
}

impl System for KubernetesTarget {
    fn info(&self) -> SystemInfo {
        let of_class = || "that of the storage class".to_owned();
        SystemInfo {
            name: self.name.clone(),
            what: self.shape.clone(),
            guarantees: Guarantees { flush: of_class(), checksums: of_class(), protection: of_class() },
            takes_drives: false,
            own_contents: true,
            degrades: false,
            layout: None,
            remark: Some("the processors of the cluster are not in the figures".into()),
            network: None,
            is_remote: true,
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        self.start(requirements).map_err(|error| {
            let text = match self.remove() {
                Ok(()) => format!("{error:#}"),
                Err(left) => format!("{error:#}; objects of the run remain: {left:#}"),
            };
            SystemError::new(&self.name, "setting up", text)
        })
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.running.as_ref().map(|running| running.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let message = "a target 'kubernetes' fails no drives";
        Err(SystemError::new(&self.name, "failing a drive", message))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        self.remove_stale(folder)
            .map_err(|error| SystemError::new(&self.name, "clean-up", format!("{error:#}")))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        self.remove().map_err(|error| SystemError::new(&self.name, "tearing down", format!("{error:#}")))
    }
}

impl Drop for KubernetesTarget {
    fn drop(&mut self) {
        // Reported by `tear_down` otherwise.
        let _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_have_room_for_their_file_system() {
        let files = VolumeMode::Filesystem;
        assert_eq!(sizes(None, Some(30 * GIB), files), (33 * GIB, 30 * GIB));
        assert_eq!(sizes(None, Some(96 * MIB), files), (GIB, 96 * MIB));
        assert_eq!(sizes(Some(11 * GIB), Some(30 * GIB), files), (11 * GIB, 10 * GIB));
        assert_eq!(sizes(None, None, VolumeMode::Block), (GIB, GIB));
        assert_eq!(sizes(Some(2 * GIB), Some(30 * GIB), VolumeMode::Block), (2 * GIB, 2 * GIB));
    }
}
