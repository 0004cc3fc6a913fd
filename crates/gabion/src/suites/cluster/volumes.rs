//! Volumes of a run on a cluster, exported by daemons of this machine: one daemon, or one on each
//! storage host.
//!
//! Always true: the volumes have the prefix of the target's clean-up record, and only those are
//! deleted.

use std::path::Path;
use std::time::{Duration, Instant};

use ::cluster::HostPlace;
use anyhow::{Context, Result};
use api::client::Client;
use api::types::{CreateExport, CreateVolume, DeleteExportQuery, Protocol};
use api::{Error, ErrorKind, VolumeName};
use bench::stale_processes::{StateDir, environment_tag};
use bench::system::TargetExtent;
use tokio::runtime::Runtime;

use super::super::gabion::target;
use crate::child_daemon::ChildDaemon;
use crate::progress::follow;

/// Limit of waiting for a volume whose last user was killed: its watch expires after 30 s.
const BUSY_WAIT: Duration = Duration::from_secs(60);

/// The volumes to create.
pub(super) struct VolumesPlan<'a> {
    /// Name of the cluster.
    pub(super) cluster: &'a str,
    /// Directory of all clusters.
    pub(super) directory: &'a Path,
    /// Folder of the run.
    pub(super) folder: &'a Path,
    /// Name of the target.
    pub(super) name: &'a str,
    /// Prefix of the names of the volumes.
    pub(super) prefix: &'a str,
    /// The hosts on which daemons run; one daemon in the network of this process if it is empty.
    pub(super) places: &'a [HostPlace],
    pub(super) count: u32,
    pub(super) bytes: u64,
    pub(super) data_pool: Option<&'a str>,
    pub(super) protocol: Protocol,
}

/// Exported volumes.
pub(super) struct RunningVolumes {
    runtime: Runtime,
    daemons: Vec<ServingDaemon>,
    cluster: String,
    /// The volumes, each with the index of its daemon.
    volumes: Vec<(usize, String)>,
    extents: Vec<TargetExtent>,
}

struct ServingDaemon {
    daemon: ChildDaemon,
    client: Client,
    /// Holds the daemon's sockets and state.
    state: StateDir,
}

impl RunningVolumes {
    /// Starts the daemons, and creates and exports the volumes, distributed over the daemons.
    ///
    /// # Errors
    /// If that fails; no volume remains.
    pub(super) fn start(plan: &VolumesPlan<'_>) -> Result<Self> {
        let mut running = Self::new(plan)?;
        match running.set_up(plan) {
            Ok(()) => Ok(running),
            Err(error) => Err(match running.remove() {
                Ok(()) => error,
                Err(left) => error.context(format!("volumes of the run remain: {left:#}")),
            }),
        }
    }

    fn new(plan: &VolumesPlan<'_>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let cluster = plan.cluster.to_owned();
        Ok(Self { runtime, daemons: Vec::new(), cluster, volumes: Vec::new(), extents: Vec::new() })
    }

    fn set_up(&mut self, plan: &VolumesPlan<'_>) -> Result<()> {
        if plan.places.is_empty() {
            self.start_daemon(plan, plan.name, None)?;
        }
        for place in plan.places.iter().take(plan.count as usize) {
            self.start_daemon(plan, &format!("{}-{}", plan.name, place.name), Some(place))?;
        }
        for number in 0..plan.count {
            let daemon = number as usize % self.daemons.len().max(1);
            self.add(daemon, format!("{}{number}", plan.prefix), plan)?;
        }
        Ok(())
    }

    fn start_daemon(&mut self, plan: &VolumesPlan<'_>, name: &str, place: Option<&HostPlace>) -> Result<()> {
        let state = StateDir::new(plan.folder, name)?;
        let client = Client::unix(state.path().join("gabion.sock"));
        let log = plan.folder.join(format!("{name}.log"));
        let arguments = ["--clusters-directory".to_owned(), plan.directory.display().to_string()];
        // Allows a resumed run to find the daemon if this process is killed.
        let tag = Some(environment_tag(plan.folder)?);
        let started = ChildDaemon::start_shielded(place, state.path(), &log, &arguments, tag, &client);
        let daemon = self.runtime.block_on(started)?;
        self.daemons.push(ServingDaemon { daemon, client, state });
        Ok(())
    }

    /// Deletes the volumes with the prefix of a plan, which a killed process created.
    ///
    /// # Errors
    /// If the daemon does not start, or a volume is in use.
    pub(super) fn remove_stale(plan: &VolumesPlan<'_>) -> Result<()> {
        let mut running = Self::new(plan)?;
        running.start_daemon(plan, plan.name, None)?;
        let Some(first) = running.daemons.first() else { return Ok(()) };
        let volumes = running.runtime.block_on(first.client.list_volumes(plan.cluster))?;
        let is_ours = |name: &str| {
            let number = name.strip_prefix(plan.prefix);
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        for volume in volumes.iter().filter(|volume| is_ours(&volume.name)) {
            running.delete(&first.client, &volume.name)?;
        }
        running.remove()
    }

    /// Creates and exports a volume.
    fn add(&mut self, daemon: usize, name: String, plan: &VolumesPlan<'_>) -> Result<()> {
        let Some(ServingDaemon { client, state, .. }) = self.daemons.get(daemon) else { return Ok(()) };
        let volume = CreateVolume {
            data_pool: plan.data_pool.map(str::to_owned),
            ..CreateVolume::new(name.clone(), plan.bytes)
        };
        let export = CreateExport::new(self.cluster.clone(), name.clone(), plan.protocol);
        self.runtime.block_on(client.create_volume(&self.cluster, &volume))?;
        self.volumes.push((daemon, name));
        let export = self.runtime.block_on(client.create_export(&export))?;
        self.extents.push(TargetExtent { target: target(&export, state.path())?, bytes: plan.bytes });
        Ok(())
    }

    pub(super) fn extents(&self) -> &[TargetExtent] {
        &self.extents
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.daemons.iter().map(|one| one.daemon.pid())
    }

    /// Deletes a volume. Waits while a killed process still counts as its user.
    fn delete(&self, client: &Client, volume: &str) -> Result<()> {
        let name = VolumeName { pool: self.cluster.clone(), volume: volume.to_owned() };
        let is_busy = |error: &anyhow::Error| {
            error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Busy)
        };
        let start = Instant::now();
        loop {
            let deleted = self.runtime.block_on(async {
                let started = client.delete_volume(&name).await?;
                follow(client, started, true).await?;
                anyhow::Ok(())
            });
            match deleted {
                Err(error) if is_busy(&error) && start.elapsed() < BUSY_WAIT => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                deleted => return deleted,
            }
        }
    }

    /// Deletes the volumes and stops the daemons.
    ///
    /// # Errors
    /// The first failure; everything else is removed.
    pub(super) fn remove(self) -> Result<()> {
        let mut result = Ok(());
        for (daemon, volume) in &self.volumes {
            let Some(ServingDaemon { client, .. }) = self.daemons.get(*daemon) else { continue };
            let name = VolumeName { pool: self.cluster.clone(), volume: volume.clone() };
            let query = DeleteExportQuery { force: true, ..Default::default() };
            // Without an export there is nothing to delete.
            let _ = self.runtime.block_on(client.delete_export(&name, &query));
            result = result.and(self.delete(client, volume).context("deleting the volumes"));
        }
        for one in self.daemons {
            result = result.and(one.daemon.stop());
        }
        result
    }
}
