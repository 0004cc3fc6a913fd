//! The stages: prepare, discover, configure and deploy.
//!
//! Always true: a stage reads the results of the earlier ones from the workspace and says which is
//! missing; a dry run changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;

use serde::Serialize;

use crate::conf;
use crate::daemons::HostDaemons;
use crate::fragments;
use crate::hosts::HostsFile;
use crate::inventory::{self, HostInventory};
use crate::keys::Secrets;
use crate::model::ClusterModel;
use crate::perform::Deployment;
use crate::prepare::prepare_hosts;
use crate::progress::{Progress, StepReport};
use crate::proposal::ProposalArgs;
use crate::run;
use crate::steps::plan;
use crate::validate::{Violation, validate};
use crate::workspace::{MODEL, Workspace};
use ceph::{Error, ErrorKind, Result};

/// File of the hosts.
const HOSTS: &str = "hosts.json";
/// File of the inventories.
const INVENTORY: &str = "inventory.json";

/// The result of `discover`.
#[derive(Clone, Debug, Serialize)]
pub struct Discovery {
    /// Inventories of the hosts.
    pub hosts: Vec<HostInventory>,
    /// Directory of the fragments.
    pub proposals: PathBuf,
    /// Fragments that were written, or would be in a dry run.
    pub written: Vec<String>,
    /// Notes on drives that were left out.
    pub notes: Vec<String>,
}

/// The result of `configure`, or of the validation before `deploy`.
#[derive(Clone, Debug, Serialize)]
pub struct Configuration {
    /// The model.
    pub model: ClusterModel,
    /// Mistakes in the policy and its fragments.
    pub mistakes: Vec<String>,
    /// Violated requirements.
    pub violations: Vec<Violation>,
}

impl Configuration {
    /// Returns true without mistakes and violations.
    pub fn is_valid(&self) -> bool {
        self.mistakes.is_empty() && self.violations.is_empty()
    }

    /// Returns all mistakes and violations, for people.
    pub fn problems(&self) -> Vec<String> {
        let violations = self.violations.iter().map(ToString::to_string);
        self.mistakes.iter().cloned().chain(violations).collect()
    }
}

/// Prepares the hosts of a hosts file, and creates the workspace.
///
/// # Errors
/// `Invalid` for the file or the name; failures of hosts.
pub fn prepare(
    base: &Path,
    name: &str,
    hosts: &Path,
    dry_run: bool,
    progress: Progress,
) -> Result<Vec<StepReport>> {
    let hosts = HostsFile::read(hosts)?;
    if dry_run {
        return prepare_hosts(&hosts, true, progress);
    }
    let workspace = Workspace::create(base, name)?;
    let _lock = workspace.lock()?;
    check_deployed(&workspace)?;
    let reports = prepare_hosts(&hosts, false, progress)?;
    workspace.save(HOSTS, &hosts)?;
    Ok(reports)
}

pub(crate) fn load_hosts(workspace: &Workspace) -> Result<HostsFile> {
    workspace.load(HOSTS)?.ok_or_else(|| needs(workspace, "prepare"))
}

fn needs(workspace: &Workspace, stage: &str) -> Error {
    let message = format!("stage '{stage}' of cluster '{}' has not run", workspace.name());
    Error::new(ErrorKind::NotFound, message)
        .hint(format!("run 'gabion cluster {stage} {}'", workspace.name()))
}

