//! The links of the hosts of a cluster, as the inventory found them.

use crate::inventory::HostInventory;
use crate::model::{ClusterModel, ModelHost};
use crate::stages::{load_inventories, load_model};
use crate::workspace::Workspace;
use ceph::Result;
use serde::Serialize;

/// The links between the storage hosts of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterLinks {
    /// Number of storage hosts.
    pub hosts: usize,
    /// Speed of the slowest link in the cluster network in Mbit/s; absent if one is unknown.
    pub speed: Option<u64>,
    /// Address of a monitor in the public network.
    pub monitor: Option<String>,
    /// True if each storage host has one address for clients and for other hosts, so that both
    /// share a link.
    pub shared: bool,
}

/// Returns the links of a cluster. The links of an adopted cluster are unknown.
///
/// # Errors
/// `NotFound` before `configure`; `Io`.
pub fn links(workspace: &Workspace) -> Result<ClusterLinks> {
    let model = load_model(workspace)?;
    Ok(describe(&model, &load_inventories(workspace)?.unwrap_or_default()))
}

fn describe(model: &ClusterModel, inventories: &[HostInventory]) -> ClusterLinks {
    let speed = |host: &ModelHost| {
        let inventory = inventories.iter().find(|inventory| inventory.name == host.name)?;
        let address = host.cluster_address?;
        inventory.addresses.iter().find(|entry| entry.address == address)?.speed
    };
    let speeds: Option<Vec<u64>> = model.with_role("storage").map(speed).collect();
    let monitors = model.with_role("mon").filter_map(|host| host.public_address);
    // `mon_host` of an adopted cluster: `[v2:10.0.0.1:3300,v1:10.0.0.1:6789]`, or an address alone.
    let words = model.monitors.split(['[', ']', ',', ' ', ':', '/']);
    let adopted = words.filter(|word| word.parse::<std::net::Ipv4Addr>().is_ok()).map(str::to_owned);
    ClusterLinks {
        hosts: model.with_role("storage").count(),
        speed: speeds.and_then(|speeds| speeds.into_iter().min()),
        shared: model
            .with_role("storage")
            .all(|host| host.cluster_address.is_some() && host.public_address == host.cluster_address),
        monitor: monitors.map(|address| address.to_string()).chain(adopted).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::HostAddress;

    #[test]
    fn the_slowest_link_of_the_storage_hosts_counts() {
        let host = |number: u8, roles: &[&str]| ModelHost {
            name: format!("n{number}"),
            roles: roles.iter().map(ToString::to_string).collect(),
            public_address: Some([10, 0, 0, number].into()),
            cluster_address: Some([10, 1, 0, number].into()),
            ..ModelHost::default()
        };
        let inventory = |number: u8, speed: Option<u64>| HostInventory {
            name: format!("n{number}"),
            cores: 1,
            memory: 1,
            clock_offset: 0.0,
            time_service: true,
            ceph_version: String::new(),
            firewall: false,
            addresses: vec![
                HostAddress { address: [10, 0, 0, number].into(), prefix: 24, speed: Some(1000) },
                HostAddress { address: [10, 1, 0, number].into(), prefix: 24, speed },
            ],
            drives: Vec::new(),
        };
        let hosts = vec![host(1, &["mon"]), host(2, &["storage"]), host(3, &["storage"])];
        let model = ClusterModel { hosts, ..ClusterModel::default() };
        let all = [inventory(1, Some(10)), inventory(2, Some(100_000)), inventory(3, Some(25_000))];
        let found = describe(&model, &all);
        assert_eq!((found.hosts, found.speed, found.monitor.as_deref()), (2, Some(25_000), Some("10.0.0.1")));
        assert!(!found.shared, "clients use other addresses");
        let mut same = model.clone();
        same.hosts.iter_mut().for_each(|host| host.public_address = host.cluster_address);
        assert!(describe(&same, &all).shared);
        let unknown = [inventory(2, Some(25_000)), inventory(3, None)];
        assert_eq!(describe(&model, &unknown).speed, None);
    }

    #[test]
    fn an_adopted_cluster_has_the_address_of_a_monitor_only() {
        let monitors = "[v2:10.0.0.7:3300/0,v1:10.0.0.7:6789/0] 10.0.0.8".into();
        let model = ClusterModel { adopted: true, monitors, ..ClusterModel::default() };
        let found = describe(&model, &[]);
        assert_eq!((found.speed, found.monitor.as_deref()), (None, Some("10.0.0.7")));
    }
}
