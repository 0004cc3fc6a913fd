//! Virtual machines of a run: one for each volume, with fio within.
//!
//! Always true: they carry their run's mark, and end with their value. Must not know: how a volume is stored.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::guest::{BootFiles, agent_port_options, first_disk, is_responsive};
use bench::load::Target;
use bench::stale_processes::environment_tag;
use vm::{
    Accelerator, Boot, CloudInit, Disk, Machine, Memory, Network, Pages, Pin, Placement, Running,
    StartOptions, Store, VcpuTopology,
};

/// How long all of them may take to start, each: without hardware's help they take turns at the processors.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);

/// What machines are to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Processors of each.
    pub(super) cpus: u32,
    /// Bytes of memory of each.
    pub(super) memory: u64,
    /// Where a kernel is unpacked.
    pub(super) kernel: PathBuf,
}

/// Machines that run.
pub(super) struct Machines {
    store: Store,
    running: Vec<(String, Running)>,
    targets: Vec<Target>,
}

impl Machines {
    /// Starts a machine for each of these sockets of disks, and waits until all of them can be asked. Their files are in
    /// `directory`, what is to be found by a resumed run in `folder`.
    ///
    /// # Errors
    /// Why that cannot be; none is left then.
    pub(super) fn start(
        shape: &Plan,
        disks: &[PathBuf],
        (directory, folder): (&Path, &Path),
        stop: &AtomicBool,
    ) -> Result<Self> {
        room(shape, disks.len())?;
        let root = BootFiles::make(&shape.kernel, directory).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut machines =
            Self { store: Store::new(directory.join("vm")), running: Vec::new(), targets: Vec::new() };
        for (number, disk) in disks.iter().enumerate() {
            machines.one(number, shape, &root, disk, folder)?;
        }
        machines.wait(PATIENCE * u32::try_from(disks.len())?, stop)?;
        Ok(machines)
    }

    fn one(
        &mut self,
        number: usize,
        shape: &Plan,
        root: &BootFiles,
        disk: &Path,
        folder: &Path,
    ) -> Result<()> {
        let name = format!("m{number}");
        let agent = self.store.machine_dir(&name).join("agent.sock");
        let machine = Machine {
            name: name.clone(),
            uuid: format!("00000000-0000-4000-8000-{number:012x}"),
            created: 0,
            cpus: VcpuTopology::from_cores(shape.cpus),
            pin: Pin::None,
            memory: Memory { bytes: shape.memory, pages: Pages::Normal },
            accelerator: Accelerator::Auto,
            boot: Boot::Kernel {
                kernel: root.kernel.clone(),
                initramfs: Some(root.archive.clone()),
                append: root.append.into(),
            },
            disks: vec![Disk { volume: format!("bench/{number}"), made: false, read_only: false }],
            reactors: Vec::new(),
            network: Network::None,
            cloud_init: CloudInit::default(),
            qemu: agent_port_options(&agent),
        };
        let _lock = self.store.create(&machine)?;
        let (disks, environment) = (vec![disk.into()], vec![environment_tag(folder)?]);
        let start = StartOptions { machine: &machine, disks, placement: Placement::default(), environment };
        let running = vm::start(&self.store, start)?;
        self.running.push((name, running));
        self.targets.push(first_disk(&agent));
        Ok(())
    }

    fn wait(&self, patience: Duration, stop: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + patience;
        for (name, running) in &self.running {
            while !is_responsive(&self.store.machine_dir(name).join("agent.sock")) {
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                if !running.is_alive() {
                    bail!("machine {name} has ended by itself: {}", self.last_words(name));
                }
                if Instant::now() > deadline {
                    bail!("machine {name} does not answer: {}", self.last_words(name));
                }
                std::thread::sleep(STEP);
            }
        }
        Ok(())
    }

    fn last_words(&self, name: &str) -> String {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let texts = [read(self.store.qemu_log(name)), read(self.store.console_log(name))];
        let last = texts.iter().find_map(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
        last.map_or_else(|| "it has said nothing".into(), |line| line.trim().to_owned())
    }

    /// The first disk of each, in their order.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Their processes.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.running.iter().map(|(_, running)| running.pid).collect()
    }

    /// True if hardware runs their processors.
    pub(super) fn by_hardware(&self) -> bool {
        self.running.iter().all(|(_, running)| running.accelerator == Accelerator::Kvm)
    }

    /// Ends them, as a power cut does.
    pub(super) fn stop(&mut self) -> Result<()> {
        let mut result = Ok(());
        for (name, running) in self.running.drain(..) {
            let stopped = vm::stop(&name, &running, &self.store.qmp(&name), None);
            result = result.and(stopped.with_context(|| format!("ending machine {name}")));
        }
        result
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Machines that do not fit into memory would be killed in the middle of a measurement, or somebody else would.
fn room(shape: &Plan, count: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let (needed, there) = ((shape.memory >> 20) * count as u64, (kib >> 10) / 10 * 9);
    if needed > there {
        bail!(
            "{count} machines of {} MiB take more memory than there is to spare ({there} MiB): fewer --instances, or less \
             memory=MIB for each",
            shape.memory >> 20
        );
    }
    Ok(())
}
