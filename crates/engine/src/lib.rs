//! The storage engine: pools, logs, maps, recovery, volumes.
//!
//! Owns everything between a volume's byte ranges and the drives. See ARCHITECTURE.md for the path
//! of a write and a read, docs/invariants.md for the invariants, docs/format.md for the on-disk
//! format.
//!
//! Must not know: frontends, threads (the caller supplies the reactors), the wall clock, and the
//! source of randomness. The same code runs in the daemon and in the simulator.
//!
//! Always true: public functions return boxed futures, except for the reads and writes of an
//! attached volume, in which the allocation would take a tenth of the time. The compiler generates
//! the code of an `async fn` in each crate that polls it, and the code of everything that it awaits
//! with it; it generates that of a boxed future here.

mod bad_reads;
mod check;
mod control;
mod control_link;
mod drive_setup;
mod drive_source;
mod drives;
mod error;
mod events;
mod fair;
mod finding;
mod geometry;
mod in_flight;
mod invariant;
mod join_all;
mod latched;
mod ledger;
mod log;
mod map;
mod pool;
mod repair;
mod row_reader;
mod salvage;
mod scrub;
mod segments;
mod shard;
mod slices;
mod space;
mod state_store;
mod superblocks;
mod tuning;
mod volume;
mod volume_uid;
mod write_waits;
mod zones;

pub use check::{CheckReport, check};
pub use control::SpaceCounters;
pub use drive_source::DriveSource;
pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use events::WallClock;
pub use finding::{Finding, FindingKind, LostRange};
pub use format::{Event, EventKind, QosLimits, ScrubTally, StateStamp};
pub use log::LogCounters;
pub use pool::{
    ChangedRange, CreateOptions, DriveContents, DriveStatus, MemberDrive, NewVolume, OpenOptions, OpenReport,
    Pool, PoolLabel, PoolStatus, VolumeInfo, VolumeTotals, VolumeUsage, check_name, create, erase, identify,
    open,
};
pub use repair::{RecentLatency, RepairLimits, RepairState, RepairStatus};
pub use salvage::{
    ByteRange, Salvage, SalvageExtent, SalvageOptions, SalvageReport, SalvageState, SalvageVolume,
    SalvageVolumeInfo, SalvagedDrive, UnreadableRange, VolumeSurvey, salvage,
};
pub use scrub::ScrubStatus;
pub use segments::FillHistogram;
pub use shard::ShardCounters;
pub use state_store::{PoolStateStore, RememberFuture};
pub use tuning::Tuning;
pub use volume::{AttachedVolume, Comparison, Execution, Extent, Volume};
pub use volume_uid::VolumeUid;
pub use write_waits::{WriteWait, WriteWaitCounts};
