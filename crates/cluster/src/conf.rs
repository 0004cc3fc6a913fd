//! `ceph.conf` and the other files of a host, from the model.
//!
//! Always true: every path lies within the directory of the cluster on the host, so that two
//! clusters on one machine share nothing. Pure functions.

use std::fmt::Write;
use std::net::Ipv4Addr;

use crate::keys::Secrets;
use crate::model::{ClusterModel, ModelHost};
use crate::services::GATEWAY_PORT;

/// Returns the addresses of a monitor, in both versions of the protocol.
fn monitor_address(address: Ipv4Addr) -> String {
    format!("[v2:{address}:3300,v1:{address}:6789]")
}

/// Returns the addresses of all monitors, as `mon_host` has them.
pub(crate) fn monitor_addresses(model: &ClusterModel) -> String {
    if !model.monitors.is_empty() {
        return model.monitors.clone();
    }
    let addresses = model.with_role("mon").filter_map(|host| host.public_address);
    addresses.map(monitor_address).collect::<Vec<_>>().join(" ")
}

/// Returns `ceph.conf` of a host, whose directory is `root`.
pub(crate) fn host_conf(model: &ClusterModel, host: &ModelHost, root: &str) -> String {
    let monitors: Vec<&str> = model.with_role("mon").map(|host| host.name.as_str()).collect();
    let replicas = model.replicas();
    let mut text = format!(
        "# Written by 'gabion cluster deploy'.\n\
         [global]\n\
         fsid = {}\n\
         mon_host = {}\n\
         mon_initial_members = {}\n\
         public_network = {}\n\
         cluster_network = {}\n\
         auth_cluster_required = cephx\n\
         auth_service_required = cephx\n\
         auth_client_required = cephx\n\
         auth_allow_insecure_global_id_reclaim = false\n\
         osd_pool_default_size = {replicas}\n\
         osd_pool_default_min_size = {}\n\
         run_dir = {root}/run\n\
         pid_file = {root}/run/$name.pid\n\
         admin_socket = {root}/run/$name.asok\n\
         log_file = {root}/log/$name.log\n\
         crash_dir = {root}/crash\n",
        model.fsid,
        monitor_addresses(model),
        monitors.join(","),
        model.public_network,
        model.cluster_network,
        replicas.saturating_sub(1).max(1),
    );
    add_settings(&mut text, model, "global");
    for (section, data) in [("mon", "mon"), ("mgr", "mgr"), ("osd", "osd")] {
        let _ = write!(text, "[{section}]\n{section}_data = {root}/{data}/$id\n");
        let _ = writeln!(text, "keyring = {root}/{data}/$id/keyring");
        if section == "osd" {
            let _ = writeln!(text, "crush_location = root=default host={}", host.name);
        }
        add_settings(&mut text, model, section);
    }
    add_services(&mut text, host, root);
    let other =
        model.settings.keys().filter(|section| !["global", "mon", "mgr", "osd"].contains(&section.as_str()));
    for section in other {
        let _ = writeln!(text, "[{section}]");
        add_settings(&mut text, model, section);
    }
    text
}

/// Adds the sections of the metadata server and the object gateway of a host.
fn add_services(text: &mut String, host: &ModelHost, root: &str) {
    let name = &host.name;
    if host.has("mds") {
        let _ = write!(text, "[mds]\nmds_data = {root}/mds/$id\nkeyring = {root}/mds/$id/keyring\n");
    }
    if let Some(address) = host.public_address.filter(|_| host.has("rgw")) {
        let _ = write!(
            text,
            "[client.rgw.{name}]\nrgw_data = {root}/rgw/{name}\nkeyring = {root}/rgw/{name}/keyring\n\
             rgw_frontends = beast endpoint={address}:{GATEWAY_PORT}\n"
        );
    }
}

fn add_settings(text: &mut String, model: &ClusterModel, section: &str) {
    for (key, value) in model.settings.get(section).into_iter().flatten() {
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// Returns the configuration for the programs of Ceph on the controlling machine.
pub(crate) fn client_conf(model: &ClusterModel, directory: &str) -> String {
    format!(
        "# For the programs of Ceph: ceph -c {directory}/ceph.conf status\n\
         [global]\nfsid = {}\nmon_host = {}\nkeyring = {directory}/ceph.keyring\n",
        model.fsid,
        monitor_addresses(model),
    )
}

/// Returns the keyring of the administrator.
pub(crate) fn admin_keyring(secrets: &Secrets) -> String {
    format!(
        "[client.admin]\n\tkey = {}\n\tcaps mds = \"allow *\"\n\tcaps mgr = \"allow *\"\n\
         \tcaps mon = \"allow *\"\n\tcaps osd = \"allow *\"\n",
        secrets.admin
    )
}

/// Returns the first keyring of the monitors.
pub(crate) fn monitor_keyring(secrets: &Secrets) -> String {
    format!("[mon.]\n\tkey = {}\n\tcaps mon = \"allow *\"\n{}", secrets.monitor, admin_keyring(secrets))
}

/// Returns the arguments of `monmaptool` for all monitors.
pub(crate) fn monmap_arguments(model: &ClusterModel) -> String {
    let monitors = model.with_role("mon").filter_map(|host| {
        let address = host.public_address?;
        Some(format!("--addv {} '{}'", host.name, monitor_address(address)))
    });
    format!("--create --fsid {} {}", model.fsid, monitors.collect::<Vec<_>>().join(" "))
}
