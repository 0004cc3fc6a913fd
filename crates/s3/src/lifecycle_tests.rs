//! Tests of lifecycle rules on a store in memory.

use std::collections::BTreeMap;

use object::{Body, MemoryStore, ObjectLock, PutObject};

use super::*;
use crate::settings::LIFECYCLE;

const DAY: Duration = Duration::from_secs(100);

fn rule(id: &str, prefix: &str) -> LifecycleRule {
    LifecycleRule {
        abort_incomplete_multipart_upload: None,
        expiration: None,
        filter: Some(dto::LifecycleRuleFilter { prefix: Some(prefix.into()), ..Default::default() }),
        id: Some(id.into()),
        noncurrent_version_expiration: None,
        noncurrent_version_transitions: None,
        prefix: None,
        status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
        transitions: None,
    }
}

fn days(days: i32) -> Option<dto::LifecycleExpiration> {
    Some(dto::LifecycleExpiration { days: Some(days), ..Default::default() })
}

fn store(versioning: Versioning, rules: Vec<LifecycleRule>) -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(MemoryStore::default());
    let config = check(dto::BucketLifecycleConfiguration { rules }).unwrap();
    let settings = BTreeMap::from([(LIFECYCLE.to_owned(), serde_json::to_string(&config).unwrap())]);
    store
        .commit(Change::CreateBucket { name: "bucket".into(), versioning, settings, now_ms: 0 })
        .wait()
        .unwrap();
    store
}

/// Puts an object of an age in days.
fn put(store: &Arc<dyn ObjectStore>, key: &str, age: u64) {
    let put = PutObject {
        bucket: "bucket".into(),
        key: key.into(),
        body: Body::Bytes(b"body".to_vec()),
        size: None,
        etag: "etag".into(),
        attributes: BTreeMap::new(),
        lock: ObjectLock::default(),
        conditions: Conditions::default(),
        now_ms: now_ms() - age * 100_000,
    };
    store.commit(Change::Put(put)).wait().unwrap();
}

fn versions(store: &Arc<dyn ObjectStore>) -> Vec<(String, bool)> {
    let query = ListQuery { bucket: "bucket".into(), limit: 100, ..ListQuery::default() };
    let page = store.list_versions(&query).unwrap();
    page.entries.into_iter().map(|info| (info.key, info.is_marker)).collect()
}

#[test]
fn old_objects_expire() {
    let store = store(Versioning::Off, vec![LifecycleRule { expiration: days(3), ..rule("r", "a/") }]);
    for (key, age) in [("a/old", 4), ("a/new", 2), ("b/old", 4)] {
        put(&store, key, age);
    }
    assert_eq!(apply(&store, DAY).unwrap(), 1);
    assert_eq!(versions(&store), [("a/new".to_owned(), false), ("b/old".to_owned(), false)]);
    assert_eq!(apply(&store, DAY).unwrap(), 0);
}

#[test]
fn versions_expire_after_they_were_replaced() {
    let noncurrent =
        dto::NoncurrentVersionExpiration { newer_noncurrent_versions: Some(1), noncurrent_days: Some(2) };
    let markers = dto::LifecycleExpiration { expired_object_delete_marker: Some(true), ..Default::default() };
    let rules = vec![
        LifecycleRule { noncurrent_version_expiration: Some(noncurrent), ..rule("n", "") },
        LifecycleRule { expiration: Some(markers), ..rule("m", "") },
    ];
    let store = store(Versioning::Enabled, rules);
    for age in [9, 8, 7, 1] {
        put(&store, "k", age);
    }
    // The newest of the old versions is kept, the oldest two are deleted.
    assert_eq!(apply(&store, DAY).unwrap(), 2);
    assert_eq!(versions(&store).len(), 2);
    let object = ObjectRef { bucket: "bucket".into(), key: "gone".into(), version: None };
    let conditions = Conditions::default();
    let delete = DeleteObject { object, conditions, bypass_governance: false, now_ms: 5 };
    store.commit(Change::Delete(delete)).wait().unwrap();
    assert_eq!(apply(&store, DAY).unwrap(), 1, "the marker of an object without versions");
}

#[test]
fn an_expired_object_with_versions_gets_a_marker() {
    let store = store(Versioning::Enabled, vec![LifecycleRule { expiration: days(1), ..rule("r", "") }]);
    put(&store, "k", 2);
    assert_eq!(apply(&store, DAY).unwrap(), 1);
    assert_eq!(versions(&store), [("k".to_owned(), true), ("k".to_owned(), false)]);
    assert_eq!(apply(&store, DAY).unwrap(), 0);
}

#[test]
fn uploads_are_aborted() {
    let abort = dto::AbortIncompleteMultipartUpload { days_after_initiation: Some(1) };
    let store = store(
        Versioning::Off,
        vec![LifecycleRule { abort_incomplete_multipart_upload: Some(abort), ..rule("r", "x") }],
    );
    for key in ["x/1", "y/1"] {
        let now_ms = now_ms() - 200_000;
        let attributes = BTreeMap::new();
        let create = Change::CreateUpload { bucket: "bucket".into(), key: key.into(), attributes, now_ms };
        store.commit(create).wait().unwrap();
    }
    assert_eq!(apply(&store, DAY).unwrap(), 1);
    assert_eq!(store.uploads("bucket").unwrap().len(), 1);
}

#[test]
fn invalid_rules_are_refused() {
    let check = |rule| check(dto::BucketLifecycleConfiguration { rules: vec![rule] });
    assert!(check(rule("r", "")).is_err(), "no action");
    assert!(check(LifecycleRule { expiration: days(0), ..rule("r", "") }).is_err());
    assert!(check(LifecycleRule { expiration: days(1), ..rule(&"x".repeat(256), "") }).is_err());
    let status = ExpirationStatus::from("enabled".to_owned());
    assert!(check(LifecycleRule { expiration: days(1), status, ..rule("r", "") }).is_err());
    let date = Some(from_ms(1_000));
    let expiration = Some(dto::LifecycleExpiration { date, ..Default::default() });
    assert!(check(LifecycleRule { expiration, ..rule("r", "") }).is_err(), "not at midnight");
}
