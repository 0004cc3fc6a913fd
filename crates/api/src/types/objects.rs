//! S3: services of pools, buckets and access keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of S3 on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum S3State {
    /// Clients can use it.
    Active,
    /// It does not run. It starts when the pool is opened.
    Waiting,
}

/// S3 on a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Service {
    /// Name of the pool.
    pub pool: String,
    /// Address and port for clients.
    pub listen: String,
    /// Region that clients must use.
    pub region: String,
    /// State of the service.
    pub state: S3State,
    /// Reason why it is not active.
    pub reason: Option<String>,
}

/// Request to start S3 on a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartS3 {
    /// Address and port for clients.
    pub listen: String,
    /// Region that clients must use; `us-east-1` if absent.
    pub region: Option<String>,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Name of the bucket.
    pub name: String,
    /// Time of its creation.
    pub created: u64,
    /// Number of objects.
    pub objects: u64,
    /// Number of versions that are not current, and of delete markers.
    pub versions: u64,
    /// Size of all versions in bytes.
    pub bytes: u64,
    /// Versioning: `off`, `enabled` or `suspended`.
    pub versioning: String,
}

/// Request to create a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBucket {
    /// Name of the bucket.
    pub name: String,
}

/// An access key of S3 clients.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessKey {
    /// Identifier of the key.
    pub access_key: String,
    /// Time of its creation.
    pub created: u64,
    /// Secret of the key; only in the answer to its creation.
    pub secret: Option<String>,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKey").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}
