//! The stage `prepare`: packages, time service and kernel settings of the hosts.
//!
//! Always true: each machine is prepared once, even if it is several hosts; nothing is installed
//! that is installed already.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::hosts::HostsFile;
use crate::progress::{Progress, StepOutcome, StepReport};
use crate::transport::Transport;
use ceph::{Error, ErrorKind, Result};

/// Packages of Debian with the daemons and tools.
const PACKAGES: [&str; 8] =
    ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "radosgw", "ceph-common", "librbd1", "gdisk"];
/// Asynchronous I/O requests of the kernel, at least: OSDs use thousands each.
const AIO_MAX: u64 = 1_048_576;

/// A step on one machine.
struct PrepareStep {
    name: String,
    /// Prints something if the step is needed.
    needed: String,
    perform: String,
}

fn steps(machine: &Transport) -> Vec<PrepareStep> {
    let install = |packages: &str| {
        format!(
            "export DEBIAN_FRONTEND=noninteractive\n\
         command -v apt-get >/dev/null || {{ echo 'this host has no apt-get: install {packages} with its package manager' >&2; exit 1; }}\n\
         apt-get update -qq >&2; apt-get install -y -qq --no-install-recommends {packages} >&2"
        )
    };
    let installed = "dpkg-query -W -f '${Status}' \"$package\" 2>/dev/null | grep -q 'ok installed'";
    let packages = PACKAGES.join(" ");
    let mut steps = vec![
        PrepareStep {
            name: format!("install {packages}"),
            needed: format!("for package in {packages}; do {installed} || echo \"$package\"; done"),
            perform: install(&packages),
        },
        PrepareStep {
            name: format!("raise fs.aio-max-nr to {AIO_MAX}"),
            needed: format!("[ \"$(cat /proc/sys/fs/aio-max-nr)\" -ge {AIO_MAX} ] || echo needed"),
            perform: format!(
                "echo 'fs.aio-max-nr = {AIO_MAX}' >/etc/sysctl.d/90-gabion-cluster.conf\n\
                 echo {AIO_MAX} >/proc/sys/fs/aio-max-nr"
            ),
        },
    ];
    // This machine's clock is the reference of the others.
    if !machine.is_local() {
        let running = "pidof chronyd ntpd systemd-timesyncd openntpd >/dev/null 2>&1";
        steps.push(PrepareStep {
            name: "install chrony, because no time service runs".into(),
            needed: format!("{running} || echo needed"),
            perform: format!("{}\nsystemctl enable --now chrony >&2", install("chrony")),
        });
    }
    steps
}

/// Prepares the machines of all hosts.
///
/// # Errors
/// `Unreachable`; `Io` with the failed steps of all machines.
pub(crate) fn prepare_hosts(hosts: &HostsFile, dry_run: bool, progress: Progress) -> Result<Vec<StepReport>> {
    let (mut machines, mut reports) = (BTreeSet::new(), Vec::new());
    for host in &hosts.hosts {
        // Namespaces of this machine share its packages.
        let transport = host.transport()?;
        let machine = if transport.is_local() { Transport::Local } else { transport };
        if !machines.insert(machine.to_string()) {
            continue;
        }
        for step in steps(&machine) {
            let report = perform(&host.name, &machine, &step, dry_run);
            progress(&report);
            let failed = report.outcome == StepOutcome::Failed;
            reports.push(report);
            if failed {
                break;
            }
        }
    }
    let failures =
        reports.iter().filter_map(|report| Some(format!("{}: {}", report.host, report.error.as_ref()?)));
    let failures: Vec<String> = failures.collect();
    if failures.is_empty() { Ok(reports) } else { Err(Error::new(ErrorKind::Io, failures.join("; "))) }
}

fn perform(host: &str, machine: &Transport, step: &PrepareStep, dry_run: bool) -> StepReport {
    let start = Instant::now();
    let result = (|| {
        let needed = machine.run(&step.needed)?;
        if needed.is_empty() {
            return Ok(StepOutcome::Unchanged);
        }
        if dry_run {
            return Ok(StepOutcome::Planned);
        }
        machine.run(&step.perform)?;
        Ok(StepOutcome::Changed)
    })();
    let (outcome, error) = match result {
        Ok(outcome) => (outcome, None),
        Err(error) => (StepOutcome::Failed, Some(Error::to_string(&error))),
    };
    let seconds = start.elapsed().as_secs_f64();
    StepReport { host: host.to_owned(), step: step.name.clone(), outcome, error, seconds }
}
