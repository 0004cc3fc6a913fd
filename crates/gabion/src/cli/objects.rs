//! Arguments of `gabion s3`, `gabion bucket` and `gabion key`.

use clap::Subcommand;

use api::VolumeName;

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
    /// Delete an empty bucket
    Delete {
        /// Name of the pool and of the bucket
        #[arg(value_name = "POOL/BUCKET")]
        name: VolumeName,
    },
}

/// Manage the access keys of S3 clients
///
/// A key gives access to all buckets of all pools that this daemon serves.
#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// Create an access key. Its secret is shown only now
    Create,
    /// List the access keys
    List,
    /// Delete an access key. Requests with it fail from then on
    Delete {
        /// Access key
        #[arg(value_name = "KEY")]
        key: String,
    },
}
