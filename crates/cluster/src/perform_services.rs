//! Performs the steps of the stage `services`.
//!
//! Always true: as for the steps of a deployment, the effect of a step is looked for first.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::conf::GATEWAY_PORT;
use crate::daemons::HostDaemons;
use crate::model::ModelHost;
use crate::perform::{COMMAND_TIMEOUT, Deployment, wait};
use crate::pools::{PoolSpec, VOLUMES_DATA_POOL, VOLUMES_POOL};
use crate::services::{FILE_SYSTEM, FILE_SYSTEM_POOLS, FILE_SYSTEM_USER};
use crate::steps::{Action, DaemonKind};
use ceph::{Error, ErrorKind, GATEWAY_USER, RbdPool, Result, VOLUMES_USER};

/// Placement groups of a new pool; the cluster adapts their number later.
const PLACEMENT_GROUPS: u32 = 16;
/// Limit of waiting for an object gateway. The first one creates the pools of all.
const GATEWAY_WAIT: Duration = Duration::from_secs(120);

impl Deployment {
    /// Performs a step that concerns the cluster. Returns true if it changed anything.
    ///
    /// # Errors
    /// The failure of the step.
    pub(crate) fn perform_service(&self, action: &Action) -> Result<bool> {
        match action {
            Action::Pool(pool) => self.pool(pool),
            Action::VolumesPool { data } => self.volumes_pool(data.as_deref()),
            Action::VolumesUser { pools } => {
                let known = self.find_user(VOLUMES_USER)?;
                let known = known.as_ref().and_then(|user| user.pointer("/caps/osd")).and_then(Value::as_str);
                let osd = volumes_capability(known.unwrap_or_default(), pools);
                self.user(VOLUMES_USER, &["mon", "profile rbd", "osd", &osd, "mgr", "profile rbd"])
            }
            Action::FileSystem { pools } => self.file_system(pools),
            Action::FileSystemUser => {
                let osd = format!("allow rw tag cephfs data={FILE_SYSTEM}");
                // `p`: quotas, and the pools of directories.
                self.user(FILE_SYSTEM_USER, &["mon", "allow r", "mds", "allow rwp", "osd", &osd])
            }
            Action::GatewayUser => self.gateway_user(),
            _ => Ok(false),
        }
    }

    /// Creates and starts the object gateway of a host. Waits until clients can connect to it.
    ///
    /// # Errors
    /// `Unreachable` if it does not accept connections in time.
    pub(crate) fn gateway(&self, host: &ModelHost, daemons: &HostDaemons) -> Result<bool> {
        let changed = self.service_daemon(host, daemons, DaemonKind::Rgw)?;
        let Some(address) = host.public_address else { return Ok(changed) };
        let listens = is_listening(address, GATEWAY_PORT);
        let name = &host.name;
        let refused = || {
            format!("the object gateway of host '{name}' accepts no connections on {address}:{GATEWAY_PORT}")
        };
        wait(GATEWAY_WAIT, || Ok((!daemons.holds(&listens)?).then(refused))).map_err(|error| {
            Error::new(ErrorKind::Unreachable, error.to_string()).hint(format!(
                "its log is in the directory of the host, hosts/{name}/log; repeat the command then"
            ))
        })?;
        Ok(changed)
    }

    /// Creates the user that administers the object gateways, if there are any.
    fn gateway_user(&self) -> Result<bool> {
        if self.model.adopted {
            let map = self.client()?.monitor_json(&json!({"prefix": "service dump", "format": "json"}))?;
            if map.pointer("/services/rgw").is_none() {
                return Ok(false);
            }
        }
        let capabilities = ["mon", "allow rw", "osd", "allow rwx tag rgw *=*", "mgr", "allow r"];
        self.user(GATEWAY_USER, &capabilities)
    }

    /// Returns a pool of the monitors' list.
    fn find_pool(&self, name: &str) -> Result<Option<Value>> {
        let list = self
            .client()?
            .monitor_json(&json!({"prefix": "osd pool ls", "detail": "detail", "format": "json"}))?;
        let is_meant = |pool: &&Value| pool.get("pool_name").and_then(Value::as_str) == Some(name);
        Ok(list.as_array().into_iter().flatten().find(is_meant).cloned())
    }

