//! Performs the steps of a deployment.
//!
//! Always true: a step first looks whether its effect exists, on the host and in the cluster, and
//! changes nothing then. A step that was killed in the middle can be repeated: directories of
//! daemons get their names only when they are complete.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::conf;
use crate::daemons::HostDaemons;
use crate::keys::{OsdIdentity, Secrets};
use crate::model::{ClusterModel, ModelHost};
use crate::proposal::OsdPlacement;
use crate::separate;
use crate::steps::{Action, DaemonKind, Step};
use crate::transport::quote;
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};
use ceph::{RadosClient, RadosOptions};

/// Limit of waiting for a quorum.
const QUORUM_WAIT: Duration = Duration::from_secs(60);
/// Limit of waiting for health.
const HEALTH_WAIT: Duration = Duration::from_secs(180);
/// Limit of a monitor command in seconds.
pub(crate) const COMMAND_TIMEOUT: u32 = 20;
/// Pause between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);

/// The cluster that steps change.
pub(crate) struct Deployment {
    pub(crate) cluster: String,
    pub(crate) model: ClusterModel,
    pub(crate) secrets: Secrets,
    pub(crate) hosts: BTreeMap<String, HostDaemons>,
    pub(crate) workspace: Workspace,
    client: Mutex<Option<Arc<RadosClient>>>,
}

impl Deployment {
    pub(crate) fn new(
        workspace: &Workspace,
        model: ClusterModel,
        secrets: Secrets,
        hosts: BTreeMap<String, HostDaemons>,
    ) -> Self {
        let (cluster, workspace) = (workspace.name().to_owned(), workspace.clone());
        Self { cluster, model, secrets, hosts, workspace, client: Mutex::default() }
    }

