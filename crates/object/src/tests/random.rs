//! Random changes and queries over few names, so that they meet.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::{
    Body, Change, ChangeOrigin, ChangeSource, Conditions, CopyObject, CopyPart, DeleteObject, EventKind,
    EventRule, ListQuery, ObjectLock, ObjectRef, ObjectStore, PutObject, PutPart, Retention, RetentionMode,
    Versioning,
};

const BUCKETS: [&str; 3] = ["bucket-a", "bucket-b", "bucket-c"];
const KEYS: [&str; 12] =
    ["a", "a/1", "a/2", "a/b/1", "a/b/2", "a0", "b", "b/ü", "c//", "c//d", "photos/2026/x", "z"];

pub(super) struct Random {
    pub(super) numbers: SmallRng,
    /// Uploads and versions that were created, for later changes.
    pub(super) uploads: Vec<String>,
    pub(super) versions: Vec<String>,
    pub(super) now_ms: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let numbers = SmallRng::seed_from_u64(seed);
        Self { numbers, uploads: Vec::new(), versions: vec!["null".into()], now_ms: 1 }
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.numbers.random_range(0..list.len())]
    }

    fn bucket(&mut self) -> String {
        let at = self.numbers.random_range(0..20_usize).saturating_sub(16).min(2);
        BUCKETS[at].into()
    }

    fn key(&mut self) -> String {
        self.of(&KEYS).into()
    }

    fn recent(&mut self, list: impl Fn(&Self) -> &Vec<String>) -> Option<String> {
        let length = list(self).len();
        let back = self.numbers.random_range(1..10);
        (length > 0).then(|| list(self)[length.saturating_sub(back)].clone())
    }

    pub(super) fn object(&mut self) -> ObjectRef {
        let version =
            if self.numbers.random_bool(0.3) { self.recent(|random| &random.versions) } else { None };
        ObjectRef { bucket: self.bucket(), key: self.key(), version }
    }

    pub(super) fn source(&mut self) -> ChangeSource {
        let origins =
            [ChangeOrigin::Request, ChangeOrigin::Form, ChangeOrigin::Copy, ChangeOrigin::Lifecycle];
        let origin = origins[self.numbers.random_range(0..4)];
        let principal = self.of(&["anna", "ben"]).into();
        ChangeSource { origin, principal, address: "192.0.2.1".into() }
    }

    fn event_rule(&mut self) -> EventRule {
        let all = [
            EventKind::Put,
            EventKind::Post,
            EventKind::Copy,
            EventKind::CompleteUpload,
            EventKind::Delete,
            EventKind::DeleteMarker,
            EventKind::ExpireDelete,
            EventKind::ExpireDeleteMarker,
        ];
        EventRule {
            id: self.etag(),
            target: self.of(&["first", "second", "second2"]).into(),
            owner: "me".into(),
            kinds: all.into_iter().filter(|_| self.numbers.random_bool(0.7)).collect(),
            prefix: self.of(&["", "", "a", "b"]).into(),
            suffix: self.of(&["", "", "1"]).into(),
        }
    }

    /// A change of rules or outboxes.
    fn event_change(&mut self) -> Change {
        let target: String = self.of(&["first", "second", "second2"]).into();
        match self.numbers.random_range(0..10) {
            0..4 => {
                let rules: Vec<_> = (0..self.numbers.random_range(0..4)).map(|_| self.event_rule()).collect();
                let value = (!rules.is_empty()).then(|| format!("{} rules", rules.len()));
                let (name, now_ms) = ("notification".into(), self.now_ms);
                Change::SetEventRules { bucket: self.bucket(), rules, name, value, now_ms }
            }
            4..9 => Change::AcknowledgeEvents { target, through: self.numbers.random_range(0..300) },
            _ => Change::DeleteOutbox { target },
        }
    }

    fn etag(&mut self) -> String {
        format!("etag{}", self.numbers.random_range(0..3))
    }

    fn conditions(&mut self) -> Conditions {
        let mut conditions = Conditions::default();
        if self.numbers.random_bool(0.1) {
            conditions.if_match = Some(if self.numbers.random_bool(0.5) { "*".into() } else { self.etag() });
        }
        if self.numbers.random_bool(0.1) {
            conditions.if_none_match =
                Some(if self.numbers.random_bool(0.5) { "*".into() } else { self.etag() });
        }
        if self.numbers.random_bool(0.02) {
            conditions.if_match_size = Some(77);
        }
        if self.numbers.random_bool(0.02) {
            conditions.if_match_second = Some(self.numbers.random_range(0..2));
        }
        conditions
    }

    fn retention(&mut self) -> Option<Retention> {
        let modes = [RetentionMode::Governance, RetentionMode::Compliance];
        let (mode, until_ms) =
            (modes[self.numbers.random_range(0..2)], self.now_ms + self.numbers.random_range(0..30));
        self.numbers.random_bool(0.5).then_some(Retention { mode, until_ms })
    }

    fn lock(&mut self) -> ObjectLock {
        let retention = if self.numbers.random_bool(0.1) { self.retention() } else { None };
        ObjectLock { retention, legal_hold: self.numbers.random_bool(0.02) }
    }

    fn body(&mut self) -> Body {
        let length = match self.numbers.random_range(0..10) {
            0 => 0,
            1..4 => self.numbers.random_range(1..1500),
            4..9 => self.numbers.random_range(1000..20_000),
            _ => self.numbers.random_range(100_000..300_000),
        };
        let mut bytes = vec![0; length];
        self.numbers.fill(bytes.as_mut_slice());
        Body::Bytes(bytes)
    }

    fn attributes(&mut self) -> BTreeMap<String, String> {
        let value = self.numbers.random_range(0..100).to_string();
        BTreeMap::from([("x-amz-meta-number".to_owned(), value)])
    }

    pub(super) fn change(&mut self) -> Change {
        self.now_ms += 1;
        let now_ms = self.now_ms;
        let upload = self.recent(|random| &random.uploads).unwrap_or_else(|| "0".into());
        match self.numbers.random_range(0..108) {
            100.. => self.event_change(),
            0..4 => {
                let settings = BTreeMap::from([("owner".to_owned(), "me".to_owned())]);
                let versioning =
                    if self.numbers.random_bool(0.8) { Versioning::Off } else { Versioning::Enabled };
                Change::CreateBucket { name: self.bucket(), versioning, settings, now_ms }
            }
            4 => Change::DeleteBucket { name: self.bucket() },
            5 => {
                let value = self.numbers.random_bool(0.7).then(|| "value".to_owned());
                Change::SetBucket { bucket: self.bucket(), name: "policy".into(), value }
            }
            6 => {
                let all = [Versioning::Off, Versioning::Enabled, Versioning::Suspended];
                let versioning = all[self.numbers.random_range(0..3)];
                Change::SetVersioning { bucket: self.bucket(), versioning }
            }
            7 => {
                let quota = self.numbers.random_range(10_000..400_000);
                let quota = self.numbers.random_bool(0.4).then_some(quota);
                Change::SetQuota { bucket: self.bucket(), quota }
            }
            8..11 => {
                let retention = self.retention();
                let bypass_governance = self.numbers.random_bool(0.3);
                Change::SetRetention { object: self.object(), retention, bypass_governance, now_ms }
            }
            11 => {
                let legal_hold = self.numbers.random_bool(0.4);
                Change::SetLegalHold { object: self.object(), legal_hold }
            }
            12..40 => Change::Put(PutObject {
                bucket: self.bucket(),
                key: self.key(),
                body: self.body(),
                size: self.numbers.random_bool(0.1).then_some(77),
                lock: self.lock(),
                etag: self.etag(),
                attributes: self.attributes(),
                conditions: self.conditions(),
                now_ms,
            }),
            40..48 => Change::Copy(CopyObject {
                source: self.object(),
                source_conditions: self.conditions(),
                bucket: self.bucket(),
                key: self.key(),
                attributes: None,
                lock: self.lock(),
                conditions: self.conditions(),
                now_ms,
            }),
            48..70 => {
                let bypass_governance = self.numbers.random_bool(0.3);
                Change::Delete(DeleteObject {
                    object: self.object(),
                    conditions: self.conditions(),
                    bypass_governance,
                    now_ms,
                })
            }
            70..74 => {
                let value = self.numbers.random_bool(0.7).then(|| "tag".to_owned());
                Change::SetAttribute { object: self.object(), name: "tags".into(), value }
            }
            74..79 => Change::CreateUpload {
                bucket: self.bucket(),
                key: self.key(),
                attributes: self.attributes(),
                now_ms,
            },
            79..88 => Change::PutPart(PutPart {
                upload,
                number: self.numbers.random_range(0..5),
                body: self.body(),
                size: self.numbers.random_bool(0.1).then_some(77),
                etag: self.etag(),
                attributes: BTreeMap::new(),
                now_ms,
            }),
            88..92 => {
                let start = self.numbers.random_range(0..2000);
                let range = self.numbers.random_bool(0.5).then(|| start..start + 1000);
                Change::CopyPart(CopyPart {
                    source: self.object(),
                    source_conditions: Conditions::default(),
                    range,
                    upload,
                    number: self.numbers.random_range(1..5),
                    etag: self.etag(),
                    now_ms,
                })
            }
            92..98 => Change::CompleteUpload {
                upload,
                parts: self.parts(),
                etag: self.etag(),
                attributes: self.attributes(),
                lock: self.lock(),
                part_bytes_min: self.numbers.random_range(0..2000),
                conditions: self.conditions(),
                now_ms,
            },
            _ => Change::AbortUpload { upload },
        }
    }

    fn parts(&mut self) -> Vec<(u16, String)> {
        let count = self.numbers.random_range(0..3);
        (0..count).map(|_| (self.numbers.random_range(1..5), self.etag())).collect()
    }

    pub(super) fn query(&mut self) -> ListQuery {
        let after_version =
            if self.numbers.random_bool(0.2) { self.recent(|random| &random.versions) } else { None };
        ListQuery {
            bucket: self.bucket(),
            prefix: self.of(&["", "", "a", "a/", "b/", "c/", "photos/2026/"]).into(),
            delimiter: self.of(&["", "/", "//", "b"]).into(),
            after: self.of(&["", "", "a", "a/", "a/1", "b", "photos/"]).into(),
            after_version,
            limit: self.numbers.random_range(0..8),
        }
    }
}

