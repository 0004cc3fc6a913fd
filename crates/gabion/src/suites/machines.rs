//! Virtual machines of a run: one per volume, running fio.
//!
//! Always true: the processes carry the tag of their run, and are stopped on drop. Must not know:
//! how volumes are stored.

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

/// Time limit per machine for the start of all of them: without KVM they take turns on the CPUs.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The configuration of the machines.
#[derive(Clone, Debug)]
pub(super) struct MachineConfig {
    /// vCPUs per machine.
    pub(super) cpus: u32,
    /// Memory per machine in bytes.
    pub(super) memory: u64,
    /// Directory of an unpacked kernel.
    pub(super) kernel: PathBuf,
}

/// Running machines.
pub(super) struct BenchMachines {
    store: Store,
    running: Vec<(String, Running)>,
    targets: Vec<Target>,
}

impl BenchMachines {
    /// Starts a machine for each disk socket, and waits until all of them respond. Temporary files
    /// are in `directory`; `folder` identifies the run for a resume.
    ///
    /// # Errors
    /// If a machine does not start; all of them are stopped then.
    pub(super) fn start(
        config: &MachineConfig,
        disks: &[PathBuf],
        (directory, folder): (&Path, &Path),
        stop: &AtomicBool,
    ) -> Result<Self> {
        check_memory(config, disks.len())?;
        let root = BootFiles::make(&config.kernel, directory).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut machines =
            Self { store: Store::new(directory.join("vm")), running: Vec::new(), targets: Vec::new() };
        for (number, disk) in disks.iter().enumerate() {
            machines.start_one(number, config, &root, disk, folder)?;
        }
        machines.wait(START_TIMEOUT * u32::try_from(disks.len())?, stop)?;
        Ok(machines)
    }

    fn start_one(
        &mut self,
        number: usize,
        config: &MachineConfig,
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
            cpus: VcpuTopology::from_cores(config.cpus),
            pin: Pin::None,
            memory: Memory { bytes: config.memory, pages: Pages::Normal },
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

    fn wait(&self, timeout: Duration, stop: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + timeout;
        for (name, running) in &self.running {
            while !is_responsive(&self.store.machine_dir(name).join("agent.sock")) {
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                if !running.is_alive() {
                    bail!("machine {name} has exited: {}", self.last_log_line(name));
                }
                if Instant::now() > deadline {
                    bail!("machine {name} does not respond: {}", self.last_log_line(name));
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    fn last_log_line(&self, name: &str) -> String {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let texts = [read(self.store.qemu_log(name)), read(self.store.console_log(name))];
        let last = texts.iter().find_map(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
        last.map_or_else(|| "no output".into(), |line| line.trim().to_owned())
    }

    /// Returns the first disk of each machine, in order.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the process ids.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.running.iter().map(|(_, running)| running.pid).collect()
    }

    /// Returns true if all machines use KVM.
    pub(super) fn uses_kvm(&self) -> bool {
        self.running.iter().all(|(_, running)| running.accelerator == Accelerator::Kvm)
    }

    /// Ends the machines immediately, as in a power failure.
    pub(super) fn stop(&mut self) -> Result<()> {
        let mut result = Ok(());
        for (name, running) in self.running.drain(..) {
            let stopped = vm::stop(&name, &running, &self.store.qmp(&name), None);
            result = result.and(stopped.with_context(|| format!("stopping machine {name}")));
        }
        result
    }
}

impl Drop for BenchMachines {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Checks the available memory. Without it, the kernel would kill a process during the measurement.
fn check_memory(config: &MachineConfig, count: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let (needed, available) = ((config.memory >> 20) * count as u64, (kib >> 10) / 10 * 9);
    if needed > available {
        bail!(
            "{count} machines of {} MiB need more memory than is available ({available} MiB): use fewer --instances or a \
             smaller memory=MIB",
            config.memory >> 20
        );
    }
    Ok(())
}
