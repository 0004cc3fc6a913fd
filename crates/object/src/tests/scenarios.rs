//! The histories that the crash tests cut: each kind of change alone, and changes that depend on
//! each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::audit::describe;
use super::cut_device::SIZE;
use super::random::copy_of;
use super::readers::{create, put};
use super::same_results::{options, oracle};
use crate::{
    Body, Change, Conditions, CopyObject, CopyPart, DeleteObject, EventKind, EventRule, MemoryBlocks,
    MemoryStore, ObjectLock, ObjectRef, ObjectStore, Outcome, PutObject, PutPart, Retention, RetentionMode,
    Versioning, VolumeStore,
};

pub(super) fn object(bucket: &str, key: &str) -> ObjectRef {
    ObjectRef { bucket: bucket.into(), key: key.into(), version: None }
}

fn delete(bucket: &str, key: &str, version: Option<String>) -> Change {
    let object = ObjectRef { version, ..object(bucket, key) };
    let conditions = Conditions::default();
    Change::Delete(DeleteObject { object, conditions, bypass_governance: false, now_ms: 1 })
}

/// A deletion as lifecycle rules do it: only of the version that they have read.
fn expire(bucket: &str, key: &str, version: Option<String>, etag: &str) -> Change {
    let object = ObjectRef { version, ..object(bucket, key) };
    let conditions =
        Conditions { if_match: Some(etag.into()), if_match_second: Some(0), ..Conditions::default() };
    Change::Delete(DeleteObject { object, conditions, bypass_governance: false, now_ms: 1 })
}

pub(super) fn part(upload: &str, number: u16, body: Vec<u8>) -> Change {
    Change::PutPart(PutPart {
        upload: upload.into(),
        number,
        body: Body::Bytes(body),
        size: None,
        etag: format!("part{number}"),
        attributes: BTreeMap::new(),
        now_ms: 1,
    })
}

pub(super) fn copy(source: ObjectRef, bucket: &str, key: &str) -> Change {
    Change::Copy(CopyObject {
        source,
        source_conditions: Conditions::default(),
        bucket: bucket.into(),
        key: key.into(),
        attributes: None,
        lock: ObjectLock::default(),
        conditions: Conditions::default(),
        now_ms: 1,
    })
}

pub(super) fn copy_part(source: ObjectRef, range: std::ops::Range<u64>, upload: &str, number: u16) -> Change {
    Change::CopyPart(CopyPart {
        source,
        source_conditions: Conditions::default(),
        range: Some(range),
        upload: upload.into(),
        number,
        etag: format!("part{number}"),
        now_ms: 1,
    })
}

pub(super) fn create_upload(bucket: &str, key: &str) -> Change {
    Change::CreateUpload { bucket: bucket.into(), key: key.into(), attributes: BTreeMap::new(), now_ms: 1 }
}

pub(super) fn complete(upload: &str, numbers: &[u16]) -> Change {
    Change::CompleteUpload {
        upload: upload.into(),
        parts: numbers.iter().map(|number| (*number, format!("part{number}"))).collect(),
        etag: "complete".into(),
        attributes: BTreeMap::new(),
        lock: ObjectLock::default(),
        part_bytes_min: 1,
        conditions: Conditions::default(),
        now_ms: 1,
    }
}

/// Sets rules for all changes of a bucket, for one target or two.
fn watch(bucket: &str, targets: &[&str]) -> Change {
    let kinds = vec![
        EventKind::Put,
        EventKind::Copy,
        EventKind::CompleteUpload,
        EventKind::Delete,
        EventKind::DeleteMarker,
    ];
    let rule = |target: &&str| EventRule {
        id: "all".into(),
        target: (*target).into(),
        owner: "me".into(),
        kinds: kinds.clone(),
        prefix: String::new(),
        suffix: String::new(),
    };
    let rules = targets.iter().map(rule).collect();
    let (name, value) = ("notification".into(), Some(format!("{targets:?}")));
    Change::SetEventRules { bucket: bucket.into(), rules, name, value, now_ms: 1 }
}

fn version_of(outcome: Outcome) -> String {
    match outcome {
        Outcome::Object(info) => info.version,
        Outcome::Deleted(deletion) => deletion.version.unwrap(),
        Outcome::Upload(id) => id,
        Outcome::Done => panic!("a change without a version"),
    }
}

