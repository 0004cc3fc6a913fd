//! Removal of drives, hosts and whole clusters.
//!
//! Always true: a drive is drained before it is removed, and the removal is refused while data
//! would have too few copies. A whole cluster is removed only on an explicit request.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::erase::{erase_script, remark};
use crate::perform::Deployment;
use crate::progress::{Progress, StepOutcome, StepReport};
use crate::proposal::OsdPlacement;
use crate::separate;
use crate::stages::{check_deployed, load_deployment, save_model};
use crate::status::drives_by_uuid;
use crate::steps::DaemonKind;
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

/// Limit of draining a drive.
const DRAIN_WAIT: Duration = Duration::from_secs(600);
/// Greatest age of the manager's figures: OSDs report every 5 s.
const FIGURES_AGE: Duration = Duration::from_secs(6);

/// Removes a drive (`HOST:DRIVE`, or its path if only one host has it), or a host with all daemons.
/// A drive of databases or write-ahead logs is removed with all OSDs that have theirs on it.
///
/// # Errors
/// `NotFound`; `Unsafe` if the remaining hosts cannot hold all copies, or the monitors would lose
/// their majority; `Io`.
pub fn remove(workspace: &Workspace, target: &str, progress: Progress) -> Result<Vec<StepReport>> {
    let _lock = workspace.lock()?;
    check_deployed(workspace)?;
    let mut deployment = load_deployment(workspace)?;
    let drives = drives_of(&deployment, target)?;
    let is_host = deployment.model.hosts.iter().any(|host| host.name == target);
    check_safety(&deployment, target, &drives, is_host)?;
    let mut reports = Vec::new();
    for (host, drive) in drives {
        let start = Instant::now();
        let remark = remove_drive(&deployment, &host, &drive)?;
        deployment.secrets.remove_osd(workspace, &format!("{host}:{drive}"))?;
        if let Some(member) = deployment.model.hosts.iter_mut().find(|member| member.name == host) {
            member.osds.remove(&drive);
        }
        save_model(workspace, &deployment.model)?;
        reports.push(report(&host, format!("drain and remove {drive}{remark}"), start, progress));
    }
    if is_host {
        let start = Instant::now();
        remove_host(&deployment, target)?;
        deployment.model.hosts.retain(|host| host.name != target);
        save_model(workspace, &deployment.model)?;
        reports.push(report(target, "stop and remove the daemons".into(), start, progress));
    }
    Ok(reports)
}

fn report(host: &str, step: String, start: Instant, progress: Progress) -> StepReport {
    let seconds = start.elapsed().as_secs_f64();
    let report =
        StepReport { host: host.to_owned(), step, outcome: StepOutcome::Changed, error: None, seconds };
    progress(&report);
    report
}

