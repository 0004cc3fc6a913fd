//! Validation of a cluster before it is changed.
//!
//! Always true: all violations are reported at once, each with an action.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::inventory::{HostDrive, HostInventory};
use crate::model::{ClusterModel, ModelHost};
use crate::network::Network;
use crate::separate::{DrivePart, PART_BYTES_MIN, TABLE_BYTES, parts};

/// Monitors of a production cluster, at least.
const MONITORS_MIN: usize = 3;
/// Storage hosts of a production cluster, at least.
const STORAGE_HOSTS_MIN: usize = 4;
/// Greatest difference between clocks in seconds, as measured over SSH.
const CLOCK_OFFSET_MAX: f64 = 2.0;
/// Smallest drive of an OSD in bytes.
const OSD_BYTES_MIN: u64 = 2 << 30;

/// A violation of a requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Violated requirement, with the object and the value.
    pub problem: String,
    /// Action that resolves it.
    pub action: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.action)
    }
}

/// The violations so far.
#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, problem: impl Into<String>, action: impl Into<String>) {
        self.0.push(Violation { problem: problem.into(), action: action.into() });
    }
}

/// Validates a model against the inventories of its hosts. `wipe` names drives, as `HOST:DRIVE`,
/// whose contents may be erased.
/// `own` holds the identities of this cluster's OSDs.
pub(crate) fn validate(
    model: &ClusterModel,
    inventories: &[HostInventory],
    wipe: &BTreeSet<String>,
    own: &BTreeSet<String>,
) -> Vec<Violation> {
    let drives = DriveRules { model, wipe, own };
    let mut violations = Violations::default();
    check_identity(model, &mut violations);
    check_counts(model, &mut violations);
    for host in &model.hosts {
        match inventories.iter().find(|inventory| inventory.name == host.name) {
            None => violations.add(
                format!("host '{}' has no inventory", host.name),
                "take it with 'gabion cluster discover'",
            ),
            Some(inventory) => check_host(&drives, host, inventory, &mut violations),
        }
    }
    check_versions(model, inventories, &mut violations);
    check_wipes(model, wipe, &mut violations);
    violations.0
}

fn check_identity(model: &ClusterModel, violations: &mut Violations) {
    if !is_uuid(&model.fsid) {
        violations.add(
            format!("fsid '{}' is not a UUID", model.fsid),
            "set 'fsid' in config/stack/default/ceph/cluster.yml",
        );
    }
    for (key, value) in
        [("public_network", &model.public_network), ("cluster_network", &model.cluster_network)]
    {
        if let Err(error) = value.parse::<Network>() {
            violations.add(
                format!("{key}: {error}"),
                format!("set '{key}' in config/stack/default/ceph/cluster.yml"),
            );
        }
    }
}

/// Returns true for the text form of a UUID.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.chars().all(|c| c.is_ascii_hexdigit()))
}

fn check_counts(model: &ClusterModel, violations: &mut Violations) {
    let monitors = model.with_role("mon").count();
    let needed = if model.development { 1 } else { MONITORS_MIN };
    if monitors < needed {
        violations.add(
            format!("{monitors} of {needed} monitors"),
            "add hosts to a line 'role-mon/cluster/...' of the policy, or use --development",
        );
    } else if monitors.is_multiple_of(2) {
        violations.add(
            format!("{monitors} monitors: an even number tolerates no more failures than one less"),
            "change the lines 'role-mon/cluster/...' of the policy",
        );
    }
    if model.with_role("mgr").count() == 0 {
        violations.add("no manager", "add a line 'role-mgr/cluster/...' to the policy");
    }
    let storage = model.with_role("storage").filter(|host| !host.osds.is_empty()).count();
    let needed = if model.development { 1 } else { STORAGE_HOSTS_MIN };
    if storage < needed {
        violations.add(
            format!("{storage} of {needed} storage hosts"),
            "add lines 'profile-NAME/...' for more hosts to the policy, or use --development",
        );
    }
}

