//! Tests of the objects of a run, and of calls.

use std::path::Path;
use std::sync::atomic::AtomicBool;

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
fn labels_of_runs_are_valid() {
    assert_eq!(run_label(Path::new("/runs/2026-11-26_10:00"), "Fast.1"), "bench-2026-11-26-10-00-fast-1");
    let long = run_label(Path::new("/runs/x"), &"long-name-".repeat(9));
    assert!(long.len() <= 51 && !long.ends_with('-'), "{long}");
}

#[test]
fn failures_of_calls_have_the_messages_of_the_program() {
    let place = |program: &str| Kubectl { program: program.into(), context: None, namespace: "x".into() };
    let stop = AtomicBool::new(false);
    let absent = place("/nonexistent").call(&["get"], "", &stop).unwrap_err();
    assert!(matches!(absent, KubectlError::Start { .. }), "{absent}");
    let failed = place("false").call(&["get", "pods"], "", &stop).unwrap_err();
    assert!(failed.to_string().starts_with("kubectl get: it ended with"), "{failed}");
    let directory = tempfile::tempdir().unwrap();
    let endless = directory.path().join("kubectl");
    // Another process writes the program: a test that forks meanwhile would keep it open here.
    let write = "printf '#!/bin/sh\\nexec sleep 600\\n' >\"$0\" && chmod +x \"$0\"";
    let written = std::process::Command::new("sh").arg("-c").arg(write).arg(&endless).status();
    assert!(written.unwrap().success());
    let interrupted = place(endless.to_str().unwrap()).call(&["get"], "", &AtomicBool::new(true));
    assert!(matches!(interrupted, Err(KubectlError::Interrupted)), "{interrupted:?}");
    let called = place("echo").call(&["get", "pods"], "", &stop).unwrap();
    assert_eq!(String::from_utf8(called).unwrap(), "--namespace=x get pods\n");
}
