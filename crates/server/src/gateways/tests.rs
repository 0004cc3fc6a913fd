//! Tests with scripts in place of `radosgw-admin`, and of the parsing of its output.

use api::types::{ChangeBucket, CreateKey, CreateS3User, EtagKind};
use serde_json::json;

use super::*;

/// A cluster with gateways whose `radosgw-admin` is a script.
struct Scripted {
    directory: tempfile::TempDir,
    gateways: Gateways,
}

impl Scripted {
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.clusters_directory = directory.path().join("clusters");
        config.state_dir = directory.path().to_owned();
        let demo = config.clusters_directory.join("demo");
        std::fs::create_dir_all(&demo).unwrap();
        std::fs::write(demo.join("ceph.conf"), "[global]\nmon_host = 10.0.0.1\n").unwrap();
        std::fs::write(demo.join("gabion-rgw.keyring"), "[client.gabion-rgw]\nkey = AQ==\n").unwrap();
        let program = directory.path().join("program");
        let text = directory.path().join("text");
        std::fs::write(&text, format!("#!/bin/sh\necho \"$@\" >>{}.log\n{script}", program.display()))
            .unwrap();
        // Another process writes the program: one that is open for writing cannot be run, and a
        // child of another test could have inherited the descriptor.
        let mut install = std::process::Command::new("install");
        assert!(install.args(["-m", "755"]).arg(text).arg(&program).status().unwrap().success());
        let mut gateways = Arc::into_inner(Gateways::new(&config, Clusters::new(&config))).unwrap();
        gateways.program = program.into();
        Self { directory, gateways }
    }

    /// Returns the command lines of the runs.
    fn runs(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("program.log")).unwrap_or_default()
    }
}

const USER: &str =
    r#"{"user_id": "anna", "keys": [{"user": "anna", "access_key": "AK", "secret_key": "hidden"}]}"#;

#[tokio::test]
async fn a_cluster_without_gateways_names_the_stage() {
    let scripted = Scripted::new("exit 0");
    std::fs::remove_file(scripted.directory.path().join("clusters/demo/gabion-rgw.keyring")).unwrap();
    let error = scripted.gateways.buckets("demo").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.hint_text().unwrap().ends_with("run 'gabion cluster services demo'"), "{error:?}");
    assert_eq!(scripted.gateways.buckets("other").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scripted.gateways.buckets("../demo").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scripted.runs(), "", "the program would create pools");
}

#[tokio::test]
async fn a_missing_program_names_its_package() {
    let mut scripted = Scripted::new("");
    scripted.gateways.program = "no-such-program".into();
    let error = scripted.gateways.buckets("demo").await.unwrap_err();
    assert_eq!(error.to_string(), "radosgw-admin is not installed");
    assert!(error.hint_text().unwrap().contains("ceph-common"));
}

