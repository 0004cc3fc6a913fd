//! A Ceph cluster as a benchmark target: volumes on it, exported by child daemons of this host, or
//! files on its file system.
//!
//! Always true: volumes and files carry the name of the run, and only those are deleted, also after
//! a kill of the run; the cluster must run already, and no daemon of it is changed.

mod files;
mod network;
mod pools;
mod rados;
mod volumes;

use std::path::{Path, PathBuf};

use ::cluster::{FILE_SYSTEM_DATA_POOL, HostPlace, VOLUMES_DATA_POOLS, Workspace, storage_places};
use anyhow::Result;
use api::Size;
use api::types::Protocol;
use bench::network::NetworkPath;
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};

use super::cleanup_record::CleanupRecord;
use super::format::float;
use crate::failure::Usage;
use files::{FilesPlan, RunDirectory, RunningFiles};
use pools::Sharing;
use volumes::{RunningVolumes, VolumesPlan};

pub(super) use rados::RadosSystem;

/// Longest name of a volume.
const NAME_MAX: usize = 63;
/// Digits of the number of a volume.
const NUMBER_DIGITS: usize = 4;
/// The remark on figures without the daemons of the cluster.
const REMOTE_REMARK: &str = "the processors of the cluster's hosts are not in the figures";

/// The way in which a target is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Volumes, exported by this protocol.
    Volumes(Protocol),
    /// Files on the file system.
    Files,
}

/// The options that targets on clusters share.
struct ClusterOptions {
    cluster: String,
    directory: PathBuf,
    pool: Option<String>,
    bytes: Option<u64>,
    /// Speed of all links in Gbit/s, as the user states it.
    link_gbits: Option<f64>,
}

impl ClusterOptions {
    /// Parses the name of the cluster and the options of the target. `other` parses an option that
    /// is not shared, and returns false for an invalid one.
    ///
    /// # Errors
    /// If an option is invalid or there is no such cluster.
    fn parse(kind: &str, options: &str, mut other: impl FnMut(&str, &str) -> bool) -> Result<Self> {
        let mut words = options.split(',').filter(|word| !word.is_empty());
        let cluster = words.next().filter(|word| !word.contains('=')).ok_or_else(|| {
            Usage(format!("the target '{kind}' needs the name of a cluster, as in {kind}:prod"))
        })?;
        let mut parsed = Self {
            cluster: cluster.into(),
            directory: ::cluster::CLUSTERS_DIR.into(),
            pool: None,
            bytes: None,
            link_gbits: None,
        };
        for option in words {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "dir" if value.starts_with('/') => parsed.directory = value.into(),
                "pool" if !value.is_empty() => parsed.pool = Some(value.into()),
                "network" => {
                    let gbits = value.parse::<f64>().ok().filter(|gbits| gbits.is_finite() && *gbits > 0.0);
                    let wrong = || Usage(format!("{option}: expected the speed of the links in Gbit/s"));
                    parsed.link_gbits = Some(gbits.ok_or_else(wrong)?);
                }
                "size" => {
                    let size: Size = value.parse().map_err(|error| Usage(format!("{option}: {error}")))?;
                    parsed.bytes = Some(size.bytes());
                }
                _ if other(key, value) => {}
                _ => {
                    let message = format!(
                        "invalid option '{option}' of the target '{kind}': see 'gabion bench run --help'"
                    );
                    return Err(Usage(message).into());
                }
            }
        }
        parsed.workspace()?;
        Ok(parsed)
    }

    fn workspace(&self) -> Result<Workspace> {
        Ok(Workspace::open(&self.directory, &self.cluster)?)
    }
}

/// Returns the name of a run's objects for a target, to which a volume can add its number.
fn new_record(folder: &Path, target: &str) -> Result<CleanupRecord> {
    let record = CleanupRecord::new(folder, target)?;
    if record.name.len() > NAME_MAX - NUMBER_DIGITS - 1 {
        let message = format!("the name of target '{target}' is too long: choose another, as in NAME=TARGET");
        return Err(Usage(message).into());
    }
    Ok(record)
}

/// Describes the speed of a network.
fn link_text(network: &NetworkPath) -> String {
    match (network.own_bps, network.hosts) {
        (Some(bps), _) => format!("over a link of {} Gbit/s", float(bps) * 8.0 / 1e9),
        (None, Some(hosts)) => format!("over links of {} Gbit/s", float(hosts.bps) * 8.0 / 1e9),
        (None, None) => "over a link of unknown speed".into(),
    }
}

