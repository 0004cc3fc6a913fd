//! A store in memory: a map of maps, the oracle of tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::body::Body;
use crate::conditions::{ObjectState, check_conditions};
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::events::{
    ChangeSource, EventKind, EventRule, EventSubject, OUTBOX_MAX, ObjectEvent, OutboxInfo, check_rules,
    events_of, tests_of,
};
use crate::listing::{KeyPlace, place_of};
use crate::lock::{check_deletion, check_retention};
use crate::memory_outboxes::MemoryOutboxes;
use crate::names::{check_bucket_name, check_key};
use crate::store::{BodyReader, BodyWriter, ObjectStore, Pending};
use crate::types::{
    BucketInfo, Change, Conditions, Counters, DeleteObject, Deletion, ListPage, ListQuery, ObjectInfo,
    ObjectLock, ObjectRef, Outcome, PartInfo, PutObject, UploadInfo, Versioning,
};
use crate::upload::check_part_number;

/// An object store in memory.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_outbox_max(OUTBOX_MAX)
    }
}

impl MemoryStore {
    /// Returns an empty store whose outboxes hold up to `outbox_max` events each.
    pub fn with_outbox_max(outbox_max: u64) -> Self {
        Self {
            state: Mutex::new(MemoryState {
                outboxes: MemoryOutboxes::new(outbox_max),
                ..MemoryState::default()
            }),
        }
    }
}

#[cfg(test)]
impl MemoryStore {
    /// The newest number of versions, buckets and uploads.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.state.lock().unwrap().sequence
    }
}

#[derive(Default)]
struct MemoryState {
    sequence: u64,
    /// The number of changes of buckets so far.
    settings_epoch: u64,
    buckets: BTreeMap<String, MemoryBucket>,
    uploads: BTreeMap<u64, MemoryUpload>,
    outboxes: MemoryOutboxes,
}

struct MemoryBucket {
    created_ms: u64,
    versioning: Versioning,
    quota: Option<u64>,
    settings: BTreeMap<String, String>,
    rules: Vec<EventRule>,
    /// The versions of each key, the newest last.
    keys: BTreeMap<String, Vec<MemoryVersion>>,
}

#[derive(Clone)]
struct MemoryVersion {
    info: ObjectInfo,
    body: Vec<u8>,
}

struct MemoryUpload {
    info: UploadInfo,
    parts: BTreeMap<u16, (PartInfo, Vec<u8>)>,
}

/// The state of a version for conditions.
fn state(info: &ObjectInfo) -> ObjectState<'_> {
    ObjectState { etag: &info.etag, size: info.size, modified_ms: info.modified_ms }
}

fn refuse<T>(kind: ObjectErrorKind, message: &str) -> Result<T> {
    Err(ObjectError::new(kind, message))
}

impl MemoryBucket {
    fn current(&self, key: &str) -> Option<&MemoryVersion> {
        self.keys.get(key)?.last().filter(|version| !version.info.is_marker)
    }

    fn check(&self, key: &str, conditions: &Conditions) -> Result<()> {
        check_conditions(self.current(key).map(|version| state(&version.info)), conditions, key)
    }

    fn check_quota(&self, name: &str, key: &str, size: u64) -> Result<()> {
        let Some(quota) = self.quota else { return Ok(()) };
        let replaced = match self.versioning {
            Versioning::Off => self.current(key).map_or(0, |version| version.info.size),
            _ => 0,
        };
        let after = self.info(name).counters.bytes - replaced + size;
        if after > quota && size > replaced { Err(ObjectError::over_quota(name, quota)) } else { Ok(()) }
    }

    fn version(&self, key: &str, version: &str) -> Option<&MemoryVersion> {
        self.keys.get(key)?.iter().find(|found| found.info.version == version)
    }

    fn find(&self, object: &ObjectRef) -> Result<MemoryVersion> {
        let key = &object.key;
        let Some(wanted) = &object.version else {
            return self.current(key).cloned().ok_or_else(|| ObjectError::no_key(key));
        };
        let versions = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let found = versions.iter().find(|version| version.info.version == *wanted);
        let found = found.ok_or_else(|| ObjectError::no_version(key, wanted))?;
        if found.info.is_marker {
            return Err(ObjectError::is_marker(key));
        }
        let is_latest = versions.last().is_some_and(|last| last.info.version == *wanted);
        let info = ObjectInfo { is_latest, ..found.info.clone() };
        Ok(MemoryVersion { info, body: found.body.clone() })
    }

