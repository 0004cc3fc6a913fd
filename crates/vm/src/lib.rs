//! Virtual machines with Gabion volumes as disks.
//!
//! Owns the definition of a machine and its storage, cloud-init templates and the seed disk, CPU
//! placement, the QEMU and libvirt configuration of a machine, and the lifecycle of its QEMU
//! process.
//!
//! Always true: only the process that was started for a machine is ever terminated; a failed start
//! leaves no process. Must not know: the daemon, or how a disk behind a vhost-user socket is
//! stored.

mod accelerator;
mod atomic_file;
mod console;
mod cpulist;
mod error;
#[cfg(test)]
mod fuzz;
mod libvirt;
mod machine;
mod placement;
mod process;
mod qemu;
mod qmp;
mod seed;
mod start;
mod store;
mod template;
#[cfg(test)]
mod testing;
mod topology;

pub use accelerator::{Accelerator, kvm_is_usable};
pub use console::{ConsoleExit, attach};
pub use cpulist::{CpuList, CpuListError};
pub use error::{Error, ErrorKind, Result};
pub use libvirt::domain;
pub use machine::{
    Boot, CloudInit, Disk, Forward, Mac, Machine, Memory, Network, Pages, Pin, Protocol, VcpuTopology,
    check_name,
};
pub use placement::{Placement, PlacementRequest, choose_placement};
pub use process::{Running, stop};
pub use seed::Seed;
pub use start::{StartOptions, start, write_seed};
pub use store::Store;
pub use template::{Template, TemplateKind, Templates, fill};
pub use topology::{Cpu, Topology};
