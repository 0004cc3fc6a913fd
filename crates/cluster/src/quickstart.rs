//! A small cluster on this machine: hosts as network namespaces, drives as sparse files.
//!
//! Always true: namespaces, bridge and files carry the name of the cluster, and only those are
//! removed. All copies are on one machine: nothing here protects data.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::progress::{Progress, StepOutcome, StepReport};
use crate::remove::remove_all;
use crate::stages::{Configuration, configure, discover, load_deployment, prepare};
use crate::transport::{Transport, quote};
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

/// The policy: three monitors, two managers, metadata servers and object gateways, all hosts with
/// storage.
const POLICY: &str = "\
cluster-ceph/cluster/*.sls
role-master/cluster/*.sls slice=[:1]
role-admin/cluster/*.sls slice=[:1]
role-mon/cluster/*.sls slice=[:3]
role-mgr/cluster/*.sls slice=[:2]
role-mds/cluster/*.sls slice=[:2]
role-rgw/cluster/*.sls slice=[1:3]
config/stack/default/global.yml
config/stack/default/ceph/cluster.yml
profile-default/cluster/*.sls
profile-default/stack/default/ceph/minions/*.yml
";

/// A small cluster.
#[derive(Clone, Debug)]
pub struct QuickstartPlan {
    /// Name of the cluster.
    pub name: String,
    /// Directory of all clusters.
    pub base: PathBuf,
    /// Number of hosts, from 3 to 9.
    pub hosts: u8,
    /// Drives of each host.
    pub drives: u8,
    /// Size of each drive in bytes.
    pub drive_bytes: u64,
}

impl QuickstartPlan {
    /// Creates namespaces and drives, and runs the stages up to `configure`.
    ///
    /// # Errors
    /// `Io`; `Invalid` for an invalid name.
    pub fn configure(&self, progress: Progress) -> Result<Configuration> {
        let workspace = Workspace::create(&self.base, &self.name)?;
        let start = Instant::now();
        let changed = self.set_up(&workspace)?;
        self.report("create namespaces and drives", changed, start, progress);
        workspace.write("hosts.toml", self.hosts_file(&workspace).as_bytes())?;
        prepare(&self.base, &self.name, &workspace.path("hosts.toml"), false, progress)?;
        // Small caches, and no warning of the monitors about the host's file system: eight OSDs
        // share the memory and the disk of one machine.
        let settings = json!({"settings": {
            "mon": {"mon_data_avail_warn": "1", "mon_data_avail_crit": "0"},
            "osd": {
                "bluestore_cache_autotune": "false",
                "bluestore_cache_size": "33554432",
                "osd_op_num_shards": "2",
                "osd_op_num_threads_per_shard": "1",
            },
        }});
        let global = "proposals/config/stack/default/global.yml";
        if !workspace.path(global).exists() {
            workspace.save(global, &settings)?;
        }
        let start = Instant::now();
        let discovery = discover(&workspace, &[], false)?;
        self.report("take the inventory and write proposals", !discovery.written.is_empty(), start, progress);
        workspace.write("proposals/policy.cfg", POLICY.as_bytes())?;
        configure(&workspace, None, self.hosts < 4, &BTreeSet::new(), false)
    }

    /// Removes the cluster, its namespaces and its files.
    ///
    /// # Errors
    /// `NotFound`; `Io`.
    pub fn remove(&self, progress: Progress) -> Result<Vec<StepReport>> {
        let workspace = Workspace::open(&self.base, &self.name)?;
        let marker = workspace.path("network");
        let number = std::fs::read_to_string(&marker).map_err(|error| {
            Error::new(
                ErrorKind::NotFound,
                format!("cluster '{}' is not of 'quickstart': {error}", self.name),
            )
            .hint(format!("'gabion cluster remove {} --all' removes other clusters", self.name))
        })?;
        let number: u8 = number
            .trim()
            .parse()
            .map_err(|_| Error::new(ErrorKind::Invalid, format!("{} holds no number", marker.display())))?;
        let mut reports = remove_all(&workspace, progress)?;
        let start = Instant::now();
        let mut script = String::new();
        for host in 1..=9 {
            let namespace = self.namespace(host);
            let _ = writeln!(
                script,
                "if ip netns list | grep -qw {namespace}; then ip netns delete {namespace}; fi"
            );
        }
        let _ = writeln!(
            script,
            "if ip link show gbc{number} >/dev/null 2>&1; then ip link delete gbc{number}; fi"
        );
        Transport::Local.run(&script)?;
        reports.push(self.report("delete namespaces and drives", true, start, progress));
        Ok(reports)
    }

    /// Kills the daemons of a host with SIGKILL, or the named one.
    ///
    /// # Errors
    /// `NotFound` if none of them runs; `Io`.
    pub fn kill(&self, workspace: &Workspace, host: &str, daemon: Option<&str>) -> Result<()> {
        let deployment = load_deployment(workspace)?;
        let (_, daemons) = deployment.host(host)?;
        if daemons.kill(daemon)? > 0 {
            return Ok(());
        }
        let what = daemon.unwrap_or("daemon");
        Err(Error::new(ErrorKind::NotFound, format!("no {what} of host '{host}' runs")))
    }

    fn report(&self, step: &str, changed: bool, start: Instant, progress: Progress) -> StepReport {
        let outcome = if changed { StepOutcome::Changed } else { StepOutcome::Unchanged };
        let seconds = start.elapsed().as_secs_f64();
        let report =
            StepReport { host: self.name.clone(), step: step.to_owned(), outcome, error: None, seconds };
        progress(&report);
        report
    }

    fn namespace(&self, host: u8) -> String {
        format!("gabion-{}-node{host}", self.name)
    }

    /// Creates what is missing. Returns true if anything was.
    fn set_up(&self, workspace: &Workspace) -> Result<bool> {
        let directory = quote(&workspace.directory().to_string_lossy());
        let size = self.drive_bytes;
        // The first free network, recorded before it is used.
        let mut script = format!(
            "cd {directory}; mkdir -p drives\n\
             if [ ! -e network ]; then\n\
             for n in $(seq 1 99); do\n\
             if ! ip -4 route | grep -q \"10\\.61\\.$n\\.\" && ! ip link show gbc$n >/dev/null 2>&1; then break; fi\n\
             done\n\
             echo $n >network.new; mv network.new network\n\
             fi\n\
             n=$(cat network)\n\
             if ! ip link show gbc$n >/dev/null 2>&1; then\n\
             ip link add gbc$n type bridge; ip addr add 10.61.$n.1/24 dev gbc$n; echo changed\n\
             fi\n\
             ip link set gbc$n up\n"
        );
        for host in 1..=self.hosts {
            let namespace = self.namespace(host);
            let _ = write!(
                script,
                "if ! ip netns list | grep -qw {namespace}; then ip netns add {namespace}; echo changed; fi\n\
                 if ! ip -n {namespace} link show eth0 >/dev/null 2>&1; then\n\
                 ip link add gbc${{n}}v{host} type veth peer name eth0 netns {namespace}\n\
                 ip -n {namespace} addr add 10.61.$n.1{host}/24 dev eth0\n\
                 fi\n\
                 ip link set gbc${{n}}v{host} master gbc$n up\n\
                 ip -n {namespace} link set eth0 up; ip -n {namespace} link set lo up\n"
            );
            for drive in 1..=self.drives {
                let _ = writeln!(
                    script,
                    "[ -e drives/node{host}-{drive} ] || truncate -s {size} drives/node{host}-{drive}"
                );
            }
        }
        Ok(!Transport::Local.run(&script)?.is_empty())
    }

    fn hosts_file(&self, workspace: &Workspace) -> String {
        let mut text = String::new();
        for host in 1..=self.hosts {
            let drives: Vec<String> = (1..=self.drives)
                .map(|drive| format!("\"{}/drives/node{host}-{drive}\"", workspace.directory().display()))
                .collect();
            let _ = writeln!(
                text,
                "[[host]]\nname = \"node{host}\"\naddress = \"local:{}\"\ndrives = [{}]\n",
                self.namespace(host),
                drives.join(", ")
            );
        }
        text
    }
}