    fn add(&mut self, version: MemoryVersion) {
        let versions = self.keys.entry(version.info.key.clone()).or_default();
        if self.versioning != Versioning::Enabled {
            versions.retain(|other| other.info.version != "null");
        }
        versions.push(version);
    }

    fn info(&self, name: &str) -> BucketInfo {
        let mut counters = Counters::default();
        for versions in self.keys.values() {
            let is_object = versions.last().is_some_and(|last| !last.info.is_marker);
            counters.objects += u64::from(is_object);
            counters.versions += versions.len() as u64 - u64::from(is_object);
            counters.bytes += versions.iter().map(|version| version.info.size).sum::<u64>();
        }
        let MemoryBucket { created_ms, versioning, quota, settings, .. } = self;
        BucketInfo {
            name: name.to_owned(),
            created_ms: *created_ms,
            versioning: *versioning,
            counters,
            quota: *quota,
            settings: settings.clone(),
        }
    }
}

impl MemoryState {
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn bucket(&self, name: &str) -> Result<&MemoryBucket> {
        self.buckets.get(name).ok_or_else(|| ObjectError::no_bucket(name))
    }

    fn bucket_mut(&mut self, name: &str) -> Result<&mut MemoryBucket> {
        self.buckets.get_mut(name).ok_or_else(|| ObjectError::no_bucket(name))
    }

    fn upload(&mut self, id: &str) -> Result<&mut MemoryUpload> {
        let number = u64::from_str_radix(id, 16).unwrap_or(0);
        let found = self.uploads.get_mut(&number).filter(|upload| upload.info.id == id);
        found.ok_or_else(|| ObjectError::no_upload(id))
    }

    fn record(&mut self, bucket: &str, kind: EventKind, source: &ChangeSource, subject: &EventSubject) {
        let rules = self.buckets.get(bucket).map_or(&[][..], |found| &found.rules);
        let events = events_of(rules, bucket, kind, source, subject);
        self.outboxes.append(events);
    }