#[tokio::test]
async fn a_run_without_an_end_is_killed() {
    let mut scripted = Scripted::new("echo $$ >\"$0.pid\"; exec sleep 600");
    scripted.gateways.limit = Duration::from_millis(300);
    let error = scripted.gateways.user("demo", "anna").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let pid = std::fs::read_to_string(scripted.directory.path().join("program.pid")).unwrap();
    let stat = std::path::PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    // The runtime reaps the killed process, or it is a zombie until then.
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn options_that_gateways_do_not_have_are_refused_by_name() {
    let scripted = Scripted::new("echo '[]'");
    let gateways = &scripted.gateways;
    let named = |policies: &[&str], groups: &[&str]| CreateS3User {
        name: "anna".into(),
        policies: policies.iter().map(ToString::to_string).collect(),
        groups: groups.iter().map(ToString::to_string).collect(),
    };
    let etag = ChangeBucket { quota: Some(1), etag: Some(EtagKind::Fast) };
    for (error, option) in [
        (gateways.create_user("demo", named(&["readonly"], &[])).await.unwrap_err(), "--policy"),
        (gateways.create_user("demo", named(&[], &["ops"])).await.unwrap_err(), "--group"),
        (
            gateways.create_key("demo", CreateKey { user: None, valid_s: Some(60) }).await.unwrap_err(),
            "--valid",
        ),
        (gateways.change_bucket("demo", "photos", etag).await.unwrap_err(), "--etag"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.hint_text(), Some(format!("omit {option}").as_str()));
    }
    for name in ["", "a b", "--admin", "gabion"] {
        let request = CreateS3User { name: name.into(), ..CreateS3User::default() };
        let error = gateways.create_user("demo", request).await.err();
        // Hyphens are allowed, and the name is one argument with its option.
        assert_eq!(error.is_none_or(|error| error.kind() != ErrorKind::Invalid), name == "--admin");
    }
    assert!(!scripted.runs().contains(" --admin"), "{}", scripted.runs());
    assert_eq!(gateways.delete_user("demo", "gabion").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(gateways.user("demo", "a\nb").await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn failures_of_the_program_have_a_kind() {
    let kind = async |script: &str| {
        let scripted = Scripted::new(script);
        let error = scripted.gateways.delete_user("demo", "anna").await.unwrap_err();
        (error.kind(), error.to_string())
    };
    assert_eq!(kind("exit 2").await.0, ErrorKind::NotFound);
    let in_use = "echo 'unable to remove user, must specify purge data' >&2; exit 17";
    assert_eq!(kind(in_use).await.0, ErrorKind::Busy);
    let other =
        "echo '2026-01-01T00:00:00 7f -1 the first' >&2; echo '2026-01-01 7f -1 no space' >&2; exit 28";
    assert_eq!(kind(other).await, (ErrorKind::Io, "radosgw-admin failed on cluster 'demo': no space".into()));
}

#[tokio::test]
async fn a_user_has_only_keys_that_were_asked_for() {
    let scripted = Scripted::new(&format!("echo '{USER}'"));
    let request = CreateS3User { name: "anna".into(), ..CreateS3User::default() };
    scripted.gateways.create_user("demo", request).await.unwrap();
    let runs = scripted.runs();
    assert!(runs.contains("key rm --uid=anna --access-key=AK\n"), "{runs}");
    assert!(!runs.contains("hidden"), "{runs}");
}

#[tokio::test]
async fn unexpected_output_is_not_shown() {
    let scripted = Scripted::new(&format!("echo '{}'", USER.replace("\"user_id\"", "\"other\"")));
    let error = scripted.gateways.user("demo", "anna").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
}

#[test]
fn users_and_keys_are_parsed() {
    let user: records::GatewayUser = serde_json::from_str(USER).unwrap();
    assert_eq!(user.to_wire().keys, ["AK"]);
    assert_eq!(user.keys().next().unwrap().secret, None);
    assert_eq!(user.key("AK").unwrap().secret.as_deref(), Some("hidden"));
    assert!(user.key("other").is_none() && !user.is_administrator());
    for (admin, expected) in [(json!("true"), true), (json!(true), true), (json!("false"), false)] {
        let record = json!({"user_id": "gabion", "keys": [], "admin": admin});
        let user: records::GatewayUser = serde_json::from_value(record).unwrap();
        assert_eq!(user.is_administrator(), expected);
    }
}

#[test]
fn buckets_are_parsed() {
    let quota = |enabled: bool, max_size: i64| json!({"enabled": enabled, "max_size": max_size});
    let record = |usage: serde_json::Value, quota: serde_json::Value| {
        let record = json!({
            "bucket": "photos", "tenant": "", "owner": "anna",
            "creation_time": "1970-01-01T00:01:00.500000Z", "usage": usage, "bucket_quota": quota,
        });
        serde_json::from_value::<records::BucketRecord>(record).unwrap().to_wire()
    };
    let usage = json!({"rgw.main": {"size": 5000, "num_objects": 2}, "rgw.multimeta": {"num_objects": 1}});
    let full = record(usage, quota(true, 8192));
    assert_eq!((full.objects, full.bytes, full.quota, full.created), (2, 5000, Some(8192), 60));
    assert_eq!((full.versions, full.versioning), (None, None));
    let empty = record(json!({}), quota(false, 8192));
    assert_eq!((empty.objects, empty.bytes, empty.quota), (0, 0, None));
    assert_eq!(record(json!({}), quota(true, -1)).quota, None);
}

#[test]
fn gateways_are_found_in_the_service_map() {
    let daemon = |address: &str, config: &str| json!({"addr": address, "metadata": {"frontend_config#0": config, "frontend_type#0": "beast"}});
    let map = json!({"services": {
        "mgr": {"daemons": {"summary": "", "a": {"addr": "10.0.0.9:0/1", "metadata": {}}}},
        "rgw": {"daemons": {
            "summary": "",
            "1": daemon("10.0.0.1:0/77", "beast endpoint=10.1.0.1:7480"),
            "2": daemon("10.0.0.2:0/78", "beast port=80 ssl_port=443"),
            "3": daemon("[fd00::3]:0/79", "beast ssl_endpoint=[fd00::3]:443 port=8080"),
        }},
    }});
    let expected = ["http://10.1.0.1:7480", "http://10.0.0.2:80", "http://[fd00::3]:8080"];
    assert_eq!(address::addresses(&map), expected);
    assert!(address::addresses(&json!({"services": {}})).is_empty());
}
