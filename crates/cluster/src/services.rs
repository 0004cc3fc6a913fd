//! The stage `services`: pools, the user of volumes, `CephFS` and the object gateway.
//!
//! Always true: the roles mds and rgw of the model decide which daemons exist; a pool that exists
//! with another redundancy is an error and is not changed.

use serde::Serialize;

use crate::conf::GATEWAY_PORT;
use crate::model::{ClusterModel, ModelHost};
use crate::pools::{self, PoolSpec, Redundancy, VOLUMES_DATA_POOL, VOLUMES_POOL};
use crate::progress::{Progress, StepReport};
use crate::run;
use crate::stages::load_deployment;
use crate::steps::{Action, Phase, Step};
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

/// Name of the file system.
pub(crate) const FILE_SYSTEM: &str = "cephfs";
/// The pools of the file system: directories, and data.
pub(crate) const FILE_SYSTEM_POOLS: [&str; 2] = ["cephfs.meta", "cephfs.data"];
/// The user that mounts the file system.
pub(crate) const FILE_SYSTEM_USER: &str = "cephfs";

/// The services of a cluster that its roles do not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Redundancy of the data of new volumes; that of their pool if absent.
    pub volumes: Option<Redundancy>,
    /// Additional pools.
    pub pools: Vec<PoolSpec>,
}

/// An object gateway or file system, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceAddress {
    /// Kind of the service.
    pub service: String,
    /// Address, or the command that uses it.
    pub address: String,
}

/// The result of `services`.
#[derive(Clone, Debug, Serialize)]
pub struct ServicesResult {
    /// The steps.
    pub steps: Vec<StepReport>,
    /// The addresses of the services.
    pub services: Vec<ServiceAddress>,
}

/// Creates the missing pools, users and daemons.
///
/// # Errors
/// `Invalid` with every pool that the hosts cannot hold; failures of steps.
pub fn services(
    workspace: &Workspace,
    options: &ServiceOptions,
    dry_run: bool,
    progress: Progress,
) -> Result<ServicesResult> {
    let _lock = workspace.lock()?;
    let deployment = load_deployment(workspace)?;
    let model = &deployment.model;
    let problems = pools::check(model, &all_pools(model, options));
    if !problems.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, problems.join("; "))
            .hint("add storage hosts, or choose another redundancy"));
    }
    let phases = plan(model, options);
    let addresses = addresses(workspace, model);
    if dry_run {
        let steps = run::dry_run(workspace.name(), &phases, progress);
        return Ok(ServicesResult { steps, services: addresses });
    }
    let steps = run::run(workspace, &deployment, &phases, progress)?;
    Ok(ServicesResult { steps, services: addresses })
}

/// Returns the pools in the order of their creation.
fn all_pools(model: &ClusterModel, options: &ServiceOptions) -> Vec<PoolSpec> {
    let copies = Redundancy::Replicated(model.replicas());
    let pool = |name: &str, redundancy, application: &str| PoolSpec {
        name: name.into(),
        redundancy,
        application: application.into(),
    };
    let mut pools = vec![pool(VOLUMES_POOL, copies, "rbd")];
    if let Some(redundancy) = options.volumes {
        pools.push(pool(VOLUMES_DATA_POOL, redundancy, "rbd"));
    }
    if model.with_role("mds").next().is_some() {
        pools.extend(FILE_SYSTEM_POOLS.map(|name| pool(name, copies, "cephfs")));
    }
    pools.extend(options.pools.iter().cloned());
    pools
}

