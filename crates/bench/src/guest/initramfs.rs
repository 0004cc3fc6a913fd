//! The kernel, initramfs and agent agent_port_options for virtual machines that another component
//! starts, so that loads can run in them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Agent, KERNEL, MODULES, root};
use crate::load::Target;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Programs in the initramfs in addition to the shell.
const PROGRAMS: [&str; 1] = ["fio"];
/// Maximum time for an agent to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The boot files of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFiles {
    /// Kernel image.
    pub kernel: PathBuf,
    /// The initramfs.
    pub archive: PathBuf,
    /// Kernel command line.
    pub append: &'static str,
}

impl BootFiles {
    /// Default folder of the kernel: an unpacked package of the distribution.
    pub const KERNEL: &str = KERNEL;

    /// Returns the missing requirement, if any.
    pub fn missing_requirement(kernel: &Path) -> Option<String> {
        super::missing_requirement(kernel, &PROGRAMS)
    }

    /// Writes the initramfs to `folder`, for the unpacked kernel in `kernel`.
    ///
    /// # Errors
    /// If a requirement is missing, or the file cannot be written.
    pub fn make(kernel: &Path, folder: &Path) -> Result<Self, Failure> {
        let shell = root::shell(kernel)?;
        let found = root::Kernel::find(kernel)?;
        let archive = folder.join("root.cpio");
        root::write(&archive, &found, &MODULES, (&shell, &PROGRAMS))?;
        Ok(Self { kernel: found.image, archive, append: "console=ttyS0 quiet panic=-1" })
    }
}

/// Returns the QEMU options of the agent's agent_port_options on the socket `socket`.
pub fn agent_port_options(socket: &Path) -> Vec<String> {
    // QEMU ends a value at a comma; a doubled comma stands for one.
    let path = socket.display().to_string().replace(',', ",,");
    let words = [
        "-device",
        "virtio-serial-pci",
        "-chardev",
        &format!("socket,id=agent,path={path},server=on,wait=off"),
        "-device",
        "virtserialport,chardev=agent,name=agent",
    ];
    words.map(str::to_owned).to_vec()
}

/// True if the agent behind that socket responds.
pub fn is_responsive(socket: &Path) -> bool {
    Agent::new(socket).answers(RESPONSE_TIMEOUT)
}

/// Returns the first disk of the guest behind that socket.
pub fn first_disk(socket: &Path) -> Target {
    Target::Machine { agent: socket.into(), device: "/dev/vda".into() }
}
