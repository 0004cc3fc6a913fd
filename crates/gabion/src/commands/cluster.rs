//! `gabion cluster`.

use std::collections::BTreeSet;
use std::io::Write;

use ::cluster::{self as ceph, Configuration, QuickstartPlan, ServiceOptions, StepReport, Workspace};
use anyhow::Result;
use api::types::ClusterHealth;
use serde::Serialize;

use crate::cli::{
    AdoptArgs, ClusterArg, ClusterCommand, ClusterQuickstartArgs, ConfigureArgs, DeployArgs, DiscoverArgs,
    Global, PrepareArgs, RemoveArgs, ServicesArgs,
};
use crate::failure::ExitReason;
use crate::output;
use crate::terminal::confirm;

/// Runs a `gabion cluster` command.
///
/// # Errors
/// The error of the command.
pub(crate) fn run(global: &Global, command: ClusterCommand) -> Result<ExitReason> {
    match command {
        ClusterCommand::Prepare(arguments) => prepare(global, &arguments),
        ClusterCommand::Discover(arguments) => discover(global, &arguments),
        ClusterCommand::Configure(arguments) => configure(global, &arguments),
        ClusterCommand::Deploy(arguments) => deploy(global, &arguments),
        ClusterCommand::Services(arguments) => services(global, &arguments),
        ClusterCommand::Adopt(arguments) => adopt(global, &arguments),
        ClusterCommand::Status(arguments) => status(global, &arguments.cluster),
        ClusterCommand::List { place } => {
            let names = ceph::list(&place.dir);
            let text = if global.json { super::to_json(&names)? } else { names.join("\n") };
            super::print(&text)?;
            Ok(ExitReason::Success)
        }
        ClusterCommand::Remove(arguments) => remove(global, &arguments),
        ClusterCommand::Quickstart(arguments) => quickstart(global, &arguments),
    }
}

fn open(cluster: &ClusterArg) -> Result<Workspace> {
    Ok(Workspace::open(&cluster.place.dir, &cluster.name)?)
}

/// Returns a receiver that prints steps to standard error, which is for progress.
fn progress(global: &Global) -> impl Fn(&StepReport) + Sync + use<> {
    let quiet = global.quiet;
    move |report: &StepReport| {
        if !quiet {
            // A closed standard error is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{}", output::cluster_step(report));
        }
    }
}

/// Prints a result: as JSON with `--json`, else as text, unless `--quiet` is set.
fn done<T: Serialize>(global: &Global, result: &T, text: impl FnOnce(&T) -> String) -> Result<ExitReason> {
    if global.json {
        super::print(&super::to_json(result)?)?;
    } else if !global.quiet {
        super::print(&text(result))?;
    }
    Ok(ExitReason::Success)
}

fn steps_done(global: &Global, steps: &[StepReport]) -> Result<ExitReason> {
    done(global, &steps, |steps| output::cluster_steps_done(steps))
}

fn prepare(global: &Global, arguments: &PrepareArgs) -> Result<ExitReason> {
    let PrepareArgs { cluster: ClusterArg { name, place }, hosts, dry_run } = arguments;
    let steps = ceph::prepare(&place.dir, name, hosts, *dry_run, &progress(global))?;
    steps_done(global, &steps)
}

fn discover(global: &Global, arguments: &DiscoverArgs) -> Result<ExitReason> {
    let workspace = open(&arguments.cluster)?;
    let discovery = ceph::discover(&workspace, &arguments.proposals, arguments.dry_run)?;
    done(global, &discovery, output::discovery)
}

fn configure(global: &Global, arguments: &ConfigureArgs) -> Result<ExitReason> {
    let workspace = open(&arguments.cluster)?;
    let wipe: BTreeSet<String> = arguments.wipe.iter().cloned().collect();
    let policy = arguments.policy.as_deref();
    let result = ceph::configure(&workspace, policy, arguments.development, &wipe, arguments.dry_run)?;
    check(&result)?;
    done(global, &result, output::configuration)
}