    fn pool(&self, pool: &PoolSpec) -> Result<bool> {
        let PoolSpec { name, redundancy, application } = pool;
        let client = self.client()?;
        let found = self.find_pool(name)?;
        if let Some(found) = &found {
            if !redundancy.matches(found) {
                let message = format!("pool '{name}' exists with another redundancy than {redundancy}");
                return Err(Error::new(ErrorKind::Exists, message).hint(
                    "the redundancy of a pool cannot be changed; name the existing one, or another pool",
                ));
            }
            let applications = found.get("application_metadata").and_then(Value::as_object);
            if applications.is_some_and(|applications| applications.contains_key(application)) {
                return Ok(false);
            }
        } else if let Some(profile) = redundancy.profile() {
            let parts = match redundancy {
                crate::pools::Redundancy::Erasure { data, parity } => {
                    [format!("k={data}"), format!("m={parity}")]
                }
                crate::pools::Redundancy::Replicated(_) => [String::new(), String::new()],
            };
            let [data, parity] = parts;
            let values = [data, parity, "crush-failure-domain=host".into()];
            client.monitor(
                &json!({"prefix": "osd erasure-code-profile set", "name": profile, "profile": values}),
            )?;
            client.monitor(&json!({
                "prefix": "osd pool create", "pool": name, "pg_num": PLACEMENT_GROUPS,
                "pool_type": "erasure", "erasure_code_profile": profile,
            }))?;
        } else {
            client.monitor(&json!({
                "prefix": "osd pool create", "pool": name, "pg_num": PLACEMENT_GROUPS,
                "pool_type": "replicated", "size": redundancy.hosts(),
            }))?;
        }
        if redundancy.profile().is_some() {
            // Without it, a pool accepts complete objects only.
            let set =
                json!({"prefix": "osd pool set", "pool": name, "var": "allow_ec_overwrites", "val": "true"});
            client.monitor(&set)?;
        }
        client.monitor(&json!({
            "prefix": "osd pool application enable", "pool": name, "app": application,
            "yes_i_really_mean_it": true,
        }))?;
        Ok(true)
    }

    fn volumes_pool(&self, data: Option<&str>) -> Result<bool> {
        // Both calls change nothing that is set already, and do not report it.
        RbdPool::connect(&self.options(COMMAND_TIMEOUT), VOLUMES_POOL)?.initialise(data)?;
        Ok(false)
    }