    fn apply(&mut self, change: Change, source: &ChangeSource) -> Result<Outcome> {
        match change {
            Change::CreateBucket { name, versioning, settings, now_ms } => {
                check_bucket_name(&name)?;
                if self.buckets.contains_key(&name) {
                    return refuse(ObjectErrorKind::BucketExists, "the bucket exists");
                }
                self.next();
                let keys = BTreeMap::new();
                let (created_ms, rules) = (now_ms, Vec::new());
                let bucket = MemoryBucket { created_ms, versioning, quota: None, settings, rules, keys };
                self.buckets.insert(name, bucket);
                Ok(Outcome::Done)
            }
            Change::DeleteBucket { name } => self.delete_bucket(&name),
            Change::SetBucket { bucket, name, value } => {
                set(&mut self.bucket_mut(&bucket)?.settings, name, value);
                Ok(Outcome::Done)
            }
            Change::SetEventRules { bucket, rules, name, value, now_ms } => {
                check_rules(&rules)?;
                let found = self.bucket_mut(&bucket)?;
                set(&mut found.settings, name, value);
                found.rules.clone_from(&rules);
                self.outboxes.append(tests_of(&rules, &bucket, source, now_ms));
                Ok(Outcome::Done)
            }
            Change::AcknowledgeEvents { target, through } => {
                self.outboxes.acknowledge(&target, through);
                Ok(Outcome::Done)
            }
            Change::DeleteOutbox { target } => {
                self.outboxes.delete(&target);
                Ok(Outcome::Done)
            }
            Change::SetVersioning { bucket, versioning } => {
                let bucket = self.bucket_mut(&bucket)?;
                if versioning == Versioning::Off && bucket.versioning != Versioning::Off {
                    return refuse(ObjectErrorKind::Invalid, "versioning cannot be removed");
                }
                bucket.versioning = versioning;
                Ok(Outcome::Done)
            }
            Change::SetQuota { bucket, quota } => {
                self.bucket_mut(&bucket)?.quota = quota;
                Ok(Outcome::Done)
            }
            Change::Put(put) => self.put(put, Vec::new(), source.kind_of_put(), source),
            Change::Copy(copy) => {
                check_key(&copy.key)?;
                let found = self.bucket(&copy.source.bucket)?.find(&copy.source)?;
                check_conditions(Some(state(&found.info)), &copy.source_conditions, &copy.source.key)?;
                let put = PutObject {
                    bucket: copy.bucket,
                    key: copy.key,
                    body: Body::Bytes(found.body),
                    size: Some(found.info.size),
                    lock: copy.lock,
                    etag: found.info.etag,
                    attributes: copy.attributes.unwrap_or(found.info.attributes),
                    conditions: copy.conditions,
                    now_ms: copy.now_ms,
                };
                self.put(put, found.info.parts, EventKind::Copy, source)
            }
            Change::Delete(delete) => self.delete(&delete, source),
            Change::SetAttribute { object, name, value } => {
                let bucket = self.bucket_mut(&object.bucket)?;
                let mut found = bucket.find(&object)?;
                set(&mut found.info.attributes, name, value);
                for version in bucket.keys.get_mut(&object.key).into_iter().flatten() {
                    if version.info.version == found.info.version {
                        version.info.attributes.clone_from(&found.info.attributes);
                    }
                }
                Ok(Outcome::Object(found.info))
            }
            Change::SetRetention { object, retention, bypass_governance, now_ms } => {
                let before = self.bucket(&object.bucket)?.find(&object)?.info.lock;
                check_retention(before.retention, retention, bypass_governance, now_ms, &object.key)?;
                self.set_lock(&object, ObjectLock { retention, ..before })
            }
            Change::SetLegalHold { object, legal_hold } => {
                let before = self.bucket(&object.bucket)?.find(&object)?.info.lock;
                self.set_lock(&object, ObjectLock { legal_hold, ..before })
            }
            Change::CreateUpload { bucket, key, attributes, now_ms } => {
                check_key(&key)?;
                self.bucket(&bucket)?;
                let number = self.next();
                let id = format!("{number:016x}");
                let info = UploadInfo { id: id.clone(), bucket, key, attributes, created_ms: now_ms };
                self.uploads.insert(number, MemoryUpload { info, parts: BTreeMap::new() });
                Ok(Outcome::Upload(id))
            }
            Change::PutPart(part) => {
                check_part_number(part.number)?;
                let bytes = bytes_of(part.body)?;
                let info = PartInfo {
                    number: part.number,
                    size: part.size.unwrap_or(bytes.len() as u64),
                    etag: part.etag,
                    modified_ms: part.now_ms,
                    attributes: part.attributes,
                };
                self.upload(&part.upload)?.parts.insert(part.number, (info, bytes));
                Ok(Outcome::Done)
            }
            Change::CopyPart(part) => {
                check_part_number(part.number)?;
                self.upload(&part.upload)?;
                let found = self.bucket(&part.source.bucket)?.find(&part.source)?;
                check_conditions(Some(state(&found.info)), &part.source_conditions, &part.source.key)?;
                let range = part.range.unwrap_or(0..found.body.len() as u64);
                let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
                let Some(bytes) = found.body.get(index(range.start)..index(range.end)) else {
                    return refuse(ObjectErrorKind::Invalid, "beyond the end");
                };
                let info = PartInfo {
                    number: part.number,
                    size: bytes.len() as u64,
                    etag: part.etag,
                    modified_ms: part.now_ms,
                    attributes: BTreeMap::new(),
                };
                let bytes = bytes.to_vec();
                self.upload(&part.upload)?.parts.insert(part.number, (info, bytes));
                Ok(Outcome::Done)
            }
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
                let found = self.upload(&upload)?;
                let (sizes, body) = found.join(&parts, part_bytes_min)?;
                let mut all = found.info.attributes.clone();
                all.extend(attributes);
                let (bucket, key) = (found.info.bucket.clone(), found.info.key.clone());
                let body = Body::Bytes(body);
                let size = Some(sizes.iter().sum());
                let put =
                    PutObject { bucket, key, body, size, etag, attributes: all, lock, conditions, now_ms };
                let outcome = self.put(put, sizes, EventKind::CompleteUpload, source)?;
                self.uploads.retain(|_, other| other.info.id != upload);
                Ok(outcome)
            }
            Change::AbortUpload { upload } => {
                self.upload(&upload)?;
                self.uploads.retain(|_, other| other.info.id != upload);
                Ok(Outcome::Done)
            }
        }
    }

    fn delete_bucket(&mut self, name: &str) -> Result<Outcome> {
        let is_empty = self.bucket(name)?.keys.is_empty();
        if !is_empty {
            return refuse(ObjectErrorKind::BucketNotEmpty, "the bucket is not empty");
        }
        self.buckets.remove(name);
        self.uploads.retain(|_, upload| upload.info.bucket != name);
        Ok(Outcome::Done)
    }

    fn put(
        &mut self,
        put: PutObject,
        parts: Vec<u64>,
        kind: EventKind,
        source: &ChangeSource,
    ) -> Result<Outcome> {
        check_key(&put.key)?;
        let bucket = self.bucket(&put.bucket)?;
        bucket.check(&put.key, &put.conditions)?;
        let is_null = bucket.versioning != Versioning::Enabled;
        let body = bytes_of(put.body)?;
        let size = put.size.unwrap_or(body.len() as u64);
        bucket.check_quota(&put.bucket, &put.key, size)?;
        let sequence = self.next();
        let info = ObjectInfo {
            key: put.key,
            version: if is_null { "null".into() } else { format!("{sequence:016x}") },
            is_latest: true,
            is_marker: false,
            size,
            etag: put.etag,
            modified_ms: put.now_ms,
            attributes: put.attributes,
            parts,
            lock: put.lock,
        };
        let bucket = self.bucket_mut(&put.bucket)?;
        bucket.add(MemoryVersion { info: info.clone(), body });
        let subject = EventSubject {
            key: info.key.clone(),
            version: (bucket.versioning != Versioning::Off).then(|| info.version.clone()),
            size: info.size,
            etag: info.etag.clone(),
            time_ms: info.modified_ms,
        };
        self.record(&put.bucket, kind, source, &subject);
        Ok(Outcome::Object(info))
    }

    fn delete(&mut self, delete: &DeleteObject, source: &ChangeSource) -> Result<Outcome> {
        let count = |state: &Self| -> Result<usize> {
            let bucket = state.bucket(&delete.object.bucket)?;
            Ok(bucket.keys.get(&delete.object.key).map_or(0, Vec::len))
        };
        let before = count(self)?;
        let outcome = self.delete_object(delete)?;
        let is_versioned = self.bucket(&delete.object.bucket)?.versioning != Versioning::Off;
        let Outcome::Deleted(deletion) = &outcome else { return Ok(outcome) };
        let is_new_marker = delete.object.version.is_none() && deletion.is_marker;
        if is_new_marker || count(self)? < before {
            let subject = EventSubject {
                key: delete.object.key.clone(),
                version: deletion.version.clone().filter(|_| is_versioned),
                time_ms: delete.now_ms,
                ..EventSubject::default()
            };
            let kind = source.kind_of_deletion(is_new_marker);
            self.record(&delete.object.bucket, kind, source, &subject);
        }
        Ok(outcome)
    }

    fn delete_object(&mut self, delete: &DeleteObject) -> Result<Outcome> {
        let DeleteObject { object, conditions, bypass_governance, now_ms } = delete;
        let bucket = self.bucket(&object.bucket)?;
        let versioning = bucket.versioning;
        if let Some(version) = &object.version {
            if *conditions != Conditions::default() {
                let found = bucket.version(&object.key, version);
                let found = found.ok_or_else(|| ObjectError::no_version(&object.key, version))?;
                check_conditions(Some(state(&found.info)), conditions, &object.key)?;
            }
            if let Some(found) = bucket.version(&object.key, version) {
                check_deletion(&found.info.lock, *bypass_governance, *now_ms, &object.key)?;
            }
            return self.delete_version(object, version);
        }
        bucket.check(&object.key, conditions)?;
        if versioning == Versioning::Off {
            let bucket = self.bucket_mut(&object.bucket)?;
            if bucket.current(&object.key).is_some() {
                bucket.keys.remove(&object.key);
            }
            return Ok(Outcome::Deleted(Deletion::default()));
        }
        let sequence = self.next();
        let version = match versioning {
            Versioning::Enabled => format!("{sequence:016x}"),
            _ => "null".to_owned(),
        };
        let info = ObjectInfo {
            key: object.key.clone(),
            version: version.clone(),
            is_latest: true,
            is_marker: true,
            size: 0,
            etag: String::new(),
            modified_ms: *now_ms,
            attributes: BTreeMap::new(),
            parts: Vec::new(),
            lock: ObjectLock::default(),
        };
        self.bucket_mut(&object.bucket)?.add(MemoryVersion { info, body: Vec::new() });
        Ok(Outcome::Deleted(Deletion { version: Some(version), is_marker: true }))
    }

    fn set_lock(&mut self, object: &ObjectRef, lock: ObjectLock) -> Result<Outcome> {
        let bucket = self.bucket_mut(&object.bucket)?;
        let mut found = bucket.find(object)?;
        found.info.lock = lock;
        for version in bucket.keys.get_mut(&object.key).into_iter().flatten() {
            if version.info.version == found.info.version {
                version.info.lock = lock;
            }
        }
        Ok(Outcome::Object(found.info))
    }

    fn delete_version(&mut self, object: &ObjectRef, version: &str) -> Result<Outcome> {
        let bucket = self.bucket_mut(&object.bucket)?;
        let mut is_marker = false;
        if let Some(versions) = bucket.keys.get_mut(&object.key) {
            let marker = versions.iter().find(|other| other.info.version == version);
            is_marker = marker.is_some_and(|found| found.info.is_marker);
            versions.retain(|other| other.info.version != version);
            if versions.is_empty() {
                bucket.keys.remove(&object.key);
            }
        }
        Ok(Outcome::Deleted(Deletion { version: Some(version.to_owned()), is_marker }))
    }
}