/// Fails with all problems of a configuration.
fn check(configuration: &Configuration) -> Result<()> {
    let problems = configuration.problems();
    match problems.len() {
        0 => Ok(()),
        1 => Err(anyhow::anyhow!("1 problem: {}", problems.concat())),
        count => Err(anyhow::anyhow!("{count} problems:\n  {}", problems.join("\n  "))),
    }
}

fn deploy(global: &Global, arguments: &DeployArgs) -> Result<ExitReason> {
    let workspace = open(&arguments.cluster)?;
    let wipe: BTreeSet<String> = arguments.wipe.iter().cloned().collect();
    let result = ceph::deploy(&workspace, &wipe, arguments.dry_run, &progress(global))?;
    check(&result.configuration)?;
    steps_done(global, &result.steps)
}

fn services(global: &Global, arguments: &ServicesArgs) -> Result<ExitReason> {
    let workspace = open(&arguments.cluster)?;
    let options = ServiceOptions { volumes: arguments.volumes, pools: arguments.pools.clone() };
    let result = ceph::services(&workspace, &options, arguments.dry_run, &progress(global))?;
    done(global, &result, output::cluster_services)
}

fn adopt(global: &Global, arguments: &AdoptArgs) -> Result<ExitReason> {
    let ClusterArg { name, place } = &arguments.cluster;
    let status = ceph::adopt(&place.dir, name, &arguments.conf, &arguments.keyring)?;
    done(global, &status, |status| {
        let next = format!("Next: 'gabion cluster services {name}' prepares it for volumes.");
        format!("{}\n{next}\n", output::cluster_status(status))
    })
}

fn status(global: &Global, cluster: &ClusterArg) -> Result<ExitReason> {
    let status = ceph::status(&open(cluster)?)?;
    done(global, &status, output::cluster_status)?;
    Ok(if status.health == ClusterHealth::Healthy { ExitReason::Success } else { ExitReason::Unhealthy })
}

fn remove(global: &Global, arguments: &RemoveArgs) -> Result<ExitReason> {
    let workspace = open(&arguments.cluster)?;
    let name = &arguments.cluster.name;
    let steps = match &arguments.target {
        Some(target) => {
            confirm(arguments.yes, &format!("drains and removes '{target}' of cluster '{name}'"))?;
            ceph::remove(&workspace, target, &progress(global))?
        }
        None => {
            confirm(arguments.yes, &format!("deletes cluster '{name}' and all of its data"))?;
            ceph::remove_all(&workspace, &progress(global))?
        }
    };
    steps_done(global, &steps)
}

fn quickstart(global: &Global, arguments: &ClusterQuickstartArgs) -> Result<ExitReason> {
    let plan = QuickstartPlan {
        name: arguments.name.clone(),
        base: arguments.place.dir.clone(),
        hosts: arguments.hosts,
        drives: arguments.drives,
        drive_bytes: arguments.drive_size.bytes(),
    };
    if arguments.remove {
        let steps = plan.remove(&progress(global))?;
        return steps_done(global, &steps);
    }
    let configuration = plan.configure(&progress(global))?;
    check(&configuration)?;
    let workspace = Workspace::open(&plan.base, &plan.name)?;
    let result = ceph::deploy(&workspace, &BTreeSet::new(), false, &progress(global))?;
    check(&result.configuration)?;
    if !arguments.deploy_only {
        crate::cluster_tour::run(&plan, &workspace, &progress(global))?;
    }
    if arguments.once {
        let steps = plan.remove(&progress(global))?;
        return steps_done(global, &steps);
    }
    let status = ceph::status(&workspace)?;
    done(global, &status, |status| {
        let name = &status.name;
        format!(
            "{}\nNext: 'gabion cluster status {name}'; 'gabion cluster quickstart {name} --remove' removes the cluster.\n",
            output::cluster_status(status)
        )
    })
}