/// The benchmark target.
pub(super) struct ClusterTarget {
    name: String,
    options: ClusterOptions,
    access: Access,
    /// True to use the cluster from its storage hosts.
    on_hosts: bool,
    shape: String,
    protection: String,
    network: Option<NetworkPath>,
    /// The daemons of the cluster on this machine.
    daemons: Vec<u32>,
    /// The running target, with the folder of its run.
    running: Option<(PathBuf, Running)>,
}

/// A running target.
enum Running {
    Volumes(RunningVolumes),
    Files(RunningFiles),
}

impl ClusterTarget {
    /// Parses the name of the cluster and the options of the target.
    ///
    /// # Errors
    /// If an option is invalid or there is no such cluster.
    pub(super) fn parse(name: &str, options: &str) -> Result<Self> {
        let (mut access, mut on_hosts) = (Access::Volumes(Protocol::Nbd), false);
        let options = ClusterOptions::parse("cluster", options, |key, value| {
            match (key, value) {
                ("by", "nbd") => access = Access::Volumes(Protocol::Nbd),
                ("by", "vhost") => access = Access::Volumes(Protocol::VhostUser),
                ("by", "fuse") => access = Access::Volumes(Protocol::Fuse),
                ("by", "cephfs") => access = Access::Files,
                ("on", "hosts") => on_hosts = true,
                ("on", "client") => on_hosts = false,
                _ => return false,
            }
            true
        })?;
        let target = Self {
            name: name.into(),
            options,
            access,
            on_hosts,
            shape: String::new(),
            protection: String::new(),
            network: None,
            daemons: Vec::new(),
            running: None,
        };
        target.places()?;
        Ok(target)
    }

    /// Returns the storage hosts on which the cluster is used, or none.
    fn places(&self) -> Result<Vec<HostPlace>> {
        if self.on_hosts { Ok(storage_places(&self.options.workspace()?)?) } else { Ok(Vec::new()) }
    }

    fn start(&mut self, requirements: &Requirements<'_>) -> Result<Running> {
        let workspace = self.options.workspace()?;
        let folder = requirements.folder;
        self.remove_stale(folder)?;
        let places = self.places()?;
        let named: Vec<&str> = match (&self.options.pool, self.access) {
            (Some(pool), _) => vec![pool.as_str()],
            (None, Access::Volumes(_)) => VOLUMES_DATA_POOLS.to_vec(),
            (None, Access::Files) => vec![FILE_SYSTEM_DATA_POOL],
        };
        let pool = pools::find(&workspace, &named)?;
        let sharing = Sharing::new(requirements);
        let bytes = pools::size(&pool, sharing, self.options.bytes, requirements.instance_bytes)?;
        let protection = Some(pool.protection.as_str());
        let network = network::find(&workspace, protection, self.options.link_gbits, self.on_hosts)?;
        let (things, by) = match self.access {
            Access::Volumes(Protocol::VhostUser) => ("volumes", "vhost-user"),
            Access::Volumes(Protocol::Fuse) => ("volumes", "FUSE files"),
            Access::Volumes(_) => ("volumes", "NBD on a Unix socket"),
            Access::Files => ("files", "CephFS (ceph-fuse)"),
        };
        let place = match places.len() {
            0 => String::new(),
            hosts => format!(", from {hosts} storage hosts"),
        };
        self.shape = format!(
            "{things} of {} on cluster '{}', pool {} ({}), by {by}{place}, {}",
            Size(bytes),
            self.options.cluster,
            pool.name,
            pool.protection,
            link_text(&network)
        );
        self.protection = format!("{} on different hosts", pool.protection);
        self.network = Some(network);
        self.daemons = ::cluster::local_processes(&workspace);
        let record = new_record(folder, &self.name)?;
        record.store(folder, &self.name)?;
        let count = sharing.count;
        Ok(match self.access {
            Access::Volumes(protocol) => {
                let prefix = format!("{}-", record.name);
                let plan = self.volumes_plan(folder, &prefix, &places);
                Running::Volumes(RunningVolumes::start(&VolumesPlan { count, bytes, protocol, ..plan })?)
            }
            Access::Files => Running::Files(RunningFiles::start(FilesPlan {
                directory: self.directory(workspace, folder, record),
                places: &places,
                count,
                bytes,
                pool: self.options.pool.as_deref(),
            })?),
        })
    }

