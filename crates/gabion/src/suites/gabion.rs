//! Gabion under measurement: a daemon of its own on the run's drives, pools, volumes, exports; all by the API. Machines around the
//! volumes, if they are wanted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::client::Client;
use api::types::{CreateExport, CreatePool, CreateVolume, Export, Protocol};
use bench::bounds::Layout;
use bench::guest::BootFiles;
use bench::load::Target;
use bench::stale_processes::{StateDir, environment_tag};
use bench::system::{Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, interleave};
use tokio::runtime::Runtime;

use super::machines::{self, Machines};
use crate::failure::Usage;
use crate::own_daemon::Daemon;
use crate::progress::follow;

/// How full volumes make their pools, in percent of what fits.
const FILL: u64 = 50;
const MIB: u64 = 1 << 20;
/// Memory of a machine: its root, and the buffers of a load.
const MACHINE_MIB: u64 = 768;
/// The drive of each pool that is failed.
const VICTIM: u16 = 1;

/// The system.
pub(super) struct Gabion {
    name: String,
    scheme: Option<String>,
    pools: Option<u32>,
    fill: u64,
    reactors: Option<u32>,
    protocol: Protocol,
    /// Each volume is the disk of a machine.
    machines: Option<Wanted>,
    overwrite: bool,
    shape: String,
    remark: Option<String>,
    layout: Option<Layout>,
    up: Option<Up>,
}

/// What a user wants of machines.
struct Wanted {
    cpus: Option<u32>,
    memory: u64,
    kernel: PathBuf,
}

/// What stands.
struct Up {
    /// They go first: without the daemon their disks would wait for ever.
    machines: Option<Machines>,
    runtime: Runtime,
    daemon: Daemon,
    client: Client,
    directory: StateDir,
    pools: u32,
    spots: Vec<TargetExtent>,
}

impl Gabion {
    /// Gabion with `options`.
    ///
    /// # Errors
    /// When an option is not understood.
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
            up: None,
        };
        let (mut in_machines, mut of_machines) = (false, false);
        let mut wanted = Wanted { cpus: None, memory: MACHINE_MIB * MIB, kernel: BootFiles::KERNEL.into() };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let wrong = || {
                Usage(format!(
                    "'{option}' is no option of the target 'gabion': see 'gabion bench run --help'"
                ))
            };
            let number = |most: u32| {
                value.parse::<u32>().ok().filter(|value| (1..=most).contains(value)).ok_or_else(wrong)
            };
            match key {
                "scheme" => system.scheme = Some(value.into()),
                "pools" => system.pools = Some(number(64)?),
                "fill" => system.fill = number(95)?.into(),
                "reactors" => system.reactors = Some(number(256)?),
                "by" if value == "nbd" => system.protocol = Protocol::Nbd,
                "by" if value == "vhost" => system.protocol = Protocol::VhostUser,
                "by" if value == "fuse" => system.protocol = Protocol::Fuse,
                "by" if value == "vm" => (system.protocol, in_machines) = (Protocol::VhostUser, true),
                "cpus" => (wanted.cpus, of_machines) = (Some(number(512)?), true),
                "memory" => (wanted.memory, of_machines) = (u64::from(number(1 << 20)?) * MIB, true),
                "kernel" if value.starts_with('/') => (wanted.kernel, of_machines) = (value.into(), true),
                _ => return Err(wrong().into()),
            }
        }
        if of_machines && !in_machines {
            let message = "cpus, memory and kernel are of machines: say by=vm, or --vms";
            return Err(Usage(message.into()).into());
        }
        if in_machines {
            if let Some(what) = BootFiles::missing_requirement(&wanted.kernel) {
                anyhow::bail!("{name}: {what}");
            }
            system.machines = Some(wanted);
        }
        Ok(system)
    }

    fn make(&mut self, wish: &Requirements<'_>) -> Result<Up> {
        let place = StateDir::new(wish.folder, &self.name)?;
        let directory = place.path();
        let scheme =
            self.scheme.clone().or(wish.scheme.map(str::to_owned)).context("no scheme: say scheme=k+m")?;
        let pools = self.pools.unwrap_or(wish.pools).max(1);
        let groups = wish.groups(pools).map_err(anyhow::Error::msg)?;
        let each = groups.first().map_or(0, |group| group.len());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::unix(directory.join("gabion.sock"));
        let log = wish.folder.join(format!("{}.log", self.name));
        let more: Vec<String> =
            self.reactors.iter().flat_map(|count| ["--reactors".to_owned(), count.to_string()]).collect();
        // So that a resumed run finds it if this process is killed.
        let mark = Some(environment_tag(wish.folder)?);
        let daemon = runtime.block_on(Daemon::start(directory, &log, &more, mark, &client))?;
        let mut spots = Vec::new();
        for (number, drives) in groups.into_iter().enumerate() {
            let paths = drives.iter().map(|path| path.display().to_string()).collect();
            let request = CreatePool {
                name: pool_name(number),
                scheme: Some(scheme.clone()),
                drives: paths,
                wipe: self.overwrite,
                ..CreatePool::default()
            };
            let made = self.pool(&client, &request, wish.share(pools), wish.instance_bytes, directory);
            spots.push(runtime.block_on(made)?);
        }
        // RAID levels are no k+m: their bounds are not computed.
        let drives = u32::try_from(each)?.saturating_mul(pools);
        self.layout = Layout::parse(&scheme, drives, pools).ok();
        self.shape = format!(
            "{pools} {} {scheme} on {} drives, volumes of {} % of their room, {}",
            if pools == 1 { "pool" } else { "pools" },
            each * pools as usize,
            self.fill,
            match self.protocol {
                Protocol::Nbd => "by NBD on a Unix socket",
                Protocol::VhostUser => "by vhost-user",
                Protocol::Fuse => "as files by FUSE",
                Protocol::Ublk => "as devices by ublk",
            }
        );
        let mut spots = interleave(spots);
        let machines = match &self.machines {
            None => None,
            Some(wanted) => Some(around(wanted, &mut spots, wish, directory)?),
        };
        if let Some((machines, said)) = &machines {
            self.shape.push_str(&format!(", in {said}"));
            let emulated = || "emulated machines, not comparable".to_owned();
            self.remark = (!machines.by_hardware()).then(emulated);
        }
        let machines = machines.map(|(machines, _)| machines);
        Ok(Up { machines, runtime, daemon, client, directory: place, pools, spots })
    }

    /// Makes a pool with so many volumes, each exported.
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
        let room = pool.space.map_or(0, |space| space.free) / 100 * self.fill;
        let size = (room / u64::from(volumes)).min(bytes.unwrap_or(u64::MAX)) / MIB * MIB;
        if size == 0 {
            anyhow::bail!("the pools have no room for {volumes} volumes each");
        }
        let mut spots = Vec::new();
        for number in 0..volumes {
            let name = format!("v{number}");
            let volume = CreateVolume { sector: Some(4096), ..CreateVolume::new(name.clone(), size) };
            client.create_volume(&request.name, &volume).await?;
            let export = CreateExport {
                pool: request.name.clone(),
                volume: name.clone(),
                protocol: self.protocol,
                read_only: false,
                shared: false,
                queues: None,
                reactors: Vec::new(),
            };
            let export = client.create_export(&export).await?;
            spots.push(TargetExtent { target: target(&export, directory)?, bytes: size });
        }
        Ok(spots)
    }

    fn error(&self, doing: &'static str, error: &anyhow::Error) -> SystemError {
        SystemError::new(&self.name, doing, format!("{error:#}"))
    }
}

