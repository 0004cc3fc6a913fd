//! Lifecycle rules: their checks, the rule that applies to an object, and the task that deletes.
//!
//! Always true: a deletion of the task names the version that a rule covers, and the store refuses
//! it if the object has been replaced or is locked.

use std::sync::Arc;
use std::time::Duration;

use object::{
    Change, ChangeOrigin, ChangeSource, Conditions, DeleteObject, ListQuery, ObjectErrorKind, ObjectInfo,
    ObjectRef, ObjectStore, Versioning,
};
use s3s::dto::{self, ExpirationStatus, LifecycleRule};
use s3s::{S3Result, s3_error};

use crate::gateway::now_ms;
use crate::settings::BucketSettings;
use crate::tags::tags_of;
use crate::times::{from_ms, http_date, to_ms};

/// The largest number of rules, and the longest id in bytes, as in S3.
const RULES_MAX: usize = 1000;
const ID_MAX: usize = 255;
/// Versions that are read at once.
const PAGE: usize = 1000;

/// Checks rules, and gives an id to those without one.
///
/// # Errors
/// `InvalidArgument`, `MalformedXML`, `NotImplemented` for transitions.
pub(crate) fn check(
    config: dto::BucketLifecycleConfiguration,
) -> S3Result<dto::BucketLifecycleConfiguration> {
    let mut rules = config.rules;
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "a configuration has 1 to {RULES_MAX} rules"));
    }
    let mut ids = std::collections::HashSet::new();
    for (index, rule) in rules.iter_mut().enumerate() {
        let id = rule.id.get_or_insert_with(|| format!("rule-{index}"));
        if id.len() > ID_MAX {
            return Err(s3_error!(InvalidArgument, "the id of a rule has more than {ID_MAX} bytes"));
        }
        if !ids.insert(id.clone()) {
            return Err(s3_error!(InvalidArgument, "two rules have the id '{id}'"));
        }
        check_rule(rule)?;
    }
    Ok(dto::BucketLifecycleConfiguration { rules })
}

fn check_rule(rule: &LifecycleRule) -> S3Result<()> {
    if !matches!(rule.status.as_str(), ExpirationStatus::ENABLED | ExpirationStatus::DISABLED) {
        return Err(s3_error!(MalformedXML, "the status of a rule must be Enabled or Disabled"));
    }
    if rule.transitions.is_some() || rule.noncurrent_version_transitions.is_some() {
        return Err(s3_error!(NotImplemented, "transitions to other storage classes are not implemented"));
    }
    if rule.filter.is_some() && rule.prefix.is_some() {
        return Err(s3_error!(MalformedXML, "a rule has either a filter or a prefix"));
    }
    let positive = |days: Option<i32>, name: &str| match days {
        Some(days) if days < 1 => Err(s3_error!(InvalidArgument, "{name} must be positive")),
        _ => Ok(()),
    };
    if let Some(expiration) = &rule.expiration {
        let kinds = [
            expiration.days.is_some(),
            expiration.date.is_some(),
            expiration.expired_object_delete_marker.is_some(),
        ];
        if kinds.iter().filter(|is_set| **is_set).count() != 1 {
            return Err(s3_error!(
                MalformedXML,
                "an expiration has one of days, a date, and the delete marker"
            ));
        }
        positive(expiration.days, "the days of an expiration")?;
        let is_midnight = |date: &dto::Timestamp| to_ms(date).is_multiple_of(24 * 3600 * 1000);
        if expiration.date.as_ref().is_some_and(|date| !is_midnight(date)) {
            return Err(s3_error!(InvalidArgument, "the date of an expiration must be at midnight GMT"));
        }
    }
    if let Some(noncurrent) = &rule.noncurrent_version_expiration {
        positive(noncurrent.noncurrent_days, "NoncurrentDays")?;
        positive(noncurrent.newer_noncurrent_versions, "NewerNoncurrentVersions")?;
    }
    if let Some(abort) = &rule.abort_incomplete_multipart_upload {
        positive(abort.days_after_initiation, "DaysAfterInitiation")?;
    }
    if rule.expiration.is_none()
        && rule.noncurrent_version_expiration.is_none()
        && rule.abort_incomplete_multipart_upload.is_none()
    {
        return Err(s3_error!(MalformedXML, "a rule has no action"));
    }
    Ok(())
}

/// The objects that a rule covers.
struct RuleScope {
    prefix: String,
    tags: Vec<(String, String)>,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
}

