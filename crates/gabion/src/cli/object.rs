//! Arguments of `gabion object`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use api::VolumeName;

/// Put, get, list and delete objects
///
/// The commands use the S3 service of the pool ('gabion s3 start') with an access key that the
/// daemon creates for the command.
#[derive(Subcommand, Debug)]
pub(crate) enum ObjectCommand {
    Put(PutObjectArgs),
    Get(GetObjectArgs),
    List(ListObjectsArgs),
    Delete(DeleteObjectsArgs),
}

/// Put a file or standard input as an object
///
/// Replaces the object if it exists. The service verifies the checksum of the body before the
/// object becomes visible. Files of 16 MiB and more are sent in parts; if the command fails or is
/// interrupted, the object stays as it was. Requests are repeated for up to a minute while the
/// daemon restarts.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion object put fast/photos 2026/sea.jpg sea.jpg
  tar c project | gabion object put fast/backup project.tar -")]
pub(crate) struct PutObjectArgs {
    /// Name of the pool and of the bucket
    #[arg(value_name = "POOL/BUCKET")]
    pub(crate) bucket: VolumeName,
    /// Key of the object
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// File; '-' for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Get an object into a file or to standard output
///
/// The file receives its name when it is complete and its checksum is verified. A transfer that a
/// restart of the daemon interrupts continues where it was.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion object get fast/photos 2026/sea.jpg
  gabion object get fast/backup project.tar - | tar x")]
pub(crate) struct GetObjectArgs {
    /// Name of the pool and of the bucket
    #[arg(value_name = "POOL/BUCKET")]
    pub(crate) bucket: VolumeName,
    /// Key of the object
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// File or directory; '-' for standard output [default: the last part of the key]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, short)]
    pub(crate) force: bool,
}

/// List the objects of a bucket by key
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion object list fast/photos --prefix 2026/
  gabion object list fast/photos --prefix 2026/ --delimiter /
  gabion object list fast/photos --after 2026/sea.jpg --limit 100
  gabion object list fast/photos --limit 1000000 --quiet > keys")]
pub(crate) struct ListObjectsArgs {
    /// Name of the pool and of the bucket
    #[arg(value_name = "POOL/BUCKET")]
    pub(crate) bucket: VolumeName,
    /// List only keys that begin with this text
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Group the keys that contain this after the prefix: '/' shows one level of a tree
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) delimiter: String,
    /// Only keys after this one
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    pub(crate) after: String,
    /// Maximum number of keys and groups
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
}

/// Delete objects
///
/// In a bucket with versioning, the versions stay and each object receives a delete marker.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion object delete fast/photos 2026/sea.jpg 2026/sky.jpg
  gabion object delete fast/photos --prefix 2026/ --yes")]
pub(crate) struct DeleteObjectsArgs {
    /// Name of the pool and of the bucket
    #[arg(value_name = "POOL/BUCKET")]
    pub(crate) bucket: VolumeName,
    /// Keys of the objects
    #[arg(value_name = "KEY", required_unless_present = "prefix")]
    pub(crate) keys: Vec<String>,
    /// Delete every object whose key begins with this; '' for all objects of the bucket
    #[arg(long, value_name = "PREFIX", conflicts_with = "keys")]
    pub(crate) prefix: Option<String>,
    /// Do not ask for confirmation of --prefix
    #[arg(long, short)]
    pub(crate) yes: bool,
}