    /// Returns a user with its capabilities.
    fn find_user(&self, name: &str) -> Result<Option<Value>> {
        let get = json!({"prefix": "auth get", "entity": format!("client.{name}"), "format": "json"});
        match self.client()?.monitor_json(&get) {
            Ok(known) => Ok(known.get(0).cloned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a user and writes its keyring on this machine.
    fn user(&self, name: &str, capabilities: &[&str]) -> Result<bool> {
        let client = self.client()?;
        let entity = format!("client.{name}");
        let known = self.find_user(name)?;
        let has_all = |known: &Value| {
            capabilities.as_chunks::<2>().0.iter().all(|[service, allowed]| {
                known.pointer(&format!("/caps/{service}")).and_then(Value::as_str) == Some(allowed)
            })
        };
        let mut changed = false;
        if !known.as_ref().is_some_and(has_all) {
            let prefix = if known.is_some() { "auth caps" } else { "auth get-or-create" };
            client.monitor(&json!({"prefix": prefix, "entity": entity, "caps": capabilities}))?;
            changed = true;
        }
        let keyring = client.monitor(&json!({"prefix": "auth get", "entity": entity}))?;
        let path = ceph::keyring_path(self.workspace.directory(), name);
        if std::fs::read(&path).ok().as_deref() != Some(&keyring) {
            self.workspace.write(&format!("{name}.keyring"), &keyring)?;
            changed = true;
        }
        Ok(changed)
    }

    /// Creates the file system, and adds pools of data to it.
    fn file_system(&self, pools: &[String]) -> Result<bool> {
        let client = self.client()?;
        let list = client.monitor_json(&json!({"prefix": "fs ls", "format": "json"}))?;
        let is_own = |fs: &Value| fs.get("name").and_then(Value::as_str) == Some(FILE_SYSTEM);
        let known = list.as_array().into_iter().flatten().find(|fs| is_own(fs));
        let exists = known.is_some();
        let has = |pool: &str| {
            let data = known.and_then(|fs| fs.get("data_pools")).and_then(Value::as_array);
            data.into_iter().flatten().any(|name| name.as_str() == Some(pool))
        };
        if !exists {
            let [metadata, data] = FILE_SYSTEM_POOLS;
            client.monitor(
                &json!({"prefix": "fs new", "fs_name": FILE_SYSTEM, "metadata": metadata, "data": data}),
            )?;
        }
        let servers = self.model.with_role("mds").count();
        let standby = if servers > 1 { "1" } else { "0" };
        let set = json!({"prefix": "fs set", "fs_name": FILE_SYSTEM, "var": "standby_count_wanted", "val": standby});
        client.monitor(&set)?;
        let missing: Vec<&String> = pools.iter().filter(|pool| !has(pool)).collect();
        for pool in &missing {
            client.monitor(&json!({"prefix": "fs add_data_pool", "fs_name": FILE_SYSTEM, "pool": pool}))?;
        }
        Ok(!exists || !missing.is_empty())
    }

    /// Creates the key of a daemon and starts it. Returns true if it did not run.
    pub(crate) fn service_daemon(
        &self,
        host: &ModelHost,
        daemons: &HostDaemons,
        kind: DaemonKind,
    ) -> Result<bool> {
        let id = kind.id_on(&host.name);
        if daemons.is_running(kind, &id)? {
            return Ok(false);
        }
        let capabilities: &[&str] = match kind {
            DaemonKind::Mds => &[
                "mon",
                "profile mds",
                "osd",
                "allow rw tag cephfs *=*",
                "mds",
                "allow",
                "mgr",
                "profile mds",
            ],
            _ => &["mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"],
        };
        let command = json!({
            "prefix": "auth get-or-create",
            "entity": format!("{}.{id}", kind.name()),
            "caps": capabilities,
        });
        let keyring = self.client()?.monitor(&command)?;
        let directory = kind.directory();
        daemons.write(&format!("{directory}/{}/keyring", host.name), &String::from_utf8_lossy(&keyring))?;
        daemons.start(kind, &id)?;
        Ok(true)
    }
}

/// Returns the capability of the user of volumes on the pools of volumes: those that it has, and
/// `more`. A later run without `more` keeps them.
fn volumes_capability(known: &str, more: &[String]) -> String {
    let allowed = known.split(", ").filter_map(|part| part.strip_prefix("profile rbd pool="));
    let standard = [VOLUMES_POOL, VOLUMES_DATA_POOL];
    let other: BTreeSet<&str> =
        allowed.chain(more.iter().map(String::as_str)).filter(|pool| !standard.contains(pool)).collect();
    let pools = standard.into_iter().chain(other);
    pools.map(|pool| format!("profile rbd pool={pool}")).collect::<Vec<_>>().join(", ")
}

/// Returns the condition, as a shell command, that a process listens on an address of this host.
fn is_listening(address: Ipv4Addr, port: u16) -> String {
    // The kernel's table has the address in the order of the bytes in memory, here from the last.
    let [a, b, c, d] = address.octets();
    let entry = format!("{d:02X}{c:02X}{b:02X}{a:02X}:{port:04X}");
    format!("awk '$2 == \"{entry}\" && $4 == \"0A\" {{ found = 1 }} END {{ exit !found }}' /proc/net/tcp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_volumes_keeps_its_pools() {
        let standard = "profile rbd pool=rbd, profile rbd pool=rbd-data";
        assert_eq!(volumes_capability("", &[]), standard);
        let more = volumes_capability(standard, &["ec22".into(), "rbd".into()]);
        assert_eq!(more, format!("{standard}, profile rbd pool=ec22"));
        assert_eq!(volumes_capability(&more, &[]), more);
        assert_eq!(volumes_capability(&more, &["a".into()]).matches("pool=").count(), 4);
        assert_eq!(volumes_capability("allow *", &[]), standard, "other capabilities are not kept");
    }

    #[test]
    fn a_listening_socket_is_found_by_address_and_port() {
        let holds = |address, port| {
            let script = is_listening(address, port);
            std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success()
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(holds(Ipv4Addr::LOCALHOST, port));
        assert!(!holds([127, 0, 0, 2].into(), port), "another address");
    }
}