/// Makes the state before most scenarios. Returns an upload with two parts, and an old version.
pub(super) fn prepare(store: &dyn ObjectStore) -> (String, String) {
    let done = |change| store.commit(change).wait().unwrap();
    done(create("plain"));
    done(create("versioned"));
    done(create("empty"));
    done(Change::SetVersioning { bucket: "versioned".into(), versioning: Versioning::Enabled });
    done(put("plain", "inline", &[1; 100]));
    done(put("plain", "body", &[2; 50_000]));
    let first = version_of(done(put("versioned", "key", &[3; 20_000])));
    done(put("versioned", "key", &[4; 30_000]));
    let upload = version_of(done(create_upload("plain", "upload")));
    done(part(&upload, 1, vec![3; 9000]));
    done(part(&upload, 2, vec![5; 70_000]));
    (upload, first)
}

/// A history of changes on a volume, and all that callers see after each of them.
pub(super) struct Scenario {
    pub(super) name: String,
    /// The volume before the first change.
    pub(super) base: MemoryBlocks,
    pub(super) changes: Vec<Change>,
    /// The states before the first change, and after each one.
    pub(super) states: Vec<String>,
}

/// The text of a state.
pub(super) fn state_text(store: &dyn ObjectStore, sequence: u64) -> String {
    format!("{}newest number {sequence}\n", describe(store))
}

/// Records a scenario while the store in memory runs it.
struct Recorder {
    oracle: MemoryStore,
    scenario: Scenario,
    upload: String,
    version: String,
}

impl Recorder {
    fn new(name: &str, is_prepared: bool) -> Self {
        let volume = Arc::new(MemoryBlocks::new(SIZE));
        let oracle = oracle();
        let (mut upload, mut version) = (String::new(), String::new());
        if is_prepared {
            (upload, version) = prepare(&VolumeStore::open(volume.clone(), options()).unwrap());
            assert_eq!(prepare(&oracle), (upload.clone(), version.clone()));
        }
        let states = vec![state_text(&oracle, oracle.last_sequence())];
        let scenario = Scenario { name: name.into(), base: volume.copy(), changes: Vec::new(), states };
        Self { oracle, scenario, upload, version }
    }

    /// Applies a change that has an effect. Returns the version or upload that it names.
    fn apply(&mut self, change: Change) -> Outcome {
        let outcome = self.oracle.commit(copy_of(&change)).wait().unwrap();
        let state = state_text(&self.oracle, self.oracle.last_sequence());
        assert_ne!(Some(&state), self.scenario.states.last(), "a change without an effect shows nothing");
        self.scenario.states.push(state);
        self.scenario.changes.push(change);
        outcome
    }
}

/// Each kind of change alone.
fn single_changes(upload: &str, version: &str) -> Vec<Change> {
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms: 5 });
    let (bypass_governance, now_ms) = (false, 1);
    vec![
        create("new"),
        Change::DeleteBucket { name: "empty".into() },
        Change::SetBucket { bucket: "plain".into(), name: "policy".into(), value: Some("{}".into()) },
        Change::SetQuota { bucket: "plain".into(), quota: Some(1 << 30) },
        Change::SetVersioning { bucket: "plain".into(), versioning: Versioning::Enabled },
        put("plain", "new", &[5; 100]),
        put("plain", "new", &[5; 40_000]),
        put("plain", "streamed", &vec![6; 300_000]),
        put("plain", "body", &[7; 60_000]),
        put("versioned", "key", &[8; 5000]),
        copy(object("plain", "body"), "versioned", "copy"),
        delete("plain", "body", None),
        delete("versioned", "key", None),
        delete("versioned", "key", Some(version.into())),
        expire("versioned", "key", Some(version.into()), "4e20"),
        Change::SetAttribute {
            object: object("plain", "body"),
            name: "tags".into(),
            value: Some("a=b".into()),
        },
        Change::SetRetention { object: object("plain", "body"), retention, bypass_governance, now_ms },
        Change::SetLegalHold { object: object("plain", "inline"), legal_hold: true },
        create_upload("plain", "other"),
        part(upload, 2, vec![9; 20_000]),
        copy_part(object("plain", "body"), 100..9000, upload, 3),
        complete(upload, &[1, 2]),
        Change::AbortUpload { upload: upload.into() },
        watch("plain", &["target"]),
    ]
}

/// Scenarios of one change each.
pub(super) fn singles() -> Vec<Scenario> {
    let count = single_changes("", "").len();
    let single = |index| {
        let mut recorder = Recorder::new("", true);
        let change = single_changes(&recorder.upload, &recorder.version).swap_remove(index);
        recorder.scenario.name = format!("{change:?}").chars().take(80).collect();
        recorder.apply(change);
        recorder.scenario
    };
    (0..count).map(single).collect()
}