impl MemoryUpload {
    fn join(&self, parts: &[(u16, String)], part_bytes_min: u64) -> Result<(Vec<u64>, Vec<u8>)> {
        if parts.is_empty() {
            return refuse(ObjectErrorKind::InvalidPart, "no parts");
        }
        let (mut sizes, mut body, mut last) = (Vec::new(), Vec::new(), 0);
        for (number, etag) in parts {
            if *number <= last {
                return refuse(ObjectErrorKind::InvalidPartOrder, "parts out of order");
            }
            last = *number;
            let found = self.parts.get(number).filter(|(info, _)| info.etag == *etag);
            let Some((info, bytes)) = found else { return refuse(ObjectErrorKind::InvalidPart, "no part") };
            sizes.push(info.size);
            body.extend_from_slice(bytes);
        }
        let all_but_last = sizes.split_last().map_or(&[][..], |(_, rest)| rest);
        if all_but_last.iter().any(|size| *size < part_bytes_min) {
            return refuse(ObjectErrorKind::PartTooSmall, "a small part");
        }
        Ok((sizes, body))
    }
}

fn set(entries: &mut BTreeMap<String, String>, name: String, value: Option<String>) {
    match value {
        Some(value) => entries.insert(name, value),
        None => entries.remove(&name),
    };
}

