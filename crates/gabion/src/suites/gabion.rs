//! Gabion as a benchmark target: a child daemon on the drives of the run, with pools, volumes and
//! exports, and optionally a virtual machine per volume.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::client::Client;
use api::types::{CreateExport, CreateKey, CreatePool, CreateVolume, Export, Protocol, StartS3};
use bench::Workload;
use bench::bounds::Layout;
use bench::guest::BootFiles;
use bench::load::{S3Endpoint, Target};
use bench::stale_processes::{StateDir, environment_tag};
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, interleave};
use tokio::runtime::Runtime;

use super::machines::{self, BenchMachines};
use crate::child_daemon::ChildDaemon;
use crate::failure::Usage;
use crate::progress::follow;

/// Default fill of the pools by volumes, in percent of the free space.
const FILL: u64 = 50;
const MIB: u64 = 1 << 20;
/// Time for which the access key of a load is valid, in seconds.
const KEY_VALID_S: u64 = 7 * 24 * 3600;
/// Default memory of a machine in MiB: the root file system and the buffers of a load.
const MACHINE_MIB: u64 = 768;
/// Index of the drive of each pool that is marked as failed.
const FAILED_DRIVE: u16 = 1;

/// The benchmark target.
pub(super) struct Gabion {
    name: String,
    scheme: Option<String>,
    pools: Option<u32>,
    fill: u64,
    reactors: Option<u32>,
    protocol: Protocol,
    /// Set if each volume is the disk of a machine.
    machines: Option<VmRequest>,
    overwrite: bool,
    shape: String,
    remark: Option<String>,
    layout: Option<Layout>,
    running: Option<RunningTarget>,
}

/// The requested configuration of machines.
struct VmRequest {
    cpus: Option<u32>,
    memory: u64,
    kernel: PathBuf,
}

/// A running target.
struct RunningTarget {
    /// Stopped first: without the daemon, their disks would wait for ever.
    machines: Option<BenchMachines>,
    runtime: Runtime,
    daemon: ChildDaemon,
    client: Client,
    directory: StateDir,
    pools: u32,
    extents: Vec<TargetExtent>,
}