/// The rules for the contents of drives.
struct DriveRules<'a> {
    model: &'a ClusterModel,
    wipe: &'a BTreeSet<String>,
    own: &'a BTreeSet<String>,
}

fn check_host(rules: &DriveRules, host: &ModelHost, inventory: &HostInventory, violations: &mut Violations) {
    let (name, model) = (&host.name, rules.model);
    let has_daemons = ["mon", "mgr", "storage", "mds", "rgw"].iter().any(|role| host.has(role));
    let mut networks = vec![("public_network", &model.public_network, host.public_address, has_daemons)];
    networks.push(("cluster_network", &model.cluster_network, host.cluster_address, host.has("storage")));
    for (key, network, address, needed) in networks {
        if needed && address.is_none() && network.parse::<Network>().is_ok() {
            violations.add(
                format!("host '{name}' has no address in {key} {network}"),
                "configure an address on the host, or change the network",
            );
        }
    }
    if inventory.clock_offset.abs() > CLOCK_OFFSET_MAX {
        violations.add(
            format!("the clock of host '{name}' is off by {:.1} s", inventory.clock_offset),
            "synchronise the clocks, for example with chrony",
        );
    }
    if !inventory.time_service {
        violations.add(
            format!("host '{name}' runs no time service"),
            "install one with 'gabion cluster prepare', for example chrony",
        );
    }
    if host.has("storage") && host.osds.is_empty() {
        violations.add(
            format!("storage host '{name}' has no drives"),
            "add the line 'profile-NAME/stack/default/ceph/minions/*.yml' to the policy",
        );
    }
    for path in host.osds.keys() {
        check_drive(rules, name, path, inventory.drive(path), violations);
    }
    for (path, parts) in separate_drives(host) {
        check_separate_drive(rules, host, &path, &parts, inventory.drive(&path), violations);
    }
}

/// Returns the drives of a host that hold databases and write-ahead logs, with their parts.
fn separate_drives(host: &ModelHost) -> BTreeMap<String, Vec<DrivePart>> {
    let mut drives: BTreeMap<String, Vec<DrivePart>> = BTreeMap::new();
    for part in host.osds.values().flat_map(parts) {
        drives.entry(part.drive.clone()).or_default().push(part);
    }
    drives
}

/// Returns a drive that exists and is not in use.
fn unused_drive<'a>(
    host: &str,
    path: &str,
    drive: Option<&'a HostDrive>,
    violations: &mut Violations,
) -> Option<&'a HostDrive> {
    let Some(drive) = drive else {
        violations.add(
            format!("host '{host}' has no drive {path}"),
            "repeat 'gabion cluster discover' with the proposal, or remove a failed drive with 'gabion cluster remove'",
        );
        return None;
    };
    if drive.used_by.is_empty() {
        return Some(drive);
    }
    violations.add(
        format!("host '{host}': drive {path} is in use by {}", drive.used_by),
        "remove it from the profile; drives in use are never erased",
    );
    None
}

fn check_drive(
    rules: &DriveRules,
    host: &str,
    path: &str,
    drive: Option<&HostDrive>,
    violations: &mut Violations,
) {
    let Some(drive) = unused_drive(host, path, drive, violations) else { return };
    if drive.bytes < OSD_BYTES_MIN {
        violations.add(
            format!("host '{host}': drive {path} has {} bytes; an OSD needs 2 GiB", drive.bytes),
            "remove it from the profile",
        );
        return;
    }
    check_contents(rules, host, path, foreign_contents(rules, drive), violations);
}

