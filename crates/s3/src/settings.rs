//! The settings of buckets: parsed once, and kept in memory until a bucket changes.
//!
//! Always true: a stored setting that cannot be read is never taken for a missing one: it is in
//! [`BucketSettings::unreadable`], by which the check of access closes the bucket.

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
/// The configuration of notifications. The store has its rules, and changes both together.
pub(crate) const NOTIFICATION: &str = "notification";
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
    pub(crate) notification: Option<dto::NotificationConfiguration>,
    pub(crate) encryption: Option<DefaultEncryption>,
    pub(crate) lock: Option<LockConfig>,
    pub(crate) has_fast_etags: bool,
    /// True if lists of access are ignored: `BucketOwnerEnforced`.
    pub(crate) is_owner_enforced: bool,
    /// The stored settings that cannot be read.
    pub(crate) unreadable: Vec<&'static str>,
}

impl BucketSettings {
    pub(crate) fn new(info: BucketInfo) -> Self {
        let owner = info.settings.get(OWNER).map_or(DEFAULT_USER, String::as_str).to_owned();
        let mut reader = SettingsReader { info: &info, unreadable: Vec::new() };
        let acl = reader.json(ACL).unwrap_or_else(|| AccessList::private(&owner));
        let policy = reader.parse(POLICY, |text| PolicyDocument::parse_of_bucket(text, &info.name));
        let public_access = reader.json(PUBLIC_ACCESS).unwrap_or_default();
        let (cors, lifecycle) = (reader.json(CORS), reader.json(LIFECYCLE));
        let notification = reader.json(NOTIFICATION);
        let (encryption, lock) = (reader.json(ENCRYPTION), reader.json(LOCK));
        let is_owner_enforced = reader.parse(OWNERSHIP, parse_ownership).unwrap_or(false);
        let unreadable = reader.unreadable;
        Self {
            acl: AccessList { owner, ..acl },
            policy,
            public_access,
            cors,
            lifecycle,
            notification,
            encryption,
            lock,
            has_fast_etags: info.settings.get(ETAG).is_some_and(|etag| etag == "fast"),
            is_owner_enforced,
            unreadable,
            info,
        }
    }

    /// The user that owns the bucket.
    pub(crate) fn owner(&self) -> &str {
        &self.acl.owner
    }
}

/// Returns true if a mode of ownership ignores lists of access.
fn parse_ownership(mode: &str) -> Result<bool, String> {
    match mode {
        "BucketOwnerEnforced" => Ok(true),
        "BucketOwnerPreferred" | "ObjectWriter" => Ok(false),
        _ => Err("the mode is unknown".to_owned()),
    }
}

/// Parses the settings of a bucket, and notes those that cannot be read.
struct SettingsReader<'a> {
    info: &'a BucketInfo,
    unreadable: Vec<&'static str>,
}

impl SettingsReader<'_> {
    fn parse<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let parsed = parse(self.info.settings.get(name)?);
        if let Err(reason) = &parsed {
            tracing::error!(bucket = self.info.name, setting = name, reason, "a setting cannot be read");
            self.unreadable.push(name);
        }
        parsed.ok()
    }

    fn json<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        self.parse(name, |text| serde_json::from_str(text).map_err(|error| error.to_string()))
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