impl Gabion {
    /// Parses the options of the target.
    ///
    /// # Errors
    /// If an option is invalid.
    pub(super) fn parse(name: &str, options: &str, overwrite: bool) -> Result<Self> {
        let mut system = Self {
            name: name.into(),
            scheme: None,
            pools: None,
            fill: FILL,
            reactors: None,
            protocol: Protocol::Nbd,
            machines: None,
            overwrite,
            shape: String::new(),
            remark: None,
            layout: None,
            running: None,
        };
        let (mut uses_machines, mut has_machine_options) = (false, false);
        let mut vm_request =
            VmRequest { cpus: None, memory: MACHINE_MIB * MIB, kernel: BootFiles::KERNEL.into() };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let invalid = || {
                Usage(format!(
                    "invalid option '{option}' of the target 'gabion': see 'gabion bench run --help'"
                ))
            };
            let number = |maximum: u32| {
                value.parse::<u32>().ok().filter(|value| (1..=maximum).contains(value)).ok_or_else(invalid)
            };
            match key {
                "scheme" => system.scheme = Some(value.into()),
                "pools" => system.pools = Some(number(64)?),
                "fill" => system.fill = number(95)?.into(),
                "reactors" => system.reactors = Some(number(256)?),
                "by" if value == "nbd" => system.protocol = Protocol::Nbd,
                "by" if value == "vhost" => system.protocol = Protocol::VhostUser,
                "by" if value == "fuse" => system.protocol = Protocol::Fuse,
                "by" if value == "vm" => (system.protocol, uses_machines) = (Protocol::VhostUser, true),
                "cpus" => (vm_request.cpus, has_machine_options) = (Some(number(512)?), true),
                "memory" => {
                    (vm_request.memory, has_machine_options) = (u64::from(number(1 << 20)?) * MIB, true)
                }
                "kernel" if value.starts_with('/') => {
                    (vm_request.kernel, has_machine_options) = (value.into(), true)
                }
                _ => return Err(invalid().into()),
            }
        }
        if has_machine_options && !uses_machines {
            let message = "the options cpus, memory and kernel require by=vm or --vms";
            return Err(Usage(message.into()).into());
        }
        if uses_machines {
            if let Some(requirement) = BootFiles::missing_requirement(&vm_request.kernel) {
                anyhow::bail!("{name}: {requirement}");
            }
            system.machines = Some(vm_request);
        }
        Ok(system)
    }

    fn start(&mut self, requirements: &Requirements<'_>) -> Result<RunningTarget> {
        let state_dir = StateDir::new(requirements.folder, &self.name)?;
        let directory = state_dir.path();
        let scheme = self
            .scheme
            .clone()
            .or(requirements.scheme.map(str::to_owned))
            .context("no scheme: give scheme=k+m")?;
        let pools = self.pools.unwrap_or(requirements.pools).max(1);
        let groups = requirements.groups(pools).map_err(anyhow::Error::msg)?;
        let per_pool = groups.first().map_or(0, |group| group.len());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::unix(directory.join("gabion.sock"));
        let log = requirements.folder.join(format!("{}.log", self.name));
        let more: Vec<String> =
            self.reactors.iter().flat_map(|count| ["--reactors".to_owned(), count.to_string()]).collect();
        // Allows a resumed run to find the daemon if this process is killed.
        let tag = Some(environment_tag(requirements.folder)?);
        let daemon = runtime.block_on(ChildDaemon::start(directory, &log, &more, tag, &client))?;
        let mut extents = Vec::new();
        for (number, drives) in groups.into_iter().enumerate() {
            let paths = drives.iter().map(|path| path.display().to_string()).collect();
            let request = CreatePool {
                name: pool_name(number),
                scheme: Some(scheme.clone()),
                drives: paths,
                wipe: self.overwrite,
                ..CreatePool::default()
            };
            let extents_of_pool = async {
                let bytes = requirements.instance_bytes;
                match requirements.workload {
                    Workload::Blocks => {
                        self.pool(&client, &request, requirements.share(pools), bytes, directory).await
                    }
                    Workload::Objects => Ok(vec![object_service(&client, &request).await?]),
                }
            };
            extents.push(runtime.block_on(extents_of_pool)?);
        }
        // RAID levels are not k+m schemes: their bounds are not computed.
        let drives = u32::try_from(per_pool)?.saturating_mul(pools);
        self.layout = Layout::parse(&scheme, drives, pools).ok();
        let shape = format!(
            "{pools} {} {scheme} on {} drives",
            if pools == 1 { "pool" } else { "pools" },
            per_pool * pools as usize,
        );
        if requirements.workload == Workload::Objects {
            self.shape = format!("{shape}, over S3");
            return Ok(RunningTarget {
                machines: None,
                runtime,
                daemon,
                client,
                directory: state_dir,
                pools,
                extents: interleave(extents),
            });
        }
        self.shape = format!(
            "{shape}, volumes of {} % of the free space, {}",
            self.fill,
            match self.protocol {
                Protocol::Nbd => "over NBD on a Unix socket",
                Protocol::VhostUser => "over vhost-user",
                Protocol::Fuse => "as FUSE files",
                Protocol::Ublk => "as ublk devices",
                Protocol::NvmeTcp => "over NVMe/TCP",
                Protocol::Iscsi => "over iSCSI",
            }
        );
        let mut extents = interleave(extents);
        let machines = match &self.machines {
            None => None,
            Some(vm_request) => Some(start_machines(vm_request, &mut extents, requirements, directory)?),
        };
        if let Some((machines, description)) = &machines {
            self.shape.push_str(&format!(", in {description}"));
            let emulated = || "emulated machines, not comparable".to_owned();
            self.remark = (!machines.uses_kvm()).then(emulated);
        }
        let machines = machines.map(|(machines, _)| machines);
        Ok(RunningTarget { machines, runtime, daemon, client, directory: state_dir, pools, extents })
    }

    /// Creates a pool with this number of exported volumes.
    async fn pool(
        &self,
        client: &Client,
        request: &CreatePool,
        volumes: u32,
        bytes: Option<u64>,
        directory: &Path,
    ) -> Result<Vec<TargetExtent>> {
        let started = client.create_pool(request).await?;
        follow(client, started, true).await?;
        let pool = client.get_pool(&request.name).await?;
        let available = pool.space.map_or(0, |space| space.free) / 100 * self.fill;
        let size = (available / u64::from(volumes)).min(bytes.unwrap_or(u64::MAX)) / MIB * MIB;
        if size == 0 {
            anyhow::bail!("the pools have no space for {volumes} volumes each");
        }
        let mut extents = Vec::new();
        for number in 0..volumes {
            let name = format!("v{number}");
            let volume = CreateVolume { sector: Some(4096), ..CreateVolume::new(name.clone(), size) };
            client.create_volume(&request.name, &volume).await?;
            let export = CreateExport::new(request.name.clone(), name.clone(), self.protocol);
            let export = client.create_export(&export).await?;
            extents.push(TargetExtent { target: target(&export, directory)?, bytes: size });
        }
        Ok(extents)
    }

    fn error(&self, doing: &'static str, error: &anyhow::Error) -> SystemError {
        SystemError::new(&self.name, doing, format!("{error:#}"))
    }
}

/// Creates a pool that serves S3. Returns its service with its free bytes.
async fn object_service(client: &Client, request: &CreatePool) -> Result<TargetExtent> {
    let started = client.create_pool(request).await?;
    follow(client, started, true).await?;
    let bytes = client.get_pool(&request.name).await?.space.map_or(0, |space| space.free);
    let listen = StartS3 { listen: "127.0.0.1:0".into(), ..StartS3::default() };
    let service = client.start_s3(&request.name, &listen).await?;
    let key = client.create_key(&CreateKey { user: None, valid_s: Some(KEY_VALID_S) }).await?;
    let target = Target::S3(S3Endpoint {
        url: format!("http://{}", service.listen),
        region: service.region,
        access_key: key.access_key,
        secret_key: key.secret.context("the daemon returned no secret key")?,
    });
    Ok(TargetExtent { target, bytes })
}