fn bytes_of(body: Body) -> Result<Vec<u8>> {
    match body {
        Body::Bytes(bytes) => Ok(bytes),
        Body::Stored(_) => refuse(ObjectErrorKind::Invalid, "the body belongs to another store"),
    }
}

struct MemoryWriter(Vec<u8>);

impl BodyWriter for MemoryWriter {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Body> {
        Ok(Body::Bytes(self.0))
    }
}

struct MemoryReader(Vec<u8>);

impl BodyReader for MemoryReader {
    fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let end = start.saturating_add(length).min(self.0.len());
        Ok(Bytes::copy_from_slice(self.0.get(start..end).unwrap_or_default()))
    }
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list_where<T>(
        &self,
        query: &ListQuery,
        entries: impl Fn(&str, &[MemoryVersion]) -> Vec<T>,
    ) -> Result<ListPage<T>> {
        let state = self.lock();
        let mut page = ListPage::default();
        let mut last = String::new();
        for (key, versions) in &state.bucket(&query.bucket)?.keys {
            let begins = *key > query.after || (*key == query.after && query.after_version.is_some());
            if !key.starts_with(&query.prefix) || !begins {
                continue;
            }
            let (group, found) = match place_of(query, key) {
                KeyPlace::Group(group) if page.prefixes.last() == Some(&group) => continue,
                KeyPlace::Group(group) if !entries(key, versions).is_empty() => (Some(group), Vec::new()),
                KeyPlace::Entry => (None, entries(key, versions)),
                _ => continue,
            };
            for entry in found {
                if page.entries.len() + page.prefixes.len() >= query.limit {
                    page.next = (query.limit > 0).then_some(last);
                    return Ok(page);
                }
                key.clone_into(&mut last);
                page.entries.push(entry);
            }
            if let Some(group) = group {
                if page.entries.len() + page.prefixes.len() >= query.limit {
                    page.next = (query.limit > 0).then_some(last);
                    return Ok(page);
                }
                last.clone_from(&group);
                page.prefixes.push(group);
            }
        }
        Ok(page)
    }
}

