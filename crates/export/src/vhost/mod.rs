//! Disks for virtual machines: virtio-blk devices over the vhost-user protocol, after its public
//! specification and virtio 1.2.
//!
//! A front end (QEMU, cloud-hypervisor) shares its guest's memory and queues. Requests and data are
//! read and written there, without the kernel. Protocol messages are rare, and a separate thread
//! handles them while a front end is connected. Each queue runs on one reactor, which executes its
//! requests.
//!
//! Always true: invalid guest memory affects only the guest's own requests or queues. A front end
//! that removes shared memory loses only its own connection. A request that has begun runs to its
//! end. Requests without a reply when the process dies are known to the next process.
//!
//! Must not know: how a volume stores data, or its other users.

mod backend_channel;
mod chain;
mod config;
mod dirty;
mod disk;
mod execute;
mod frontend;
mod future_pool;
#[cfg(test)]
mod fuzz;
mod inflight;
mod limits;
mod mapping;
mod memory;
mod plan;
mod queue;
mod queue_task;
mod request;
mod ring;
mod server;
mod session;
mod sigbus;
#[cfg(test)]
mod testing;
mod vring;

pub use disk::VhostDisk;
pub use frontend::{VhostConfig, VhostFrontend};
pub use limits::QUEUES_MAX;
pub use server::VhostServer;