    /// Returns the plan of no volumes, in the network of this process without places.
    fn volumes_plan<'a>(
        &'a self,
        folder: &'a Path,
        prefix: &'a str,
        places: &'a [HostPlace],
    ) -> VolumesPlan<'a> {
        VolumesPlan {
            cluster: &self.options.cluster,
            directory: &self.options.directory,
            folder,
            name: &self.name,
            prefix,
            places,
            count: 0,
            bytes: 0,
            data_pool: self.options.pool.as_deref(),
            protocol: Protocol::Nbd,
        }
    }

    fn directory(&self, workspace: Workspace, folder: &Path, record: CleanupRecord) -> RunDirectory {
        RunDirectory { workspace, name: record.name, folder: folder.to_owned(), target: self.name.clone() }
    }

    /// Removes volumes and files of a killed process of this run, or of a failed removal.
    fn remove_stale(&self, folder: &Path) -> Result<()> {
        let Some(record) = CleanupRecord::find(folder, &self.name)? else { return Ok(()) };
        match self.access {
            Access::Volumes(_) => {
                let prefix = format!("{}-", record.name);
                RunningVolumes::remove_stale(&self.volumes_plan(folder, &prefix, &[]))?;
            }
            Access::Files => self.directory(self.options.workspace()?, folder, record).remove()?,
        }
        CleanupRecord::forget(folder, &self.name)
    }

    fn remove(&mut self) -> Result<()> {
        let Some((folder, running)) = self.running.take() else { return Ok(()) };
        match running {
            Running::Volumes(volumes) => volumes.remove()?,
            Running::Files(files) => files.remove()?,
        }
        CleanupRecord::forget(&folder, &self.name)
    }
}

impl System for ClusterTarget {
    fn info(&self) -> SystemInfo {
        let flush = match self.access {
            Access::Volumes(_) => "a completed write is on the drives of all copies",
            Access::Files => "a completed direct write is on the drives of all copies",
        };
        SystemInfo {
            name: self.name.clone(),
            what: format!("Gabion {}: {}", env!("CARGO_PKG_VERSION"), self.shape),
            guarantees: Guarantees {
                flush: flush.into(),
                checksums: "CRC-32C of Ceph's stores, verified on every read".into(),
                protection: self.protection.clone(),
            },
            takes_drives: false,
            own_contents: true,
            degrades: false,
            layout: None,
            remark: self.daemons.is_empty().then(|| REMOTE_REMARK.into()),
            network: self.network.clone(),
            is_remote: self.daemons.is_empty(),
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        let started = self.start(requirements);
        let running =
            started.map_err(|error| SystemError::new(&self.name, "setting up", format!("{error:#}")))?;
        self.running = Some((requirements.folder.to_owned(), running));
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        match &self.running {
            Some((_, Running::Volumes(volumes))) => volumes.extents().to_vec(),
            Some((_, Running::Files(files))) => files.extents().to_vec(),
            None => Vec::new(),
        }
    }

    fn processes(&self) -> Vec<u32> {
        let mut processes = self.daemons.clone();
        match &self.running {
            Some((_, Running::Volumes(volumes))) => processes.extend(volumes.processes()),
            Some((_, Running::Files(files))) => processes.extend(files.processes()),
            None => {}
        }
        processes
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let message = "a target 'cluster' fails no drives: stop an OSD of the cluster";
        Err(SystemError::new(&self.name, "failing a drive", message))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let removed = self.remove_stale(folder);
        removed.map_err(|error| {
            SystemError::new(&self.name, "removing what a killed run created", format!("{error:#}"))
        })
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        self.remove().map_err(|error| SystemError::new(&self.name, "tearing down", format!("{error:#}")))
    }
}

impl Drop for ClusterTarget {
    fn drop(&mut self) {
        // Reported by `tear_down` otherwise.
        let _ = self.tear_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_room_for_the_number_of_a_volume() {
        let run = Path::new("/runs/simulations-20260102-030405");
        assert!(new_record(run, "rbd").is_ok());
        let error = new_record(run, "a-name-that-is-too-long").unwrap_err().to_string();
        assert!(error.contains("NAME=TARGET"), "{error}");
    }

    #[test]
    fn the_speed_of_the_links_is_described() {
        let path = |own_bps| NetworkPath { own_bps, hosts: None };
        assert_eq!(link_text(&path(Some(1_250_000_000))), "over a link of 10 Gbit/s");
        assert_eq!(link_text(&path(None)), "over a link of unknown speed");
    }
}
