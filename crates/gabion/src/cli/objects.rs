//! Arguments of `gabion s3`, `gabion bucket` and `gabion key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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

/// Manage the buckets of a pool or cluster
///
/// The buckets of a cluster are those of its object gateways. 'create' makes the administrator of
/// all buckets the owner, whose keys 'gabion key create --cluster CLUSTER' creates; clients with
/// other keys create buckets of their own.
#[derive(Subcommand, Debug)]
pub(crate) enum BucketCommand {
    /// Create a bucket
    Create {
        /// Name of the pool or cluster and of the bucket
        #[arg(value_name = "POOL/BUCKET|CLUSTER/BUCKET")]
        name: VolumeName,
    },
    /// List the buckets of a pool or cluster with their counts
    List {
        /// Name of the pool or cluster
        #[arg(value_name = "POOL|CLUSTER")]
        pool: String,
    },
    /// Show a bucket
    Show {
        /// Name of the pool or cluster and of the bucket
        #[arg(value_name = "POOL/BUCKET|CLUSTER/BUCKET")]
        name: VolumeName,
    },
    /// Change the settings of a bucket
    Set {
        /// Name of the pool or cluster and of the bucket
        #[arg(value_name = "POOL/BUCKET|CLUSTER/BUCKET")]
        name: VolumeName,
        /// Largest size of all versions; 0 removes the quota. A cluster rounds it up to KiB
        #[arg(long, value_name = "SIZE")]
        quota: Option<Size>,
        /// ETags of new objects of a pool: the MD5 of the body, or a random number, which saves the
        /// MD5
        #[arg(long, value_name = "KIND", value_parser = ["md5", "fast"])]
        etag: Option<String>,
    },
    Mirror(MirrorArgs),
    /// Delete an empty bucket
    Delete {
        /// Name of the pool or cluster and of the bucket
        #[arg(value_name = "POOL/BUCKET|CLUSTER/BUCKET")]
        name: VolumeName,
    },
}

/// Copy the objects of a directory or of an S3 service, such as MinIO or AWS, into a bucket
///
/// Only objects that the bucket lacks are copied, and those whose size or MD5 differs; without an
/// MD5 on both sides, those that are not older than their copy. The same command continues after an
/// interruption. Bodies are verified: against the CRC-64/NVME that the source has for them, else
/// against their ETag if it is an MD5, and in the bucket by their checksum. Versions, tags and
/// metadata are not copied, and no object of the bucket is deleted.
///
/// The credentials for an S3 service are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
/// AWS_SESSION_TOKEN.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion bucket mirror http://minio1:9000/photos fast/photos --dry-run
  gabion bucket mirror https://s3.eu-central-1.amazonaws.com/logs/2026/ fast/logs --region eu-central-1
  gabion bucket mirror /srv/photos fast/photos")]
pub(crate) struct MirrorArgs {
    /// Directory, or address of a bucket: http[s]://HOST[:PORT]/BUCKET[/PREFIX]
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Name of the pool and of the bucket
    #[arg(value_name = "POOL/BUCKET")]
    pub(crate) bucket: VolumeName,
    /// Region of the source [env: AWS_REGION, AWS_DEFAULT_REGION] [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// PEM file with the authority of the source's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) source_ca: Option<PathBuf>,
    /// Show the objects that would be copied, and copy none
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not compare ETags, for sources whose ETags are not MD5s, such as those with SSE-KMS
    #[arg(long)]
    pub(crate) ignore_etags: bool,
}

/// Manage the access keys of S3 clients
///
/// A key without a user gives access to all buckets of all pools that this daemon serves. A key of
/// a user of 'gabion user create' has the rights of its policies. A key of another name gives
/// access to the buckets that it has created, and to those whose policy or ACL permits it.
///
/// With --cluster, the keys are those of the object gateways of a cluster, and their users must
/// exist: 'gabion user create USER --cluster CLUSTER'.
#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// Create an access key. Its secret is shown only now
    #[command(after_long_help = "\
Examples:
  gabion key create --user anna
  gabion key create --valid 12h
  gabion key create --user anna --cluster prod")]
    Create {
        /// User of the key [default: the administrator of all buckets]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Time after which the key expires, up to 7 days. The daemon keeps such a key in memory
        /// only: it also ends with the daemon [default: the key stays until it is deleted]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        valid: Option<u64>,
        /// Cluster whose object gateways have the key [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
    /// List the access keys
    List {
        /// Cluster whose object gateways have the keys [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
    /// Delete an access key. Requests with it fail from then on
    Delete {
        /// Access key
        #[arg(value_name = "KEY")]
        key: String,
        /// Cluster whose object gateways have the key [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
}