/// Puts a machine around each spot, whose disk takes its place; says what they are.
fn around(
    wanted: &Wanted,
    spots: &mut Vec<TargetExtent>,
    wish: &Requirements<'_>,
    directory: &Path,
) -> Result<(Machines, String)> {
    // Without hardware's help more processors than there are only take turns.
    let here = u32::try_from(std::thread::available_parallelism().map_or(1, usize::from))?;
    let cpus = wanted.cpus.unwrap_or(wish.machine_cpus.unwrap_or(here).min(here));
    let plan = machines::Plan { cpus, memory: wanted.memory, kernel: wanted.kernel.clone() };
    // Pools may have room for more than there are to be.
    spots.truncate(wish.instances as usize);
    let disk = |spot: &TargetExtent| match &spot.target {
        Target::Vhost(socket) => Ok(socket.clone()),
        other => anyhow::bail!("{other:?} is no disk of a machine"),
    };
    let disks = spots.iter().map(disk).collect::<Result<Vec<_>>>()?;
    let machines = Machines::start(&plan, &disks, (directory, wish.folder), wish.stop)?;
    for (spot, target) in spots.iter_mut().zip(machines.targets()) {
        spot.target = target.clone();
    }
    let said = format!(
        "virtual machines, fio within ({} of {cpus} CPUs and {} MiB each)",
        disks.len(),
        plan.memory >> 20
    );
    Ok((machines, said))
}

/// Where an export is found.
fn target(export: &Export, directory: &Path) -> Result<Target> {
    match export.protocol {
        Protocol::Nbd => {
            let (pool, volume, socket) = (&export.pool, &export.volume, directory.join("nbd.sock"));
            Ok(Target::Nbd(format!("nbd+unix:///{pool}/{volume}?socket={}", socket.display())))
        }
        Protocol::VhostUser => {
            let mut paths = export.uris.iter().filter_map(|uri| uri.strip_prefix("unix:"));
            let path = paths.next().context("the daemon does not say where the volume's socket is")?;
            Ok(Target::Vhost(path.into()))
        }
        Protocol::Fuse | Protocol::Ublk => {
            let path = export.uris.first().context("the daemon does not say where the volume's file is")?;
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
            promises: Guarantees {
                flush: "what was flushed is on the drives, and their caches are flushed".into(),
                checksums: "CRC-32C of every block, verified at every read".into(),
                protection: "as many drives as the scheme has parity; no write hole".into(),
            },
            takes_drives: true,
            degrades: true,
            layout: self.layout,
            remark: self.remark.clone(),
        }
    }

    fn set_up(&mut self, wish: &Requirements<'_>) -> Result<(), SystemError> {
        let up = self.make(wish).map_err(|error| self.error("setting it up", &error))?;
        self.up = Some(up);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.spots.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.up.iter().map(|up| up.daemon.process()).collect()
    }

    fn load_processes(&self) -> Vec<u32> {
        let machines = self.up.iter().filter_map(|up| up.machines.as_ref());
        machines.flat_map(Machines::processes).collect()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let Some(up) = &self.up else {
            return Err(SystemError::new(&self.name, "losing a drive", "it is not set up"));
        };
        let fail = async {
            for number in 0..up.pools as usize {
                up.client.fail_drive(&pool_name(number), VICTIM).await?;
            }
            anyhow::Ok(())
        };
        up.runtime.block_on(fail).map_err(|error| self.error("losing a drive", &error))?;
        Ok(format!("drive {VICTIM} of each of {} pools failed", up.pools))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(mut up) = self.up.take() else { return Ok(()) };
        let machines = up.machines.as_mut().map_or(Ok(()), Machines::stop);
        drop(up.machines);
        let stopped = up.daemon.stop();
        drop(up.directory);
        machines.and(stopped).map_err(|error| self.error("taking it down", &error))
    }
}

impl Drop for Gabion {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
