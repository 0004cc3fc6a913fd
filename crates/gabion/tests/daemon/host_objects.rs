//! Machines with their serial consoles, clusters, and benchmark runs, over the API. A process and
//! a socket stand for QEMU, as the definition of a machine names them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::harness::{DaemonHome, command};
use super::https::{Https, token};

/// Records this process as the one of the machine.
fn run_machine(home: &DaemonHome, name: &str) -> UnixListener {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let begun: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let running = json!({
        "pid": std::process::id(), "begun": begun, "since": 1_700_000_000, "accelerator": "tcg", "instead": null,
        "placement": {"cpus": [], "rest": "", "node": null, "why": "test"},
    });
    let directory = home.path("state/machines").join(name);
    std::fs::write(directory.join("running.json"), running.to_string()).unwrap();
    UnixListener::bind(directory.join("console.sock")).unwrap()
}

#[test]
fn the_serial_console_of_a_machine_is_reached_over_the_api() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--api-listen", "127.0.0.1:0"]);
    daemon.make_pool();
    daemon.ok(&["vm", "create", "web", "--boot", "fast/vm01", "--accelerator", "tcg"]);
    let https = Https::of(&daemon, &home);
    let [viewer, operator, other] = ["viewer", "operator", "other"]
        .map(|name| token(&daemon, name, if name == "viewer" { "viewer" } else { "operator" }));
    let machines = || https.with_token(&viewer, "GET", "/v1/machines", "").json();
    assert_eq!((&machines()[0]["name"], &machines()[0]["disks"]), (&"web".into(), &json!(["fast/vm01"])));
    assert!(machines()[0]["started"].is_null());
    let path = "/v1/machines/web/console";
    let stopped = https.with_token(&operator, "POST", path, "{}");
    assert_eq!((stopped.status, &stopped.json()["error"]["kind"]), (409, &"busy".into()));
    let listener = run_machine(&home, "web");
    assert_eq!(machines()[0]["started"], 1_700_000_000);
    assert_eq!(https.with_token(&viewer, "POST", path, "{}").status, 403);
    let opened = https.with_token(&operator, "POST", path, "{}");
    assert_eq!(opened.status, 201, "{opened:?}");
    let (mut machine, _) = listener.accept().unwrap();
    let number = &opened.json()["console"];

    let (output, input) = (format!("{path}/{number}/output"), format!("{path}/{number}/input"));
    assert_eq!(https.with_token(&viewer, "GET", &output, "").status, 403);
    assert_eq!(https.with_token(&other, "GET", &output, "").status, 404);
    let mut stream = https.connect(None);
    write!(stream, "GET {output} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {operator}\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let send = |token: &str, data: &str| {
        https.with_token(token, "POST", &input, &json!({ "data": data }).to_string()).status
    };
    assert_eq!(
        (send(&other, "x"), send(&operator, &"x".repeat(5000)), send(&operator, "ls é\r")),
        (404, 400, 204)
    );
    let mut received = [0; 6];
    machine.read_exact(&mut received).unwrap();
    assert_eq!(received, *"ls é\r".as_bytes());
    machine.write_all("login: ö".as_bytes()).unwrap();
    let mut text = String::new();
    let mut next = |until: &str| {
        while !text.contains(until) {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(data) = line.strip_prefix("data: ") {
                text += serde_json::from_str::<Value>(data).unwrap().as_str().unwrap();
            }
            text += &line;
        }
    };
    next("login: ö");
    // The stop of the machine ends the stream.
    drop(machine);
    next("event: end");
    let audit = daemon.json(&["audit"]);
    let paths: Vec<&str> = audit.as_array().unwrap().iter().filter_map(|one| one["path"].as_str()).collect();
    assert!(paths.contains(&path) && !paths.iter().any(|path| path.ends_with("/input")), "{paths:?}");
    daemon.stop();
}

#[test]
fn reports_of_unknown_runs_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--api-listen", "127.0.0.1:0"]);
    let https = Https::of(&daemon, &home);
    let viewer = token(&daemon, "viewer", "viewer");
    assert_eq!(https.with_token(&viewer, "GET", "/v1/runs", "").status, 200);
    for run in ["no-such-run", "..%2F..%2Fetc", "%2Fetc", "."] {
        let answer = https.with_token(&viewer, "GET", &format!("/v1/runs/{run}/report"), "");
        assert_eq!(answer.status, 404, "{run}: {answer:?}");
    }
    assert_eq!(https.send("GET", "/v1/runs/x/report", &[], "").status, 401);
    daemon.stop();
}

