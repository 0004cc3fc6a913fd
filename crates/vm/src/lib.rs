//! Virtual machines around Gabion's disks.
//!
//! Owns what a machine is made of and where that is kept, templates for cloud-init and the seed made of them, on which
//! processors a machine runs, QEMU's and libvirt's words for it, and the life of its QEMU process.
//!
//! Always true: nothing is told to end that is not the very process which was started; a machine that could not be started
//! leaves no process. Must not know: the daemon, or how a disk behind a vhost-user socket is stored.

mod accelerator;
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
pub use console::{Ended, attach};
pub use cpulist::{CpuList, CpuListError};
pub use error::{Error, ErrorKind, Result};
pub use libvirt::domain;
pub use machine::{
    Boot, CloudInit, Disk, Forward, Mac, Machine, Memory, Network, Pages, Pin, Protocol, Shape, check_name,
};
pub use placement::{Placement, Request, place};
pub use process::{Running, stop};
pub use seed::Seed;
pub use start::{Start, start, write_seed};
pub use store::Store;
pub use template::{Kind, Template, Templates, fill};
pub use topology::{Cpu, Topology};
