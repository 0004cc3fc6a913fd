//! `gabion vm`. Machines are managed by this program, their volumes and exports by the daemon.
//!
//! Always true: a failed command deletes the volumes and exports that it created. Must not know:
//! the interfaces of QEMU.

mod create;
mod disks;
mod lifecycle;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::types;
use vm::{Machine, Placement, PlacementRequest, Store, Topology, choose_placement};

use super::{CommandContext, print};
use crate::cli::{Global, VmCommand};
use crate::failure::ExitReason;
use crate::output::{self, Host, HostCpu, MachineStatus};

/// The context of `gabion vm` commands.
struct VmContext<'a> {
    ctx: &'a CommandContext,
    store: Store,
}

/// Runs a `gabion vm` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, global: &Global, command: VmCommand) -> Result<ExitReason> {
    let vm = VmContext { ctx, store: Store::new(super::serve::state_dir(global)) };
    match command {
        VmCommand::Create(arguments) => vm.create(*arguments).await?,
        VmCommand::Start { name, pin } => vm.start(&name, pin).await?,
        VmCommand::Stop { name, force, timeout } => vm.stop(&name, force, timeout)?,
        VmCommand::List => vm.list()?,
        VmCommand::Show { name, libvirt } => vm.show(&name, libvirt).await?,
        VmCommand::Console { name, log } => vm.console(&name, log)?,
        VmCommand::Delete { name, volumes, yes } => vm.delete(&name, volumes, yes).await?,
        VmCommand::Topology => vm.topology().await?,
        VmCommand::Template(command) => vm.template(command)?,
    }
    Ok(ExitReason::Success)
}

impl VmContext<'_> {
    fn status(&self, machine: Machine) -> Result<MachineStatus> {
        let running = self.store.running(&machine.name)?;
        let state = if running.is_some() { "running" } else { "stopped" };
        let console_log = self.store.console_log(&machine.name).display().to_string();
        Ok(MachineStatus { machine, state, running, console_log })
    }

    fn list(&self) -> Result<()> {
        let machines = self.store.list()?;
        let status: Vec<MachineStatus> =
            machines.into_iter().map(|machine| self.status(machine)).collect::<Result<_>>()?;
        self.ctx.list(&status, |status| status.machine.name.clone(), output::machines)
    }

    async fn show(&self, name: &str, libvirt: bool) -> Result<()> {
        let machine = self.store.get(name)?;
        if libvirt {
            return print(&self.domain(&machine).await?);
        }
        self.ctx.print(&self.status(machine)?, output::machine)
    }

    /// Returns the libvirt domain XML of a machine; writes the files that it refers to.
    async fn domain(&self, machine: &Machine) -> Result<String> {
        let disks = self.sockets(machine, false).await?;
        let daemon = self.ctx.client.get_daemon().await?;
        let placement = self.placement(machine, &daemon)?;
        let seed = vm::write_seed(&self.store, machine)?;
        Ok(vm::domain(machine, &disks, seed.as_deref(), vm::kvm_is_usable(), &placement))
    }

    /// Returns the placement of a machine that is started now.
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
        // The topology is also shown without a daemon.
        let daemon = self.ctx.client.clone().start_wait(Duration::ZERO).get_daemon().await.ok();
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
        self.ctx.print(&Host { cpus, daemon: daemon.is_some() }, output::host)
    }
}