    /// Returns the connection to the cluster, which is made once.
    ///
    /// # Errors
    /// `Unreachable` without a quorum.
    pub(crate) fn client(&self) -> Result<Arc<RadosClient>> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connected = RadosClient::connect(&self.options(COMMAND_TIMEOUT))?;
        *client = Some(connected.clone());
        Ok(connected)
    }

    /// Returns the way to the cluster, with a limit in seconds.
    pub(crate) fn options(&self, timeout: u32) -> RadosOptions {
        RadosOptions {
            cluster: self.cluster.clone(),
            monitors: conf::monitor_addresses(&self.model),
            user: "admin".into(),
            secret: self.secrets.admin.clone(),
            timeout,
        }
    }

    /// Performs a step. Returns true if it changed anything.
    ///
    /// # Errors
    /// The failure of the step.
    pub(crate) fn perform(&self, step: &Step) -> Result<bool> {
        let Some(name) = &step.host else {
            return match &step.action {
                Action::Quorum => self.wait_for_quorum(),
                Action::Healthy => self.wait_for_health(),
                other => self.perform_service(other),
            };
        };
        let (host, daemons) = self.host(name)?;
        match &step.action {
            Action::Configure => configure(&self.model, host, daemons),
            Action::Restart => self.restart_outdated(daemons),
            Action::Monitor => self.monitor(host, daemons),
            Action::Manager => self.manager(host, daemons),
            Action::Wipe { drive } => self.wipe(daemons, drive),
            Action::Osd { drive } => self.osd(host, daemons, drive),
            Action::MetadataServer => self.service_daemon(host, daemons, DaemonKind::Mds),
            Action::Boot => daemons.install_boot(&self.cluster),
            Action::Gateway => self.gateway(host, daemons),
            _ => Ok(false),
        }
    }

    pub(crate) fn host(&self, name: &str) -> Result<(&ModelHost, &HostDaemons)> {
        let host = self.model.hosts.iter().find(|host| host.name == name);
        host.zip(self.hosts.get(name)).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("cluster '{}' has no host '{name}'", self.cluster))
        })
    }

    fn monitor(&self, host: &ModelHost, daemons: &HostDaemons) -> Result<bool> {
        let id = &host.name;
        if daemons.is_running(DaemonKind::Mon, id)? {
            return Ok(false);
        }
        if !daemons.holds(&format!("[ -e \"$root/mon/{id}/done\" ]"))? {
            let map = conf::monmap_arguments(&self.model);
            let script = format!(
                // ceph-mon does nothing, successfully, in a directory that is not empty.
                "umask 077; new=$root/mon/{id}.new; rm -rf \"$new\" \"$new.in\"; mkdir -p \"$new\" \"$new.in\"\n\
                 cat >\"$new.in/keyring\"\n\
                 monmaptool {map} \"$new.in/map\" >/dev/null\n\
                 ceph-mon --mkfs -i {id} -c \"$root/ceph.conf\" --mon-data \"$new\" \
                 --monmap \"$new.in/map\" --keyring \"$new.in/keyring\" --log-file /dev/null\n\
                 [ -e \"$new/keyring\" ] || {{ echo 'ceph-mon --mkfs created no monitor' >&2; exit 1; }}\n\
                 rm -rf \"$new.in\"\n\
                 touch \"$new/done\"; sync -f \"$new\"; mv \"$new\" \"$root/mon/{id}\""
            );
            daemons.run(&script, conf::monitor_keyring(&self.secrets).as_bytes())?;
        }
        daemons.start(DaemonKind::Mon, id)?;
        Ok(true)
    }

    fn manager(&self, host: &ModelHost, daemons: &HostDaemons) -> Result<bool> {
        let id = &host.name;
        if daemons.is_running(DaemonKind::Mgr, id)? {
            return Ok(false);
        }
        let command = json!({
            "prefix": "auth get-or-create",
            "entity": format!("mgr.{id}"),
            "caps": ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"],
        });
        let keyring = self.client()?.monitor(&command)?;
        daemons.write(&format!("mgr/{id}/keyring"), &String::from_utf8_lossy(&keyring))?;
        daemons.start(DaemonKind::Mgr, id)?;
        Ok(true)
    }

    /// Erases a drive, unless it holds an OSD of this cluster.
    fn wipe(&self, daemons: &HostDaemons, drive: &str) -> Result<bool> {
        let drive = quote(drive);
        let owner = format!("\\\"ceph_fsid\\\": \\\"{}\\\"", self.model.fsid);
        let own = format!("ceph-bluestore-tool show-label --dev {drive} 2>/dev/null | grep -q \"{owner}\"");
        let empty = format!("[ -z \"$(blkid -p -o value {drive} 2>/dev/null)\" ]");
        // A drive of databases carries the identities of its OSDs. The first pattern matches no
        // name: it keeps the command valid without OSDs.
        let names: Vec<String> = self.secrets.uuids().iter().map(|uuid| format!("-e {uuid}")).collect();
        let parts = format!("partx -g -r -o NAME {drive} 2>/dev/null | grep -qxF -e ' ' {}", names.join(" "));
        if daemons.holds(&own)? || daemons.holds(&parts)? || daemons.holds(&empty)? {
            return Ok(false);
        }
        daemons.run(&format!("wipefs -a {drive} >/dev/null; dd if=/dev/zero of={drive} bs=1M count=10 conv=notrunc,fsync status=none"), b"")?;
        Ok(true)
    }

    fn osd(&self, host: &ModelHost, daemons: &HostDaemons, drive: &str) -> Result<bool> {
        let key = format!("{}:{drive}", host.name);
        let Some(identity) = self.secrets.osds.get(&key) else {
            return Err(Error::new(ErrorKind::NotFound, format!("drive {key} has no identity")));
        };
        let id_file = format!("osd/by-uuid/{}", identity.uuid);
        let known = daemons.read(&id_file)?.trim().to_owned();
        let placement = host.osds.get(drive).cloned().unwrap_or_default();
        if !known.is_empty() {
            self.check_parts(host, daemons, &placement, &identity.uuid, &known)?;
            if daemons.is_running(DaemonKind::Osd, &known)? {
                return Ok(false);
            }
        }
        // The monitors return the same number for the same identity and secret.
        let secret = json!({"cephx_secret": identity.secret}).to_string();
        let command = json!({"prefix": "osd new", "uuid": identity.uuid, "format": "json"});
        let answer = self.client()?.monitor_with_input(&command, secret.as_bytes())?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
        let Some(id) = answer.get("osdid").and_then(Value::as_u64) else {
            return Err(Error::new(
                ErrorKind::Io,
                format!("the monitors gave no number to the OSD on {key}"),
            ));
        };
        let id = id.to_string();
        if !daemons.holds(&format!("[ -e \"$root/osd/{id}/done\" ]"))? {
            let parts = separate::make_script(&placement, &identity.uuid);
            make_osd(daemons, drive, &id, identity, &parts)?;
        }
        daemons.write(&id_file, &format!("{id}\n"))?;
        daemons.start(DaemonKind::Osd, &id)?;
        Ok(true)
    }

    /// Checks that an OSD has the database and write-ahead log of its placement.
    ///
    /// # Errors
    /// `Io` if one is missing.
    fn check_parts(
        &self,
        host: &ModelHost,
        daemons: &HostDaemons,
        placement: &OsdPlacement,
        uuid: &str,
        id: &str,
    ) -> Result<()> {
        let script = separate::check_script(placement, uuid, id);
        if script.is_empty() {
            return Ok(());
        }
        daemons.run(&script, b"").map(drop).map_err(|error| {
            let drive = placement.db.as_ref().or(placement.wal.as_ref()).map_or("DRIVE", String::as_str);
            let (cluster, name) = (&self.cluster, &host.name);
            error.hint(format!(
                "'gabion cluster remove {cluster} {name}:{drive}' removes the OSDs of the drive"
            ))
        })
    }

    /// Restarts running daemons that started with another configuration. An OSD waits until its
    /// data stays available without it.
    fn restart_outdated(&self, daemons: &HostDaemons) -> Result<bool> {
        let outdated = daemons.outdated()?;
        for name in &outdated {
            let Some((kind, id)) = DaemonKind::parse(name) else { continue };
            if kind == DaemonKind::Osd {
                self.wait_until_stoppable(id)?;
            }
            daemons.stop(kind, id)?;
            daemons.start(kind, id)?;
            if kind == DaemonKind::Mon {
                self.wait_for_quorum()?;
            }
        }
        Ok(!outdated.is_empty())
    }

    /// Waits until an OSD can stop without making data unavailable.
    ///
    /// # Errors
    /// `Unsafe` if that does not happen in time.
    fn wait_until_stoppable(&self, id: &str) -> Result<()> {
        let client = self.client()?;
        let command = json!({"prefix": "osd ok-to-stop", "ids": [id], "format": "json"});
        wait(HEALTH_WAIT, || match client.manager_json(&command) {
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(error.to_string())),
        })
        .map_err(|reason| {
            let message = format!("osd.{id} cannot be restarted without making data unavailable: {reason}");
            Error::new(ErrorKind::Unsafe, message)
        })
    }

    fn wait_for_quorum(&self) -> Result<bool> {
        let needed = self.model.with_role("mon").count() / 2 + 1;
        // A client with a short limit, because monitors that start do not answer.
        let check = || {
            let quorum = RadosClient::connect(&self.options(2)).and_then(|client| {
                client.monitor_json(&json!({"prefix": "quorum_status", "format": "json"}))
            });
            Ok(match quorum {
                Ok(status) => {
                    let members = status.get("quorum").and_then(Value::as_array).map_or(0, Vec::len);
                    (members < needed).then(|| format!("{members} of {needed} monitors"))
                }
                // A missing library does not appear by waiting.
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
                Err(error) => Some(error.to_string()),
            })
        };
        let start = Instant::now();
        wait(QUORUM_WAIT, check).map_err(|reason| {
            Error::new(ErrorKind::Unreachable, format!("the monitors form no quorum: {reason}"))
                .hint("the logs are in the directory of each host, hosts/HOST/log")
        })?;
        Ok(start.elapsed() > CHECK_INTERVAL)
    }

    fn wait_for_health(&self) -> Result<bool> {
        let client = self.client()?;
        let start = Instant::now();
        let osds: usize = self.model.hosts.iter().map(|host| host.osds.len()).sum();
        let check = || {
            let status = client.monitor_json(&json!({"prefix": "status", "format": "json"}))?;
            let up = status.pointer("/osdmap/num_up_osds").and_then(Value::as_u64).unwrap_or(0);
            let has_manager = status.pointer("/mgrmap/available").and_then(Value::as_bool) == Some(true);
            let health = status.pointer("/health/status").and_then(Value::as_str).unwrap_or("unknown");
            let checks = status.pointer("/health/checks").and_then(Value::as_object);
            let names: Vec<&str> = checks.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let missing = up < u64::try_from(osds).unwrap_or(u64::MAX);
            // Ceph reports placement groups that were never active only after a minute.
            let groups = status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
            let is_clean =
                |group: &Value| group.get("state_name").and_then(Value::as_str) == Some("active+clean");
            let unclean = groups.is_some_and(|groups| !groups.iter().all(is_clean));
            let waiting = || format!("{up} of {osds} OSDs are up, {health} {}", names.join(", "));
            Ok((missing || unclean || !has_manager || health != "HEALTH_OK").then(waiting))
        };
        wait(HEALTH_WAIT, check).map_err(|reason| {
            Error::new(ErrorKind::Io, format!("the cluster is not healthy: {reason}"))
                .hint(format!("'gabion cluster status {}' shows the problems", self.cluster))
        })?;
        Ok(start.elapsed() > CHECK_INTERVAL)
    }
}