/// Returns a copy of a change with bodies in memory.
pub(super) fn copy_of(change: &Change) -> Change {
    let body = |body: &Body| match body {
        Body::Bytes(bytes) => Body::Bytes(bytes.clone()),
        Body::Stored(_) => panic!("a stored body"),
    };
    match change {
        Change::CreateBucket { name, versioning, settings, now_ms } => Change::CreateBucket {
            name: name.clone(),
            versioning: *versioning,
            settings: settings.clone(),
            now_ms: *now_ms,
        },
        Change::SetQuota { bucket, quota } => Change::SetQuota { bucket: bucket.clone(), quota: *quota },
        Change::SetRetention { object, retention, bypass_governance, now_ms } => Change::SetRetention {
            object: object.clone(),
            retention: *retention,
            bypass_governance: *bypass_governance,
            now_ms: *now_ms,
        },
        Change::SetLegalHold { object, legal_hold } => {
            Change::SetLegalHold { object: object.clone(), legal_hold: *legal_hold }
        }
        Change::DeleteBucket { name } => Change::DeleteBucket { name: name.clone() },
        Change::SetBucket { bucket, name, value } => {
            Change::SetBucket { bucket: bucket.clone(), name: name.clone(), value: value.clone() }
        }
        Change::SetEventRules { bucket, rules, name, value, now_ms } => Change::SetEventRules {
            bucket: bucket.clone(),
            rules: rules.clone(),
            name: name.clone(),
            value: value.clone(),
            now_ms: *now_ms,
        },
        Change::AcknowledgeEvents { target, through } => {
            Change::AcknowledgeEvents { target: target.clone(), through: *through }
        }
        Change::DeleteOutbox { target } => Change::DeleteOutbox { target: target.clone() },
        Change::SetVersioning { bucket, versioning } => {
            Change::SetVersioning { bucket: bucket.clone(), versioning: *versioning }
        }
        Change::Put(put) => Change::Put(PutObject {
            bucket: put.bucket.clone(),
            key: put.key.clone(),
            body: body(&put.body),
            size: put.size,
            lock: put.lock,
            etag: put.etag.clone(),
            attributes: put.attributes.clone(),
            conditions: put.conditions.clone(),
            now_ms: put.now_ms,
        }),
        Change::Copy(copy) => Change::Copy(copy.clone()),
        Change::Delete(delete) => Change::Delete(delete.clone()),
        Change::SetAttribute { object, name, value } => {
            Change::SetAttribute { object: object.clone(), name: name.clone(), value: value.clone() }
        }
        Change::CreateUpload { bucket, key, attributes, now_ms } => Change::CreateUpload {
            bucket: bucket.clone(),
            key: key.clone(),
            attributes: attributes.clone(),
            now_ms: *now_ms,
        },
        Change::PutPart(part) => Change::PutPart(PutPart {
            upload: part.upload.clone(),
            number: part.number,
            body: body(&part.body),
            size: part.size,
            etag: part.etag.clone(),
            attributes: part.attributes.clone(),
            now_ms: part.now_ms,
        }),
        Change::CopyPart(part) => Change::CopyPart(part.clone()),
        Change::CompleteUpload {
            upload,
            parts,
            etag,
            attributes,
            lock,
            part_bytes_min,
            conditions,
            now_ms,
        } => Change::CompleteUpload {
            upload: upload.clone(),
            parts: parts.clone(),
            etag: etag.clone(),
            attributes: attributes.clone(),
            lock: *lock,
            part_bytes_min: *part_bytes_min,
            conditions: conditions.clone(),
            now_ms: *now_ms,
        },
        Change::AbortUpload { upload } => Change::AbortUpload { upload: upload.clone() },
    }
}

/// Stores large bodies while they arrive, as protocols do.
pub(super) fn stream_body(store: &dyn ObjectStore, change: &mut Change) -> crate::Result<()> {
    let (Change::Put(PutObject { body, .. }) | Change::PutPart(PutPart { body, .. })) = change else {
        return Ok(());
    };
    if let Body::Bytes(bytes) = &*body
        && bytes.len() > 100_000
    {
        let mut writer = store.body_writer(bytes.len() as u64 / 2);
        for piece in bytes.chunks(64 << 10) {
            writer.write(piece)?;
        }
        *body = writer.finish()?;
    }
    Ok(())
}