/// Starts a machine for each extent and replaces the extent's target by the disk of the machine.
/// Returns a description as well.
fn start_machines(
    vm_request: &VmRequest,
    extents: &mut Vec<TargetExtent>,
    requirements: &Requirements<'_>,
    directory: &Path,
) -> Result<(BenchMachines, String)> {
    // Without KVM, more vCPUs than host CPUs only take turns.
    let host_cpus = u32::try_from(std::thread::available_parallelism().map_or(1, usize::from))?;
    let cpus = vm_request.cpus.unwrap_or(requirements.machine_cpus.unwrap_or(host_cpus).min(host_cpus));
    let plan = machines::MachineConfig { cpus, memory: vm_request.memory, kernel: vm_request.kernel.clone() };
    // The pools may hold more volumes than instances.
    extents.truncate(requirements.instances as usize);
    let disk = |extent: &TargetExtent| match &extent.target {
        Target::Vhost(socket) => Ok(socket.clone()),
        other => anyhow::bail!("{other:?} cannot be the disk of a machine"),
    };
    let disks = extents.iter().map(disk).collect::<Result<Vec<_>>>()?;
    let machines = BenchMachines::start(&plan, &disks, (directory, requirements.folder), requirements.stop)?;
    for (extent, target) in extents.iter_mut().zip(machines.targets()) {
        extent.target = target.clone();
    }
    let description = format!(
        "virtual machines running fio ({} with {cpus} vCPUs and {} MiB each)",
        disks.len(),
        plan.memory >> 20
    );
    Ok((machines, description))
}

/// Returns the load target of an export.
pub(super) fn target(export: &Export, directory: &Path) -> Result<Target> {
    match export.protocol {
        Protocol::Nbd => {
            let (pool, volume, socket) = (&export.pool, &export.volume, directory.join("nbd.sock"));
            Ok(Target::Nbd(format!("nbd+unix:///{pool}/{volume}?socket={}", socket.display())))
        }
        Protocol::VhostUser => {
            let mut paths = export.uris.iter().filter_map(|uri| uri.strip_prefix("unix:"));
            let path = paths.next().context("the daemon returned no socket for the export")?;
            Ok(Target::Vhost(path.into()))
        }
        Protocol::NvmeTcp => anyhow::bail!("no load generator uses NVMe/TCP"),
        Protocol::Iscsi => anyhow::bail!("no load generator uses iSCSI"),
        Protocol::Fuse | Protocol::Ublk => {
            let path = export.uris.first().context("the daemon returned no file for the export")?;
            Ok(Target::File(path.into()))
        }
    }
}

fn pool_name(number: usize) -> String {
    format!("bench{number}")
}

impl System for Gabion {
    fn info(&self) -> SystemInfo {
        SystemInfo {
            name: self.name.clone(),
            what: format!("Gabion {}: {}", env!("CARGO_PKG_VERSION"), self.shape),
            guarantees: Guarantees {
                flush: "flushed data is on the drives, including their caches".into(),
                checksums: "CRC-32C of every block, verified on every read".into(),
                protection: "failures of up to m drives of a k+m scheme; no write hole".into(),
            },
            takes_drives: true,
            own_contents: false,
            degrades: true,
            layout: self.layout,
            remark: self.remark.clone(),
            network: None,
            is_remote: false,
        }
    }

    fn serves(&self, _: Workload) -> bool {
        true
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        let running = self.start(requirements).map_err(|error| self.error("setting up", &error))?;
        self.running = Some(running);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.running.as_ref().map(|running| running.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.running.iter().map(|running| running.daemon.pid()).collect()
    }

    fn load_processes(&self) -> Vec<u32> {
        let machines = self.running.iter().filter_map(|running| running.machines.as_ref());
        machines.flat_map(BenchMachines::processes).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let Some(running) = &self.running else {
            return Err(SystemError::new(&self.name, "failing a drive", "the target is not set up"));
        };
        let fail = async {
            for number in 0..running.pools as usize {
                running.client.fail_drive(&pool_name(number), FAILED_DRIVE).await?;
            }
            anyhow::Ok(())
        };
        running.runtime.block_on(fail).map_err(|error| self.error("failing a drive", &error))?;
        Ok(format!("drive {FAILED_DRIVE} of each of {} pools failed", running.pools))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let machines = running.machines.as_mut().map_or(Ok(()), BenchMachines::stop);
        drop(running.machines);
        let stopped = running.daemon.stop();
        drop(running.directory);
        machines.and(stopped).map_err(|error| self.error("tearing down", &error))
    }
}

impl Drop for Gabion {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