impl RuleScope {
    fn new(rule: &LifecycleRule) -> Self {
        let filter = rule.filter.clone().unwrap_or_default();
        let and = filter.and.unwrap_or_default();
        let mut tags = and.tags.unwrap_or_default();
        tags.extend(filter.tag);
        let tag = |tag: dto::Tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default());
        let size =
            |one: Option<i64>, other: Option<i64>| one.or(other).and_then(|size| u64::try_from(size).ok());
        Self {
            prefix: filter.prefix.or(and.prefix).or_else(|| rule.prefix.clone()).unwrap_or_default(),
            tags: tags.into_iter().map(tag).collect(),
            larger_than: size(filter.object_size_greater_than, and.object_size_greater_than),
            smaller_than: size(filter.object_size_less_than, and.object_size_less_than),
        }
    }

    fn covers(&self, info: &ObjectInfo, tags: &[(String, String)]) -> bool {
        info.key.starts_with(&self.prefix)
            && self.tags.iter().all(|tag| tags.contains(tag))
            && self.larger_than.is_none_or(|least| info.size > least)
            && self.smaller_than.is_none_or(|most| info.size < most)
    }
}

fn is_enabled(rule: &LifecycleRule) -> bool {
    rule.status.as_str() == ExpirationStatus::ENABLED
}

fn after(from_ms: u64, days: i32, day: Duration) -> u64 {
    let day = u64::try_from(day.as_millis()).unwrap_or(u64::MAX);
    from_ms.saturating_add(u64::try_from(days).unwrap_or(0).saturating_mul(day))
}

/// The time at which a rule expires a current object.
fn expiry(rule: &LifecycleRule, info: &ObjectInfo, day: Duration) -> Option<u64> {
    let expiration = rule.expiration.as_ref()?;
    match (expiration.days, &expiration.date) {
        (Some(days), _) => Some(after(info.modified_ms, days, day)),
        (None, Some(date)) => Some(to_ms(date)),
        _ => None,
    }
}

/// The header of answers that names the time at which an object expires.
pub(crate) fn expiration_header(bucket: &BucketSettings, info: &ObjectInfo, day: Duration) -> Option<String> {
    let config = bucket.lifecycle.as_ref().filter(|_| info.is_latest)?;
    let tags = tags_of(&info.attributes);
    let rules =
        config.rules.iter().filter(|rule| is_enabled(rule) && RuleScope::new(rule).covers(info, &tags));
    let (at, rule) =
        rules.filter_map(|rule| Some((expiry(rule, info, day)?, rule))).min_by_key(|(at, _)| *at)?;
    let id = rule.id.as_deref().unwrap_or_default();
    Some(format!("expiry-date=\"{}\", rule-id=\"{id}\"", http_date(&from_ms(at))?))
}

/// A deletion that a rule asks for.
#[derive(Debug, PartialEq, Eq)]
enum Expiry {
    /// Of the current object, as by a client.
    Current(ObjectInfo),
    /// Of a version.
    Version(ObjectInfo),
}

/// The versions of a key, the newest first, as the rules see them.
fn expiries(
    config: &dto::BucketLifecycleConfiguration,
    versions: &[ObjectInfo],
    tags: &dyn Fn(&ObjectInfo) -> Vec<(String, String)>,
    day: Duration,
    now_ms: u64,
) -> Vec<Expiry> {
    let mut found = Vec::new();
    for rule in config.rules.iter().filter(|rule| is_enabled(rule)) {
        let scope = RuleScope::new(rule);
        let covers = |info: &ObjectInfo| {
            let tags = if scope.tags.is_empty() { Vec::new() } else { tags(info) };
            scope.covers(info, &tags)
        };
        let Some(newest) = versions.first().filter(|newest| newest.key.starts_with(&scope.prefix)) else {
            continue;
        };
        if !newest.is_marker && expiry(rule, newest, day).is_some_and(|at| at <= now_ms) && covers(newest) {
            found.push(Expiry::Current(newest.clone()));
        }
        let removes_markers =
            rule.expiration.as_ref().is_some_and(|each| each.expired_object_delete_marker == Some(true));
        if newest.is_marker && versions.len() == 1 && removes_markers {
            found.push(Expiry::Version(newest.clone()));
        }
        if let Some(noncurrent) = &rule.noncurrent_version_expiration {
            let kept = noncurrent.newer_noncurrent_versions.and_then(|count| usize::try_from(count).ok());
            let mut noncurrent_seen = 0;
            for pair in versions.windows(2) {
                let [newer, older] = pair else { continue };
                noncurrent_seen += 1;
                // A version is noncurrent since the next one was put.
                let at = after(newer.modified_ms, noncurrent.noncurrent_days.unwrap_or(0), day);
                if noncurrent_seen > kept.unwrap_or(0) && at <= now_ms && covers(older) {
                    found.push(Expiry::Version(older.clone()));
                }
            }
        }
    }
    found
}

