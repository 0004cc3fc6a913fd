//! Events: records of changes of objects, which wait in the outbox of a target until a receiver has
//! them.
//!
//! Always true: an event is stored in the commit of its change; an outbox holds a bounded number of
//! events, and counts those that found it full; the events of an outbox are removed in order. Must
//! not know: names of events in protocols, receivers.

use serde::{Deserialize, Serialize};

use crate::error::{ObjectError, ObjectErrorKind, Result};

/// The largest number of rules of a bucket, as in S3.
const RULES_MAX: usize = 100;
/// The default of [`crate::StoreOptions::outbox_max`].
pub(crate) const OUTBOX_MAX: u64 = 100_000;
/// The longest name of a target in bytes.
const TARGET_MAX: usize = 64;

/// The kind of a change for rules and receivers. The index stores its place in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// The rules of a bucket name the target: no object has changed.
    Test,
    /// A request has stored an object.
    Put,
    /// A form has stored an object.
    Post,
    /// A request has copied an object.
    Copy,
    /// An object was made of the parts of an upload.
    CompleteUpload,
    /// An object or version was deleted.
    Delete,
    /// A delete marker was added.
    DeleteMarker,
    /// A lifecycle rule has deleted an object or version.
    ExpireDelete,
    /// A lifecycle rule has added a delete marker.
    ExpireDeleteMarker,
}

/// A rule of a bucket: the changes that a target receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRule {
    /// The name of the rule.
    pub id: String,
    /// The name of the target.
    pub target: String,
    /// The owner of the bucket.
    pub owner: String,
    /// The kinds of changes.
    pub kinds: Vec<EventKind>,
    /// Only keys that start with this.
    pub prefix: String,
    /// Only keys that end with this.
    pub suffix: String,
}

impl EventRule {
    fn covers(&self, kind: EventKind, key: &str) -> bool {
        self.kinds.contains(&kind) && key.starts_with(&self.prefix) && key.ends_with(&self.suffix)
    }
}

/// The request behind a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeOrigin {
    /// A request for the change itself.
    #[default]
    Request,
    /// A form.
    Form,
    /// A request for a copy whose body is stored again.
    Copy,
    /// A lifecycle rule.
    Lifecycle,
}

/// The sender of a change, for its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSource {
    /// The request.
    pub origin: ChangeOrigin,
    /// The user.
    pub principal: String,
    /// The address of the client.
    pub address: String,
}

impl ChangeSource {
    /// The kind of a put.
    pub(crate) fn kind_of_put(&self) -> EventKind {
        match self.origin {
            ChangeOrigin::Form => EventKind::Post,
            ChangeOrigin::Copy => EventKind::Copy,
            ChangeOrigin::Request | ChangeOrigin::Lifecycle => EventKind::Put,
        }
    }

    /// The kind of a deletion.
    pub(crate) fn kind_of_deletion(&self, is_new_marker: bool) -> EventKind {
        match (self.origin == ChangeOrigin::Lifecycle, is_new_marker) {
            (false, false) => EventKind::Delete,
            (false, true) => EventKind::DeleteMarker,
            (true, false) => EventKind::ExpireDelete,
            (true, true) => EventKind::ExpireDeleteMarker,
        }
    }
}

/// A change of an object, for a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEvent {
    /// The number: later events of the store have larger ones.
    pub number: u64,
    /// The kind.
    pub kind: EventKind,
    /// The name of the rule.
    pub rule: String,
    /// The bucket.
    pub bucket: String,
    /// The owner of the bucket.
    pub owner: String,
    /// The key; empty for a test.
    pub key: String,
    /// The version that was stored, added or deleted, in a bucket with versions.
    pub version: Option<String>,
    /// The size of a stored object in bytes.
    pub size: u64,
    /// The ETag of a stored object, without quotes.
    pub etag: String,
    /// The time of the change in milliseconds since 1970.
    pub time_ms: u64,
    /// The user.
    pub principal: String,
    /// The address of the client.
    pub address: String,
}

impl ObjectEvent {
    /// The event of a rule for a change, without a number.
    pub(crate) fn of_rule(rule: &EventRule, bucket: &str, kind: EventKind, source: &ChangeSource) -> Self {
        Self {
            number: 0,
            kind,
            rule: rule.id.clone(),
            bucket: bucket.to_owned(),
            owner: rule.owner.clone(),
            key: String::new(),
            version: None,
            size: 0,
            etag: String::new(),
            time_ms: 0,
            principal: source.principal.clone(),
            address: source.address.clone(),
        }
    }
}

/// The object of a change, for its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSubject {
    pub(crate) key: String,
    pub(crate) version: Option<String>,
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) time_ms: u64,
}

/// The events of a target that wait for its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxInfo {
    /// The name of the target.
    pub target: String,
    /// The number of events that wait.
    pub pending: u64,
    /// The number of events that found the outbox full and were not stored.
    pub dropped: u64,
}

/// Returns the events of a change: at most one for each target, by its first rule that covers the
/// change.
pub(crate) fn events_of(
    rules: &[EventRule],
    bucket: &str,
    kind: EventKind,
    source: &ChangeSource,
    subject: &EventSubject,
) -> Vec<(String, ObjectEvent)> {
    let mut events: Vec<(String, ObjectEvent)> = Vec::new();
    for rule in rules.iter().filter(|rule| rule.covers(kind, &subject.key)) {
        if events.iter().any(|(target, _)| *target == rule.target) {
            continue;
        }
        let EventSubject { key, version, size, etag, time_ms } = subject.clone();
        let event = ObjectEvent::of_rule(rule, bucket, kind, source);
        events.push((rule.target.clone(), ObjectEvent { key, version, size, etag, time_ms, ..event }));
    }
    events
}

/// Returns a test for each target of new rules.
pub(crate) fn tests_of(
    rules: &[EventRule],
    bucket: &str,
    source: &ChangeSource,
    time_ms: u64,
) -> Vec<(String, ObjectEvent)> {
    let mut events: Vec<(String, ObjectEvent)> = Vec::new();
    for rule in rules {
        if !events.iter().any(|(target, _)| *target == rule.target) {
            let event = ObjectEvent::of_rule(rule, bucket, EventKind::Test, source);
            events.push((rule.target.clone(), ObjectEvent { time_ms, ..event }));
        }
    }
    events
}

/// Checks the rules of a bucket.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_rules(rules: &[EventRule]) -> Result<()> {
    if rules.len() > RULES_MAX {
        let message =
            format!("{} rules for events are given, and at most {RULES_MAX} are possible", rules.len());
        return Err(ObjectError::new(ObjectErrorKind::Invalid, message));
    }
    rules.iter().try_for_each(|rule| check_target(&rule.target))
}

/// Checks the name of a target.
///
/// # Errors
/// `Invalid`.
fn check_target(name: &str) -> Result<()> {
    if (1..=TARGET_MAX).contains(&name.len()) && !name.contains('\0') {
        return Ok(());
    }
    let message = format!("the name of a target has 1 to {TARGET_MAX} bytes, and no zero byte");
    Err(ObjectError::new(ObjectErrorKind::Invalid, message))
}
