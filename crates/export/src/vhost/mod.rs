//! Disks for virtual machines: virtio-blk devices over the vhost-user protocol, as its public specification and that of
//! virtio 1.2 have them.
//!
//! A front end (QEMU, cloud-hypervisor) shares its guest's memory and hands over the guest's queues; requests are read from
//! there and data goes to and from there, with no kernel in between. Messages are few, and have a thread of their own for
//! as long as a front end is connected; each queue lives on the reactor that it was given to, and its requests are
//! carried out from there.
//!
//! Always true: whatever a guest puts into its memory costs its own requests or queues only; a front end that takes shared
//! memory away costs its own connection only; a request that was begun is finished; what was begun and not answered when the process dies is known to the next one.
//!
//! Must not know: how a volume stores, who else uses it.

mod chain;
mod channel;
mod config;
mod dirty;
mod disk;
mod execute;
mod fault;
mod frontend;
#[cfg(test)]
mod fuzz;
mod inflight;
mod limits;
mod mapping;
mod memory;
mod plan;
mod queue;
mod request;
mod ring;
mod runner;
mod server;
mod session;
mod spares;
#[cfg(test)]
mod testing;
mod vring;

pub use disk::Disk;
pub use frontend::{VhostConfig, VhostFrontend};
pub use limits::QUEUES_MAX;
pub use server::Server;
