//! The effect of each change on the index.
//!
//! Always true: a change that is refused has not changed the index. Checks come first, writes last.

use std::collections::BTreeMap;

use redb::ReadableTable;

use crate::body::Body;
use crate::conditions::check_conditions;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::events::{ChangeSource, EventKind, EventSubject};
use crate::index::IndexTxn;
use crate::keys;
use crate::lock::check_retention;
use crate::names::{check_bucket_name, check_key};
use crate::record::{BucketRecord, VersionDetail, VersionRecord, VersionSummary};
use crate::segment::BodySegment;
use crate::types::{
    BucketInfo, Change, Conditions, CopyObject, Counters, DeleteObject, ObjectLock, ObjectRef, Outcome,
    PutObject, Versioning,
};
use crate::versions::{FoundVersion, find_version};

impl IndexTxn<'_> {
    /// Applies a change, and stores its events.
    ///
    /// # Errors
    /// For a refused change, without an effect; or `Io`, after which the transaction must be
    /// aborted.
    pub(crate) fn apply(&mut self, change: Change, source: ChangeSource) -> Result<Outcome> {
        self.source = source;
        match change {
            Change::CreateBucket { name, versioning, settings, now_ms } => {
                self.create_bucket(name, versioning, settings, now_ms)
            }
            Change::DeleteBucket { name } => self.delete_bucket(&name),
            Change::SetBucket { bucket, name, value } => self.set_bucket(&bucket, name, value),
            Change::SetEventRules { bucket, rules, name, value, now_ms } => {
                self.set_event_rules(&bucket, &rules, (name, value), now_ms)
            }
            Change::AcknowledgeEvents { target, through } => self.acknowledge_events(&target, through),
            Change::DeleteOutbox { target } => self.delete_outbox(&target),
            Change::SetVersioning { bucket, versioning } => self.set_versioning(&bucket, versioning),
            Change::SetQuota { bucket, quota } => self.set_quota(&bucket, quota),
            Change::Put(put) => self.put(put),
            Change::Copy(copy) => self.copy(copy),
            Change::Delete(delete) => self.delete(&delete),
            Change::SetAttribute { object, name, value } => self.set_attribute(&object, name, value),
            Change::SetRetention { object, retention, bypass_governance, now_ms } => {
                self.set_lock(&object, |lock| {
                    check_retention(lock.retention, retention, bypass_governance, now_ms, &object.key)?;
                    lock.retention = retention;
                    Ok(())
                })
            }
            Change::SetLegalHold { object, legal_hold } => self.set_lock(&object, |lock| {
                lock.legal_hold = legal_hold;
                Ok(())
            }),
            Change::CreateUpload { bucket, key, attributes, now_ms } => {
                self.create_upload(&bucket, key, attributes, now_ms)
            }
            Change::PutPart(part) => self.put_part(part),
            Change::CopyPart(part) => self.copy_part(part),
            Change::CompleteUpload {
                upload,
                parts,
                etag,
                attributes,
                lock,
                part_bytes_min,
                conditions,
                now_ms,
            } => {
                let completion =
                    crate::upload::Completion { parts, etag, attributes, lock, part_bytes_min, now_ms };
                self.complete_upload(&upload, completion, &conditions)
            }
            Change::AbortUpload { upload } => self.abort_upload(&upload),
        }
    }

    fn create_bucket(
        &mut self,
        name: String,
        versioning: Versioning,
        settings: BTreeMap<String, String>,
        now_ms: u64,
    ) -> Result<Outcome> {
        check_bucket_name(&name)?;
        match self.bucket(&name) {
            Err(error) if error.kind() == ObjectErrorKind::NoSuchBucket => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let message = format!("bucket '{name}' exists already");
                return Err(ObjectError::new(ObjectErrorKind::BucketExists, message));
            }
        }
        let info = BucketInfo {
            name,
            created_ms: now_ms,
            versioning,
            counters: Counters::default(),
            quota: None,
            settings,
        };
        let number = self.next_sequence()?;
        self.put_bucket(&BucketRecord { number, info })?;
        Ok(Outcome::Done)
    }

    fn delete_bucket(&mut self, name: &str) -> Result<Outcome> {
        let bucket = self.bucket(name)?;
        let Counters { objects, versions, .. } = bucket.info.counters;
        if objects > 0 || versions > 0 {
            let message = format!("bucket '{name}' holds {objects} objects and {versions} other versions");
            return Err(ObjectError::new(ObjectErrorKind::BucketNotEmpty, message));
        }
        // Uploads in progress end with their bucket, as in S3.
        self.abort_uploads(bucket.number)?;
        self.remove_event_rules(bucket.number)?;
        self.remove_bucket(name)?;
        Ok(Outcome::Done)
    }

    pub(crate) fn set_bucket(
        &mut self,
        bucket: &str,
        name: String,
        value: Option<String>,
    ) -> Result<Outcome> {
        let mut bucket = self.bucket(bucket)?;
        set_entry(&mut bucket.info.settings, name, value);
        self.put_bucket(&bucket)?;
        Ok(Outcome::Done)
    }

    fn set_versioning(&mut self, bucket: &str, versioning: Versioning) -> Result<Outcome> {
        let mut bucket = self.bucket(bucket)?;
        if versioning == Versioning::Off && bucket.info.versioning != Versioning::Off {
            let message = "versioning can be suspended, but not removed";
            return Err(ObjectError::new(ObjectErrorKind::Invalid, message));
        }
        bucket.info.versioning = versioning;
        self.put_bucket(&bucket)?;
        Ok(Outcome::Done)
    }

    fn set_quota(&mut self, bucket: &str, quota: Option<u64>) -> Result<Outcome> {
        let mut bucket = self.bucket(bucket)?;
        bucket.info.quota = quota;
        self.put_bucket(&bucket)?;
        Ok(Outcome::Done)
    }

    /// Checks that a bucket has room for a new version of a key.
    pub(crate) fn check_quota(&self, bucket: &BucketRecord, key: &str, size: u64) -> Result<()> {
        let Some(quota) = bucket.info.quota else { return Ok(()) };
        let replaced = match bucket.info.versioning {
            Versioning::Off => self.current(bucket.number, key)?.map_or(0, |record| record.summary.size),
            _ => 0,
        };
        let after = bucket.info.counters.bytes.saturating_sub(replaced).saturating_add(size);
        // An object may always be replaced by a smaller one.
        if after > quota && size > replaced {
            return Err(ObjectError::over_quota(&bucket.info.name, quota));
        }
        Ok(())
    }

    fn put(&mut self, put: PutObject) -> Result<Outcome> {
        let PutObject { bucket, key, body, size, etag, attributes, lock, conditions, now_ms } = put;
        check_key(&key)?;
        let bucket = self.bucket(&bucket)?;
        self.check_current(&bucket, &key, &conditions)?;
        let size = size.unwrap_or(body.len());
        self.check_quota(&bucket, &key, size)?;
        let body = self.add_body(body)?;
        let detail = VersionDetail { attributes, parts: Vec::new(), lock, body };
        let summary = VersionSummary::new(size, etag, now_ms);
        self.add_object(bucket, &key, summary, detail, self.source.kind_of_put())
    }

    fn copy(&mut self, copy: CopyObject) -> Result<Outcome> {
        let CopyObject { source, source_conditions, bucket, key, attributes, lock, conditions, now_ms } =
            copy;
        check_key(&key)?;
        let found = self.find(&source)?.record;
        check_conditions(Some(found.summary.state()), &source_conditions, &source.key)?;
        let bucket = self.bucket(&bucket)?;
        self.check_current(&bucket, &key, &conditions)?;
        self.check_quota(&bucket, &key, found.summary.size)?;
        self.share(&found.detail.body)?;
        let attributes = attributes.unwrap_or(found.detail.attributes);
        let detail = VersionDetail { attributes, parts: found.detail.parts, lock, body: found.detail.body };
        let summary = VersionSummary::new(found.summary.size, found.summary.etag, now_ms);
        self.add_object(bucket, &key, summary, detail, EventKind::Copy)
    }

    /// Adds a version to a bucket, whose number the summary gets here, and stores its events.
    pub(crate) fn add_object(
        &mut self,
        mut bucket: BucketRecord,
        key: &str,
        summary: VersionSummary,
        detail: VersionDetail,
        kind: EventKind,
    ) -> Result<Outcome> {
        let is_null = bucket.info.versioning != Versioning::Enabled;
        let sequence = self.next_sequence()?;
        let record = VersionRecord { summary: VersionSummary { sequence, is_null, ..summary }, detail };
        self.add_version(&mut bucket, key, &record)?;
        self.put_bucket(&bucket)?;
        let summary = &record.summary;
        let subject = EventSubject {
            key: key.to_owned(),
            version: (bucket.info.versioning != Versioning::Off).then(|| summary.version()),
            size: summary.size,
            etag: summary.etag.clone(),
            time_ms: summary.modified_ms,
        };
        self.record_events(&bucket, kind, &subject)?;
        Ok(Outcome::Object(record.info(key, true)))
    }

    fn delete(&mut self, delete: &DeleteObject) -> Result<Outcome> {
        let DeleteObject { object, conditions, bypass_governance, now_ms } = delete;
        let mut bucket = self.bucket(&object.bucket)?;
        match &object.version {
            None => self.check_current(&bucket, &object.key, conditions)?,
            Some(_) if *conditions == Conditions::default() => {}
            Some(version) => self.check_version(&bucket, &object.key, version, conditions)?,
        }
        let (deletion, has_effect) = match &object.version {
            None => self.delete_current(&mut bucket, &object.key, *now_ms)?,
            Some(version) => {
                let rights = (*bypass_governance, *now_ms);
                self.delete_version(&mut bucket, &object.key, version, rights)?
            }
        };
        self.put_bucket(&bucket)?;
        if has_effect {
            let is_new_marker = object.version.is_none() && deletion.is_marker;
            let subject = EventSubject {
                key: object.key.clone(),
                version: deletion.version.clone().filter(|_| bucket.info.versioning != Versioning::Off),
                time_ms: *now_ms,
                ..EventSubject::default()
            };
            self.record_events(&bucket, self.source.kind_of_deletion(is_new_marker), &subject)?;
        }
        Ok(Outcome::Deleted(deletion))
    }

    fn set_attribute(&mut self, object: &ObjectRef, name: String, value: Option<String>) -> Result<Outcome> {
        let bucket = self.bucket(&object.bucket)?;
        let mut found = self.find(object)?;
        set_entry(&mut found.record.detail.attributes, name, value);
        self.replace_version(bucket.number, &object.key, &found)?;
        Ok(Outcome::Object(found.record.info(&object.key, found.is_current)))
    }

    fn set_lock(
        &mut self,
        object: &ObjectRef,
        change: impl FnOnce(&mut ObjectLock) -> Result<()>,
    ) -> Result<Outcome> {
        let bucket = self.bucket(&object.bucket)?;
        let mut found = self.find(object)?;
        change(&mut found.record.detail.lock)?;
        self.replace_version(bucket.number, &object.key, &found)?;
        Ok(Outcome::Object(found.record.info(&object.key, found.is_current)))
    }

    /// Checks the conditions on a version; a version that does not exist has none to check.
    fn check_version(
        &self,
        bucket: &BucketRecord,
        key: &str,
        version: &str,
        conditions: &Conditions,
    ) -> Result<()> {
        let found = find_version(&self.objects, &self.versions, bucket.number, key, version)?;
        check_conditions(Some(found.record.summary.state()), conditions, key)
    }

    /// Returns the version that a request names. A delete marker is none.
    pub(crate) fn find(&self, object: &ObjectRef) -> Result<FoundVersion> {
        let bucket = self.bucket(&object.bucket)?.number;
        find_readable(&self.objects, &self.versions, bucket, object)
    }

    /// Checks the conditions on the current object of a key.
    pub(crate) fn check_current(
        &self,
        bucket: &BucketRecord,
        key: &str,
        conditions: &Conditions,
    ) -> Result<()> {
        if *conditions == Conditions::default() {
            return Ok(());
        }
        let current = self.current(bucket.number, key)?;
        check_conditions(current.as_ref().map(|record| record.summary.state()), conditions, key)
    }

    /// Adds the runs of a body. Returns its segments.
    pub(crate) fn add_body(&mut self, body: Body) -> Result<Vec<BodySegment>> {
        match body {
            Body::Bytes(bytes) if bytes.is_empty() => Ok(Vec::new()),
            Body::Bytes(bytes) => Ok(vec![BodySegment::Inline(bytes)]),
            Body::Stored(stored) => {
                for run in stored.runs() {
                    self.add_run(*run)?;
                }
                let (runs, segments) = stored.into_segments();
                self.added.extend(runs);
                Ok(segments)
            }
        }
    }
}

/// Returns a version with a body by the name that a request gives.
pub(crate) fn find_readable<T: ReadableTable<&'static [u8], &'static [u8]>>(
    objects: &T,
    versions: &T,
    bucket: u64,
    object: &ObjectRef,
) -> Result<FoundVersion> {
    let key = &object.key;
    match &object.version {
        Some(version) => {
            let found = find_version(objects, versions, bucket, key, version)?;
            if found.record.summary.is_marker {
                return Err(ObjectError::is_marker(key));
            }
            Ok(found)
        }
        None => {
            let row = keys::object_key(bucket, key.as_bytes());
            let record = crate::index::get_version(objects, &row)?;
            Ok(FoundVersion { record: record.ok_or_else(|| ObjectError::no_key(key))?, is_current: true })
        }
    }
}

fn set_entry(entries: &mut BTreeMap<String, String>, name: String, value: Option<String>) {
    match value {
        Some(value) => entries.insert(name, value),
        None => entries.remove(&name),
    };
}