/// Creates an OSD on a drive. `parts` is the script that makes its parts of other drives.
///
/// # Errors
/// `Io` if the drive has contents of others, or a program fails.
fn make_osd(daemons: &HostDaemons, drive: &str, id: &str, identity: &OsdIdentity, parts: &str) -> Result<()> {
    let OsdIdentity { uuid, secret } = identity;
    let drive_word = quote(drive);
    // A drive that the inventory saw empty may have been filled since. Remains of an
    // interrupted creation carry the identity of this OSD.
    let script = format!(
        "umask 077; drive={drive_word}; new=$root/osd/{id}.new; rm -rf \"$new\"; mkdir -p \"$new\"\n\
         contents=$(blkid -p -o value -s TYPE \"$drive\" 2>/dev/null || true)\n\
         if [ -n \"$contents\" ]; then\n\
         ceph-bluestore-tool show-label --dev \"$drive\" 2>/dev/null | grep -q '\"osd_uuid\": \"{uuid}\"' || {{\n\
         echo \"drive $drive holds $contents now\" >&2; exit 1; }}\n\
         dd if=/dev/zero of=\"$drive\" bs=1M count=10 conv=notrunc,fsync status=none\n\
         fi\n\
         ln -s \"$(readlink -f \"$drive\")\" \"$new/block\"\n\
         cat >\"$new/keyring\"\n\
         {parts}\n\
         ceph-osd --mkfs -i {id} -c \"$root/ceph.conf\" --osd-uuid {uuid} --osd-data \"$new\" \
         --keyring \"$new/keyring\" --log-file \"$root/log/osd.{id}.log\" >\"$new.out\" 2>&1 || {{ cat \"$new.out\" >&2; exit 1; }}\n\
         rm -f \"$new.out\"; touch \"$new/done\"; sync -f \"$new\"; rm -rf \"$root/osd/{id}\"; mv \"$new\" \"$root/osd/{id}\""
    );
    let keyring = format!("[osd.{id}]\n\tkey = {secret}\n");
    daemons.run(&format!("mkdir -p \"$root/log\"\n{script}"), keyring.as_bytes()).map(drop)
}

fn configure(model: &ClusterModel, host: &ModelHost, daemons: &HostDaemons) -> Result<bool> {
    let text = conf::host_conf(model, host, daemons.root());
    if daemons.read("ceph.conf")? == text {
        return Ok(false);
    }
    daemons.write("ceph.conf", &text)?;
    Ok(true)
}

/// Polls `check` until it returns `None`.
///
/// # Errors
/// `Io` with the last reason that `check` returned, after `limit`.
pub(crate) fn wait(limit: Duration, mut check: impl FnMut() -> Result<Option<String>>) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        let Some(reason) = check()? else { return Ok(()) };
        if start.elapsed() > limit {
            return Err(Error::new(ErrorKind::Io, reason));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}