/// Takes the inventories of hosts at the same time.
fn inventories(hosts: &HostsFile) -> Result<Vec<HostInventory>> {
    let results: Vec<Result<HostInventory>> = thread::scope(|scope| {
        let take = |host| scope.spawn(move || inventory::take(host));
        let threads: Vec<_> = hosts.hosts.iter().map(take).collect();
        let gone = || Err(Error::new(ErrorKind::Io, "a thread of the inventory panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    });
    let failures: Vec<String> =
        results.iter().filter_map(|result| result.as_ref().err().map(ToString::to_string)).collect();
    match results.iter().find_map(|result| result.as_ref().err()) {
        Some(first) => Err(Error::new(first.kind(), failures.join("; "))),
        None => results.into_iter().collect(),
    }
}

/// Takes the inventory of all hosts and writes proposals.
///
/// # Errors
/// `NotFound` before `prepare`; failures of hosts.
pub fn discover(workspace: &Workspace, proposals: &[ProposalArgs], dry_run: bool) -> Result<Discovery> {
    let _lock = workspace.lock()?;
    check_deployed(workspace)?;
    let hosts = load_hosts(workspace)?;
    let inventories = inventories(&hosts)?;
    let default = [ProposalArgs::default()];
    let proposals = if proposals.is_empty() { &default } else { proposals };
    let fsid = if dry_run {
        "00000000-0000-0000-0000-000000000000".into()
    } else {
        Secrets::load_or_create(workspace)?.fsid
    };
    let (fragments, notes) = fragments::propose_all(&hosts, &inventories, proposals, &fsid);
    let written = if dry_run {
        fragments.iter().map(|fragment| fragment.path.clone()).collect()
    } else {
        workspace.save(INVENTORY, &inventories)?;
        fragments::write(workspace, &fragments)?
    };
    Ok(Discovery { hosts: inventories, proposals: workspace.path(fragments::PROPOSALS), written, notes })
}

/// Merges the policy and its fragments into the model, and validates it. An invalid model is not
/// stored.
///
/// # Errors
/// `NotFound` before `discover`, or without a policy; `Io`.
pub fn configure(
    workspace: &Workspace,
    policy: Option<&Path>,
    development: bool,
    wipe: &BTreeSet<String>,
    dry_run: bool,
) -> Result<Configuration> {
    let _lock = workspace.lock()?;
    check_deployed(workspace)?;
    let hosts = load_hosts(workspace)?;
    let inventories = load_inventories(workspace)?.ok_or_else(|| needs(workspace, "discover"))?;
    let text = match policy {
        Some(path) => std::fs::read_to_string(path).map_err(|error| Error::file(path, &error))?,
        None => fragments::read_policy(workspace)?,
    };
    let merged = fragments::merge(workspace, &text, &hosts)?;
    let (model, invalid) = ClusterModel::build(&merged.hosts, &inventories, &hosts, development);
    let mut mistakes = merged.mistakes;
    mistakes.extend(invalid);
    let secrets = Secrets::load(workspace)?;
    let violations = validate(&model, &inventories, wipe, &secrets.uuids());
    let configuration = Configuration { model, mistakes, violations };
    if configuration.is_valid() && !dry_run {
        if policy.is_some() {
            workspace.write(&format!("{}/policy.cfg", fragments::PROPOSALS), text.as_bytes())?;
        }
        workspace.save(MODEL, &configuration.model)?;
    }
    Ok(configuration)
}

/// Returns the newest inventories of a cluster, if there are any.
///
/// # Errors
/// `Io`.
pub(crate) fn load_inventories(workspace: &Workspace) -> Result<Option<Vec<HostInventory>>> {
    workspace.load(INVENTORY)
}

/// Replaces the hosts of a cluster.
///
/// # Errors
/// `Io`.
pub(crate) fn save_hosts(workspace: &Workspace, hosts: &HostsFile) -> Result<()> {
    workspace.save(HOSTS, hosts)
}

/// Returns the model of a cluster, if there is one.
///
/// # Errors
/// `Io`.
pub(crate) fn find_model(workspace: &Workspace) -> Result<Option<ClusterModel>> {
    workspace.load(MODEL)
}

/// Refuses to change the daemons of a cluster that was adopted.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_deployed(workspace: &Workspace) -> Result<()> {
    if !find_model(workspace)?.is_some_and(|model| model.adopted) {
        return Ok(());
    }
    let message = format!("cluster '{}' was adopted: its daemons belong to another tool", workspace.name());
    Err(Error::new(ErrorKind::Invalid, message)
        .hint("change its hosts and drives with the tool that deployed it; 'services' and volumes work here"))
}

/// Returns the model of a cluster.
///
/// # Errors
/// `NotFound` before `configure`.
pub(crate) fn load_model(workspace: &Workspace) -> Result<ClusterModel> {
    workspace.load(MODEL)?.ok_or_else(|| needs(workspace, "configure"))
}

/// Replaces the model of a cluster.
///
/// # Errors
/// `Io`.
pub(crate) fn save_model(workspace: &Workspace, model: &ClusterModel) -> Result<()> {
    workspace.save(MODEL, model)
}

/// The result of `deploy`.
#[derive(Clone, Debug, Serialize)]
pub struct DeployResult {
    /// The validation; nothing was changed unless it is valid.
    pub configuration: Configuration,
    /// The steps.
    pub steps: Vec<StepReport>,
}

/// Deploys the model: monitors, managers and OSDs.
///
/// # Errors
/// `NotFound` before `configure`; failures of steps.
pub fn deploy(
    workspace: &Workspace,
    wipe: &BTreeSet<String>,
    dry_run: bool,
    progress: Progress,
) -> Result<DeployResult> {
    let _lock = workspace.lock()?;
    check_deployed(workspace)?;
    let model = load_model(workspace)?;
    let mut hosts = load_hosts(workspace)?;
    hosts.hosts.retain(|host| model.hosts.iter().any(|member| member.name == host.name));
    let inventories = inventories(&hosts)?;
    let mut secrets = Secrets::load(workspace)?;
    let violations = validate(&model, &inventories, wipe, &secrets.uuids());
    let configuration = Configuration { model: model.clone(), mistakes: Vec::new(), violations };
    let phases = plan(&model, |drive| wipe.contains(drive));
    if !configuration.is_valid() {
        return Ok(DeployResult { configuration, steps: Vec::new() });
    }
    if dry_run {
        let steps = run::dry_run(workspace.name(), &phases, progress);
        return Ok(DeployResult { configuration, steps });
    }
    let drives = model
        .hosts
        .iter()
        .flat_map(|host| host.osds.keys().map(move |drive| format!("{}:{drive}", host.name)));
    secrets.add_osds(workspace, drives)?;
    let directory = workspace.directory().to_string_lossy().into_owned();
    workspace.write("ceph.conf", conf::client_conf(&model, &directory).as_bytes())?;
    workspace.write("ceph.keyring", conf::admin_keyring(&secrets).as_bytes())?;
    let deployment = deployment(workspace, model, secrets)?;
    let steps = run::run(workspace, &deployment, &phases, progress)?;
    Ok(DeployResult { configuration, steps })
}

/// Returns the deployment of a model.
///
/// # Errors
/// `NotFound` before `prepare`.
pub(crate) fn deployment(workspace: &Workspace, model: ClusterModel, secrets: Secrets) -> Result<Deployment> {
    let mut daemons = BTreeMap::new();
    for host in load_hosts(workspace)?.hosts {
        let root = workspace.host_root(&host.name);
        daemons.insert(host.name.clone(), HostDaemons::new(host.transport()?, root));
    }
    Ok(Deployment::new(workspace, model, secrets, daemons))
}

/// Returns the deployment of a cluster that was configured.
///
/// # Errors
/// `NotFound` before `configure`.
pub(crate) fn load_deployment(workspace: &Workspace) -> Result<Deployment> {
    deployment(workspace, load_model(workspace)?, Secrets::load(workspace)?)
}