/// Applies the rules of all buckets once. Returns the number of deletions.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn apply(store: &Arc<dyn ObjectStore>, day: Duration) -> object::Result<usize> {
    let mut deleted = 0;
    for info in store.buckets()? {
        let bucket = BucketSettings::new(info);
        if let Some(config) = &bucket.lifecycle {
            deleted += apply_to(store, &bucket, config, day)?;
        }
    }
    Ok(deleted)
}

fn apply_to(
    store: &Arc<dyn ObjectStore>,
    bucket: &BucketSettings,
    config: &dto::BucketLifecycleConfiguration,
    day: Duration,
) -> object::Result<usize> {
    let name = bucket.info.name.clone();
    let now_ms = now_ms();
    let mut deleted = 0;
    let mut query = ListQuery { bucket: name.clone(), limit: PAGE, ..ListQuery::default() };
    let mut versions: Vec<ObjectInfo> = Vec::new();
    let tags = |info: &ObjectInfo| {
        let version = Some(info.version.clone());
        let object = ObjectRef { bucket: name.clone(), key: info.key.clone(), version };
        store.object(&object).map(|info| tags_of(&info.attributes)).unwrap_or_default()
    };
    loop {
        let page = store.list_versions(&query)?;
        let next = page.next.clone();
        query.after_version = page
            .entries
            .last()
            .filter(|last| next.as_ref() == Some(&last.key))
            .map(|last| last.version.clone());
        for info in page.entries {
            if versions.first().is_some_and(|first| first.key != info.key) {
                let due = expiries(config, &versions, &tags, day, now_ms);
                deleted += delete_all(store, bucket, due, now_ms);
                versions.clear();
            }
            versions.push(info);
        }
        match next {
            Some(next) => query.after = next,
            None => break,
        }
    }
    let due = expiries(config, &versions, &tags, day, now_ms);
    deleted += delete_all(store, bucket, due, now_ms);
    for upload in store.uploads(&name)? {
        let is_due = config.rules.iter().filter(|rule| is_enabled(rule)).any(|rule| {
            let abort = rule.abort_incomplete_multipart_upload.as_ref();
            let days = abort.and_then(|abort| abort.days_after_initiation);
            upload.key.starts_with(&RuleScope::new(rule).prefix)
                && days.is_some_and(|days| after(upload.created_ms, days, day) <= now_ms)
        });
        if is_due {
            deleted += usize::from(store.commit(Change::AbortUpload { upload: upload.id }).wait().is_ok());
        }
    }
    Ok(deleted)
}

fn delete_all(store: &Arc<dyn ObjectStore>, bucket: &BucketSettings, due: Vec<Expiry>, now_ms: u64) -> usize {
    let changes = due.into_iter().map(|expiry| {
        let (info, names_version) = match expiry {
            // Without versions, the object that the rule saw is deleted, and no newer one.
            Expiry::Current(info) => (info, bucket.info.versioning == Versioning::Off),
            Expiry::Version(info) => (info, true),
        };
        let conditions = Conditions {
            if_match: (!info.is_marker).then(|| info.etag.clone()),
            if_match_second: (!info.is_marker).then_some(info.modified_ms / 1000),
            ..Conditions::default()
        };
        let version = names_version.then_some(info.version);
        let object = ObjectRef { bucket: bucket.info.name.clone(), key: info.key, version };
        let delete = DeleteObject { object, conditions, bypass_governance: false, now_ms };
        let source = ChangeSource {
            origin: ChangeOrigin::Lifecycle,
            principal: "lifecycle".to_owned(),
            address: String::new(),
        };
        store.commit_from(Change::Delete(delete), source)
    });
    let pending: Vec<_> = changes.collect();
    let mut deleted = 0;
    for pending in pending {
        match pending.wait() {
            Ok(_) => deleted += 1,
            Err(error) if error.kind() == ObjectErrorKind::Io => {
                tracing::warn!(%error, "a lifecycle rule could not be applied");
            }
            // The object was replaced, or is locked.
            Err(_) => {}
        }
    }
    deleted
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
