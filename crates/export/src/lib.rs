//! Exports of volumes: NBD, vhost-user-blk, FUSE files and ublk block devices.
//!
//! Owns [`Frontend`], the interface between a daemon and the protocols, [`Volume`], the interface
//! between the protocols and storage, and the protocols themselves.
//!
//! Always true: a protocol accesses a volume through the traits alone, so that each protocol is
//! tested over [`MemoryVolume`]; all state of one connection or queue lives on one reactor.
//!
//! Must not know: pools, drives, how a volume stores data.

mod context;
mod error;
mod exported_volume;
mod exports;
mod fnv;
mod frontend;
pub mod fuse;
mod host_users;
pub mod iscsi;
mod leases;
mod listen;
mod memory;
pub mod nbd;
pub mod nvme;
mod poll_then_spawn;
mod reservation;
mod reserve;
mod select;
mod stop;
mod transport;
pub mod ublk;
pub mod vhost;
mod volume;

pub use context::{FrontendContext, ReactorSet};
pub use error::{ExportError, ExportErrorKind};
pub use exports::{Exports, ListedExport, OpenError, OpenErrorKind, OpenExport};
pub use frontend::{
    ControlFuture, ExportConfig, ExportName, ExportStatus, Frontend, NetworkConfig, RunningExport, StopMode,
    VolumeSource,
};
pub use listen::{ListenLabel, accept_loop, listen_tcp, listen_unix};
pub use memory::{MemoryCounters, MemoryExports, MemoryFaults, MemorySource, MemoryVolume};
pub use reservation::{ReservationRegistry, ReservationStore, StoredReservations};
pub use stop::Stop;
pub use volume::{AtomicLimits, Comparison, Execution, Extent, Volume, VolumeError, VolumeErrorKind};