/// Plans the steps.
fn plan(model: &ClusterModel, options: &ServiceOptions) -> Vec<Phase> {
    let step = |host: &ModelHost, action| Step { host: Some(host.name.clone()), action };
    let cluster = |actions: Vec<Action>| Phase {
        steps: actions.into_iter().map(|action| Step { host: None, action }).collect(),
        serial: true,
    };
    let with = |role: &'static str, action: Action| -> Vec<Step> {
        model.with_role(role).map(|host| step(host, action.clone())).collect()
    };
    let daemon_hosts = model.hosts.iter().filter(|host| host.has("mds") || host.has("rgw"));
    let mut phases = vec![Phase {
        steps: daemon_hosts.clone().map(|host| step(host, Action::Configure)).collect(),
        serial: false,
    }];
    let mut actions: Vec<Action> = all_pools(model, options).into_iter().map(Action::Pool).collect();
    let data = options.volumes.map(|_| VOLUMES_DATA_POOL.to_owned());
    actions.push(Action::VolumesPool { data });
    let pools_of = |application: &str| -> Vec<String> {
        let pools = options.pools.iter().filter(|pool| pool.application == application);
        pools.map(|pool| pool.name.clone()).collect()
    };
    actions.push(Action::VolumesUser { pools: pools_of("rbd") });
    phases.push(cluster(actions));
    phases.push(Phase { steps: with("mds", Action::MetadataServer), serial: false });
    if model.with_role("mds").next().is_some() {
        phases.push(cluster(vec![Action::FileSystem { pools: pools_of("cephfs") }, Action::FileSystemUser]));
    }
    // One after the other: the first one creates the pools.
    phases.push(Phase { steps: with("rgw", Action::Gateway), serial: true });
    // The gateways of an adopted cluster are not in its model.
    if model.adopted || model.with_role("rgw").next().is_some() {
        phases.push(cluster(vec![Action::GatewayUser]));
    }
    phases.push(Phase { steps: daemon_hosts.map(|host| step(host, Action::Boot)).collect(), serial: false });
    phases.push(cluster(vec![Action::Healthy]));
    phases
}

fn addresses(workspace: &Workspace, model: &ClusterModel) -> Vec<ServiceAddress> {
    let name = workspace.name();
    let entry = |service: &str, address: String| ServiceAddress { service: service.into(), address };
    let mut list = vec![entry("volumes", format!("gabion volume create {name}/VOLUME --size SIZE"))];
    if model.with_role("mds").next().is_some() {
        let directory = workspace.directory().display();
        let command = format!(
            "ceph-fuse -c {directory}/ceph.conf -n client.{FILE_SYSTEM_USER} \
             -k {directory}/{FILE_SYSTEM_USER}.keyring DIRECTORY"
        );
        list.push(entry("file system", command));
    }
    for host in model.with_role("rgw") {
        if let Some(address) = host.public_address {
            list.push(entry("S3", format!("http://{address}:{GATEWAY_PORT}")));
        }
    }
    if model.with_role("rgw").next().is_some() {
        list.push(entry("S3 users", format!("gabion user create USER --cluster {name}")));
    }
    list
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn model(hosts: &[(&str, &[&str])]) -> ClusterModel {
        let host = |(name, roles): &(&str, &[&str])| ModelHost {
            name: (*name).into(),
            roles: roles.iter().map(ToString::to_string).collect::<BTreeSet<_>>(),
            ..ModelHost::default()
        };
        ClusterModel { hosts: hosts.iter().map(host).collect(), ..ClusterModel::default() }
    }

    #[test]
    fn roles_decide_the_daemons() {
        let names = |model: &ClusterModel, options: &ServiceOptions| -> Vec<String> {
            let phases = plan(model, options);
            let steps = phases.iter().flat_map(|phase| &phase.steps);
            steps.map(|step| format!("{}: {}", step.place("-"), step.name())).collect()
        };
        let storage: &[&str] = &["storage"];
        let small = model(&[("a", storage), ("b", storage), ("c", storage)]);
        let expected = [
            "-: create pool rbd (replicated:3)",
            "-: prepare pool rbd for volumes",
            "-: create the user of volumes",
            "-: wait for HEALTH_OK",
        ];
        assert_eq!(names(&small, &ServiceOptions::default()), expected);
        let all = model(&[("a", &["storage", "mds"]), ("b", &["storage", "rgw"]), ("c", storage)]);
        let volumes = Some(Redundancy::Erasure { data: 2, parity: 1 });
        let expected = [
            "a: write ceph.conf",
            "b: write ceph.conf",
            "-: create pool rbd (replicated:3)",
            "-: create pool rbd-data (ec:2+1)",
            "-: create pool cephfs.meta (replicated:3)",
            "-: create pool cephfs.data (replicated:3)",
            "-: prepare pool rbd for volumes",
            "-: create the user of volumes",
            "a: create and start the metadata server",
            "-: create the file system",
            "-: create the user of the file system",
            "b: create and start the object gateway",
            "-: create the user of the object gateways",
            "a: start the daemons at boot",
            "b: start the daemons at boot",
            "-: wait for HEALTH_OK",
        ];
        assert_eq!(names(&all, &ServiceOptions { volumes, pools: Vec::new() }), expected);
    }
}
