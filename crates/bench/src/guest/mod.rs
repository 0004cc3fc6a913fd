//! A virtual machine with the distribution's kernel, for kernel features that the host lacks: QEMU,
//! an initramfs made from the host's own programs, and an agent that is reached over a socket.
//!
//! Invariants: the guest has only the given drives and no network; it ends when its value is
//! dropped. Without hardware support (KVM) its processors are emulated, which is reported.

mod agent;
mod archive;
mod initramfs;
mod load;
mod root;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use agent::{Agent, AgentError};
pub use initramfs::{BootFiles, agent_port_options, first_disk, is_responsive};
pub(crate) use load::run_loads;

use crate::program::{ProgramError, Server, command, is_installed};
use crate::stale_processes::StateDir;

/// The folder of an unpacked kernel package of the distribution: `boot/vmlinuz-*`, `lib/modules/*`,
/// and optionally `bin/busybox`.
pub(crate) const KERNEL: &str = "/var/lib/gabion/guest";
/// Maximum time for a guest to start, with and without KVM.
const START_TIMEOUT_KVM: Duration = Duration::from_secs(15);
const START_TIMEOUT_TCG: Duration = Duration::from_secs(180);
/// Bytes of its memory: its initramfs, and the buffers of a load.
const MEMORY: u64 = 4 << 30;
/// Modules that every guest needs for its drives and its agent.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "virtio_console"];
/// The emulator.
const QEMU: &str = "qemu-system-x86_64";

/// The parameters of a guest.
pub(crate) struct GuestPlan<'a> {
    /// Its name in the run's folder.
    pub(crate) name: &'a str,
    pub(crate) folder: &'a Path,
    /// Folder of the unpacked kernel.
    pub(crate) kernel: &'a Path,
    /// Additional kernel modules.
    pub(crate) modules: &'a [&'a str],
    /// Programs of the host to copy into the guest.
    pub(crate) programs: &'a [&'a str],
    pub(crate) drives: &'a [PathBuf],
    pub(crate) stop: &'a AtomicBool,
}

/// A running guest.
pub(crate) struct Guest {
    server: Server,
    place: StateDir,
    accelerator: Accelerator,
}

/// The accelerator that runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation.
    Tcg,
}

/// A failure to start or use a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Kernel(String),
    #[error("drive {0} does not appear in the guest")]
    Drive(usize),
}

impl GuestError {
    fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}

/// Returns the missing requirement of guests with these programs, if any.
pub(crate) fn missing_requirement(kernel: &Path, programs: &[&str]) -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("virtual machines are supported on x86-64 only".into());
    }
    let all = [QEMU].into_iter().chain(programs.iter().copied());
    let missing: Vec<&str> = all.filter(|program| !is_installed(program)).collect();
    if !missing.is_empty() {
        return Some(format!(
            "a virtual machine needs programs that are not installed: {}",
            missing.join(", ")
        ));
    }
    let ready = root::Kernel::find(kernel).and_then(|_| root::shell(kernel));
    ready.err().map(|error| error.to_string())
}

impl Guest {
    /// Starts a guest and waits until its agent responds.
    pub(crate) fn start(plan: &GuestPlan<'_>) -> Result<Self, GuestError> {
        let place =
            StateDir::new(plan.folder, plan.name).map_err(|error| GuestError::file(plan.folder, error))?;
        let kernel = root::Kernel::find(plan.kernel)?;
        let modules: Vec<&str> = MODULES.into_iter().chain(plan.modules.iter().copied()).collect();
        let archive = place.path().join("root.cpio");
        root::write(&archive, &kernel, &modules, (&root::shell(plan.kernel)?, plan.programs))?;
        let usable = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
        let tries: &[Accelerator] =
            if usable { &[Accelerator::Kvm, Accelerator::Tcg] } else { &[Accelerator::Tcg] };
        let mut last = None;
        for &accelerator in tries {
            match boot(plan, &kernel, &place, &archive, accelerator) {
                Ok(server) => return Ok(Self { server, place, accelerator }),
                Err(error @ GuestError::Program(ProgramError::Interrupted)) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| GuestError::Kernel("no accelerator is available".into())))
    }

    /// Runs a shell script in the guest.
    pub(crate) fn sh(&self, script: &str, stop: &AtomicBool) -> Result<String, GuestError> {
        Ok(self.agent().run_script(script, stop)?.text()?)
    }

    /// Returns its agent.
    pub(crate) fn agent(&self) -> Agent {
        Agent::new(&socket(&self.place))
    }

    pub(crate) fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    pub(crate) fn process(&self) -> u32 {
        self.server.process()
    }

    /// Returns the names of the drives in the guest, in order.
    pub(crate) fn drives(&self, count: usize, stop: &AtomicBool) -> Result<Vec<String>, GuestError> {
        let list = self.sh("for d in /sys/block/vd*; do echo $(cat $d/serial) /dev/${d##*/}; done", stop)?;
        let named = |number: usize| {
            let serial = serial(number);
            let mut lines = list.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(of, _)| *of == serial).map(|(_, name)| name.to_owned());
            found.ok_or(GuestError::Drive(number))
        };
        (0..count).map(named).collect()
    }

    /// Stops the guest.
    pub(crate) fn stop(self) -> Result<(), GuestError> {
        Ok(self.server.stop()?)
    }
}

fn socket(place: &StateDir) -> PathBuf {
    place.path().join("agent.sock")
}

fn serial(number: usize) -> String {
    format!("drive{number}")
}

fn boot(
    plan: &GuestPlan<'_>,
    kernel: &root::Kernel,
    place: &StateDir,
    archive: &Path,
    accelerator: Accelerator,
) -> Result<Server, GuestError> {
    let socket = socket(place);
    // The socket of an earlier attempt.
    let _ = std::fs::remove_file(&socket);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // With room for a second processor, TCG does not leave out memory barriers (as in `vm`).
    let cpus = format!("{cpus},maxcpus={}", cpus.max(2));
    let mut qemu = command(QEMU);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35"]);
    let (how, cpu, patience) = match accelerator {
        Accelerator::Kvm => ("kvm", "host", START_TIMEOUT_KVM),
        Accelerator::Tcg => ("tcg,thread=multi", "max", START_TIMEOUT_TCG),
    };
    qemu.args(["-accel", how, "-cpu", cpu, "-smp", &cpus, "-m", &format!("{}M", MEMORY >> 20)]);
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(archive);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1", "-device", "virtio-serial-pci"]);
    let console = plan.folder.join(format!("{}.console", plan.name));
    qemu.arg("-serial").arg(format!("file:{}", console.display()));
    qemu.arg("-chardev").arg(format!("socket,id=agent,path={},server=on,wait=off", socket.display()));
    qemu.args(["-device", "virtserialport,chardev=agent,name=agent"]);
    for (number, drive) in plan.drives.iter().enumerate() {
        let driver = if crate::system::is_device(drive) { "host_device" } else { "file" };
        qemu.arg("-blockdev").arg(format!(
            "driver={driver},filename={},node-name=d{number},cache.direct=on,aio=native",
            drive.display()
        ));
        qemu.arg("-device").arg(format!(
            "virtio-blk-pci,drive=d{number},serial={},logical_block_size=4096,physical_block_size=4096",
            serial(number)
        ));
    }
    let mut server = Server::start(qemu, plan.folder, plan.name)?;
    server.wait_for(std::slice::from_ref(&socket), plan.stop)?;
    let agent = Agent::new(&socket);
    server.wait_until(patience, plan.stop, || agent.answers(Duration::from_secs(1)))?;
    Ok(server)
}
