//! S3: services of pools, buckets and access keys.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// State of S3 on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum S3State {
    /// Clients can use the service.
    Active,
    /// The service is stopped. It starts when the pool is opened.
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
    /// Domain of addresses in which the bucket is part of the host.
    pub domain: Option<String>,
    /// File of the certificate for HTTPS; without one, the service speaks HTTP.
    pub certificate: Option<String>,
    /// SHA-256 fingerprint of the certificate in use: pairs of hexadecimal digits and colons.
    pub fingerprint: Option<String>,
    /// State of the service.
    pub state: S3State,
    /// Reason why it is not active.
    pub reason: Option<String>,
}

impl S3Service {
    /// Returns the scheme of its addresses: `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }
}

/// Request to start S3 on a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartS3 {
    /// Address and port for clients.
    pub listen: String,
    /// Region that clients must use; `us-east-1` if absent.
    pub region: Option<String>,
    /// Domain of addresses in which the bucket is part of the host: `BUCKET.DOMAIN`.
    pub domain: Option<String>,
    /// Length of a day of lifecycle rules in seconds, for tests; 86,400 if absent.
    pub lifecycle_day: Option<u64>,
    /// Absolute path of the PEM file of a certificate chain on the host of the daemon, for HTTPS.
    pub certificate: Option<String>,
    /// Absolute path of the PEM file of its private key.
    pub private_key: Option<String>,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Name of the bucket.
    pub name: String,
    /// Time of its creation.
    pub created: u64,
    /// Number of objects; on a cluster, of all their versions.
    pub objects: u64,
    /// Number of versions that are not current, and of delete markers; absent on a cluster, which
    /// counts them as objects.
    pub versions: Option<u64>,
    /// Size of all versions in bytes.
    pub bytes: u64,
    /// Largest size of all versions in bytes.
    pub quota: Option<u64>,
    /// Computation of the ETags of new objects.
    pub etag: EtagKind,
    /// User that owns the bucket.
    pub owner: String,
    /// Versioning: `off`, `enabled` or `suspended`; absent on a cluster whose release of Ceph does
    /// not report it.
    pub versioning: Option<String>,
}

/// Computation of ETags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EtagKind {
    /// The MD5 of the body, as clients expect.
    Md5,
    /// A random number, which saves the MD5.
    Fast,
}

/// Request to change a bucket. Absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeBucket {
    /// Largest size of all versions in bytes; 0 removes the quota. A cluster rounds it up to KiB.
    pub quota: Option<u64>,
    /// Computation of the ETags of new objects; absent for a bucket of a cluster.
    pub etag: Option<EtagKind>,
}

/// An object of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectSummary {
    /// Key of the object.
    pub key: String,
    /// Size of its body in bytes.
    pub size: u64,
    /// Time of its creation.
    pub modified: u64,
    /// ETag, without quotes.
    pub etag: String,
}

/// A part of a list of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectPage {
    /// The objects, by key.
    pub objects: Vec<ObjectSummary>,
    /// Keys with the delimiter after the prefix, up to the delimiter: the folders.
    pub prefixes: Vec<String>,
    /// Value of `after` for the next part; absent at the end.
    pub next: Option<String>,
}

/// The objects that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ObjectQuery {
    /// Only keys that begin with this.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Summarises keys that have this text after the prefix, such as `/`.
    #[serde(default)]
    pub delimiter: Option<String>,
    /// Only keys after this one.
    #[serde(default)]
    pub after: Option<String>,
    /// Number of keys: up to 1,000, and 1,000 if absent.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// Request to create an access key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// User of the key; the administrator of all buckets if absent.
    pub user: Option<String>,
    /// Seconds after which the key expires, up to 7 days. The daemon keeps such a key in memory
    /// only: it also ends with the daemon.
    pub valid_s: Option<u64>,
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
    /// Time of its creation; absent on a cluster whose release of Ceph does not report it.
    pub created: Option<u64>,
    /// User of the key.
    pub user: String,
    /// Secret of the key; only in the response to its creation.
    pub secret: Option<String>,
    /// Time at which the key expires; absent if it does not expire.
    pub expires: Option<u64>,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKey").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}
