//! Fragments: the files below `proposals` that the policy selects and merges.
//!
//! Their paths are those of `DeepSea`. Their contents are JSON, which is a subset of YAML. Always
//! true: files that exist are never overwritten, except the proposals of a profile by a new
//! proposal of the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::hosts::HostsFile;
use crate::inventory::HostInventory;
use crate::network::Network;
use crate::policy::{Policy, ROLES};
use crate::proposal::{ProposalArgs, propose};
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

/// Directory of the fragments.
pub(crate) const PROPOSALS: &str = "proposals";
/// Fragment with the identity and the networks of the cluster.
const CLUSTER_FRAGMENT: &str = "config/stack/default/ceph/cluster.yml";
/// Fragment with the settings of all hosts.
const GLOBAL_FRAGMENT: &str = "config/stack/default/global.yml";

/// A fragment to write, with its path below `proposals`.
pub(crate) struct Fragment {
    pub(crate) path: String,
    pub(crate) value: Value,
    /// Replace an existing file.
    pub(crate) replace: bool,
}

/// Returns the fragments for an inventory.
pub(crate) fn propose_all(
    hosts: &HostsFile,
    inventories: &[HostInventory],
    proposals: &[ProposalArgs],
    fsid: &str,
) -> (Vec<Fragment>, Vec<String>) {
    let mut fragments = Vec::new();
    let mut add = |path: String, value: Value, replace| fragments.push(Fragment { path, value, replace });
    for host in &hosts.hosts {
        add(format!("cluster-ceph/cluster/{}.sls", host.name), json!({"cluster": "ceph"}), false);
        for role in ROLES {
            add(format!("role-{role}/cluster/{}.sls", host.name), json!({"roles": [role]}), false);
        }
    }
    let networks = common_networks(inventories);
    let public = networks.first().map(ToString::to_string);
    let cluster = networks.get(1).map(ToString::to_string).or_else(|| public.clone());
    let identity = json!({"fsid": fsid, "public_network": public, "cluster_network": cluster});
    add(CLUSTER_FRAGMENT.to_owned(), identity, false);
    add(GLOBAL_FRAGMENT.to_owned(), json!({"settings": {}}), false);
    let mut notes = Vec::new();
    for args in proposals {
        let mut has_drives = false;
        for host in inventories {
            let Some(proposal) = propose(args, host) else { continue };
            has_drives |= !proposal.osds.is_empty();
            for (drive, reason) in &proposal.left_out {
                notes.push(format!(
                    "{}: drive {drive} is left out of profile '{}': {reason}",
                    host.name, args.name
                ));
            }
            let profile = format!("profile-{}", args.name);
            add(format!("{profile}/cluster/{}.sls", host.name), json!({"roles": ["storage"]}), true);
            let storage = json!({"ceph": {"storage": {"osds": proposal.osds}}});
            add(format!("{profile}/stack/default/ceph/minions/{}.yml", host.name), storage, true);
        }
        if !has_drives {
            notes.push(format!("profile '{}' fits no drive of any host", args.name));
        }
    }
    (fragments, notes)
}

/// Returns the networks in which every host has an address, in the order of the first host.
fn common_networks(inventories: &[HostInventory]) -> Vec<Network> {
    let Some((first, others)) = inventories.split_first() else { return Vec::new() };
    let is_common = |network: &Network| others.iter().all(|host| host.address_in(*network).is_some());
    first.networks().filter(is_common).collect()
}

/// Writes fragments. Returns the paths of those that changed.
pub(crate) fn write(workspace: &Workspace, fragments: &[Fragment]) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    for fragment in fragments {
        let file = format!("{PROPOSALS}/{}", fragment.path);
        let existing = std::fs::read_to_string(workspace.path(&file)).ok();
        let parsed = existing.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        if existing.is_some() && (!fragment.replace || parsed.as_ref() == Some(&fragment.value)) {
            continue;
        }
        workspace.save(&file, &fragment.value)?;
        changed.push(fragment.path.clone());
    }
    Ok(changed)
}

