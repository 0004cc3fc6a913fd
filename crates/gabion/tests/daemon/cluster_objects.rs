//! Users, access keys and buckets of the object gateways of a cluster, with an S3 client.

use s3_client::ListRequest;
use serde_json::{Value, json};

use super::harness::Daemon;
use super::key_client::{KeyClient, OBJECT, block_on, body, code};

/// Administers users, keys and buckets of a cluster whose first gateway has the address `endpoint`.
pub(crate) fn are_administered(daemon: &Daemon<'_>, cluster: &str, endpoint: &str) {
    let on = |arguments: &[&str]| -> Value { daemon.json(&[arguments, &["--cluster", cluster]].concat()) };
    let refused = |arguments: &[&str]| daemon.refused(&[arguments, &["--cluster", cluster]].concat());
    let photos = format!("{cluster}/photos");

    // A user and its key.
    assert_eq!(on(&["user", "list"]), json!([]));
    let refusal = refused(&["user", "create", "anna", "--policy", "readonly"]);
    assert!(refusal.contains("is a cluster") && refusal.contains("omit --policy"), "{refusal}");
    let anna = on(&["user", "create", "anna"]);
    assert_eq!((&anna["name"], &anna["keys"]), (&json!("anna"), &json!([])));
    let refusal = refused(&["user", "create", "anna"]);
    assert!(refusal.contains("already has a user 'anna'"), "{refusal}");
    let refusal = refused(&["key", "create", "--user", "ben"]);
    assert!(refusal.contains(&format!("gabion user create ben --cluster {cluster}")), "{refusal}");
    let refusal = refused(&["key", "create", "--user", "anna", "--valid", "1h"]);
    assert!(refusal.contains("omit --valid"), "{refusal}");
    let anna = KeyClient::new(endpoint, &on(&["key", "create", "--user", "anna"]));
    assert_eq!(on(&["user", "show", "anna"])["keys"], json!([anna.access_key]));

    // Its data, and the counts of its bucket.
    assert_eq!(anna.create_bucket("photos"), "");
    assert_eq!(anna.put("a"), "");
    assert!(anna.get("a").unwrap() == body());
    let listed = daemon.json(&["bucket", "list", cluster]);
    let bucket = daemon.json(&["bucket", "show", &photos]);
    assert_eq!(listed, json!([bucket]));
    assert_eq!((&bucket["name"], &bucket["owner"]), (&json!("photos"), &json!("anna")));
    assert_eq!((&bucket["objects"], &bucket["bytes"]), (&json!(1), &json!(OBJECT)));
    assert_eq!(bucket["quota"], json!(null));
    let table = daemon.ok(&["bucket", "list", cluster]);
    assert!(table.contains("97.65 KiB"), "{table}");

    quotas_are_enforced(daemon, &photos, &anna);
    let admin = the_administrator_reaches_all(daemon, cluster, endpoint, &anna);

    // A deleted key is refused, and a user without buckets is deleted.
    let keys = on(&["key", "list"]);
    let keys = keys.as_array().unwrap();
    assert!(keys.iter().all(|key| key["secret"].is_null()), "{keys:?}");
    let user_of = |client: &KeyClient| {
        let key = keys.iter().find(|key| key["access_key"] == client.access_key.as_str());
        key.unwrap()["user"].clone()
    };
    assert_eq!((user_of(&anna), user_of(&admin)), (json!("anna"), json!("gabion")));
    daemon.ok(&["key", "delete", &anna.access_key, "--cluster", cluster]);
    assert_eq!(anna.put("b"), "InvalidAccessKeyId");
    assert_eq!(code(anna.get("a")), "InvalidAccessKeyId");
    let refusal = refused(&["key", "delete", &anna.access_key]);
    assert!(refusal.contains("has no access key"), "{refusal}");
    let refusal = refused(&["user", "delete", "anna"]);
    assert!(refusal.contains("owns buckets"), "{refusal}");
    assert_eq!(admin.delete("a"), "");
    daemon.ok(&["bucket", "delete", &photos]);
    daemon.ok(&["user", "delete", "anna", "--cluster", cluster]);
    let refusal = refused(&["user", "show", "anna"]);
    assert!(refusal.contains("has no user 'anna'"), "{refusal}");
    assert_eq!(on(&["user", "list"]), json!([]));
    assert_eq!(daemon.json(&["bucket", "list", cluster]), json!([]));
    daemon.ok(&["key", "delete", &admin.access_key, "--cluster", cluster]);
    let log = daemon.log();
    assert!(!log.contains(&anna.secret) && !log.contains(&admin.secret), "a secret is in the log");
}

fn quotas_are_enforced(daemon: &Daemon<'_>, photos: &str, anna: &KeyClient) {
    let refusal = daemon.refused(&["bucket", "set", photos, "--etag", "fast"]);
    assert!(refusal.contains("omit --etag"), "{refusal}");
    let changed = daemon.json(&["bucket", "set", photos, "--quota", "150K"]);
    assert_eq!(changed["quota"], json!(150 << 10));
    assert_eq!(anna.put("b"), "QuotaExceeded");
    let removed = daemon.json(&["bucket", "set", photos, "--quota", "0"]);
    assert_eq!(removed["quota"], json!(null));
    assert_eq!(anna.put("b"), "");
    assert_eq!(anna.delete("b"), "");
    let refusal = daemon.refused(&["object", "list", photos]);
    assert!(refusal.contains("is a cluster") && refusal.contains("key create"), "{refusal}");
}

/// Creates and deletes a bucket of the administrator, and reads that of another user with its key.
fn the_administrator_reaches_all(
    daemon: &Daemon<'_>,
    cluster: &str,
    endpoint: &str,
    anna: &KeyClient,
) -> KeyClient {
    let (logs, photos) = (format!("{cluster}/logs"), format!("{cluster}/photos"));
    let created = daemon.json(&["bucket", "create", &logs]);
    assert_eq!((&created["owner"], &created["objects"]), (&json!("gabion"), &json!(0)));
    let refusal = daemon.refused(&["bucket", "create", &logs]);
    assert!(refusal.contains("already has a bucket 'logs'"), "{refusal}");
    let refusal = daemon.refused(&["bucket", "create", &format!("{cluster}/X")]);
    assert!(refusal.contains("'X' is not the name of a bucket"), "{refusal}");
    let page = ListRequest { limit: 10, ..ListRequest::default() };
    assert_eq!(code(block_on(anna.client.list("logs", &page))), "AccessDenied");
    let key = daemon.json(&["key", "create", "--cluster", cluster]);
    let admin = KeyClient::new(endpoint, &key);
    assert!(admin.get("a").unwrap() == body());
    daemon.ok(&["bucket", "delete", &logs]);
    for (arguments, reason) in [
        (["bucket", "delete", logs.as_str()], "has no bucket 'logs'"),
        (["bucket", "show", logs.as_str()], "has no bucket 'logs'"),
        (["bucket", "delete", photos.as_str()], "is not empty"),
    ] {
        let refusal = daemon.refused(&arguments);
        assert!(refusal.contains(reason), "{refusal}");
    }
    assert_eq!(daemon.json(&["user", "list", "--cluster", cluster]).as_array().unwrap().len(), 1);
    admin
}
