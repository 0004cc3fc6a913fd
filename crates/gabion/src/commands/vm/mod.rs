//! `gabion vm`: machines are this room's doing, their volumes and exports the daemon's.
//!
//! Always true: a command that fails takes back what it made. Must not know: how QEMU is told anything.

mod create;
mod disks;
mod life;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::types;
use serde::Serialize;
use vm::{Machine, Placement, PlacementRequest, Running, Store, Topology, choose_placement};

use super::{Setting, print};
use crate::cli::{Global, VmCommand};
use crate::failure::Outcome;
use crate::output;

/// A machine and its process.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// `running` or `stopped`.
    pub(crate) state: &'static str,
    pub(crate) running: Option<Running>,
    /// Where all that it says on its console is kept.
    pub(crate) console_log: String,
}

/// This host's processors, and who is on them.
#[derive(Serialize)]
pub(crate) struct Host {
    pub(crate) cpus: Vec<HostCpu>,
    /// False if no daemon said on which cores its reactors stay.
    pub(crate) daemon: bool,
}

/// A processor.
#[derive(Serialize)]
pub(crate) struct HostCpu {
    #[serde(flatten)]
    pub(crate) cpu: vm::Cpu,
    /// The reactor threads that stay on it.
    pub(crate) reactors: Vec<u32>,
    /// The machines with a processor that may run there.
    pub(crate) machines: Vec<String>,
}

/// What these commands work with.
struct Work<'a> {
    setting: &'a Setting,
    store: Store,
}

/// Runs a command about machines.
///
/// # Errors
/// Why it failed.
pub(crate) async fn run(setting: &Setting, global: &Global, command: VmCommand) -> Result<Outcome> {
    let work = Work { setting, store: Store::new(super::serve::state_dir(global)) };
    match command {
        VmCommand::Create(arguments) => work.create(*arguments).await?,
        VmCommand::Start { name, pin } => work.start(&name, pin).await?,
        VmCommand::Stop { name, force, timeout } => work.stop(&name, force, timeout)?,
        VmCommand::List => work.list()?,
        VmCommand::Show { name, libvirt } => work.show(&name, libvirt).await?,
        VmCommand::Console { name, log } => work.console(&name, log)?,
        VmCommand::Delete { name, volumes, yes } => work.delete(&name, volumes, yes).await?,
        VmCommand::Topology => work.topology().await?,
        VmCommand::Template(command) => work.template(command)?,
    }
    Ok(Outcome::Done)
}

impl Work<'_> {
    fn shown(&self, machine: Machine) -> Result<Shown> {
        let running = self.store.running(&machine.name)?;
        let state = if running.is_some() { "running" } else { "stopped" };
        let console_log = self.store.console_log(&machine.name).display().to_string();
        Ok(Shown { machine, state, running, console_log })
    }

    fn list(&self) -> Result<()> {
        let machines = self.store.list()?;
        let shown: Vec<Shown> =
            machines.into_iter().map(|machine| self.shown(machine)).collect::<Result<_>>()?;
        self.setting.list(&shown, |shown| shown.machine.name.clone(), output::machines)
    }

    async fn show(&self, name: &str, libvirt: bool) -> Result<()> {
        let machine = self.store.get(name)?;
        if libvirt {
            return print(&self.domain(&machine).await?);
        }
        self.setting.print(&self.shown(machine)?, output::machine)
    }

    /// A machine as libvirt's domain, with the files that it needs.
    async fn domain(&self, machine: &Machine) -> Result<String> {
        let disks = self.sockets(machine, false).await?;
        let daemon = self.setting.client.get_daemon().await?;
        let placement = self.placement(machine, &daemon)?;
        let seed = vm::write_seed(&self.store, machine)?;
        Ok(vm::domain(machine, &disks, seed.as_deref(), vm::kvm_is_usable(), &placement))
    }

    /// Where a machine would run if it were started now.
    fn placement(&self, machine: &Machine, daemon: &types::DaemonStatus) -> Result<Placement> {
        let chosen = |index: u32| machine.reactors.is_empty() || machine.reactors.contains(&index);
        let reactors =
            (0..).zip(&daemon.cores).filter(|(index, _)| chosen(*index)).map(|(_, core)| *core).collect();
        let mut taken = BTreeMap::new();
        for other in self.store.list()?.iter().filter(|other| other.name != machine.name) {
            let Some(running) = self.store.running(&other.name)? else { continue };
            for cpu in running.placement.cpus.iter().flat_map(|list| &list.0) {
                *taken.entry(*cpu).or_default() += 1;
            }
        }
        let request =
            PlacementRequest { cpus: machine.cpus.count(), pin: machine.pin.clone(), reactors, taken };
        Ok(choose_placement(&Topology::detect()?, &request))
    }

    async fn topology(&self) -> Result<()> {
        // The topology is useful without a daemon too: do not wait for one.
        let daemon = self.setting.client.clone().start_wait(Duration::ZERO).get_daemon().await.ok();
        let cores = daemon.as_ref().map(|daemon| daemon.cores.clone()).unwrap_or_default();
        let mut machines = Vec::new();
        for machine in self.store.list()? {
            machines
                .extend(self.store.running(&machine.name)?.map(|running| (machine.name, running.placement)));
        }
        let cpu = |cpu: vm::Cpu| {
            let reactors =
                (0..).zip(&cores).filter(|(_, core)| **core == cpu.id).map(|(index, _)| index).collect();
            let here = |placement: &Placement| placement.cpus.iter().any(|list| list.0.contains(&cpu.id));
            let here = machines.iter().filter(|(_, placement)| here(placement));
            let machines = here.map(|(name, _)| name.clone()).collect();
            HostCpu { reactors, machines, cpu }
        };
        let cpus = Topology::detect()?.cpus.into_iter().map(cpu).collect();
        self.setting.print(&Host { cpus, daemon: daemon.is_some() }, output::host)
    }
}
