//! A virtual machine with the distribution's kernel, for what this one does not have: QEMU, a root in memory made of this machine's own
//! programs, and a shell that is asked over a socket.
//!
//! Always true: it has the drives that it is given and nothing else, no network; it ends with its value. Where hardware does not help
//! (KVM), its processors are emulated, and it says so. Must not know: what it is for.

mod agent;
mod archive;
mod load;
mod others;
mod root;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use agent::{Agent, AgentError};
pub(crate) use load::run_loads;
pub use others::{Root, answers, first_disk, port};

use crate::program::{ProgramError, Server, command, is_installed};
use crate::stale_processes::StateDir;

/// Where a kernel is looked for, as packages of the distribution unpacked: `boot/vmlinuz-*`, `lib/modules/*`, and if there is
/// one `bin/busybox`.
pub(crate) const KERNEL: &str = "/var/lib/gabion/guest";
/// How long a machine may take to start: with the hardware's help, and without.
const PATIENCE_KVM: Duration = Duration::from_secs(15);
const PATIENCE_TCG: Duration = Duration::from_secs(180);
/// Bytes of its memory: its root, and the buffers of a load.
const MEMORY: u64 = 4 << 30;
/// What every machine needs: its drives and its socket.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "virtio_console"];
/// What every machine's root has.
const QEMU: &str = "qemu-system-x86_64";

/// What a machine is to be.
pub(crate) struct Plan<'a> {
    /// Its name in the run's folder.
    pub(crate) name: &'a str,
    pub(crate) folder: &'a Path,
    /// An unpacked kernel.
    pub(crate) kernel: &'a Path,
    /// Modules besides those for drives and socket.
    pub(crate) modules: &'a [&'a str],
    /// Programs of this machine that it is to have.
    pub(crate) programs: &'a [&'a str],
    pub(crate) drives: &'a [PathBuf],
    pub(crate) stop: &'a AtomicBool,
}

/// A machine that runs.
pub(crate) struct Guest {
    server: Server,
    place: StateDir,
    accelerator: Accelerator,
}

/// Who carries its instructions out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The processors themselves.
    Kvm,
    /// A program.
    Tcg,
}

/// Why there is no machine.
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
    #[error("drive {0} does not appear in the machine")]
    Drive(usize),
}

impl GuestError {
    fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}

/// What is missing for machines with these programs.
pub(crate) fn missing_requirement(kernel: &Path, programs: &[&str]) -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("machines are started on x86-64 only".into());
    }
    let all = [QEMU].into_iter().chain(programs.iter().copied());
    let missing: Vec<&str> = all.filter(|program| !is_installed(program)).collect();
    if !missing.is_empty() {
        return Some(format!("for a virtual machine, {} are not installed", missing.join(", ")));
    }
    let ready = root::Kernel::find(kernel).and_then(|_| root::shell(kernel));
    ready.err().map(|error| error.to_string())
}

impl Guest {
    /// Starts a machine and waits until it can be asked.
    pub(crate) fn start(plan: &Plan<'_>) -> Result<Self, GuestError> {
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
        Err(last.unwrap_or_else(|| GuestError::Kernel("no way to start a machine".into())))
    }

    /// Asks its shell.
    pub(crate) fn sh(&self, script: &str, stop: &AtomicBool) -> Result<String, GuestError> {
        Ok(self.agent().ask(script, stop)?.text()?)
    }

    /// Who can be asked.
    pub(crate) fn agent(&self) -> Agent {
        Agent::new(&socket(&self.place))
    }

    pub(crate) fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    pub(crate) fn process(&self) -> u32 {
        self.server.process()
    }

    /// The names that the drives have within, in their order.
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

    /// Ends it.
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
    plan: &Plan<'_>,
    kernel: &root::Kernel,
    place: &StateDir,
    archive: &Path,
    accelerator: Accelerator,
) -> Result<Server, GuestError> {
    let socket = socket(place);
    // That of an earlier try.
    let _ = std::fs::remove_file(&socket);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut qemu = command(QEMU);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35"]);
    let (how, cpu, patience) = match accelerator {
        Accelerator::Kvm => ("kvm", "host", PATIENCE_KVM),
        Accelerator::Tcg => ("tcg,thread=multi", "max", PATIENCE_TCG),
    };
    qemu.args(["-accel", how, "-cpu", cpu, "-smp", &cpus, "-m", &format!("{}M", MEMORY >> 20)]);
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(archive);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1", "-device", "virtio-serial-pci"]);
    let console = plan.folder.join(format!("{}.console", plan.name));
    qemu.arg("-serial").arg(format!("file:{}", console.display()));
    qemu.arg("-chardev").arg(format!("socket,id=agent,path={},server=on,wait=off", socket.display()));
    qemu.args(["-device", "virtserialport,chardev=agent,name=agent"]);
    for (number, drive) in plan.drives.iter().enumerate() {
        let driver = if super::peers::is_device(drive) { "host_device" } else { "file" };
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
