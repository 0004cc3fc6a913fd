//! Adoption of a running cluster that something else deployed, from its `ceph.conf` and keyring.
//!
//! Always true: adoption only reads the cluster; its daemons and drives stay with the tool that
//! deployed them, and removal of an adopted cluster deletes the files of Gabion alone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use api::types::ClusterStatus;
use serde_json::{Value, json};

use crate::hosts::HostsFile;
use crate::keys::Secrets;
use crate::model::{ClusterModel, ModelHost};
use crate::stages::{save_hosts, save_model};
use crate::status::status;
use crate::workspace::Workspace;
use ceph::{ADMIN_USER, CONF_FILE, Error, ErrorKind, RadosClient, RadosOptions, Result};

/// Limit of connecting, in seconds.
const TIMEOUT: u32 = 20;

/// Adopts a cluster under a name, and returns its status.
///
/// # Errors
/// `Exists` if the name is in use; `Invalid` for files without monitors or the administrator's key;
/// `Unreachable`.
pub fn adopt(base: &Path, name: &str, conf: &Path, keyring: &Path) -> Result<ClusterStatus> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| Error::file(path, &error));
    let (conf_text, keyring_text) = (read(conf)?, read(keyring)?);
    let invalid =
        |path: &Path, what: &str| Error::new(ErrorKind::Invalid, format!("{} has no {what}", path.display()));
    let monitors = ceph::conf_value(&conf_text, "global", "mon_host")
        .ok_or_else(|| invalid(conf, "'mon_host' in [global]"))?;
    let secret = ceph::keyring_key(&keyring_text, ADMIN_USER)
        .ok_or_else(|| invalid(keyring, "key of client.admin, which adoption needs"))?;
    let workspace = Workspace::create(base, name)?;
    let _lock = workspace.lock()?;
    if let Some(model) = crate::stages::find_model(&workspace)?
        && !model.adopted
    {
        let message = format!("cluster '{name}' was deployed by 'gabion cluster deploy'");
        return Err(Error::new(ErrorKind::Exists, message).hint("adopt the other cluster under another name"));
    }
    let options = RadosOptions {
        cluster: name.to_owned(),
        monitors: monitors.clone(),
        user: ADMIN_USER.into(),
        secret: secret.clone(),
        timeout: TIMEOUT,
    };
    let client = RadosClient::connect(&options)?;
    let model = examine(&client, &monitors)?;
    let secrets = Secrets::of_adopted(&model.fsid, &secret);
    let own_conf = crate::conf::client_conf(&model, &workspace.directory().to_string_lossy());
    workspace.write("ceph.keyring", crate::conf::admin_keyring(&secrets).as_bytes())?;
    workspace.write(CONF_FILE, own_conf.as_bytes())?;
    secrets.save(&workspace)?;
    save_hosts(&workspace, &HostsFile::default())?;
    save_model(&workspace, &model)?;
    status(&workspace)
}

/// Returns the model of a running cluster.
fn examine(client: &RadosClient, monitors: &str) -> Result<ClusterModel> {
    let dump = client.monitor_json(&json!({"prefix": "mon dump", "format": "json"}))?;
    let tree = client.monitor_json(&json!({"prefix": "osd tree", "format": "json"}))?;
    Ok(model_of(&dump, &tree, monitors))
}

/// Builds the model from the monitors' answers.
fn model_of(dump: &Value, tree: &Value, monitors: &str) -> ClusterModel {
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut hosts: BTreeMap<String, ModelHost> = BTreeMap::new();
    let entry = |name: &str, role: &str, hosts: &mut BTreeMap<String, ModelHost>| {
        let host = hosts.entry(name.to_owned()).or_default();
        name.clone_into(&mut host.name);
        host.roles.insert(role.to_owned());
    };
    for monitor in dump.get("mons").and_then(Value::as_array).into_iter().flatten() {
        let name = text(monitor, "name");
        entry(&name, "mon", &mut hosts);
        let address = text(monitor, "addr");
        let address: Option<Ipv4Addr> = address.split(':').next().and_then(|address| address.parse().ok());
        if let Some(host) = hosts.get_mut(&name) {
            host.public_address = address;
        }
    }
    for node in tree.get("nodes").and_then(Value::as_array).into_iter().flatten() {
        let has_osds = node.get("children").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if text(node, "type") == "host" && has_osds {
            entry(&text(node, "name"), "storage", &mut hosts);
        }
    }
    ClusterModel {
        fsid: text(dump, "fsid"),
        adopted: true,
        monitors: monitors.to_owned(),
        hosts: hosts.into_values().collect(),
        ..ClusterModel::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_has_the_monitors_and_storage_hosts() {
        let dump = json!({"fsid": "f", "mons": [
            {"name": "a", "addr": "10.0.0.1:6789/0"}, {"name": "b", "addr": "10.0.0.2:6789/0"}]});
        let tree = json!({"nodes": [
            {"type": "root", "name": "default", "children": [-2]},
            {"type": "host", "name": "b", "children": [0, 1]},
            {"type": "host", "name": "empty", "children": []},
            {"type": "osd", "name": "osd.0"}]});
        let model = model_of(&dump, &tree, "10.0.0.1 10.0.0.2");
        assert!(model.adopted && model.fsid == "f");
        assert_eq!(crate::conf::monitor_addresses(&model), "10.0.0.1 10.0.0.2");
        let names: Vec<&str> = model.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(model.hosts[1].has("mon") && model.hosts[1].has("storage") && !model.hosts[0].has("storage"));
        assert_eq!(model.hosts[0].public_address, Some(Ipv4Addr::new(10, 0, 0, 1)));
    }
}
