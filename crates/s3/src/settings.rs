//! The settings of buckets: parsed once, and kept in memory until a bucket changes.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use object::{BucketInfo, Retention, RetentionMode};
use s3s::dto;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::acl::AccessList;
use crate::policy::PolicyDocument;

/// The names of settings in the store.
pub(crate) const OWNER: &str = "owner";
pub(crate) const ACL: &str = "acl";
pub(crate) const POLICY: &str = "policy";
pub(crate) const PUBLIC_ACCESS: &str = "public-access-block";
pub(crate) const CORS: &str = "cors";
pub(crate) const LIFECYCLE: &str = "lifecycle";
pub(crate) const ENCRYPTION: &str = "encryption";
pub(crate) const OWNERSHIP: &str = "ownership";
pub(crate) const TAGGING: &str = "tagging";
pub(crate) const LOCK: &str = "object-lock";
/// The computation of ETags: `md5` or `fast`.
pub(crate) const ETAG: &str = "etag";
/// The owner of buckets that the daemon's API creates, and of keys without a user.
pub const DEFAULT_USER: &str = "gabion";
/// The settings of buckets to keep in memory.
const CACHE_MAX: usize = 10_000;
const DAY_MS: u64 = 24 * 3600 * 1000;

/// The blocks of public access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublicAccess {
    pub(crate) block_acls: bool,
    pub(crate) ignore_acls: bool,
    pub(crate) block_policy: bool,
    pub(crate) restrict: bool,
}

/// The default retention of new objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DefaultLock {
    pub(crate) mode: RetentionMode,
    pub(crate) days: Option<u32>,
    pub(crate) years: Option<u32>,
}

/// The object lock of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockConfig {
    pub(crate) default: Option<DefaultLock>,
}

impl LockConfig {
    /// The retention of an object that is put now.
    pub(crate) fn retention(&self, now_ms: u64) -> Option<Retention> {
        let DefaultLock { mode, days, years } = self.default?;
        let days = u64::from(days.unwrap_or(0)) + 365 * u64::from(years.unwrap_or(0));
        Some(Retention { mode, until_ms: now_ms.saturating_add(days * DAY_MS) })
    }
}

/// The encryption of objects whose requests name none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DefaultEncryption {
    /// `AES256` or `aws:kms`.
    pub(crate) algorithm: String,
    pub(crate) key_id: Option<String>,
}

/// A bucket with parsed settings.
#[derive(Debug)]
pub(crate) struct BucketSettings {
    pub(crate) info: BucketInfo,
    pub(crate) acl: AccessList,
    pub(crate) policy: Option<PolicyDocument>,
    pub(crate) public_access: PublicAccess,
    pub(crate) cors: Option<dto::CORSConfiguration>,
    pub(crate) lifecycle: Option<dto::BucketLifecycleConfiguration>,
    pub(crate) encryption: Option<DefaultEncryption>,
    pub(crate) lock: Option<LockConfig>,
    pub(crate) has_fast_etags: bool,
    /// True if lists of access are ignored: `BucketOwnerEnforced`.
    pub(crate) is_owner_enforced: bool,
}

impl BucketSettings {
    pub(crate) fn new(info: BucketInfo) -> Self {
        let owner = info.settings.get(OWNER).map_or(DEFAULT_USER, String::as_str).to_owned();
        let acl = parse(&info, ACL).unwrap_or_else(|| AccessList::private(&owner));
        let policy =
            info.settings.get(POLICY).and_then(|text| PolicyDocument::parse_of_bucket(text, &info.name).ok());
        Self {
            acl: AccessList { owner, ..acl },
            policy,
            public_access: parse(&info, PUBLIC_ACCESS).unwrap_or_default(),
            cors: parse(&info, CORS),
            lifecycle: parse(&info, LIFECYCLE),
            encryption: parse(&info, ENCRYPTION),
            lock: parse(&info, LOCK),
            has_fast_etags: info.settings.get(ETAG).is_some_and(|etag| etag == "fast"),
            is_owner_enforced: info.settings.get(OWNERSHIP).is_some_and(|mode| mode == "BucketOwnerEnforced"),
            info,
        }
    }

    /// The user that owns the bucket.
    pub(crate) fn owner(&self) -> &str {
        &self.acl.owner
    }
}

fn parse<T: DeserializeOwned>(info: &BucketInfo, name: &str) -> Option<T> {
    let text = info.settings.get(name)?;
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::error!(bucket = info.name, setting = name, %error, "a setting of a bucket is damaged");
            None
        }
    }
}

/// Parsed settings by bucket, each with the epoch of the store in which they were read.
#[derive(Debug, Default)]
pub(crate) struct SettingsCache {
    buckets: RwLock<HashMap<String, (u64, Arc<BucketSettings>)>>,
}

impl SettingsCache {
    /// Returns the settings of a bucket if they were read in this epoch.
    pub(crate) fn get(&self, bucket: &str, epoch: u64) -> Option<Arc<BucketSettings>> {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        buckets.get(bucket).filter(|(of, _)| *of == epoch).map(|(_, settings)| settings.clone())
    }

    /// Keeps settings that were read after the epoch was.
    pub(crate) fn put(&self, epoch: u64, settings: &Arc<BucketSettings>) {
        let mut buckets = self.buckets.write().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CACHE_MAX {
            buckets.clear();
        }
        buckets.insert(settings.info.name.clone(), (epoch, settings.clone()));
    }
}