/// Records one history.
type Script = (&'static str, bool, fn(&mut Recorder));

/// Scenarios of several changes.
pub(super) fn histories() -> Vec<Scenario> {
    let scripts: [Script; 9] = [
        ("a store on an empty volume", false, first_objects),
        ("copies of copies", true, |recorder| {
            recorder.apply(copy(object("plain", "body"), "versioned", "copy"));
            recorder.apply(copy(object("versioned", "copy"), "plain", "again"));
            recorder.apply(put("plain", "body", &[7; 60_000]));
            recorder.apply(delete("plain", "again", None));
            recorder.apply(delete("versioned", "copy", None));
        }),
        ("an upload with copied parts", true, |recorder| {
            let upload = recorder.upload.clone();
            recorder.apply(copy_part(object("plain", "body"), 100..30_000, &upload, 3));
            recorder.apply(copy_part(object("plain", "body"), 8192..50_000, &upload, 4));
            recorder.apply(delete("plain", "body", None));
            recorder.apply(complete(&upload, &[2, 3, 4]));
            recorder.apply(delete("plain", "upload", None));
        }),
        ("an upload of many parts", true, |recorder| {
            let upload = version_of(recorder.apply(create_upload("versioned", "many")));
            (1..=12).for_each(|number| {
                recorder.apply(part(&upload, number, vec![3; 3000 * usize::from(number)]));
            });
            recorder.apply(complete(&upload, &[1, 3, 5, 7, 9, 11, 12]));
        }),
        ("expiration", true, |recorder| {
            let marker = version_of(recorder.apply(expire("versioned", "key", None, "7530")));
            let versions = recorder.version.clone();
            recorder.apply(expire("versioned", "key", Some(versions), "4e20"));
            recorder.apply(delete("versioned", "key", Some(marker)));
            recorder.apply(expire("plain", "body", None, "c350"));
            let upload = recorder.upload.clone();
            recorder.apply(Change::AbortUpload { upload });
        }),
        ("suspended versions", true, |recorder| {
            let bucket = || "versioned".to_owned();
            recorder.apply(Change::SetVersioning { bucket: bucket(), versioning: Versioning::Suspended });
            recorder.apply(put("versioned", "key", &[6; 8000]));
            recorder.apply(put("versioned", "key", &[7; 9000]));
            recorder.apply(delete("versioned", "key", None));
            recorder.apply(Change::SetVersioning { bucket: bucket(), versioning: Versioning::Enabled });
            recorder.apply(put("versioned", "key", &[8; 300]));
            recorder.apply(delete("versioned", "key", Some("null".into())));
        }),
        ("events", true, events),
        ("growth of the index", true, growth),
        ("the end of a bucket", true, |recorder| {
            recorder.apply(delete("plain", "inline", None));
            recorder.apply(delete("plain", "body", None));
            recorder.apply(Change::DeleteBucket { name: "plain".into() });
            recorder.apply(create("plain"));
        }),
    ];
    let record = |(name, is_prepared, script): Script| {
        let mut recorder = Recorder::new(name, is_prepared);
        script(&mut recorder);
        recorder.scenario
    };
    scripts.into_iter().map(record).collect()
}

fn first_objects(recorder: &mut Recorder) {
    recorder.apply(create("plain"));
    recorder.apply(put("plain", "inline", &[1; 100]));
    recorder.apply(put("plain", "body", &[2; 50_000]));
    recorder.apply(delete("plain", "body", None));
}

/// Changes with events for two targets, whose outboxes become full and empty.
fn events(recorder: &mut Recorder) {
    let upload = recorder.upload.clone();
    recorder.apply(watch("plain", &["first", "second"]));
    recorder.apply(watch("versioned", &["second"]));
    recorder.apply(put("plain", "new", &[5; 100]));
    recorder.apply(put("plain", "body", &[5; 40_000]));
    recorder.apply(copy(object("plain", "body"), "versioned", "copy"));
    recorder.apply(Change::AcknowledgeEvents { target: "first".into(), through: 5 });
    recorder.apply(complete(&upload, &[1, 2]));
    recorder.apply(delete("versioned", "copy", None));
    recorder.apply(delete("plain", "body", None));
    recorder.apply(Change::AcknowledgeEvents { target: "second".into(), through: 9 });
    recorder.apply(delete("plain", "upload", None));
    recorder.apply(watch("plain", &[]));
    recorder.apply(delete("plain", "new", None));
    recorder.apply(Change::DeleteOutbox { target: "first".into() });
}

/// The large attributes of a few objects make the database grow, and shrink again.
fn growth(recorder: &mut Recorder) {
    for number in 0..6 {
        let Change::Put(before) = put("plain", &format!("large{number}"), &[1; 900]) else { return };
        let attributes = BTreeMap::from([("large".to_owned(), "x".repeat(500_000))]);
        recorder.apply(Change::Put(PutObject { attributes, ..before }));
    }
    for number in 0..6 {
        recorder.apply(delete("plain", &format!("large{number}"), None));
    }
}