impl ObjectStore for MemoryStore {
    fn commit_from(&self, change: Change, source: ChangeSource) -> Pending {
        let mut state = self.lock();
        state.settings_epoch += u64::from(change.is_of_bucket());
        Pending::ready(state.apply(change, &source))
    }

    fn body_writer(&self, _: u64) -> Box<dyn BodyWriter> {
        Box::new(MemoryWriter(Vec::new()))
    }

    fn settings_epoch(&self) -> u64 {
        self.lock().settings_epoch
    }

    fn buckets(&self) -> Result<Vec<BucketInfo>> {
        Ok(self.lock().buckets.iter().map(|(name, bucket)| bucket.info(name)).collect())
    }

    fn bucket(&self, name: &str) -> Result<BucketInfo> {
        Ok(self.lock().bucket(name)?.info(name))
    }

    fn object(&self, object: &ObjectRef) -> Result<ObjectInfo> {
        Ok(self.lock().bucket(&object.bucket)?.find(object)?.info)
    }

    fn open(&self, object: &ObjectRef) -> Result<(ObjectInfo, Box<dyn BodyReader>)> {
        let found = self.lock().bucket(&object.bucket)?.find(object)?;
        Ok((found.info, Box::new(MemoryReader(found.body))))
    }

    fn list(&self, query: &ListQuery) -> Result<ListPage<ObjectInfo>> {
        self.list_where(query, |_, versions| {
            let current = versions.last().filter(|version| !version.info.is_marker);
            current.map(|version| shown(&version.info, true)).into_iter().collect()
        })
    }

    fn list_versions(&self, query: &ListQuery) -> Result<ListPage<ObjectInfo>> {
        self.list_where(query, |key, versions| {
            let all = versions.iter().rev().enumerate();
            let all: Vec<_> = all.map(|(age, version)| shown(&version.info, age == 0)).collect();
            match &query.after_version {
                Some(after) if *key == query.after => {
                    all.into_iter().skip_while(|info| info.version != *after).skip(1).collect()
                }
                _ => all,
            }
        })
    }

    fn uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>> {
        let state = self.lock();
        state.bucket(bucket)?;
        let uploads = state.uploads.values().filter(|upload| upload.info.bucket == bucket);
        let mut found: Vec<_> = uploads.map(|upload| upload.info.clone()).collect();
        found.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        Ok(found)
    }

    fn upload(&self, upload: &str) -> Result<UploadInfo> {
        Ok(self.lock().upload(upload)?.info.clone())
    }

    fn parts(&self, upload: &str, after: u16, limit: usize) -> Result<Vec<PartInfo>> {
        let mut state = self.lock();
        let parts = state.upload(upload)?.parts.values().map(|(info, _)| info.clone());
        Ok(parts.filter(|part| part.number > after).take(limit).collect())
    }

    fn event_rules(&self, bucket: &str) -> Result<Vec<EventRule>> {
        Ok(self.lock().bucket(bucket)?.rules.clone())
    }

    fn outboxes(&self) -> Result<Vec<OutboxInfo>> {
        Ok(self.lock().outboxes.infos())
    }

    fn events(&self, target: &str, limit: usize) -> Result<Vec<ObjectEvent>> {
        Ok(self.lock().outboxes.events(target, limit))
    }
}

/// An entry of a listing, which has no attributes.
fn shown(info: &ObjectInfo, is_latest: bool) -> ObjectInfo {
    let lock = ObjectLock::default();
    ObjectInfo { is_latest, attributes: BTreeMap::new(), parts: Vec::new(), lock, ..info.clone() }
}
