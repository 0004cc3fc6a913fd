//! Users, groups and policies of S3: commands, rights of requests, restarts, and the log.

use super::harness::{Daemon, DaemonHome, until};
use super::key_client::KeyClient;

const DENIED: &str = "AccessDenied";

/// Creates a key, and returns a client with it.
fn create(daemon: &Daemon<'_>, endpoint: &str, arguments: &[&str]) -> KeyClient {
    KeyClient::new(endpoint, &daemon.json(&[&["key", "create"], arguments].concat()))
}

fn serve(daemon: &Daemon<'_>) -> String {
    daemon.make_pool();
    let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned();
    daemon.ok(&["bucket", "create", "fast/photos"]);
    endpoint
}

#[test]
fn rights_are_those_of_the_policies_of_users_and_groups() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let admin = create(&daemon, &endpoint, &[]);
    assert_eq!(admin.put("ben/1"), "");
    daemon.ok(&["user", "create", "anna", "--policy", "readonly"]);
    let anna = create(&daemon, &endpoint, &["--user", "anna"]);
    assert_eq!((anna.head("ben/1"), anna.list()), (String::new(), String::new()));
    assert_eq!((anna.put("anna/1").as_str(), anna.create_bucket("own").as_str()), (DENIED, DENIED));

    let document = home.path("policy.json");
    std::fs::write(
        &document,
        r#"{"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::photos/${aws:username}/*"},
            {"Effect": "Deny", "Action": "s3:Delete*", "Resource": "*"}]}"#,
    )
    .unwrap();
    daemon.ok(&["policy", "create", "home", document.to_str().unwrap()]);
    daemon.ok(&["user", "set", "anna", "--policy", "readonly,home"]);
    assert_eq!((anna.put("anna/1").as_str(), anna.put("ben/2").as_str()), ("", DENIED));
    // A denial wins, also over the rights of a group.
    daemon.ok(&["group", "create", "ops", "--policy", "readwrite"]);
    daemon.ok(&["user", "set", "anna", "--group", "ops"]);
    assert_eq!((anna.put("ben/2").as_str(), anna.delete("ben/2").as_str()), ("", DENIED));
    daemon.ok(&["user", "set", "anna", "--policy", ""]);
    assert_eq!((anna.delete("ben/2").as_str(), anna.create_bucket("own").as_str()), ("", ""));
    daemon.ok(&["group", "set", "ops", "--policy", "writeonly"]);
    // Neither the object nor the bucket that the user owns gives it rights.
    assert_eq!((anna.put("anna/2").as_str(), anna.head("anna/2").as_str()), ("", DENIED));
    daemon.stop();

    let daemon = home.start();
    until("S3 serves the pool", || daemon.json(&["s3", "status"])[0]["state"] == "active");
    assert_eq!((anna.put("anna/3").as_str(), anna.list().as_str()), ("", DENIED));
    daemon.ok(&["user", "delete", "anna"]);
    assert_eq!(anna.put("anna/4"), "InvalidAccessKeyId");
    let keys = daemon.json(&["key", "list"]);
    assert!(keys.as_array().unwrap().iter().all(|key| key["user"] != "anna"), "{keys}");
    let log = daemon.stop();
    assert!(!log.contains(&anna.secret) && !log.contains(&admin.secret), "the log contains a secret");
}

#[test]
fn keys_of_names_without_a_user_keep_their_rights() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let endpoint = serve(&daemon);
    let ben = create(&daemon, &endpoint, &["--user", "ben"]);
    assert_eq!((ben.put("1").as_str(), ben.create_bucket("own").as_str()), (DENIED, ""));
    // From its creation on, the user has the rights of its policies only.
    daemon.ok(&["user", "create", "ben"]);
    assert_eq!(ben.create_bucket("more"), DENIED);
    assert_eq!(daemon.json(&["user", "show", "ben"])["keys"][0], ben.access_key.as_str());
    daemon.stop();
}

#[test]
fn commands_list_and_refuse() {
    let home = DaemonHome::new();
    let daemon = home.start();
    assert!(daemon.ok(&["user", "list"]).contains("gabion user create"));
    assert!(daemon.ok(&["group", "list"]).contains("gabion group create"));
    assert_eq!(daemon.ok(&["policy", "list", "-q"]), "readonly\nreadwrite\nwriteonly\n");
    let shown = daemon.ok(&["policy", "show", "readonly"]);
    let document = home.path("policy.json");
    std::fs::write(&document, &shown).unwrap();
    let file = document.to_str().unwrap();
    daemon.ok(&["policy", "create", "copy", file]);
    daemon.ok(&["group", "create", "ops", "--policy", "copy"]);
    daemon.ok(&["user", "create", "anna", "--group", "ops"]);
    assert!(
        daemon.ok(&["user", "list"]).contains("ops") && daemon.ok(&["group", "show", "ops"]).contains("anna")
    );
    assert!(daemon.ok(&["policy", "list"]).contains("built in"));
    for (arguments, reason) in [
        (&["user", "create", "anna"][..], "already"),
        (&["user", "create", "gabion"], "reserved"),
        (&["user", "create", "ben", "--policy", "none"], "no policy 'none'"),
        (&["user", "set", "ben", "--policy", "copy"], "no user 'ben'"),
        (&["user", "delete", "ben"], "gabion user list"),
        (&["group", "delete", "ops"], "gabion user set anna"),
        (&["policy", "delete", "copy"], "gabion group set ops"),
        (&["policy", "set", "readonly", file], "built in"),
        (&["policy", "show", "none"], "gabion policy list"),
    ] {
        let refused = daemon.refused(arguments);
        assert!(refused.contains(reason), "{arguments:?}: {refused}");
    }
    std::fs::write(&document, r#"{"Statement": {"Effect": "Allow", "Action": "iam:*", "Resource": "*"}}"#)
        .unwrap();
    assert!(daemon.refused(&["policy", "set", "copy", file]).contains("'iam:*' is not an action of S3"));
    daemon.ok(&["user", "delete", "anna"]);
    daemon.ok(&["group", "delete", "ops"]);
    daemon.ok(&["policy", "delete", "copy"]);
    daemon.stop();
}
