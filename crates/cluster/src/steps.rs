//! The steps of a deployment, planned from the model. Pure functions.
//!
//! Always true: the same model gives the same steps, with the same names; a phase contains only
//! steps that do not depend on steps of other hosts in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ClusterModel, ModelHost};
use crate::pools::PoolSpec;

/// A kind of daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DaemonKind {
    Mon,
    Mgr,
    Osd,
    Mds,
    Rgw,
}

impl DaemonKind {
    /// The name in configuration sections and directories.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Mgr => "mgr",
            Self::Osd => "osd",
            Self::Mds => "mds",
            // Gateways are clients of the cluster.
            Self::Rgw => "client",
        }
    }

    /// The program.
    pub(crate) fn program(self) -> String {
        match self {
            Self::Rgw => "radosgw".into(),
            _ => format!("ceph-{}", self.name()),
        }
    }

    /// The argument of the program that selects the daemon.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Rgw => "-n",
            _ => "-i",
        }
    }

    /// The directory of the daemons on a host.
    pub(crate) fn directory(self) -> &'static str {
        if self == Self::Rgw { "rgw" } else { self.name() }
    }

    /// The identifier of the daemon that a host has one of.
    pub(crate) fn id_on(self, host: &str) -> String {
        if self == Self::Rgw { format!("rgw.{host}") } else { host.to_owned() }
    }

    /// The kind and identifier of a daemon, from a name such as `osd.3`.
    pub(crate) fn parse(name: &str) -> Option<(Self, &str)> {
        let (kind, id) = name.split_once('.')?;
        let kinds = [Self::Mon, Self::Mgr, Self::Osd, Self::Mds, Self::Rgw];
        kinds.into_iter().find(|known| known.name() == kind).map(|kind| (kind, id))
    }
}

/// An action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Writes `ceph.conf`.
    Configure,
    /// Restarts running daemons that started with another configuration, one after the other.
    Restart,
    /// Creates and starts a monitor.
    Monitor,
    /// Waits until most monitors form a quorum.
    Quorum,
    /// Creates and starts a manager.
    Manager,
    /// Erases the contents of a drive.
    Wipe { drive: String },
    /// Creates an OSD on a drive and starts it.
    Osd { drive: String },
    /// Lets the daemons of a host start at boot.
    Boot,
    /// Waits until the cluster is healthy.
    Healthy,
    /// Creates a pool.
    Pool(PoolSpec),
    /// Prepares the pool of volumes, whose data may be in another pool.
    VolumesPool { data: Option<String> },
    /// Creates the user of volumes, with access to these additional pools of their data.
    VolumesUser { pools: Vec<String> },
    /// Creates and starts a metadata server.
    MetadataServer,
    /// Creates the file system, with these additional pools of its data.
    FileSystem { pools: Vec<String> },
    /// Creates the user of the file system.
    FileSystemUser,
    /// Creates and starts an object gateway.
    Gateway,
    /// Creates the user that administers the object gateways.
    GatewayUser,
}

/// A step of a deployment on one host, or on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Name of the host; none for the cluster.
    pub(crate) host: Option<String>,
    pub(crate) action: Action,
}

impl Step {
    /// Returns true for a step that only waits for the effect of other steps.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self.action, Action::Quorum | Action::Healthy)
    }

    /// Returns the name of the step within the cluster.
    pub(crate) fn name(&self) -> String {
        match &self.action {
            Action::Configure => "write ceph.conf".into(),
            Action::Restart => "restart daemons with an old configuration".into(),
            Action::Monitor => "create and start the monitor".into(),
            Action::Quorum => "wait for a quorum".into(),
            Action::Manager => "create and start the manager".into(),
            Action::Wipe { drive } => format!("erase {drive}"),
            Action::Osd { drive } => format!("create and start an OSD on {drive}"),
            Action::Boot => "start the daemons at boot".into(),
            Action::Healthy => "wait for HEALTH_OK".into(),
            Action::Pool(pool) => format!("create pool {} ({})", pool.name, pool.redundancy),
            Action::VolumesPool { .. } => "prepare pool rbd for volumes".into(),
            Action::VolumesUser { .. } => "create the user of volumes".into(),
            Action::MetadataServer => "create and start the metadata server".into(),
            Action::FileSystem { .. } => "create the file system".into(),
            Action::FileSystemUser => "create the user of the file system".into(),
            Action::Gateway => "create and start the object gateway".into(),
            Action::GatewayUser => "create the user of the object gateways".into(),
        }
    }

    /// Returns the host's name, or that of the cluster.
    pub(crate) fn place<'a>(&'a self, cluster: &'a str) -> &'a str {
        self.host.as_deref().unwrap_or(cluster)
    }
}

