//! A Ceph cluster as a benchmark target: volumes on it, exported by a child daemon of this host.
//!
//! Always true: the volumes carry the name of the run, and only those are deleted; the cluster must
//! run already, and no daemon of it is changed.

use std::path::PathBuf;

use ::cluster::ClusterLinks;
use anyhow::{Context, Result};
use api::Size;
use api::client::Client;
use api::types::{CreateExport, CreateVolume, NetworkOptions, Protocol};
use bench::network::{self, HostLinks, NetworkPath};
use bench::stale_processes::{StateDir, environment_tag};
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent};
use tokio::runtime::Runtime;

use super::format::float;
use super::gabion::target;
use crate::child_daemon::ChildDaemon;
use crate::failure::Usage;
use crate::progress::follow;

/// Default size of a volume in bytes.
const VOLUME_BYTES: u64 = 4 << 30;

/// The benchmark target.
pub(super) struct ClusterTarget {
    name: String,
    cluster: String,
    directory: PathBuf,
    bytes: u64,
    protocol: Protocol,
    shape: String,
    /// Speed of all links in Gbit/s, as the user states it.
    link_gbits: Option<f64>,
    network: Option<NetworkPath>,
    running: Option<RunningCluster>,
}

/// A running target.
struct RunningCluster {
    runtime: Runtime,
    daemon: ChildDaemon,
    client: Client,
    /// Holds the daemon's sockets and state.
    state: StateDir,
    volumes: Vec<String>,
    extents: Vec<TargetExtent>,
}

impl ClusterTarget {
    /// Parses the name of the cluster and the options of the target.
    ///
    /// # Errors
    /// If an option is invalid or there is no such cluster.
    pub(super) fn parse(name: &str, options: &str) -> Result<Self> {
        let mut words = options.split(',').filter(|word| !word.is_empty());
        let cluster = words.next().filter(|word| !word.contains('=')).ok_or_else(|| {
            Usage("the target 'cluster' needs the name of a cluster, as in cluster:prod".into())
        })?;
        let mut system = Self {
            name: name.into(),
            cluster: cluster.into(),
            directory: ::cluster::CLUSTERS_DIR.into(),
            bytes: VOLUME_BYTES,
            protocol: Protocol::Nbd,
            shape: String::new(),
            link_gbits: None,
            network: None,
            running: None,
        };
        for option in words {
            match option.split_once('=') {
                Some(("by", "nbd")) => system.protocol = Protocol::Nbd,
                Some(("by", "vhost")) => system.protocol = Protocol::VhostUser,
                Some(("by", "fuse")) => system.protocol = Protocol::Fuse,
                Some(("dir", directory)) if directory.starts_with('/') => system.directory = directory.into(),
                Some(("network", gbits)) => {
                    let parsed = gbits.parse::<f64>().ok().filter(|gbits| gbits.is_finite() && *gbits > 0.0);
                    let wrong = || Usage(format!("{option}: expected the speed of the links in Gbit/s"));
                    system.link_gbits = Some(parsed.ok_or_else(wrong)?);
                }
                Some(("size", size)) => {
                    let parsed: Size = size.parse().map_err(|error| Usage(format!("{option}: {error}")))?;
                    system.bytes = parsed.bytes();
                }
                _ => {
                    let message = format!(
                        "invalid option '{option}' of the target 'cluster': see 'gabion bench run --help'"
                    );
                    return Err(Usage(message).into());
                }
            }
        }
        ::cluster::Workspace::open(&system.directory, &system.cluster)?;
        Ok(system)
    }

    fn start(&mut self, requirements: &Requirements<'_>) -> Result<RunningCluster> {
        let state = StateDir::new(requirements.folder, &self.name)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::unix(state.path().join("gabion.sock"));
        let log = requirements.folder.join(format!("{}.log", self.name));
        let arguments = ["--clusters-directory".to_owned(), self.directory.display().to_string()];
        // Allows a resumed run to find the daemon if this process is killed.
        let tag = Some(environment_tag(requirements.folder)?);
        let daemon = runtime.block_on(ChildDaemon::start(state.path(), &log, &arguments, tag, &client))?;
        let (volumes, extents) = (Vec::new(), Vec::new());
        let mut running = RunningCluster { runtime, daemon, client, state, volumes, extents };
        let bytes = self.bytes.min(requirements.instance_bytes.unwrap_or(u64::MAX)) / (1 << 20) * (1 << 20);
        for number in 0..requirements.instances.max(1) {
            let name = format!("bench-{}-{}-{number}", self.name, std::process::id());
            if let Err(error) = running.add(&self.cluster, &name, bytes, self.protocol) {
                // The volumes that exist are deleted.
                return Err(match running.remove(&self.cluster) {
                    Ok(()) => error,
                    Err(left) => error.context(format!("volumes of the run remain: {left:#}")),
                });
            }
        }
        let by = match self.protocol {
            Protocol::VhostUser => "over vhost-user",
            Protocol::Fuse => "as FUSE files",
            _ => "over NBD on a Unix socket",
        };
        let network = self.find_network().context("the network of the cluster")?;
        let speed = match network.own_bps {
            Some(bps) => format!("{} Gbit/s", float(bps) * 8.0 / 1e9),
            None => "unknown speed".into(),
        };
        self.network = Some(network);
        self.shape =
            format!("volumes of {} on cluster '{}', {by}, over a link of {speed}", Size(bytes), self.cluster);
        Ok(running)
    }

