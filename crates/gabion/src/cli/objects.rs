//! Arguments of `gabion s3`, `gabion bucket` and `gabion key`.

use std::path::PathBuf;

use clap::Subcommand;

use api::{Size, VolumeName};

use super::time_span::seconds;

/// Serve objects of a pool over S3
#[derive(Subcommand, Debug)]
pub(crate) enum S3Command {
    /// Start S3 on a pool
    ///
    /// The service starts again with the pool and with the daemon. Clients need an access key:
    /// 'gabion key create'.
    #[command(after_long_help = "\
Examples:
  gabion s3 start fast --listen 127.0.0.1:9000
  gabion s3 start fast --listen 0.0.0.0:9000 --certificate s3.pem --private-key s3.key
  gabion key create")]
    Start {
        /// Name of the pool
        pool: String,
        /// Address and port for clients
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: String,
        /// Region that clients must use [default: us-east-1]
        #[arg(long, value_name = "REGION")]
        region: Option<String>,
        /// Domain of addresses in which the bucket is part of the host, BUCKET.DOMAIN
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// Length of a day of lifecycle rules in seconds, for tests [default: 86400]
        #[arg(long, value_name = "SECONDS")]
        lifecycle_day: Option<u64>,
        /// Serve HTTPS with the certificate chain in this PEM file; changes are loaded within 5 s
        #[arg(long, value_name = "FILE", requires = "private_key")]
        certificate: Option<PathBuf>,
        /// PEM file with the private key of the certificate
        #[arg(long, value_name = "FILE", requires = "certificate")]
        private_key: Option<PathBuf>,
    },
    /// Stop S3 on a pool. Its objects stay
    Stop {
        /// Name of the pool
        pool: String,
    },
    /// Show the pools that serve S3
    Status,
}

/// Manage the buckets of a pool
#[derive(Subcommand, Debug)]
pub(crate) enum BucketCommand {
    /// Create a bucket
    Create {
        /// Name of the pool and of the bucket
        #[arg(value_name = "POOL/BUCKET")]
        name: VolumeName,
    },
    /// List the buckets of a pool with their exact counts
    List {
        /// Name of the pool
        pool: String,
    },
    /// Show a bucket
    Show {
        /// Name of the pool and of the bucket
        #[arg(value_name = "POOL/BUCKET")]
        name: VolumeName,
    },
    /// Change the settings of a bucket
    Set {
        /// Name of the pool and of the bucket
        #[arg(value_name = "POOL/BUCKET")]
        name: VolumeName,
        /// Largest size of all versions; 0 removes the quota
        #[arg(long, value_name = "SIZE")]
        quota: Option<Size>,
        /// ETags of new objects: the MD5 of the body, or a random number, which saves the MD5
        #[arg(long, value_name = "KIND", value_parser = ["md5", "fast"])]
        etag: Option<String>,
    },
    /// Delete an empty bucket
    Delete {
        /// Name of the pool and of the bucket
        #[arg(value_name = "POOL/BUCKET")]
        name: VolumeName,
    },
}

/// Manage the access keys of S3 clients
///
/// A key without a user gives access to all buckets of all pools that this daemon serves. A key of
/// a user of 'gabion user create' has the rights of its policies. A key of another name gives access
/// to the buckets that it has created, and to those whose policy or ACL permits it.
#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// Create an access key. Its secret is shown only now
    #[command(after_long_help = "\
Examples:
  gabion key create --user anna
  gabion key create --valid 12h")]
    Create {
        /// User of the key [default: the administrator of all buckets]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Time after which the key expires, up to 7 days. The daemon keeps such a key in memory
        /// only: it also ends with the daemon [default: the key stays until it is deleted]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        valid: Option<u64>,
    },
    /// List the access keys
    List,
    /// Delete an access key. Requests with it fail from then on
    Delete {
        /// Access key
        #[arg(value_name = "KEY")]
        key: String,
    },
}
