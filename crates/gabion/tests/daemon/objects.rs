//! S3: boto3 exercises the operations; restarts keep the service.

use std::process::{Command, Stdio};

use super::harness::{Daemon, DaemonHome};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/objects.py");
const CONFORMANCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/objects_conformance.py");

/// The interpreters that may have boto3: that of the path, and that of the distribution, which
/// other installations may hide and for which `./run setup` installs boto3.
const INTERPRETERS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Returns an interpreter that has boto3.
fn python() -> Option<&'static str> {
    INTERPRETERS.into_iter().find(|program| {
        let imported = Command::new(program).args(["-c", "import boto3"]).stderr(Stdio::null()).status();
        imported.is_ok_and(|status| status.success())
    })
}

/// Runs the script without an access key in its environment.
#[track_caller]
pub(crate) fn run_script(arguments: &[&str]) {
    let mut command = Command::new(python().unwrap());
    command.arg(SCRIPT).args(arguments).env("AWS_EC2_METADATA_DISABLED", "true");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Requirement `boto3`.
#[track_caller]
pub(crate) fn has_boto3() -> bool {
    let missing = || format!("none of {} can import it", INTERPRETERS.join(" and "));
    test_support::has("boto3", python().map(drop).ok_or_else(missing))
}

/// An access key.
pub(crate) struct Client {
    access: String,
    secret: String,
}

impl Client {
    pub(crate) fn create(daemon: &Daemon<'_>) -> Self {
        Self::read(&daemon.json(&["key", "create"]))
    }

    /// A key of a user.
    fn of_user(daemon: &Daemon<'_>, user: &str) -> Self {
        Self::read(&daemon.json(&["key", "create", "--user", user]))
    }

    fn read(key: &serde_json::Value) -> Self {
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        Self { access: text("access_key"), secret: text("secret") }
    }

    fn python(&self, arguments: &[&str]) -> Command {
        self.script(SCRIPT, arguments)
    }

    pub(crate) fn script(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(python().unwrap());
        command.arg(script).args(arguments).env("AWS_ACCESS_KEY_ID", &self.access);
        command.env("AWS_SECRET_ACCESS_KEY", &self.secret).env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.python(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn start(daemon: &Daemon<'_>) -> String {
    daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned()
}

#[test]
fn boto3_uses_all_operations() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let endpoint = start(&daemon);
    let client = Client::create(&daemon);
    client.run(&["operations", &endpoint]);
    assert_eq!(daemon.json(&["bucket", "list", "fast"]).as_array().unwrap().len(), 0);
    daemon.ok(&["key", "delete", &client.access]);
    let refused = client.python(&["operations", &endpoint]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("InvalidAccessKeyId"));
    let log = daemon.stop();
    assert!(!log.contains(&client.secret), "the log contains a secret");
}

/// The length of a day of lifecycle rules in seconds.
const DAY: &str = "4";

#[test]
fn the_protocol_conforms() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let start = ["s3", "start", "fast", "--listen", "127.0.0.1:0", "--lifecycle-day", DAY];
    let endpoint = daemon.ok(&start).trim().to_owned();
    let (main, alt) = (Client::of_user(&daemon, "main"), Client::of_user(&daemon, "alt"));
    let mut command = main.script(CONFORMANCE, &[&endpoint, DAY]);
    command.env("ALT_ACCESS_KEY_ID", &alt.access).env("ALT_SECRET_ACCESS_KEY", &alt.secret);
    let output = command.output().unwrap();
    let failures = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{failures}\n{}", daemon.log());
    let log = daemon.stop();
    assert!(!log.contains(&main.secret) && !log.contains(&alt.secret), "the log contains a secret");
}

#[test]
fn buckets_have_quotas() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let endpoint = start(&daemon);
    let client = Client::create(&daemon);
    daemon.ok(&["bucket", "create", "fast/small"]);
    daemon.ok(&["bucket", "set", "fast/small", "--quota", "1M", "--etag", "fast"]);
    let shown = daemon.json(&["bucket", "show", "fast/small"]);
    assert_eq!((shown["quota"].as_u64(), shown["etag"].as_str()), (Some(1 << 20), Some("fast")));
    client.run(&["quota", &endpoint]);
    daemon.ok(&["bucket", "set", "fast/small", "--quota", "0", "--etag", "md5"]);
    assert!(daemon.json(&["bucket", "show", "fast/small"])["quota"].is_null());
    daemon.stop();
}

#[test]
fn commands_refuse_and_explain() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    assert!(daemon.refused(&["bucket", "list", "fast"]).contains("gabion s3 start fast"));
    assert!(daemon.refused(&["s3", "start", "fast", "--listen", "here"]).contains("127.0.0.1:9000"));
    assert!(daemon.refused(&["s3", "start", "none", "--listen", "127.0.0.1:0"]).contains("no pool"));
    start(&daemon);
    assert!(daemon.refused(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).contains("already started"));
    daemon.ok(&["bucket", "create", "fast/photos"]);
    assert!(daemon.refused(&["bucket", "create", "fast/photos"]).contains("exists already"));
    assert!(daemon.refused(&["bucket", "create", "fast/Photos"]).contains("not a bucket name"));
    assert_eq!(daemon.json(&["bucket", "show", "fast/photos"])["objects"], 0);
    assert!(!daemon.ok(&["volume", "list", "fast"]).contains("_objects"));
    let space = &daemon.json(&["pool", "status", "fast"])[0]["space"];
    assert_eq!((space["volumes"].as_u64(), space["provisioned"].as_u64()), (Some(1), Some(1 << 30)));
    assert!(space["stored"].as_u64() > Some(0), "{space}");
    daemon.ok(&["s3", "stop", "fast"]);
    assert!(daemon.refused(&["s3", "stop", "fast"]).contains("not started"));
    assert!(daemon.refused(&["key", "delete", "NONE"]).contains("no access key"));
    daemon.stop();
}

#[test]
fn policies_of_users_and_buckets_are_combined() {
    if !has_boto3() {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let endpoint = start(&daemon);
    daemon.ok(&["bucket", "create", "fast/photos"]);
    let document = home.arg("policy.json");
    std::fs::write(
        &document,
        r#"{"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::photos/*"},
            {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::photos/both/*"},
            {"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "*"}]}"#,
    )
    .unwrap();
    daemon.ok(&["policy", "create", "keep", &document]);
    daemon.ok(&["user", "create", "anna", "--policy", "keep"]);
    let (admin, anna) = (Client::create(&daemon), Client::of_user(&daemon, "anna"));
    admin.run(&["policies", &endpoint, &anna.access, &anna.secret]);
    daemon.stop();
}
