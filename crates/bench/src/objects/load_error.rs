//! Errors of loads of S3 requests.

use s3_client::S3Error;

/// A load of S3 requests that failed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectLoadError {
    /// A request failed.
    #[error("{address}: {source}")]
    Request {
        /// Address of the service.
        address: String,
        /// The cause.
        source: S3Error,
    },
    /// Objects have other contents than the written ones.
    #[error("{count} objects of {address} have other contents or another length than the written ones")]
    Wrong {
        /// Address of the service.
        address: String,
        /// Number of such reads.
        count: u64,
    },
    /// The objects of the bucket could not be deleted.
    #[error("bucket {bucket} of {address} cannot be emptied: object '{key}': {reason}")]
    Left {
        /// Address of the service.
        address: String,
        /// The bucket.
        bucket: String,
        /// The first object that was not deleted.
        key: String,
        /// The reason of the service.
        reason: String,
    },
    /// No request completed while it was measured.
    #[error("no request to {address} completed within {seconds} s; use longer measurements (--seconds)")]
    Silent {
        /// Address of the service.
        address: String,
        /// The measured seconds.
        seconds: f64,
    },
    /// The job needs another target.
    #[error("job '{0}' sends S3 requests and needs an S3 service as its target")]
    NoService(String),
    /// A failure of `warp`.
    #[error("warp: {0}")]
    Warp(String),
    /// The load was interrupted.
    #[error("interrupted")]
    Interrupted,
}
