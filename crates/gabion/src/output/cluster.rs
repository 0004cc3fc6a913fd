//! Formatting of clusters.

use ::cluster::{
    Configuration, Discovery, HostInventory, ModelHost, ServiceAddress, ServicesResult, StepOutcome,
    StepReport,
};
use api::Size;
use api::types::{ClusterOsd, ClusterPool, ClusterStatus};

use super::table::table;
use super::word;

/// Formats a report on a step.
pub(crate) fn cluster_step(report: &StepReport) -> String {
    let outcome = match report.outcome {
        StepOutcome::Planned => "planned".to_owned(),
        StepOutcome::Changed => format!("done in {:.1} s", report.seconds),
        StepOutcome::Unchanged => "unchanged".to_owned(),
        StepOutcome::Failed => format!("failed: {}", report.error.as_deref().unwrap_or("unknown reason")),
    };
    format!("{:<10} {:<52} {outcome}", report.host, report.step)
}

/// Formats the end of the stage `services`, with the addresses of the services.
pub(crate) fn cluster_services(result: &ServicesResult) -> String {
    let mut text = cluster_steps_done(&result.steps);
    for ServiceAddress { service, address } in &result.services {
        text.push_str(&format!("\n{service:<12} {address}"));
    }
    text
}

/// Formats the end of a stage.
pub(crate) fn cluster_steps_done(steps: &[StepReport]) -> String {
    let count = |outcome| steps.iter().filter(|step| step.outcome == outcome).count();
    match count(StepOutcome::Planned) {
        0 => format!("steps: {}, of which {} changed something", steps.len(), count(StepOutcome::Changed)),
        planned => format!("steps: {}, of which {planned} are planned; nothing was changed", steps.len()),
    }
}

/// Formats an inventory.
pub(crate) fn discovery(discovery: &Discovery) -> String {
    let row = |host: &HostInventory| {
        let free: Vec<_> = host.drives.iter().filter(|drive| drive.is_unused()).collect();
        let bytes = free.iter().map(|drive| drive.bytes).sum();
        vec![
            host.name.clone(),
            host.cores.to_string(),
            Size(host.memory).to_string(),
            format!("{} of {}", free.len(), host.drives.len()),
            Size(bytes).to_string(),
            host.ceph_version.clone(),
        ]
    };
    let columns = ["HOST", ">CORES", ">MEMORY", ">UNUSED DRIVES", ">SIZE", "CEPH"];
    let mut text = table(&columns, discovery.hosts.iter().map(row));
    text.push_str(&format!(
        "\n{} fragments written to {}\n",
        discovery.written.len(),
        discovery.proposals.display()
    ));
    discovery.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
    text
}

/// Formats a valid configuration.
pub(crate) fn configuration(configuration: &Configuration) -> String {
    let model = &configuration.model;
    let row = |host: &ModelHost| {
        let address =
            |address: Option<std::net::Ipv4Addr>| address.map_or("-".into(), |address| address.to_string());
        let roles: Vec<&str> = host.roles.iter().map(String::as_str).collect();
        vec![
            host.name.clone(),
            address(host.public_address),
            address(host.cluster_address),
            host.osds.len().to_string(),
            roles.join(" "),
        ]
    };
    let columns = ["HOST", "PUBLIC", "CLUSTER", ">DRIVES", "ROLES"];
    format!(
        "fsid {}, public network {}, cluster network {}, {} copies\n\n{}",
        model.fsid,
        model.public_network,
        model.cluster_network,
        model.replicas(),
        table(&columns, model.hosts.iter().map(row))
    )
}

/// Formats the status of a cluster, in the layout of a pool's status.
pub(crate) fn cluster_status(status: &ClusterStatus) -> String {
    let mut text = format!("cluster '{}': {}\n", status.name, word(&status.health));
    for problem in &status.problems {
        text.push_str(&format!(
            "  ! {}\n    consequence: {}\n    action: {}\n",
            problem.message, problem.consequence, problem.action
        ));
    }
    text.push('\n');
    let mut line = |title: &str, value: String| text.push_str(&format!("{title:<12}{value}\n"));
    line("protection", protection(status.replicas));
    line("id", status.fsid.clone());
    let missing: Vec<&str> = status
        .monitors
        .iter()
        .filter(|name| !status.monitors_in_quorum.contains(name))
        .map(String::as_str)
        .collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!(", without {}", missing.join(", ")) };
    line(
        "monitors",
        format!("{} of {} in the quorum{missing}", status.monitors_in_quorum.len(), status.monitors.len()),
    );
    line("manager", status.manager.clone().unwrap_or_else(|| "none".into()));
    if status.capacity > 0 {
        line("space", format!("{} of {} free, before protection", Size(status.free), Size(status.capacity)));
        let pools = if status.pools.len() == 1 { "pool" } else { "pools" };
        line("volumes", format!("{} stored in {} {pools}", Size(status.stored), status.pools.len()));
    }
    if !status.placement_groups.is_empty() {
        let groups: Vec<String> =
            status.placement_groups.iter().map(|(state, count)| format!("{count} {state}")).collect();
        line("placement", groups.join(", "));
    }
    if !status.pools.is_empty() {
        text.push('\n');
        let columns = ["POOL", "PROTECTION", "APPLICATION", ">STORED", ">USED", ">AVAILABLE", ">OBJECTS"];
        text.push_str(&table(&columns, status.pools.iter().map(pool)));
    }
    if !status.osds.is_empty() {
        text.push('\n');
        let mut columns = vec!["OSD", "HOST", "STATE", ">SIZE", ">USED", "DRIVE"];
        let is_separate = status.osds.iter().any(|osd| osd.db.is_some() || osd.wal.is_some());
        if is_separate {
            columns.extend(["DATABASE", "LOG"]);
        }
        text.push_str(&table(&columns, status.osds.iter().map(|one| osd(one, is_separate))));
    }
    text
}

fn pool(pool: &ClusterPool) -> Vec<String> {
    let applications = if pool.applications.is_empty() { "-".into() } else { pool.applications.join(" ") };
    vec![
        pool.name.clone(),
        pool.protection.clone(),
        applications,
        Size(pool.stored).to_string(),
        Size(pool.used).to_string(),
        Size(pool.available).to_string(),
        pool.objects.to_string(),
    ]
}

fn osd(osd: &ClusterOsd, is_separate: bool) -> Vec<String> {
    let drive = |drive: &Option<String>| drive.clone().unwrap_or_else(|| "-".into());
    let mut row = vec![
        osd.id.to_string(),
        osd.host.clone(),
        osd.state.clone(),
        Size(osd.bytes).to_string(),
        Size(osd.used).to_string(),
        drive(&osd.drive),
    ];
    if is_separate {
        row.extend([drive(&osd.db), drive(&osd.wal)]);
    }
    row
}

fn protection(replicas: u64) -> String {
    match replicas {
        1 => "1 copy: the failure of any drive loses data".into(),
        2 => "2 copies on different hosts, tolerates the failure of any one host".into(),
        copies => format!(
            "{copies} copies on different hosts, tolerates the failure of any one host, and of {} without loss",
            copies - 1
        ),
    }
}
