//! Machines, templates, and the processors that machines run on.

use api::Size;
use vm::{Boot, CpuList, Network, Pages, Template};

use super::table::table;
use super::time::utc;
use crate::commands::vm::{Host, HostCpu, Shown};

/// A list of machines.
pub(crate) fn machines(machines: &[Shown]) -> String {
    if machines.is_empty() {
        return "no machines; 'gabion vm create --help' says how to make one".into();
    }
    let row = |shown: &Shown| {
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

/// One machine, in full.
pub(crate) fn machine(shown: &Shown) -> String {
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
        Boot::Disk => line("starts", "from its first disk".into()),
        Boot::Kernel { kernel, append, .. } => line("starts", format!("{} {append}", kernel.display())),
    }
    for disk in &machine.disks {
        let made = if disk.made { "" } else { ", not made for it" };
        let access = if disk.read_only { ", read-only" } else { "" };
        line("disk", format!("{}{access}{made}", disk.volume));
    }
    let mac = machine.network.mac().map(|mac| format!(", {mac}")).unwrap_or_default();
    line("network", format!("{}{mac}", network(&machine.network)));
    let told = &machine.cloud_init;
    let named = [
        ("user data", &told.user_data),
        ("network data", &told.network_data),
        ("meta data", &told.meta_data),
    ];
    let named: Vec<String> =
        named.into_iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?))).collect();
    if !named.is_empty() {
        line("cloud-init", named.join(", "));
    }
    line("created", utc(machine.created));
    if let Some(running) = &shown.running {
        let by = super::word(&running.accelerator).to_uppercase();
        line("process", format!("{}, by {by}, since {}", running.pid, utc(running.since)));
        line("runs", places(&running.placement));
        if let Some(instead) = &running.instead {
            line("not by KVM", instead.clone());
        }
    }
    line("console", shown.console_log.clone());
    text
}

fn places(placement: &vm::Placement) -> String {
    if placement.cpus.is_empty() {
        return placement.why.clone();
    }
    let each: Vec<String> = placement.cpus.iter().map(CpuList::to_string).collect();
    format!("on processors {}: {}", each.join(" "), placement.why)
}

/// A machine that was made.
pub(crate) fn machine_made(shown: &Shown) -> String {
    format!("machine '{0}' is made; 'gabion vm start {0}' starts it", shown.machine.name)
}

/// A machine that was started.
pub(crate) fn machine_started(shown: &Shown) -> String {
    let name = &shown.machine.name;
    match &shown.running {
        Some(running) => {
            let by = super::word(&running.accelerator).to_uppercase();
            let by = if running.instead.is_some() { format!("{by}, since KVM does not do here") } else { by };
            format!(
                "machine '{name}' runs by {by}, {}; 'gabion vm console {name}' is its console",
                places(&running.placement)
            )
        }
        None => format!(
            "machine '{name}' has ended already; 'gabion vm console {name} --log' prints what it said"
        ),
    }
}

/// A list of templates.
pub(crate) fn templates(templates: &[Template]) -> String {
    let row = |template: &Template| {
        let from = if template.built_in { "with the program" } else { "yours" };
        vec![template.kind.name().into(), template.name.clone(), from.into(), template.places.join(" ")]
    };
    table(&["FOR", "TEMPLATE", "COMES", "WANTS"], templates.iter().map(row))
}

/// The processors of this host.
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
    text.push_str(
        "\nCORE and CACHE: the lowest processor that shares the core, and the last level of cache.\n",
    );
    if !host.daemon {
        text.push_str("No daemon said where its reactors are.\n");
    } else if host.cpus.iter().all(|cpu| cpu.reactors.is_empty()) {
        text.push_str(
            "The daemon's reactors are not tied to processors: 'gabion serve --cores' ties them.\n",
        );
    }
    text
}
