//! The remote API as a service: its audit log, its certificate, and the service manager's watchdog.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::Value;

use super::harness::{DEADLINE, Daemon, DaemonHome, until};
use super::https::{Https, token};

const LISTEN: [&str; 2] = ["--api-listen", "127.0.0.1:0"];

/// Returns the records of a client, the newest last.
fn records(daemon: &Daemon<'_>, client: &str) -> Vec<Value> {
    let all = daemon.json(&["audit"]);
    all.as_array().unwrap().iter().filter(|record| record["client"] == client).cloned().collect()
}

#[test]
fn the_audit_log_has_names_and_results_and_no_secrets() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&LISTEN);
    let https = Https::of(&daemon, &home);
    let secret = token(&daemon, "alice", "admin");
    let drives: Vec<String> = (0..2).map(|number| home.file(&format!("{number}.drive"), 64 << 20)).collect();
    let body = |name: &str, level: &str| {
        serde_json::json!({"name": name, "level": level, "drives": drives, "shards": 1}).to_string()
    };
    let begun = https.send("POST", "/v1/access/session", &[], &format!(r#"{{"token":"{secret}"}}"#));
    assert_eq!(begun.status, 201);
    assert_eq!(https.with_token(&secret, "POST", "/v1/pools", &body("fast", "1")).status, 202);
    until("the pool is open", || daemon.json(&["pool", "list"])[0]["state"] == "open");
    // The drives are in use: the operation fails.
    assert_eq!(https.with_token(&secret, "POST", "/v1/pools", &body("other", "1")).status, 202);
    until("both operations have ended", || {
        records(&daemon, "alice").iter().filter(|record| record["result"].is_string()).count() == 2
    });
    let all = records(&daemon, "alice");
    assert_eq!((&all[0]["path"], &all[0]["status"]), (&"/v1/access/session".into(), &201.into()));
    assert!(all[0]["detail"].is_null(), "{all:?}");
    let of = |name: &str| -> Vec<&Value> {
        let is_of = |record: &&Value| record["detail"].as_str().is_some_and(|text| text.contains(name));
        all.iter().filter(is_of).collect()
    };
    let created = of("name=fast");
    let detail = format!("name=fast drives={} level=1 shards=1", drives.join(","));
    assert_eq!(created.len(), 2, "{all:?}");
    assert!(created[0]["detail"] == *detail && created[0]["result"].is_null(), "{created:?}");
    assert!(created[1]["result"] == "succeeded", "{created:?}");
    assert_eq!(created[0]["operation"], created[1]["operation"]);
    let refused = of("name=other");
    assert!(refused[1]["result"].as_str().unwrap().starts_with("failed: "), "{refused:?}");
    let text = std::fs::read_to_string(home.path("state/audit.log")).unwrap();
    assert!(!text.contains(secret.rsplit('_').next().unwrap()), "{text}");
    assert!(daemon.ok(&["audit"]).contains("operation 1 succeeded"));
    daemon.kill();
}

#[test]
fn a_replaced_certificate_is_used_without_a_restart() {
    // Certificates of other daemons.
    let sources = [DaemonHome::new(), DaemonHome::new()];
    for source in &sources {
        source.start_with(&LISTEN).stop();
    }
    let home = DaemonHome::new();
    let install = |source: &DaemonHome| {
        for name in ["certificate.pem", "certificate-key.pem"] {
            // As programs that renew certificates do: a new file with the old name.
            std::fs::copy(source.path("state").join(name), home.path("new")).unwrap();
            std::fs::rename(home.path("new"), home.path(name)).unwrap();
        }
        std::fs::create_dir_all(home.path("state")).unwrap();
        std::fs::copy(home.path("certificate.pem"), home.path("state/certificate.pem")).unwrap();
    };
    install(&sources[0]);
    let (certificate, key) = (home.arg("certificate.pem"), home.arg("certificate-key.pem"));
    let files = ["--api-certificate", &certificate, "--api-key", &key];
    let daemon = home.start_with(&[&LISTEN[..], &files[..]].concat());
    let secret = token(&daemon, "alice", "viewer");
    let status = |https: &Https| https.with_token(&secret, "GET", "/v1/daemon", "").json();
    let first = Https::of(&daemon, &home);
    assert_eq!(status(&first)["certificate_fingerprint"], *first.fingerprint);
    install(&sources[1]);
    // A connection that verifies the new certificate.
    let second = Https::of(&daemon, &home);
    until("the new certificate is used", || second.try_connect());
    assert_ne!(status(&second)["certificate_fingerprint"], *first.fingerprint);
    assert!(!first.try_connect(), "the old certificate is still used");
    // A broken file does not end the service.
    std::fs::write(home.path("certificate.pem"), "nothing").unwrap();
    until("the daemon has seen the broken file", || daemon.log().contains("has changed and is not used"));
    assert!(second.try_connect());
    daemon.kill();
}

#[test]
fn the_daemon_sends_messages_to_the_watchdog() {
    let home = DaemonHome::new();
    let socket = UnixDatagram::bind(home.path("notify")).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut serve = home.serve(&[]);
    serve.env("NOTIFY_SOCKET", home.path("notify")).env("WATCHDOG_USEC", "100000");
    let daemon = home.start_by(serve);
    let mut received = String::new();
    while !received.contains("READY=1") || received.matches("WATCHDOG=1").count() < 3 {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        received += std::str::from_utf8(&message[..length]).unwrap();
    }
    // A stopped process sends none.
    daemon.signal("STOP");
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut message = [0; 256];
    until("no more messages", || socket.recv(&mut message).is_err());
    daemon.signal("CONT");
    daemon.stop();
}
