//! The model of a cluster: the merged configuration that `deploy` brings about.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hosts::HostsFile;
use crate::inventory::HostInventory;
use crate::network::Network;
use crate::proposal::OsdPlacement;

/// A host of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHost {
    /// Name.
    pub name: String,
    /// Roles: `mon`, `mgr`, `storage` and others.
    pub roles: BTreeSet<String>,
    /// Address in the public network.
    pub public_address: Option<Ipv4Addr>,
    /// Address in the cluster network.
    pub cluster_address: Option<Ipv4Addr>,
    /// OSDs, by data drive.
    pub osds: BTreeMap<String, OsdPlacement>,
}

impl ModelHost {
    /// Returns true if the host has the role.
    pub fn has(&self, role: &str) -> bool {
        self.roles.contains(role)
    }
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterModel {
    /// Identity.
    pub fsid: String,
    /// Network of clients and monitors.
    pub public_network: String,
    /// Network between OSDs.
    pub cluster_network: String,
    /// True for fewer hosts and monitors than production needs.
    pub development: bool,
    /// True for a cluster that another tool deployed.
    #[serde(default)]
    pub adopted: bool,
    /// Addresses of the monitors of an adopted cluster, as in `mon_host`.
    #[serde(default)]
    pub monitors: String,
    /// Additional settings of `ceph.conf`, by section.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// Hosts of the cluster.
    pub hosts: Vec<ModelHost>,
}

impl ClusterModel {
    /// Builds the model from merged fragments. Returns it with every mistake of the fragments.
    pub(crate) fn build(
        merged: &BTreeMap<String, Value>,
        inventories: &[HostInventory],
        hosts: &HostsFile,
        development: bool,
    ) -> (Self, Vec<String>) {
        let mut mistakes = Vec::new();
        let mut model = Self { development, ..Self::default() };
        for host in &hosts.hosts {
            let Some(value) = merged.get(&host.name) else { continue };
            if value.get("cluster").is_none() {
                let has_roles = value.get("roles").is_some_and(|roles| roles != &Value::Array(Vec::new()));
                if has_roles {
                    mistakes.push(format!(
                        "host '{}' has roles and no cluster: no line 'cluster-ceph/...' selects it",
                        host.name
                    ));
                }
                continue;
            }
            model.take_globals(value);
            match host_of(&host.name, value) {
                Ok(host) => model.hosts.push(host),
                Err(message) => mistakes.push(message),
            }
        }
        let networks = (model.public_network.parse::<Network>(), model.cluster_network.parse::<Network>());
        for host in &mut model.hosts {
            let inventory = inventories.iter().find(|inventory| inventory.name == host.name);
            let address = |network: &Result<Network, String>| {
                network.as_ref().ok().and_then(|network| inventory?.address_in(*network))
            };
            host.public_address = address(&networks.0);
            host.cluster_address = address(&networks.1);
        }
        (model, mistakes)
    }

    /// Takes the values that all hosts share.
    fn take_globals(&mut self, value: &Value) {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.fsid = text("fsid");
        self.public_network = text("public_network");
        self.cluster_network = text("cluster_network");
        let sections = value.get("settings").and_then(Value::as_object);
        for (section, settings) in sections.into_iter().flatten() {
            for (key, value) in settings.as_object().into_iter().flatten() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.settings.entry(section.clone()).or_default().insert(key.clone(), text);
            }
        }
    }

    /// Returns the hosts with a role.
    pub fn with_role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a ModelHost> {
        self.hosts.iter().filter(move |host| host.has(role))
    }

    /// Returns the number of copies of pools: three, or less on fewer storage hosts.
    pub fn replicas(&self) -> usize {
        self.with_role("storage").count().clamp(1, 3)
    }
}

fn host_of(name: &str, value: &Value) -> Result<ModelHost, String> {
    let roles = value.get("roles").and_then(Value::as_array).into_iter().flatten();
    let mut host = ModelHost {
        name: name.to_owned(),
        roles: roles.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..ModelHost::default()
    };
    if let Some(osds) = value.pointer("/ceph/storage/osds") {
        let parsed = serde_json::from_value(osds.clone());
        host.osds = parsed.map_err(|error| format!("host '{name}': invalid storage profile: {error}"))?;
    }
    Ok(host)
}
