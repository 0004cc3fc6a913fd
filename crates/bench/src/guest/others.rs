//! What machines take that somebody else starts, to have loads carried out within: a kernel, a first root with fio, and the port
//! at which its shell is asked.
//!
//! Must not know: who starts them, or what their disks are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Agent, KERNEL, MODULES, root};
use crate::load::Target;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What each machine's root has besides its shell.
const PROGRAMS: [&str; 1] = ["fio"];
/// How long a shell may take to answer when it is there.
const PATIENCE: Duration = Duration::from_secs(1);

/// What machines start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The kernel.
    pub kernel: PathBuf,
    /// Its first file system.
    pub archive: PathBuf,
    /// The kernel's command line.
    pub append: &'static str,
}

impl Root {
    /// Where a kernel is looked for that is not named: a package of the distribution, unpacked.
    pub const KERNEL: &str = KERNEL;

    /// What is missing for it, if anything.
    pub fn missing_requirement(kernel: &Path) -> Option<String> {
        super::missing_requirement(kernel, &PROGRAMS)
    }

    /// Makes it in `folder`, of the kernel that is unpacked in `kernel`.
    ///
    /// # Errors
    /// When something is missing, or there is no room.
    pub fn make(kernel: &Path, folder: &Path) -> Result<Self, Failure> {
        let shell = root::shell(kernel)?;
        let found = root::Kernel::find(kernel)?;
        let archive = folder.join("root.cpio");
        root::write(&archive, &found, &MODULES, (&shell, &PROGRAMS))?;
        Ok(Self { kernel: found.image, archive, append: "console=ttyS0 quiet panic=-1" })
    }
}

/// QEMU's words for the port at which a machine's shell is asked, on the socket `socket`.
pub fn port(socket: &Path) -> Vec<String> {
    // QEMU takes a comma for the end of a value, and two for one.
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

/// True if the shell of the machine with that socket answers.
pub fn answers(socket: &Path) -> bool {
    Agent::new(socket).answers(PATIENCE)
}

/// The first disk of the machine with that socket.
pub fn first_disk(socket: &Path) -> Target {
    Target::Machine { agent: socket.into(), device: "/dev/vda".into() }
}
