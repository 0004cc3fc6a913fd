//! The records that `radosgw-admin` prints, and their form in the API. Pure functions.

use std::collections::BTreeMap;

use api::types::{AccessKey, Bucket, EtagKind, S3User};
use serde::Deserialize;
use serde_json::Value;

/// A user with its keys.
#[derive(Deserialize)]
pub(super) struct GatewayUser {
    user_id: String,
    #[serde(default)]
    create_date: Option<String>,
    keys: Vec<KeyRecord>,
    /// The text or value true for an administrator; absent for others.
    #[serde(default)]
    admin: Value,
}

/// An access key. It has no `Debug`, because it contains the secret.
#[derive(Deserialize)]
struct KeyRecord {
    user: String,
    access_key: String,
    secret_key: String,
    #[serde(default)]
    create_date: Option<String>,
}

impl KeyRecord {
    fn to_wire(&self, secret: Option<String>) -> AccessKey {
        AccessKey {
            access_key: self.access_key.clone(),
            created: seconds(self.create_date.as_deref()),
            user: self.user.clone(),
            secret,
            expires: None,
        }
    }
}

impl GatewayUser {
    /// Returns the name.
    pub(super) fn name(&self) -> &str {
        &self.user_id
    }

    /// Returns true if the user has access to all buckets.
    pub(super) fn is_administrator(&self) -> bool {
        self.admin == Value::Bool(true) || self.admin.as_str() == Some("true")
    }

    /// Returns the user as the API shows it.
    pub(super) fn to_wire(&self) -> S3User {
        S3User {
            name: self.user_id.clone(),
            created: seconds(self.create_date.as_deref()),
            policies: Vec::new(),
            groups: Vec::new(),
            keys: self.keys.iter().map(|key| key.access_key.clone()).collect(),
        }
    }

    /// Returns the keys without their secrets.
    pub(super) fn keys(&self) -> impl Iterator<Item = AccessKey> {
        self.keys.iter().map(|key| key.to_wire(None))
    }

    /// Returns a key with its secret.
    pub(super) fn key(&self, access_key: &str) -> Option<AccessKey> {
        let key = self.keys.iter().find(|key| key.access_key == access_key)?;
        Some(key.to_wire(Some(key.secret_key.clone())))
    }

    /// Returns any key with its secret.
    pub(super) fn any_key(&self) -> Option<(String, String)> {
        self.keys.first().map(|key| (key.access_key.clone(), key.secret_key.clone()))
    }
}

/// A bucket with its usage.
#[derive(Deserialize)]
pub(super) struct BucketRecord {
    bucket: String,
    #[serde(default)]
    tenant: String,
    owner: String,
    #[serde(default)]
    creation_time: Option<String>,
    /// Usage by category: `rgw.main` has the objects, `rgw.multimeta` uploads in progress.
    #[serde(default)]
    usage: BTreeMap<String, UsageRecord>,
    bucket_quota: QuotaRecord,
    /// Absent in Ceph 16.
    #[serde(default)]
    versioning: Option<String>,
}

#[derive(Deserialize)]
struct UsageRecord {
    /// Absent without objects.
    #[serde(default)]
    size: u64,
    #[serde(default)]
    num_objects: u64,
}

#[derive(Deserialize)]
struct QuotaRecord {
    enabled: bool,
    /// Negative without a limit.
    max_size: i64,
}

impl BucketRecord {
    /// Returns the bucket as the API shows it.
    pub(super) fn to_wire(&self) -> Bucket {
        let limit = u64::try_from(self.bucket_quota.max_size).ok().filter(|size| *size > 0);
        let name = match self.tenant.as_str() {
            "" => self.bucket.clone(),
            tenant => format!("{tenant}/{}", self.bucket),
        };
        Bucket {
            name,
            created: seconds(self.creation_time.as_deref()).unwrap_or_default(),
            objects: self.usage.get("rgw.main").map_or(0, |usage| usage.num_objects),
            versions: None,
            bytes: self.usage.values().map(|usage| usage.size).sum(),
            quota: limit.filter(|_| self.bucket_quota.enabled),
            etag: EtagKind::Md5,
            owner: self.owner.clone(),
            versioning: self.versioning.clone(),
        }
    }
}

/// Returns a time of RFC 3339 in seconds since 1970.
fn seconds(time: Option<&str>) -> Option<u64> {
    let time = time?.parse::<jiff::Timestamp>().ok()?;
    u64::try_from(time.as_second()).ok()
}