/// Checks a drive that holds databases and write-ahead logs of other drives.
fn check_separate_drive(
    rules: &DriveRules,
    host: &ModelHost,
    path: &str,
    parts: &[DrivePart],
    drive: Option<&HostDrive>,
    violations: &mut Violations,
) {
    let name = &host.name;
    let Some(drive) = unused_drive(name, path, drive, violations) else { return };
    if host.osds.contains_key(path) {
        violations.add(
            format!("host '{name}': drive {path} is the data drive of an OSD, and is to hold databases or write-ahead logs of others"),
            "use a proposal with sizes that select either use",
        );
    }
    for part in parts.iter().filter(|part| part.bytes < PART_BYTES_MIN) {
        violations.add(
            format!(
                "host '{name}': a {} on {path} has {} bytes; it needs 128 MiB",
                part.part_use.noun(),
                part.bytes
            ),
            "use a proposal with a larger 'db-size' or 'wal-size'",
        );
    }
    let needed = parts.iter().fold(TABLE_BYTES, |sum, part| sum.saturating_add(part.bytes));
    if needed > drive.bytes {
        violations.add(
            format!("host '{name}': drive {path} has {} bytes; its {} databases and write-ahead logs need {needed}", drive.bytes, parts.len()),
            "use a proposal with a smaller 'ratio', 'db-size' or 'wal-size'",
        );
    }
    // A table without partitions, or with those of this cluster's OSDs, is no obstacle.
    let is_own_table =
        drive.contents == "gpt" && drive.partitions.iter().all(|name| rules.own.contains(name));
    let foreign = (!is_own_table && !drive.contents.is_empty()).then(|| drive.contents.clone());
    check_contents(rules, name, path, foreign, violations);
}

/// Reports contents that are not named to be erased.
fn check_contents(
    rules: &DriveRules,
    host: &str,
    path: &str,
    foreign: Option<String>,
    violations: &mut Violations,
) {
    if let Some(owner) = foreign
        && !rules.wipe.contains(&format!("{host}:{path}"))
    {
        violations.add(
            format!("host '{host}': drive {path} holds {owner}"),
            format!("erase it with '--wipe {host}:{path}', or remove it from the profile"),
        );
    }
}

/// Describes contents that do not belong to this cluster.
fn foreign_contents(rules: &DriveRules, drive: &HostDrive) -> Option<String> {
    match &drive.osd {
        // An interrupted creation has the identity of an OSD, and perhaps not of the cluster.
        Some(osd) if osd.ceph_fsid == rules.model.fsid || rules.own.contains(&osd.osd_uuid) => None,
        Some(osd) if osd.ceph_fsid.is_empty() => Some("an incomplete OSD".into()),
        Some(osd) => Some(format!("OSD {} of Ceph cluster {}", osd.whoami, osd.ceph_fsid)),
        None if drive.contents.is_empty() => None,
        None => Some(drive.contents.clone()),
    }
}

fn check_versions(model: &ClusterModel, inventories: &[HostInventory], violations: &mut Violations) {
    let is_member = |host: &&HostInventory| model.hosts.iter().any(|member| member.name == host.name);
    let mut versions: BTreeSet<&str> = BTreeSet::new();
    for host in inventories.iter().filter(is_member) {
        if host.ceph_version.is_empty() {
            violations.add(
                format!("host '{}' has no Ceph", host.name),
                "install it with 'gabion cluster prepare', then repeat 'gabion cluster discover'",
            );
        } else {
            versions.insert(&host.ceph_version);
        }
    }
    if versions.len() > 1 {
        let list: Vec<&str> = versions.into_iter().collect();
        violations.add(
            format!("hosts have different versions of Ceph: {}", list.join(", ")),
            "update the packages of all hosts",
        );
    }
}

/// Every name in `wipe` must be a drive of the model, so that a typing error is no surprise later.
fn check_wipes(model: &ClusterModel, wipe: &BTreeSet<String>, violations: &mut Violations) {
    for name in wipe {
        let (host, path) = name.split_once(':').unwrap_or((name, ""));
        let has =
            |member: &ModelHost| member.osds.contains_key(path) || separate_drives(member).contains_key(path);
        let is_known = model.hosts.iter().any(|member| member.name == host && has(member));
        if !is_known {
            violations.add(
                format!("--wipe {name} names no drive of the policy"),
                "name drives as HOST:DRIVE, as the profile does",
            );
        }
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