/// Returns the drives that a target means, with their hosts.
fn drives_of(deployment: &Deployment, target: &str) -> Result<Vec<(String, String)>> {
    let all = deployment.model.hosts.iter();
    let all = all.flat_map(|host| host.osds.iter().map(move |(drive, osd)| (&host.name, drive, osd)));
    let names = |host: &str, drive: &str| target == drive || target.split_once(':') == Some((host, drive));
    let is_meant = |(host, drive, osd): &(&String, &String, &OsdPlacement)| {
        let mut drives = osd.db.iter().chain(&osd.wal).chain([*drive]);
        target == *host || drives.any(|drive| names(host, drive))
    };
    let found: Vec<(String, String)> =
        all.filter(is_meant).map(|(host, drive, _)| (host.clone(), drive.clone())).collect();
    let is_host = deployment.model.hosts.iter().any(|host| host.name == target);
    if !is_host && found.is_empty() {
        let message = format!("cluster '{}' has no host or drive '{target}'", deployment.cluster);
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    let hosts: BTreeSet<&String> = found.iter().map(|(host, _)| host).collect();
    if !is_host && hosts.len() > 1 {
        let message = format!("several hosts have a drive '{target}'");
        return Err(Error::new(ErrorKind::Invalid, message).hint("name it as HOST:DRIVE"));
    }
    Ok(found)
}

fn check_safety(
    deployment: &Deployment,
    target: &str,
    drives: &[(String, String)],
    is_host: bool,
) -> Result<()> {
    let model = &deployment.model;
    let remains =
        |host: &str, drive: &String| !drives.iter().any(|(other, path)| other == host && path == drive);
    let storage =
        model.hosts.iter().filter(|host| host.osds.keys().any(|drive| remains(&host.name, drive))).count();
    if !drives.is_empty() && storage < model.replicas() {
        let message = format!(
            "removing '{target}' leaves {storage} storage hosts for {} copies of the data",
            model.replicas()
        );
        return Err(Error::new(ErrorKind::Unsafe, message)
            .hint("add a host first, with the policy and 'gabion cluster deploy'"));
    }
    let monitors = model.with_role("mon").count();
    let is_monitor = is_host && model.with_role("mon").any(|host| host.name == target);
    if is_monitor && monitors <= 3 && !model.development {
        let message = format!("removing '{target}' leaves {} of 3 monitors", monitors - 1);
        return Err(Error::new(ErrorKind::Unsafe, message).hint("give another host the role mon first"));
    }
    Ok(())
}

/// Removes a drive. Returns a remark for the report.
fn remove_drive(deployment: &Deployment, host: &str, drive: &str) -> Result<String> {
    let (member, daemons) = deployment.host(host)?;
    let client = deployment.client()?;
    let key = format!("{host}:{drive}");
    let uuid = deployment.secrets.osds.get(&key).map(|identity| identity.uuid.clone()).unwrap_or_default();
    let numbers = drives_by_uuid(deployment)?;
    let id = daemons.read(&format!("osd/by-uuid/{uuid}"))?.trim().to_owned();
    let is_known = id.parse().is_ok_and(|id: u64| numbers.contains_key(&id));
    let parts = member.osds.get(drive).map(|osd| separate::free_script(osd, &uuid)).unwrap_or_default();
    if !is_known {
        // The OSD was never created, or an interrupted removal deleted it.
        return daemons.run(&parts, b"").map(|output| remark(&output));
    }
    client.monitor(&json!({"prefix": "osd out", "ids": [id]}))?;
    wait_until_drained(deployment, &id)?;
    daemons.stop(DaemonKind::Osd, &id)?;
    let purge =
        json!({"prefix": "osd purge", "id": id.parse::<i64>().unwrap_or(-1), "yes_i_really_mean_it": true});
    client.manager_json(&purge)?;
    let script = format!(
        "rm -rf \"$root/osd/{id}\" \"$root/osd/by-uuid/{uuid}\" \"$root/run/osd.{id}.\"* \"$root/boot/osd.{id}\"\n{}\n{parts}",
        erase_script(drive, &deployment.model.fsid)
    );
    daemons.run(&script, b"").map(|output| remark(&output))
}

/// Waits until a drive holds no data that is needed.
///
/// # Errors
/// `Unsafe` when that does not happen in time: the drive stays in the cluster.
fn wait_until_drained(deployment: &Deployment, id: &str) -> Result<()> {
    let client = deployment.client()?;
    let start = Instant::now();
    loop {
        // The manager's figures are some seconds old: the first answer may be from before.
        std::thread::sleep(FIGURES_AGE);
        let command = json!({"prefix": "osd safe-to-destroy", "ids": [id], "format": "json"});
        let reason = match client.manager_json(&command) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        if start.elapsed() > DRAIN_WAIT {
            let message = format!("osd.{id} is not drained after {} s: {reason}", DRAIN_WAIT.as_secs());
            let hint = "it is marked 'out' and keeps draining; repeat the command later";
            return Err(Error::new(ErrorKind::Unsafe, message).hint(hint));
        }
    }
}

fn remove_host(deployment: &Deployment, name: &str) -> Result<()> {
    let (host, daemons) = deployment.host(name)?;
    if host.has("mon") {
        // The last monitor cannot remove itself.
        let removed = deployment.client()?.monitor(&json!({"prefix": "mon remove", "name": name}));
        match removed {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    daemons.remove_boot(&deployment.cluster)?;
    daemons.stop_all()?;
    daemons.run("rm -rf \"$root\"", b"").map(drop)
}

/// Kills all daemons of a cluster, erases its drives, and deletes its directories.
///
/// # Errors
/// `Io`, `Unreachable`: the command can be repeated.
pub fn remove_all(workspace: &Workspace, progress: Progress) -> Result<Vec<StepReport>> {
    let lock = workspace.lock()?;
    let mut reports = Vec::new();
    match load_deployment(workspace) {
        Ok(deployment) => {
            for (name, daemons) in &deployment.hosts {
                let start = Instant::now();
                daemons.remove_boot(&deployment.cluster)?;
                // Daemons without monitors would take up to 30 s each to end by themselves.
                daemons.kill(None)?;
                let host = deployment.model.hosts.iter().find(|host| host.name == *name);
                let drives = host.into_iter().flat_map(|host| &host.osds);
                let erase = |(drive, osd): (&String, &OsdPlacement)| {
                    let identity = deployment.secrets.osds.get(&format!("{name}:{drive}"));
                    let free = identity.map(|identity| separate::free_script(osd, &identity.uuid));
                    format!("{}\n{}", erase_script(drive, &deployment.model.fsid), free.unwrap_or_default())
                };
                let erase: Vec<String> = drives.map(erase).collect();
                let output = daemons.run(&format!("{}\nrm -rf \"$root\"", erase.join("\n")), b"")?;
                let step = format!("end the daemons and erase the drives{}", remark(&output));
                reports.push(report(name, step, start, progress));
            }
        }
        // Nothing was deployed before 'configure'.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::remove_dir_all(workspace.directory())
        .map_err(|error| Error::file(workspace.directory(), &error))?;
    drop(lock);
    Ok(reports)
}
