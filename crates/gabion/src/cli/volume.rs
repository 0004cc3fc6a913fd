//! `gabion volume`.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use api::Size;
use clap::{Args, Subcommand};

use crate::image::Format;
use api::VolumeName;

/// Make, list and change volumes
#[derive(Subcommand, Debug)]
pub(crate) enum VolumeCommand {
    /// Create a volume: a thin one, which takes space as it is written, or a thick one
    #[command(after_long_help = "\
Examples:
  gabion volume create fast/vm01 --size 500G
  gabion volume create fast/db --size 200G --thick    # its writes never find the pool full
  gabion volume create fast/db --size 1.5TiB --sector 4096
  gabion volume create fast/vm02 --size 100G --shards 1  # for a machine of one processor")]
    Create {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// Its size, as in 500G, 1.5TiB or a number of bytes
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// Sector size that it offers: 512, from which every system boots, or 4096, with which nothing smaller than a
        /// block is ever written
        #[arg(long, value_name = "BYTES", default_value_t = 512)]
        sector: u32,
        /// Keep room for all of it: what other volumes write leaves it. Snapshots of it need as much room again
        #[arg(long)]
        thick: bool,
        /// Deal its blocks out to so many of the pool's shards, each of which one core works on; to all if not said. Best for a
        /// disk is the number of its queues: with fewer, requests go from the core of a queue to that of a shard and back
        #[arg(long, value_name = "NUMBER")]
        shards: Option<u16>,
    },
    /// List volumes
    List {
        /// The pool; all if none is named
        #[arg(value_name = "POOL")]
        pool: Option<String>,
        /// List snapshots too
        #[arg(long)]
        snapshots: bool,
    },
    /// Show one volume
    Show {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
    },
    /// Change a volume's size
    ///
    /// A larger volume has zeros behind its old end. NBD clients see the new size when they connect again.
    Resize {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// The new size
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// Allow a smaller size: what lies behind it is lost
        #[arg(long)]
        shrink: bool,
    },
    /// Limit what a volume may take, and say what it gets beside others or what is kept for it
    ///
    /// Limits hold for all of the volume's exports together, at once, and until they are changed. Weights matter where several volumes want
    /// more than there is: one of 200 gets twice what one of 100, the usual weight, gets. What is not named stays as it is.
    #[command(after_long_help = "\
Examples:
  gabion volume set fast/vm01 --iops 5000 --bandwidth 200M
  gabion volume set fast/vm01 --iops 5000 --burst 10
  gabion volume set fast/vm01 --iops none --bandwidth none
  gabion volume set fast/db --weight 300
  gabion volume set fast/db --thick")]
    Set {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        #[command(flatten)]
        qos: QosArgs,
    },
    /// Take a snapshot of a volume
    ///
    /// It holds all that was acknowledged before, durably, and nothing that was begun after, however busy the volume is. It
    /// takes space only as the volume is overwritten. What runs on the volume sees nothing of it; a file system in it is found as
    /// after a power cut, unless it was frozen meanwhile (fsfreeze(8)).
    #[command(after_long_help = "\
Examples:
  gabion volume snapshot fast/vm01@before-upgrade
  gabion volume list fast --snapshots
  gabion volume rollback fast/vm01@before-upgrade
  gabion export create fast/vm01@before-upgrade --nbd")]
    Snapshot {
        /// The volume and the snapshot's name
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        name: VolumeName,
    },
    /// Make a volume of a snapshot
    ///
    /// The new volume shares the snapshot's data and is written to on its own. The snapshot may be deleted meanwhile: what the new
    /// volume shows of it stays.
    Clone {
        /// The snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: VolumeName,
        /// The new volume's name, in the same pool
        #[arg(value_name = "VOLUME")]
        name: String,
    },
    /// Make a volume what a snapshot of it is: what was written since is lost
    ///
    /// Snapshots that were taken since stay: take one before, and nothing is lost.
    Rollback {
        /// The snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: VolumeName,
        /// Even while the volume is exported
        #[arg(long)]
        force: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Show what a volume and its snapshots hold, alone and with others
    ///
    /// Reads the whole map of each: for volumes of many terabytes this takes a while.
    Usage {
        /// The volume, or one of its snapshots
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        name: VolumeName,
    },
    /// Show where a volume or snapshot differs from another one, as for a backup of what has changed
    ///
    /// Prints a line for each stretch, in order: its offset and length in bytes, and 'data', or 'zeros' for what reads as zeros
    /// now. With --json, an object a line. Blocks that were overwritten with what they held count as changed.
    #[command(after_long_help = "\
Example:
  gabion volume diff fast/vm01@monday fast/vm01@tuesday")]
    Diff {
        /// What it is compared with
        #[arg(value_name = "FROM")]
        from: VolumeName,
        /// What is looked at
        #[arg(value_name = "TO")]
        to: VolumeName,
    },
    ExportImage(ExportImageArgs),
    Import(ImportArgs),
    /// Delete a volume or snapshot: everything that only it holds is lost
    Delete {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        name: VolumeName,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Quality of service of a volume.
#[derive(Args, Debug, Clone, Copy)]
#[group(required = true, multiple = true)]
pub(crate) struct QosArgs {
    /// Operations a second at most, or none for no limit
    #[arg(long, value_name = "N|none", value_parser = limit::<u64>)]
    pub(crate) iops: Option<Limit<u64>>,
    /// Bytes a second at most, as in 200M, or none for no limit
    #[arg(long, value_name = "SIZE|none", value_parser = limit::<Size>)]
    pub(crate) bandwidth: Option<Limit<Size>>,
    /// Seconds for which a volume that was quiet may go beyond its limits: what it saves up, 0 to 3600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) burst: Option<u32>,
    /// Its share beside other volumes, 1 to 10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) weight: Option<u16>,
    /// Keep room for all of it, which other volumes cannot take then
    #[arg(long, conflicts_with = "thin")]
    pub(crate) thick: bool,
    /// Keep no more room than what it stores takes
    #[arg(long)]
    pub(crate) thin: bool,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<T>(pub(crate) Option<T>);

fn limit<T: FromStr<Err: Display>>(text: &str) -> Result<Limit<T>, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    text.parse().map(|value| Limit(Some(value))).map_err(|error: T::Err| format!("{error}; or 'none'"))
}

/// Write a volume or snapshot to an image file
///
/// Of a volume, the image is what it is at the beginning, however busy it is: a snapshot is taken for that, and deleted when the
/// copy has ended. A file system in it is found as after a power cut, unless it was frozen meanwhile (fsfreeze(8)). Holes
/// stay holes: the image takes about as much as the volume stores. Under its own name the file is only ever whole; only its
/// owner may read it. The copy goes by NBD, which the daemon must serve.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion volume export-image fast/vm01 vm01.img
  gabion volume export-image fast/vm01@monday vm01.qcow2
  gabion volume export-image fast/vm01 /backup/vm01 --format qcow2 --force

Raw images need no other program; qcow2 needs qemu-img (in Debian's and Ubuntu's package qemu-utils).")]
pub(crate) struct ExportImageArgs {
    /// The volume or snapshot
    #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
    pub(crate) name: VolumeName,
    /// The image to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Its format [default: by its name: qcow2 for .qcow2, else raw]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Replace a file that is there, once the new one is whole
    #[arg(long)]
    pub(crate) force: bool,
}

/// Make a volume of an image file
///
/// The volume is new, and as large as the disk in the image unless told otherwise. Holes and zeros of the image take no space in
/// it. When the command succeeds, all of it is durable; when it fails or is interrupted, there is no such volume. An
/// image that needs other files (a backing or data file) is refused. The copy goes by NBD, which the daemon must serve.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion volume import fast/vm02 vm01.img
  gabion volume import fast/web debian-13-generic-amd64.qcow2 --size 40G
  gabion volume import fast/old disk --format raw

Raw images need no other program; qcow2, vhdx and vdi need qemu-img (in Debian's and Ubuntu's package qemu-utils).")]
pub(crate) struct ImportArgs {
    /// The new volume's pool and name
    #[arg(value_name = "POOL/VOLUME")]
    pub(crate) name: VolumeName,
    /// The image
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Its format [default: what its first bytes say]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// The volume's size, at least that of the disk in the image
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Sector size that the volume offers, 512 or 4096: that of the disk which the image was made of
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    pub(crate) sector: u32,
}