/// One read job on one file.
const SUITE: &str = "
name = 'tiny'
title = 'one job'
source = 'this test'
scheme = '1+1'
instances = [1]
ramp_s = 0
run_s = 1
[[jobs]]
name = 'read'
block_bytes = 4096
read_percent = 100
random = true
depth = 4
threads = 1
";

#[test]
fn benchmark_runs_have_a_state_and_a_report() {
    if !test_support::has_program("fio") {
        return;
    }
    let home = DaemonHome::new();
    std::fs::write(home.path("tiny.toml"), SUITE).unwrap();
    std::fs::write(home.path("disk.img"), vec![1; 8 << 20]).unwrap();
    // A relative directory: fio runs elsewhere.
    let run = |target: String| {
        let arguments = ["bench", "run", "tiny.toml", "--target", &target, "--results", "runs", "--json"];
        command(&arguments).current_dir(home.path(".")).output().unwrap()
    };
    let measured = run(format!("disk={}", home.arg("disk.img")));
    assert!(measured.status.success(), "{measured:?}");
    let summary: Value = serde_json::from_slice(&measured.stdout).unwrap();
    let id = summary["run"].as_str().unwrap();
    let daemon = home.start_with(&["--api-listen", "127.0.0.1:0", "--runs-directory", &home.arg("runs")]);
    let https = Https::of(&daemon, &home);
    let viewer = token(&daemon, "viewer", "viewer");
    let get = |path: &str| https.with_token(&viewer, "GET", path, "");
    let runs = get("/v1/runs").json();
    let known = &runs[0];
    assert_eq!(
        (&known["id"], &known["state"], &known["results"]),
        (&id.into(), &"complete".into(), &1.into())
    );
    assert!(known["started"].as_u64().unwrap() > 1_700_000_000, "{known}");
    let report = get(&format!("/v1/runs/{id}/report"));
    assert_eq!(report.status, 200, "{report:?}");
    assert!(report.body.contains("<h2>Summary</h2>") && report.body.contains("disk"), "{report:?}");
    // A process that executes the run holds its lock.
    let lock = File::open(home.path("runs").join(id).join("lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(get("/v1/runs").json()[0]["state"], "running");
    drop(lock);
    // A failed measurement is missing, and the run without any has no report.
    std::fs::remove_dir_all(home.path("runs").join(id)).unwrap();
    assert!(!run("disk=/nosuch".into()).status.success());
    let runs = get("/v1/runs").json();
    assert_eq!((&runs[0]["state"], &runs[0]["results"]), (&"incomplete".into(), &0.into()), "{runs}");
    let id = runs[0]["id"].as_str().unwrap();
    assert_eq!(get(&format!("/v1/runs/{id}/report")).status, 409);
    daemon.stop();
}

#[test]
fn a_cluster_that_is_not_configured_names_the_missing_stage() {
    let home = DaemonHome::new();
    let base = home.path("clusters");
    let cluster = base.join("demo");
    std::fs::create_dir_all(cluster.join("proposals")).unwrap();
    std::fs::create_dir_all(base.join("begun/proposals")).unwrap();
    std::fs::create_dir_all(base.join("not a name/proposals")).unwrap();
    let daemon =
        home.start_with(&["--api-listen", "127.0.0.1:0", "--clusters-directory", base.to_str().unwrap()]);
    let https = Https::of(&daemon, &home);
    let viewer = token(&daemon, "viewer", "viewer");
    let get = |path: &str| https.with_token(&viewer, "GET", path, "");
    let known = |name: &str| json!({"name": name, "configured": false, "volumes": false});
    assert_eq!(get("/v1/clusters").json(), json!([known("begun"), known("demo")]));
    // A stage that is missing is named.
    let refused = get("/v1/clusters/demo");
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["kind"]), (404, &"not_found".into()), "{refused:?}");
    assert!(error["hint"].as_str().unwrap().contains("gabion cluster configure demo"), "{error}");
    for name in ["none", "..", "%2Fetc", "not%20a%20name"] {
        assert_eq!(get(&format!("/v1/clusters/{name}")).status, 404, "{name}");
    }
    daemon.stop();
}
