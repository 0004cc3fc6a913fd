//! The demonstration of `gabion cluster quickstart`: a disk, a file system and S3 of a cluster,
//! with verified data through the loss of a host and of a monitor.
//!
//! Always true: at the end, also after a failure, the daemon is stopped and the file system is
//! unmounted; the killed daemons of the cluster run again after a success.

mod checks;

use std::time::{Duration, Instant};

use ::cluster::{self as ceph, Progress, QuickstartPlan, ServiceOptions, StepOutcome, StepReport, Workspace};
use anyhow::{Context, Result};
use api::client::Client;
use api::types::{CreateExport, CreateVolume, Protocol};

use crate::child_daemon::ChildDaemon;
use checks::{FileCheck, GatewayCheck, VolumeCheck};

/// Name of the volume.
const VOLUME: &str = "vm01";
/// Size of the volume in bytes.
const VOLUME_BYTES: u64 = 1 << 30;
/// The host whose monitor is lost.
const LOST_MONITOR: &str = "node3";

/// Runs the demonstration on a deployed cluster.
///
/// # Errors
/// The error of a step.
pub(crate) fn run(plan: &QuickstartPlan, workspace: &Workspace, progress: Progress) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tour = ClusterTour { plan, workspace, progress };
    tour.step("create the services", || {
        Ok(ceph::services(workspace, &ServiceOptions::default(), false, progress)?)
    })?;
    let directory = workspace.path("tour");
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let client = Client::unix(directory.join("gabion.sock"));
    let arguments = ["--clusters-directory".to_owned(), plan.base.display().to_string()];
    let log = directory.join("daemon.log");
    let daemon = tour.step("start a daemon of Gabion", || {
        runtime.block_on(ChildDaemon::start(&directory, &log, &arguments, None, &client))
    })?;
    tour.step("create a volume, and export it by NBD and vhost-user", || {
        runtime.block_on(serve_volume(&client, &plan.name))
    })?;
    let volume = VolumeCheck::new(directory.join("nbd.sock"), format!("{}/{VOLUME}", plan.name));
    let file = FileCheck::mount(workspace, &directory.join("cephfs"))?;
    let gateways = GatewayCheck::new(workspace)?;
    tour.step("write and verify data on the disk and the file system", || {
        volume.write(0)?;
        file.write()?;
        tour.verify(&volume, &file, &gateways)
    })?;
    let lost = format!("node{}", plan.hosts);
    tour.step(&format!("kill the host {lost}"), || Ok(plan.kill(workspace, &lost, None)?))?;
    tour.write_and_verify(1, &volume, &file, &gateways)?;
    // Of three hosts, the lost one has a monitor: another lost one would end the quorum.
    if plan.hosts > 3 {
        let daemon = format!("mon.{LOST_MONITOR}");
        let kill = || Ok(plan.kill(workspace, LOST_MONITOR, Some(&daemon))?);
        tour.step(&format!("kill the monitor of host {LOST_MONITOR}"), kill)?;
        tour.write_and_verify(2, &volume, &file, &gateways)?;
    }
    tour.step("start the killed daemons", || {
        let nothing = std::collections::BTreeSet::new();
        Ok(ceph::deploy(workspace, &nothing, false, &|_| {})?)
    })?;
    tour.step("verify again, and stop the daemon", || {
        tour.verify(&volume, &file, &gateways)?;
        drop(file);
        daemon.stop()
    })
}

/// The steps of the demonstration.
struct ClusterTour<'a> {
    plan: &'a QuickstartPlan,
    workspace: &'a Workspace,
    progress: Progress<'a>,
}

impl ClusterTour<'_> {
    /// Runs a step and reports it.
    fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        let (outcome, error) = match &result {
            Ok(_) => (StepOutcome::Changed, None),
            Err(error) => (StepOutcome::Failed, Some(format!("{error:#}"))),
        };
        let seconds = start.elapsed().as_secs_f64();
        let host = self.plan.name.clone();
        (self.progress)(&StepReport { host, step: name.to_owned(), outcome, error, seconds });
        result.with_context(|| format!("cluster '{}': {name}", self.workspace.name()))
    }

    fn write_and_verify(
        &self,
        part: u8,
        volume: &VolumeCheck,
        file: &FileCheck,
        gateways: &GatewayCheck,
    ) -> Result<()> {
        self.step("write more, and verify the disk, the file system and S3", || {
            volume.write(part)?;
            self.verify(volume, file, gateways)
        })
    }

    fn verify(&self, volume: &VolumeCheck, file: &FileCheck, gateways: &GatewayCheck) -> Result<()> {
        volume.verify().context("the disk")?;
        file.verify().context("the file system")?;
        gateways.verify().context("S3")
    }
}

async fn serve_volume(client: &Client, cluster: &str) -> Result<()> {
    let exists = client.list_volumes(cluster).await?.iter().any(|volume| volume.name == VOLUME);
    if !exists {
        client.create_volume(cluster, &CreateVolume::new(VOLUME, VOLUME_BYTES)).await?;
    }
    let exports = client.list_exports().await?;
    for protocol in [Protocol::Nbd, Protocol::VhostUser] {
        if exports.iter().any(|export| export.protocol == protocol && export.pool == cluster) {
            continue;
        }
        let request = CreateExport { shared: true, ..CreateExport::new(cluster, VOLUME, protocol) };
        client.create_export(&request).await?;
    }
    Ok(())
}

/// Waits a limited time for a condition.
///
/// # Errors
/// The error of the last attempt.
fn retry(limit: Duration, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(200)),
            result => return result,
        }
    }
}
