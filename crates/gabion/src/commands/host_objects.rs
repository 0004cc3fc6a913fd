//! The virtual machines, clusters and benchmark runs of this host, for the daemon's console.

use std::path::PathBuf;

use ::cluster::Workspace;
use api::types::{BenchmarkRun, BenchmarkState, Cluster, ClusterStatus, HostMachine};
use api::{Error, ErrorKind, Result};
use bench::report::Report;
use bench::run::{RunError, RunState, Store as Runs};
use server::HostObjects;
use vm::Store as Machines;

/// The directories of machines, runs and clusters.
pub(super) struct HostDirectories {
    machines: Machines,
    runs: PathBuf,
    clusters: PathBuf,
}

impl HostDirectories {
    /// Returns the objects in the state directory of the daemon and in the directories of runs and
    /// clusters.
    pub(super) fn new(state_dir: PathBuf, runs: PathBuf, clusters: PathBuf) -> Self {
        Self { machines: Machines::new(state_dir), runs, clusters }
    }

    fn run(&self, id: &str) -> Result<(Runs, BenchmarkRun)> {
        let store = Runs::open(&self.runs, id).map_err(of_run)?;
        let plan = store.plan().map_err(of_run)?;
        let results = store.results().map_err(of_run)?;
        let run = BenchmarkRun {
            id: id.to_owned(),
            started: plan.environment.started,
            state: match store.state(&plan, &results).map_err(of_run)? {
                RunState::Running => BenchmarkState::Running,
                RunState::Incomplete => BenchmarkState::Incomplete,
                RunState::Complete => BenchmarkState::Complete,
            },
            targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
            results: results.iter().filter(|one| one.all.is_some()).count() as u64,
            command: plan.command.get(1..).unwrap_or_default().join(" "),
        };
        Ok((store, run))
    }
}

fn of_machine(error: vm::Error) -> Error {
    let kind = match error.kind() {
        vm::ErrorKind::NotFound => ErrorKind::NotFound,
        vm::ErrorKind::Invalid => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    Error::new(kind, error.to_string())
}

fn of_run(error: RunError) -> Error {
    let kind = match &error {
        RunError::Unknown { .. } => ErrorKind::NotFound,
        RunError::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ErrorKind::Denied
        }
        _ => ErrorKind::Io,
    };
    Error::new(kind, error.to_string())
}

fn of_cluster(error: ::cluster::Error) -> Error {
    let kind = match error.kind() {
        ::cluster::ErrorKind::NotFound => ErrorKind::NotFound,
        ::cluster::ErrorKind::Unreachable => ErrorKind::Unreachable,
        ::cluster::ErrorKind::Invalid => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    let converted = Error::new(kind, error.to_string());
    match error.hint_text() {
        Some(hint) => converted.hint(hint),
        None => converted,
    }
}

impl HostObjects for HostDirectories {
    fn machines(&self) -> Result<Vec<HostMachine>> {
        let machine = |machine: vm::Machine| {
            let running = self.machines.running(&machine.name).map_err(of_machine)?;
            Ok(HostMachine {
                started: running.map(|running| running.since),
                cpus: machine.cpus.sockets * machine.cpus.cores * machine.cpus.threads,
                memory: machine.memory.bytes,
                disks: machine.disks.into_iter().map(|disk| disk.volume).collect(),
                name: machine.name,
            })
        };
        self.machines.list().map_err(of_machine)?.into_iter().map(machine).collect()
    }

    fn console(&self, machine: &str) -> Result<PathBuf> {
        self.machines.get(machine).map_err(of_machine)?;
        if self.machines.running(machine).map_err(of_machine)?.is_none() {
            let message = format!("machine '{machine}' is not running");
            return Err(Error::new(ErrorKind::Busy, message)
                .hint(format!("'gabion vm start {machine}' on the daemon's host starts it")));
        }
        Ok(self.machines.console(machine))
    }

    fn clusters(&self) -> Result<Vec<Cluster>> {
        // A name that no command accepts is none of a cluster.
        let open = |name: String| Workspace::open(&self.clusters, &name).ok();
        let cluster = |workspace: Workspace| Cluster {
            name: workspace.name().to_owned(),
            configured: workspace.is_configured(),
            volumes: workspace.has_volumes(),
        };
        Ok(::cluster::list(&self.clusters).into_iter().filter_map(open).map(cluster).collect())
    }

    fn cluster(&self, cluster: &str) -> Result<ClusterStatus> {
        let workspace = Workspace::open(&self.clusters, cluster).map_err(of_cluster)?;
        ::cluster::status(&workspace).map_err(of_cluster)
    }

    fn runs(&self) -> Result<Vec<BenchmarkRun>> {
        let runs = Runs::all(&self.runs).map_err(of_run)?;
        // A run that was deleted meanwhile, or whose files are of another version, is skipped.
        Ok(runs.iter().filter_map(|id| Some(self.run(id).ok()?.1)).collect())
    }

    fn report(&self, id: &str) -> Result<String> {
        let (store, run) = self.run(id)?;
        if run.results == 0 {
            return Err(Error::new(ErrorKind::Busy, format!("run '{id}' has no results yet")));
        }
        let results = store.results().map_err(of_run)?;
        let report = Report::new(store.plan().map_err(of_run)?, store.systems().map_err(of_run)?, results);
        report.html().map_err(|error| Error::new(ErrorKind::Io, error.to_string()))
    }
}
