//! Arguments of `gabion volume`.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use api::Size;
use api::types::ImageFormat;
use clap::{Args, Subcommand};

use api::VolumeName;

/// Create, list, resize, limit, snapshot, copy and delete volumes
#[derive(Subcommand, Debug)]
pub(crate) enum VolumeCommand {
    /// Create a thin or thick volume
    #[command(after_long_help = "\
Examples:
  gabion volume create fast/vm01 --size 500G
  gabion volume create fast/db --size 200G --thick    # space is reserved for all of it
  gabion volume create fast/db --size 1.5TiB --sector 4096
  gabion volume create fast/vm02 --size 100G --shards 1  # for a virtual machine with one vCPU
  gabion volume create prod/vm01 --size 100G --data-pool ec22  # on a cluster")]
    Create {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// Size, as in 500G, 1.5TiB or a number of bytes
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// Sector size in bytes: 512, for all operating systems, or 4096, which avoids
        /// read-modify-write of smaller writes
        #[arg(long, value_name = "BYTES", default_value_t = 512)]
        sector: u32,
        /// Reserve the full size (thick provisioning). Snapshots of the volume reserve the same
        /// amount again
        #[arg(long)]
        thick: bool,
        /// Number of the pool's shards that hold the volume; each shard uses one core. The best
        /// value for a disk is its number of queues: with fewer queues than shards, requests are
        /// forwarded between cores [default: all shards]
        #[arg(long, value_name = "NUMBER")]
        shards: Option<u16>,
        /// For a volume of a cluster: the pool of its data, which 'gabion cluster services --pool
        /// NAME=ec:K+M,rbd' creates [default: that of 'services --volumes', or the pool rbd]
        #[arg(long, value_name = "POOL")]
        data_pool: Option<String>,
    },
    /// List volumes
    ///
    /// Lists those of clusters too. If a cluster does not answer within 5 s, the command lists the
    /// other volumes, names the cluster and fails.
    List {
        /// Name of the pool or cluster [default: all open pools, and all clusters]
        #[arg(value_name = "POOL")]
        pool: Option<String>,
        /// Also list snapshots
        #[arg(long)]
        snapshots: bool,
    },
    /// Show one volume
    Show {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
    },
    /// Change the size of a volume
    ///
    /// The added part of a larger volume reads as zeros. NBD clients see the new size when they
    /// reconnect.
    Resize {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// New size, as in 500G
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// Allow a smaller size; data beyond the new end is lost
        #[arg(long)]
        shrink: bool,
    },
    /// Set rate limits, weight and provisioning of a volume
    ///
    /// Rate limits apply immediately to the sum of all exports of the volume, and persist until
    /// changed. The weight is the volume's share under contention: a volume of weight 200 gets
    /// twice the throughput of one of weight 100, the default. Options that are not given stay
    /// unchanged.
    #[command(after_long_help = "\
Examples:
  gabion volume set fast/vm01 --iops 5000 --bandwidth 200M
  gabion volume set fast/vm01 --iops 5000 --burst 10
  gabion volume set fast/vm01 --iops none --bandwidth none
  gabion volume set fast/db --weight 300
  gabion volume set fast/db --thick")]
    Set {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        #[command(flatten)]
        qos: QosArgs,
    },
    /// Take a snapshot of a volume, or of several volumes at one point in time
    ///
    /// The snapshot is durable and holds all writes acknowledged before the command, and none that
    /// were issued after it. It uses space only as the volume is overwritten. Clients of the volume
    /// are not interrupted. A file system in the snapshot is crash-consistent unless it was frozen
    /// during the command (fsfreeze(8)).
    ///
    /// Snapshots of several volumes of a pool, such as the data and the log of a database, are
    /// taken together: one that holds a write holds everything acknowledged before that write
    /// began, on all of the volumes. The command takes all of them or none.
    #[command(after_long_help = "\
Examples:
  gabion volume snapshot fast/vm01@before-upgrade
  gabion volume snapshot fast/db-data@monday fast/db-log@monday
  gabion volume list fast --snapshots
  gabion volume rollback fast/vm01@before-upgrade
  gabion export create fast/vm01@before-upgrade --nbd")]
    Snapshot {
        /// Volume and name of each new snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT", required = true)]
        names: Vec<VolumeName>,
    },
    /// Create a writable volume from a snapshot
    ///
    /// The new volume shares the data of the snapshot. The snapshot can be deleted later; the clone
    /// keeps the shared data.
    Clone {
        /// Snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: VolumeName,
        /// Name of the new volume, in the same pool
        #[arg(value_name = "VOLUME")]
        name: String,
    },
    /// Roll back a volume to a snapshot; data written since is lost
    ///
    /// Newer snapshots are kept. To keep the current data, take a snapshot first.
    Rollback {
        /// Snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: VolumeName,
        /// Roll back even if the volume is exported; implies --yes
        #[arg(long)]
        force: bool,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Show the space used by a volume and its snapshots, exclusive and shared
    ///
    /// Reads the whole block map of each; this takes long for volumes of many terabytes.
    Usage {
        /// Volume, or one of its snapshots
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        name: VolumeName,
    },
    /// List the ranges that differ between two volumes or snapshots, for incremental backups
    ///
    /// Prints one line per range in ascending order: offset and length in bytes, and 'data', or
    /// 'zeros' for a range that now reads as zeros. With --json, one object per line. Blocks that
    /// were overwritten with the same data count as different.
    #[command(after_long_help = "\
Example:
  gabion volume diff fast/vm01@monday fast/vm01@tuesday")]
    Diff {
        /// Base volume or snapshot
        #[arg(value_name = "FROM")]
        from: VolumeName,
        /// Volume or snapshot to compare with the base
        #[arg(value_name = "TO")]
        to: VolumeName,
    },
    ExportImage(ExportImageArgs),
    Import(ImportArgs),
    /// Delete a volume or snapshot; its exclusive data is lost
    Delete {
        /// Volume or snapshot to delete
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        name: VolumeName,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// Rate limits, weight and provisioning of a volume.
#[derive(Args, Debug, Clone, Copy)]
#[group(required = true, multiple = true)]
pub(crate) struct QosArgs {
    /// Maximum operations per second, or 'none'
    #[arg(long, value_name = "N|none", value_parser = parse_limit::<u64>)]
    pub(crate) iops: Option<Limit<u64>>,
    /// Maximum bytes per second, as in 200M, or 'none'
    #[arg(long, value_name = "SIZE|none", value_parser = parse_limit::<Size>)]
    pub(crate) bandwidth: Option<Limit<Size>>,
    /// Burst credit: seconds of unused limits that an idle volume accumulates, 0 to 3600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) burst: Option<u32>,
    /// Share under contention, 1 to 10000; new volumes have 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) weight: Option<u16>,
    /// Reserve the full size (thick provisioning)
    #[arg(long, conflicts_with = "thin")]
    pub(crate) thick: bool,
    /// Release the reservation (thin provisioning)
    #[arg(long)]
    pub(crate) thin: bool,
}

/// A limit; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<T>(pub(crate) Option<T>);

fn parse_limit<T: FromStr<Err: Display>>(text: &str) -> Result<Limit<T>, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    text.parse().map(|value| Limit(Some(value))).map_err(|error: T::Err| format!("{error}; or 'none'"))
}

/// Write a volume or snapshot to an image file
///
/// The image of a volume holds its state at the start of the command: the command takes a temporary
/// snapshot. A file system in it is crash-consistent unless it was frozen during the snapshot
/// (fsfreeze(8)). Holes are preserved: the image takes about the stored size of the volume. The
/// daemon writes the file, which gets its name when it is complete and is readable by the daemon's
/// user only.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion volume export-image fast/vm01 vm01.img
  gabion volume export-image fast/vm01@monday vm01.qcow2
  gabion volume export-image fast/vm01 /backup/vm01 --format qcow2 --force

qcow2 needs qemu-img (package qemu-utils on Debian and Ubuntu).")]
pub(crate) struct ExportImageArgs {
    /// Volume or snapshot
    #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
    pub(crate) name: VolumeName,
    /// Image file to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Image format [default: qcow2 for *.qcow2, else raw]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<ImageFormatArg>,
    /// Replace an existing file after the new image is complete
    #[arg(long)]
    pub(crate) force: bool,
}

/// A format of image files, as an argument.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageFormatArg {
    /// The bytes of the disk, with holes
    Raw,
    /// QEMU's format; needs qemu-img on the server
    Qcow2,
}

impl ImageFormatArg {
    /// Returns the format as the API has it.
    pub(crate) fn to_wire(self) -> ImageFormat {
        match self {
            Self::Raw => ImageFormat::Raw,
            Self::Qcow2 => ImageFormat::Qcow2,
        }
    }
}

/// Create a volume from an image file
///
/// Holes and zeros of the image take no space in the volume. On success, all data is durable; on
/// failure or interruption, the volume is deleted. Images that reference other files (a backing or
/// data file) are refused. The daemon reads the file: its user needs permission for that.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion volume import fast/vm02 vm01.img
  gabion volume import fast/web debian-13-generic-amd64.qcow2 --size 40G
  gabion volume import fast/old disk --format raw

qcow2, vhdx and vdi need qemu-img (package qemu-utils on Debian and Ubuntu).")]
pub(crate) struct ImportArgs {
    /// Pool and name of the new volume
    #[arg(value_name = "POOL/VOLUME")]
    pub(crate) name: VolumeName,
    /// Image file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Image format [default: detected from the first bytes]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<ImageFormatArg>,
    /// Size of the volume, at least that of the image [default: that of the image]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Sector size in bytes, 512 or 4096. Must match the disk that the image was made from
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    pub(crate) sector: u32,
}