    /// Returns the network to the cluster and between its hosts.
    fn find_network(&self) -> Result<NetworkPath> {
        let workspace = ::cluster::Workspace::open(&self.directory, &self.cluster)?;
        let links = ::cluster::links(&workspace)?;
        let pools = ::cluster::status(&workspace)?.pools;
        let protection = ["rbd-data", "rbd"].iter().find_map(|name| {
            pools.iter().find(|pool| pool.name == *name).map(|pool| pool.protection.clone())
        });
        let monitor = links.monitor.clone();
        let detected = monitor.and_then(|monitor| network::link_speed(&network::device_to(&monitor)?));
        Ok(network_path(&links, protection.as_deref(), self.link_gbits, detected))
    }
}

/// Returns the network to a cluster. `detected` is the speed of this host's link in bytes per
/// second; `stated` is that of all links in Gbit/s, and has precedence.
fn network_path(
    links: &ClusterLinks,
    protection: Option<&str>,
    stated: Option<f64>,
    detected: Option<u64>,
) -> NetworkPath {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below 2^63")]
    let stated = stated.map(|gbits| (gbits.min(1e9) * 1e9 / 8.0) as u64);
    let between = stated.or(links.speed.map(|megabits| megabits.saturating_mul(125_000)));
    let parts = protection.and_then(parts);
    let hosts = between.zip(parts).map(|(bps, (data, parity))| HostLinks {
        hosts: u32::try_from(links.hosts).unwrap_or(u32::MAX),
        bps,
        data,
        parity,
    });
    NetworkPath { own_bps: stated.or(detected), hosts: hosts.filter(|links| links.hosts > 0) }
}

/// Returns the data parts and further parts of a write, from `3 copies` or `4+2`.
fn parts(protection: &str) -> Option<(u32, u32)> {
    if let Some((data, parity)) = protection.split_once('+') {
        return Some((data.parse().ok()?, parity.parse().ok()?));
    }
    let copies: u32 = protection.split(' ').next()?.parse().ok()?;
    Some((1, copies.checked_sub(1)?))
}

impl RunningCluster {
    /// Creates and exports a volume.
    fn add(&mut self, cluster: &str, name: &str, bytes: u64, protocol: Protocol) -> Result<()> {
        let export = CreateExport {
            pool: cluster.to_owned(),
            volume: name.to_owned(),
            protocol,
            read_only: false,
            shared: false,
            queues: None,
            reactors: Vec::new(),
            network: NetworkOptions::default(),
            owner: None,
        };
        self.runtime.block_on(self.client.create_volume(cluster, &CreateVolume::new(name, bytes)))?;
        self.volumes.push(name.to_owned());
        let export = self.runtime.block_on(self.client.create_export(&export))?;
        self.extents.push(TargetExtent { target: target(&export, self.state.path())?, bytes });
        Ok(())
    }

    /// Deletes the volumes and stops the daemon.
    fn remove(self, cluster: &str) -> Result<()> {
        let delete = async {
            for volume in &self.volumes {
                let name = api::VolumeName { pool: cluster.to_owned(), volume: volume.clone() };
                let query = api::types::DeleteExportQuery { force: true, ..Default::default() };
                // Without an export there is nothing to delete.
                let _ = self.client.delete_export(&name, &query).await;
                let started = self.client.delete_volume(&name).await?;
                follow(&self.client, started, true).await?;
            }
            anyhow::Ok(())
        };
        let deleted = self.runtime.block_on(delete).context("deleting the volumes");
        deleted.and(self.daemon.stop())
    }
}

impl System for ClusterTarget {
    fn info(&self) -> SystemInfo {
        SystemInfo {
            name: self.name.clone(),
            what: format!("Gabion {}: {}", env!("CARGO_PKG_VERSION"), self.shape),
            promises: Guarantees {
                flush: "a completed write is on the drives of all copies".into(),
                checksums: "CRC-32C of Ceph's stores, verified on every read".into(),
                protection: "that of the cluster's pool, across hosts".into(),
            },
            takes_drives: false,
            degrades: false,
            layout: None,
            remark: Some("the processors of OSDs are not in the figures of this process".into()),
            network: self.network.clone(),
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        let started = self.start(requirements);
        let running =
            started.map_err(|error| SystemError::new(&self.name, "setting up", format!("{error:#}")))?;
        self.running = Some(running);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.running.as_ref().map(|running| running.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.running.iter().map(|running| running.daemon.pid()).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let message = "a target 'cluster' fails no drives: stop an OSD of the cluster";
        Err(SystemError::new(&self.name, "failing a drive", message))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let removed = running.remove(&self.cluster);
        removed.map_err(|error| SystemError::new(&self.name, "tearing down", format!("{error:#}")))
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
    fn the_stated_speed_has_precedence_over_detected_ones() {
        let links = ClusterLinks { hosts: 4, speed: Some(25_000), monitor: None };
        let path = network_path(&links, Some("3 copies"), None, Some(1_250_000_000));
        assert_eq!(path.own_bps, Some(1_250_000_000));
        let hosts = HostLinks { hosts: 4, bps: 3_125_000_000, data: 1, parity: 2 };
        assert_eq!(path.hosts, Some(hosts));
        let stated = network_path(&links, Some("4+2"), Some(100.0), Some(1_250_000_000));
        let hosts = HostLinks { hosts: 4, bps: 12_500_000_000, data: 4, parity: 2 };
        assert_eq!((stated.own_bps, stated.hosts), (Some(12_500_000_000), Some(hosts)));
        let unknown = ClusterLinks { speed: None, ..links };
        let path = network_path(&unknown, Some("3 copies"), None, None);
        assert_eq!((path.own_bps, path.hosts), (None, None));
        assert_eq!(network_path(&unknown, None, Some(1.0), None).hosts, None);
        assert_eq!(
            (parts("1 copy"), parts("2 copies"), parts("unknown")),
            (Some((1, 0)), Some((1, 1)), None)
        );
    }
}
