//! Exports of volumes over a [`Volume`] trait: NBD, vhost-user-blk, files by FUSE, block devices by ublk.
//!
//! Owns the interface between whatever stores bytes and whoever serves them as a disk, and the protocols that do so.
//!
//! Always true: a protocol speaks to a volume through the trait alone, so that each is written once and tested over
//! [`MemoryVolume`]; everything of one connection or device runs on one reactor.
//!
//! Must not know: pools, drives, how a volume stores.

mod at_once;
mod context;
mod error;
mod exported_volume;
mod exports;
mod fnv;
mod frontend;
pub mod fuse;
mod listen;
mod memory;
pub mod nbd;
mod race;
mod reserve;
mod stop;
pub mod ublk;
pub mod vhost;
mod volume;

pub use context::{FrontendContext, ReactorSet};
pub use error::{ExportError, ExportErrorKind};
pub use exports::{Exports, ListedExport, OpenError, OpenErrorKind, OpenExport};
pub use frontend::{
    ControlFuture, ExportConfig, ExportName, ExportStatus, Frontend, RunningExport, StopMode, VolumeSource,
};
pub use listen::{ListenLabel, accept_loop, listen_tcp, listen_unix};
pub use memory::{MemoryCounters, MemoryExports, MemoryFaults, MemoryVolume};
pub use stop::Stop;
pub use volume::{Extent, Volume, VolumeError, VolumeErrorKind};