/// The merged fragments of each host, with every mistake that was found.
pub(crate) struct MergedHosts {
    pub(crate) hosts: BTreeMap<String, Value>,
    pub(crate) mistakes: Vec<String>,
}

/// Merges the fragments that a policy selects.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn merge(workspace: &Workspace, policy: &str, hosts: &HostsFile) -> Result<MergedHosts> {
    let directory = workspace.path(PROPOSALS);
    let mut files = BTreeSet::new();
    collect(&directory, "", &mut files)?;
    let (policy, mistakes) = Policy::parse(policy);
    let (selected, unmatched) = policy.select(&files.iter().map(String::as_str).collect());
    let mut mistakes: Vec<String> = mistakes.iter().chain(&unmatched).map(ToString::to_string).collect();
    let mut merged: BTreeMap<String, Value> =
        hosts.hosts.iter().map(|host| (host.name.clone(), Value::Object(Map::new()))).collect();
    for path in selected {
        let value = match read(&directory, path) {
            Ok(value) => value,
            Err(message) => {
                mistakes.push(message);
                continue;
            }
        };
        if path.starts_with("config/") {
            merged.values_mut().for_each(|host| combine(host, &value));
            continue;
        }
        let file = path.rsplit('/').next().unwrap_or_default();
        let name = file.strip_suffix(".sls").or_else(|| file.strip_suffix(".yml")).unwrap_or(file);
        match merged.get_mut(name) {
            Some(host) => combine(host, &value),
            None => mistakes
                .push(format!("fragment '{path}' is for host '{name}', which is not in the hosts file")),
        }
    }
    Ok(MergedHosts { hosts: merged, mistakes })
}

fn collect(directory: &Path, prefix: &str, files: &mut BTreeSet<String>) -> Result<()> {
    let entries = std::fs::read_dir(directory).map_err(|error| Error::file(directory, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Error::file(directory, &error))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = entry.path();
        if path.is_dir() {
            collect(&path, &format!("{prefix}{name}/"), files)?;
        } else if name.ends_with(".sls") || name.ends_with(".yml") {
            files.insert(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

fn read(directory: &Path, path: &str) -> Result<Value, String> {
    let text = std::fs::read_to_string(directory.join(path))
        .map_err(|error| format!("fragment '{path}': {error}"))?;
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(format!("fragment '{path}' is not a JSON object")),
        Err(error) => Err(format!("fragment '{path}' is not valid JSON: {error}")),
    }
}

/// Merges a value into another: objects by key, lists by appending new items, others by replacing.
fn combine(into: &mut Value, value: &Value) {
    match (into, value) {
        (Value::Object(into), Value::Object(value)) => {
            for (key, value) in value {
                combine(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(value)) => {
            for item in value {
                if !into.contains(item) {
                    into.push(item.clone());
                }
            }
        }
        (into, value) => *into = value.clone(),
    }
}

/// Reads the policy of a cluster.
///
/// # Errors
/// `NotFound` with a hint; `Io`.
pub(crate) fn read_policy(workspace: &Workspace) -> Result<String> {
    let path = workspace.path(&format!("{PROPOSALS}/policy.cfg"));
    std::fs::read_to_string(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            let message = format!("there is no policy {}", path.display());
            return Error::new(ErrorKind::NotFound, message).hint("pass one with --policy FILE");
        }
        Error::file(&path, &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_merge_by_key_and_lists_grow() {
        let mut into = json!({"roles": ["mon"], "a": {"x": 1}, "b": 1});
        combine(&mut into, &json!({"roles": ["mon", "mgr"], "a": {"y": 2}, "b": [2]}));
        assert_eq!(into, json!({"roles": ["mon", "mgr"], "a": {"x": 1, "y": 2}, "b": [2]}));
    }
}
