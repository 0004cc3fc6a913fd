//! Tests of the objects of a run, and of calls.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::kubectl::Input;
use super::load::{SCRIPT, input_of};
use super::*;

fn plan(mode: VolumeMode) -> PodPlan {
    PodPlan {
        run: "bench-x".into(),
        instances: 2,
        class: "fast".into(),
        bytes: 33 << 30,
        mode,
        image: "kbench".into(),
    }
}

#[test]
fn each_instance_has_a_claim_and_a_job() {
    let manifest = plan(VolumeMode::Filesystem).manifest();
    let items = manifest["items"].as_array().unwrap();
    let names: Vec<_> = items.iter().map(|item| (&item["kind"], &item["metadata"]["name"])).collect();
    let expected = [
        ("PersistentVolumeClaim", "bench-x-0"),
        ("Job", "bench-x-0"),
        ("PersistentVolumeClaim", "bench-x-1"),
        ("Job", "bench-x-1"),
    ];
    assert!(
        names
            .iter()
            .zip(expected)
            .all(|(found, wanted)| (found.0, found.1) == (&wanted.0.into(), &wanted.1.into()))
    );
    assert!(items.iter().all(|item| item["metadata"]["labels"]["gabion.io/bench"] == "bench-x"));
    assert_eq!(items[0]["spec"]["resources"]["requests"]["storage"], (33_u64 << 30).to_string());
    let pod = &items[3]["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["gabion.io/bench-instance"], "1");
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "bench-x-1");
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], "/volume");
    let block = plan(VolumeMode::Block).manifest();
    assert_eq!(block["items"][0]["spec"]["volumeMode"], "Block");
    let container = &block["items"][1]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["volumeDevices"][0]["devicePath"], VolumeMode::Block.path());
}

#[test]
fn labels_of_runs_are_valid_and_different() {
    assert_eq!(run_label("bench-sweep-20261126-100000-fast"), "bench-sweep-20261126-100000-fast");
    let names = ["Fast.1", "fast-1", "fast.1", "fast-1-", &"long-name-".repeat(9), &"long-name-".repeat(8)];
    let labels: std::collections::BTreeSet<String> =
        names.iter().map(|name| run_label(&format!("bench-x-{name}"))).collect();
    assert_eq!(labels.len(), names.len(), "{labels:?}");
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for label in labels {
        assert!(label.len() <= 51 && !label.ends_with('-') && label.chars().all(is_valid), "{label}");
    }
}

/// Waits until `is_true`.
fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn fio_in_a_pod_ends_with_its_call() {
    let pod = tempfile::tempdir().unwrap();
    // A fio that runs until a signal, if its job has no end.
    let fio = "#!/bin/sh\ntrap 'echo ended > ended; exit 1' TERM\necho $$ > started\n\
               grep -q endless load.fio || { echo results > load.json; exit; }\nwhile :; do sleep 0.01; done\n";
    std::fs::write(pod.path().join("fio"), fio).unwrap();
    std::fs::set_permissions(pod.path().join("fio"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", pod.path().display(), std::env::var("PATH").unwrap());
    let call = |job: &str| {
        let script = SCRIPT.replace("/tmp", &pod.path().display().to_string());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("PATH", &path);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input_of(job).as_bytes()).unwrap();
        (child, stdin)
    };
    let exists = |name: &str| pod.path().join(name).exists();
    let (ended, stdin) = call("[a]\nrw=read\n");
    let output = ended.wait_with_output().unwrap();
    drop(stdin);
    assert!(output.status.success() && output.stdout == b"results\n", "{output:?}");
    assert_eq!(std::fs::read_to_string(pod.path().join("load.fio")).unwrap(), "[a]\nrw=read\n");
    assert!(!exists("ended"));
    std::fs::remove_file(pod.path().join("started")).unwrap();
    // The connection of the call breaks.
    let (mut broken, stdin) = call("endless\n");
    eventually("fio starts", || exists("started"));
    drop(stdin);
    eventually("fio ends", || exists("ended"));
    assert!(!broken.wait().unwrap().success());
    std::fs::remove_file(pod.path().join("ended")).unwrap();
    std::fs::remove_file(pod.path().join("started")).unwrap();
    // The next call ends a fio whose call does not know that it is broken.
    let (mut first, stdin) = call("endless\n");
    eventually("fio starts", || exists("started") && exists("fio.pid"));
    let (second, second_stdin) = call("[b]\n");
    assert_eq!(second.wait_with_output().unwrap().stdout, b"results\n");
    assert!(exists("ended"));
    assert!(!first.wait().unwrap().success());
    drop((stdin, second_stdin));
}

#[test]
fn failures_of_calls_have_the_messages_of_the_program() {
    let place = |program: &str| Kubectl { program: program.into(), context: None, namespace: "x".into() };
    let stop = AtomicBool::new(false);
    let absent = place("/nonexistent").call(&["get"], Input::Text(""), &stop).unwrap_err();
    assert!(matches!(absent, KubectlError::Start { .. }), "{absent}");
    let failed = place("false").call(&["get", "pods"], Input::Text(""), &stop).unwrap_err();
    assert!(failed.to_string().starts_with("kubectl get: it ended with"), "{failed}");
    let directory = tempfile::tempdir().unwrap();
    let endless = directory.path().join("kubectl");
    // Another process writes the program: a test that forks meanwhile would keep it open here.
    let write = "printf '#!/bin/sh\\nexec sleep 600\\n' >\"$0\" && chmod +x \"$0\"";
    let written = std::process::Command::new("sh").arg("-c").arg(write).arg(&endless).status();
    assert!(written.unwrap().success());
    let interrupted =
        place(endless.to_str().unwrap()).call(&["get"], Input::Text(""), &AtomicBool::new(true));
    assert!(matches!(interrupted, Err(KubectlError::Interrupted)), "{interrupted:?}");
    let called = place("echo").call(&["get", "pods"], Input::Text(""), &stop).unwrap();
    assert_eq!(String::from_utf8(called).unwrap(), "--namespace=x get pods\n");
    // A signal of the terminal does not reach the process group of a call.
    let group = directory.path().join("group");
    let write = "printf '#!/bin/sh\\ncut -d \" \" -f 5 /proc/$$/stat\\n' >\"$0\" && chmod +x \"$0\"";
    assert!(std::process::Command::new("sh").arg("-c").arg(write).arg(&group).status().unwrap().success());
    let called = place(group.to_str().unwrap()).call(&["get"], Input::Text(""), &stop).unwrap();
    let own = rustix::process::getpgrp().as_raw_nonzero().to_string();
    assert_ne!(String::from_utf8(called).unwrap().trim(), own);
}