/// Steps that may run at the same time on different hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) steps: Vec<Step>,
    /// Run the hosts one after the other.
    pub(crate) serial: bool,
}

impl Phase {
    /// Returns the steps by host, in the order of the phase.
    pub(crate) fn by_host(&self) -> BTreeMap<&str, Vec<&Step>> {
        let mut hosts: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
        for step in &self.steps {
            hosts.entry(step.host.as_deref().unwrap_or_default()).or_default().push(step);
        }
        hosts
    }
}

/// Plans a deployment. `wipe` returns true for drives, as `HOST:DRIVE`, that are to be erased.
pub(crate) fn plan(model: &ClusterModel, wipe: impl Fn(&str) -> bool) -> Vec<Phase> {
    let has_daemon = |host: &&ModelHost| ["mon", "mgr", "storage"].iter().any(|role| host.has(role));
    let step = |host: &ModelHost, action| Step { host: Some(host.name.clone()), action };
    let cluster = |action| Phase { steps: vec![Step { host: None, action }], serial: true };
    let phase = |steps: Vec<Step>| Phase { steps, serial: false };
    let members: Vec<&ModelHost> = model.hosts.iter().filter(has_daemon).collect();
    let mut storage = Vec::new();
    for host in model.with_role("storage") {
        let separate = host.osds.values().flat_map(|osd| osd.db.iter().chain(&osd.wal));
        for drive in separate.collect::<BTreeSet<_>>() {
            if wipe(&format!("{}:{drive}", host.name)) {
                storage.push(step(host, Action::Wipe { drive: drive.clone() }));
            }
        }
        for drive in host.osds.keys() {
            if wipe(&format!("{}:{drive}", host.name)) {
                storage.push(step(host, Action::Wipe { drive: drive.clone() }));
            }
            storage.push(step(host, Action::Osd { drive: drive.clone() }));
        }
    }
    vec![
        phase(members.iter().map(|host| step(host, Action::Configure)).collect()),
        phase(model.with_role("mon").map(|host| step(host, Action::Monitor)).collect()),
        cluster(Action::Quorum),
        Phase { steps: members.iter().map(|host| step(host, Action::Restart)).collect(), serial: true },
        phase(model.with_role("mgr").map(|host| step(host, Action::Manager)).collect()),
        phase(storage),
        phase(members.iter().map(|host| step(host, Action::Boot)).collect()),
        cluster(Action::Healthy),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::OsdPlacement;

    #[test]
    fn monitors_come_before_managers_and_drives() {
        let host = |name: &str, roles: &[&str], drives: &[&str]| ModelHost {
            name: name.into(),
            roles: roles.iter().map(ToString::to_string).collect::<BTreeSet<_>>(),
            osds: drives.iter().map(|drive| (drive.to_string(), OsdPlacement::default())).collect(),
            ..ModelHost::default()
        };
        let hosts = vec![
            host("a", &["mon", "mgr"], &[]),
            host("b", &["storage"], &["/dev/x", "/dev/y"]),
            host("c", &["openattic"], &[]),
        ];
        let model = ClusterModel { hosts, ..ClusterModel::default() };
        let names: Vec<String> = plan(&model, |drive| drive == "b:/dev/y")
            .iter()
            .flat_map(|phase| &phase.steps)
            .map(|step| format!("{}: {}", step.place("-"), step.name()))
            .collect();
        let expected = [
            "a: write ceph.conf",
            "b: write ceph.conf",
            "a: create and start the monitor",
            "-: wait for a quorum",
            "a: restart daemons with an old configuration",
            "b: restart daemons with an old configuration",
            "a: create and start the manager",
            "b: create and start an OSD on /dev/x",
            "b: erase /dev/y",
            "b: create and start an OSD on /dev/y",
            "a: start the daemons at boot",
            "b: start the daemons at boot",
            "-: wait for HEALTH_OK",
        ];
        assert_eq!(names, expected);
    }
}
