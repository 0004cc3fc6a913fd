//! Formatting of machines, templates and the CPUs of the host.

use api::Size;
use serde::Serialize;
use vm::{Boot, CpuList, Machine, Network, Pages, Running, Template};

use super::table::table;
use super::time::utc;

/// A machine and its process.
#[derive(Serialize)]
pub(crate) struct MachineStatus {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// `running` or `stopped`.
    pub(crate) state: &'static str,
    pub(crate) running: Option<Running>,
    /// Path of the log of the console.
    pub(crate) console_log: String,
}

/// The CPUs of the host, and the threads on them.
#[derive(Serialize)]
pub(crate) struct Host {
    pub(crate) cpus: Vec<HostCpu>,
    /// False if no daemon is running, so that the cores of its reactors are unknown.
    pub(crate) daemon: bool,
}

/// A CPU of the host.
#[derive(Serialize)]
pub(crate) struct HostCpu {
    #[serde(flatten)]
    pub(crate) cpu: vm::Cpu,
    /// Reactor threads that are pinned to the CPU.
    pub(crate) reactors: Vec<u32>,
    /// Machines with a vCPU that may run on the CPU.
    pub(crate) machines: Vec<String>,
}

/// Formats machines as a table.
pub(crate) fn machines(machines: &[MachineStatus]) -> String {
    if machines.is_empty() {
        return "no machines; 'gabion vm create --help' shows examples".into();
    }
    let row = |shown: &MachineStatus| {
        let machine = &shown.machine;
        let disks: Vec<&str> = machine.disks.iter().map(|disk| disk.volume.as_str()).collect();
        vec![
            machine.name.clone(),
            shown.state.to_owned(),
            machine.cpus.to_string(),
            Size(machine.memory.bytes).to_string(),
            network(&machine.network),
            disks.join(" "),
        ]
    };
    table(&["MACHINE", "STATE", ">CPUS", ">MEMORY", "NETWORK", "DISKS"], machines.iter().map(row))
}

fn network(network: &Network) -> String {
    match network {
        Network::None => "none".into(),
        Network::User { forwards, .. } if forwards.is_empty() => "user".into(),
        Network::User { forwards, .. } => {
            let forwards: Vec<String> = forwards.iter().map(ToString::to_string).collect();
            format!("user, {}", forwards.join(" "))
        }
        Network::Tap { interface, .. } => format!("tap:{interface}"),
    }
}

/// Formats all properties of a machine.
pub(crate) fn machine(shown: &MachineStatus) -> String {
    let machine = &shown.machine;
    let mut text = format!("machine '{}': {}\n\n", machine.name, shown.state);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<11}{value}\n"));
    let pages = match machine.memory.pages {
        Pages::Normal => "",
        Pages::Huge2M => ", huge pages of 2 MiB",
        Pages::Huge1G => ", huge pages of 1 GiB",
    };
    line("cpus", format!("{}, pinned: {}", machine.cpus, machine.pin));
    line("memory", format!("{}{pages}", Size(machine.memory.bytes)));
    match &machine.boot {
        Boot::Disk => line("boot", "first disk".into()),
        Boot::Kernel { kernel, append, .. } => line("boot", format!("{} {append}", kernel.display())),
    }
    for disk in &machine.disks {
        let made = if disk.made { ", created with the machine" } else { "" };
        let access = if disk.read_only { ", read-only" } else { "" };
        line("disk", format!("{}{access}{made}", disk.volume));
    }
    let mac = machine.network.mac().map(|mac| format!(", {mac}")).unwrap_or_default();
    line("network", format!("{}{mac}", network(&machine.network)));
    let cloud_init = &machine.cloud_init;
    let named = [
        ("user data", &cloud_init.user_data),
        ("network data", &cloud_init.network_data),
        ("meta data", &cloud_init.meta_data),
    ];
    let named: Vec<String> =
        named.into_iter().filter_map(|(kind, name)| Some(format!("{kind} {}", name.as_ref()?))).collect();
    if !named.is_empty() {
        line("cloud-init", named.join(", "));
    }
    line("created", utc(machine.created));
    if let Some(running) = &shown.running {
        let by = super::word(&running.accelerator).to_uppercase();
        line("process", format!("{} ({by}), since {}", running.pid, utc(running.since)));
        line("placement", placement(&running.placement));
        if let Some(instead) = &running.instead {
            line("no KVM", instead.clone());
        }
    }
    line("console", shown.console_log.clone());
    text
}

fn placement(placement: &vm::Placement) -> String {
    if placement.cpus.is_empty() {
        return placement.why.clone();
    }
    let each: Vec<String> = placement.cpus.iter().map(CpuList::to_string).collect();
    format!("on CPUs {}: {}", each.join(" "), placement.why)
}

/// Formats the creation of a machine.
pub(crate) fn machine_created(shown: &MachineStatus) -> String {
    format!("machine '{0}' created; 'gabion vm start {0}' starts it", shown.machine.name)
}

/// Formats the start of a machine.
pub(crate) fn machine_started(shown: &MachineStatus) -> String {
    let name = &shown.machine.name;
    match &shown.running {
        Some(running) => {
            let by = super::word(&running.accelerator).to_uppercase();
            let by =
                if running.instead.is_some() { format!("{by}, because KVM is not available") } else { by };
            format!(
                "machine '{name}' started with {by}, {}; 'gabion vm console {name}' connects to its console",
                placement(&running.placement)
            )
        }
        None => format!(
            "machine '{name}' has already exited; 'gabion vm console {name} --log' prints its console output"
        ),
    }
}

/// Formats templates as a table.
pub(crate) fn templates(templates: &[Template]) -> String {
    let row = |template: &Template| {
        let source = if template.built_in { "built-in" } else { "user" };
        vec![template.kind.name().into(), template.name.clone(), source.into(), template.places.join(" ")]
    };
    table(&["KIND", "TEMPLATE", "SOURCE", "PLACEHOLDERS"], templates.iter().map(row))
}

/// Formats the CPUs of the host as a table.
pub(crate) fn host(host: &Host) -> String {
    let row = |cpu: &HostCpu| {
        let reactors: Vec<String> = cpu.reactors.iter().map(|index| format!("reactor {index}")).collect();
        let runs: Vec<&str> = reactors.iter().chain(&cpu.machines).map(String::as_str).collect();
        let HostCpu { cpu, .. } = cpu;
        vec![
            cpu.id.to_string(),
            cpu.core.to_string(),
            cpu.cache.to_string(),
            cpu.node.to_string(),
            runs.join(", "),
        ]
    };
    let mut text = table(&[">CPU", ">CORE", ">CACHE", ">NODE", "RUNS"], host.cpus.iter().map(row));
    text.push_str("\nCORE and CACHE: the lowest CPU that shares the core, and the last-level cache.\n");
    if !host.daemon {
        text.push_str("No daemon is running: the CPUs of its reactor threads are unknown.\n");
    } else if host.cpus.iter().all(|cpu| cpu.reactors.is_empty()) {
        text.push_str("The daemon's reactor threads are not pinned: 'gabion serve --cores' pins them.\n");
    }
    text
}
