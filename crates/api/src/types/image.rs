//! Copies between image files and volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A format of image files. Other formats are detected when an image is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageFormat {
    /// The bytes of the disk, with holes.
    Raw,
    /// QEMU's format; needs qemu-img on the server.
    Qcow2,
}

impl ImageFormat {
    /// Returns the name of the format, as qemu-img calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// A request to create a volume from an image file on the daemon's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportImage {
    /// Name of the new volume.
    pub name: String,
    /// Absolute path of the image file.
    pub file: String,
    /// Format of the image; detected from its first bytes if absent.
    #[serde(default)]
    pub format: Option<ImageFormat>,
    /// Size of the volume in bytes, at least that of the disk in the image, which is the default.
    #[serde(default)]
    pub size: Option<u64>,
    /// Sector size in bytes, 512 or 4096; 512 if absent. It must be the sector size of the disk
    /// from which the image was made.
    #[serde(default)]
    pub sector: Option<u32>,
    /// Number of the pool's shards that store its blocks; all if absent.
    #[serde(default)]
    pub shards: Option<u16>,
}

/// A request to write a volume or snapshot to an image file on the daemon's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportImage {
    /// Absolute path of the image file.
    pub file: String,
    /// Format of the image; by the extension of the file if absent.
    #[serde(default)]
    pub format: Option<ImageFormat>,
    /// Replace an existing file after the new image is complete.
    #[serde(default)]
    pub replace: bool,
}

/// The result of a copy between an image file and a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageCopy {
    /// Path of the image file.
    pub file: String,
    /// Name of the image format.
    pub format: String,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Copied bytes, without holes and zeros; absent if another program copied them.
    pub copied: Option<u64>,
    /// Bytes that a written image takes on disk.
    pub allocated: Option<u64>,
}
