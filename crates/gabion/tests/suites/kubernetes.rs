//! Targets with volumes and pods of a Kubernetes cluster, with a kubectl of the tests.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::Value;

use crate::harness::{BenchHome, json, results, text};

/// A suite with staggered instances, as the I/O blender.
const SUITE: &str = "
name = 'blend'
title = 'two jobs'
source = 'this test'
scheme = '2+1'
instances = [3]
instance_bytes = 33554432
order = 'staggered'
stagger_s = 0.2
ramp_s = 0
run_s = 1
[[jobs]]
name = 'write'
block_bytes = 65536
read_percent = 0
random = false
depth = 2
threads = 1
engine = 'libaio'
[[jobs]]
name = 'read'
block_bytes = 4096
read_percent = 100
random = true
depth = 4
threads = 1
engine = 'libaio'
";

/// A cluster whose pods run on this host.
struct FakeCluster {
    home: BenchHome,
    kubectl: String,
}

impl FakeCluster {
    fn new() -> Option<Self> {
        if !test_support::has_program("python3") {
            return None;
        }
        let home = BenchHome::new()?;
        let kubectl = home.path("kubectl");
        std::fs::write(&kubectl, include_str!("kubectl.py")).unwrap();
        std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(home.path("cluster")).unwrap();
        std::fs::write(home.path("blend.toml"), SUITE).unwrap();
        let kubectl = kubectl.display().to_string();
        Some(Self { home, kubectl })
    }

    fn run(&self, suite: &str, options: &str, more: &[&str]) -> Output {
        let target = format!("kubernetes:kubectl={},{options}", self.kubectl);
        let suite = self.home.path(suite).display().to_string();
        let mut command = self.home.command(&["run", &suite, "--target", &target]);
        command.args(more).env("FAKE_CLUSTER", self.home.path("cluster")).output().unwrap()
    }

    /// Returns the calls of kubectl.
    fn calls(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.home.path("cluster/calls")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the objects in the cluster.
    fn objects(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.home.path("cluster/objects.json")).unwrap_or("[]".into());
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn pods_run_the_jobs_on_their_volumes() {
    let Some(cluster) = FakeCluster::new() else { return };
    let summary = json(&cluster.run("blend.toml", "class=fast,namespace=tests,context=lab", &["--json"]));
    let measured = results(&summary, "kubernetes");
    assert_eq!(measured.len(), 2, "{summary}");
    assert!(measured.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
    // Each pod has written its own file, and nothing is left in the cluster.
    for instance in 0..3 {
        let files = std::fs::read_dir(cluster.home.path("cluster")).unwrap().flatten();
        let end = format!("-{instance}-abcde");
        let pod =
            files.map(|entry| entry.path()).find(|path| path.to_str().unwrap().ends_with(&end)).unwrap();
        assert_eq!(std::fs::metadata(pod.join("test.dat")).unwrap().len(), 32 << 20);
    }
    assert_eq!(cluster.objects(), Vec::<Value>::new());
    let calls = cluster.calls();
    assert!(calls.iter().all(|call| call[..2] == ["--context=lab", "--namespace=tests"]), "{calls:?}");
    let verbs: Vec<&str> = calls.iter().map(|call| call[2].as_str()).collect();
    assert_eq!(verbs.iter().filter(|verb| **verb == "exec").count(), 6 + 3, "{verbs:?}");
    assert_eq!(verbs[verbs.len() - 2..], ["delete", "delete"]);
    let deleted = calls.iter().filter(|call| call[2] == "delete");
    assert!(
        deleted.clone().all(|call| call[4].starts_with("--selector=gabion.io/bench=bench-")),
        "{calls:?}"
    );
    assert!(deleted.clone().all(|call| call.contains(&"--timeout=300s".to_owned())), "{calls:?}");
    let run = &cluster.home.runs()[0];
    let systems = std::fs::read_to_string(cluster.home.path("runs").join(run).join("systems.json")).unwrap();
    assert!(systems.contains("3 pods running fio") && systems.contains("storage class 'fast'"), "{systems}");
}

#[test]
fn pods_start_together_without_staggering() {
    let Some(cluster) = FakeCluster::new() else { return };
    let summary = json(&cluster.run("tiny.toml", "class=fast,size=64M", &["--json", "--quick"]));
    let measured = results(&summary, "kubernetes");
    let is_measured = |name: &str| {
        measured
            .iter()
            .any(|(case, iops)| case.starts_with(name) && iops.as_ref().is_ok_and(|iops| *iops > 0.0))
    };
    assert!(is_measured("read") && is_measured("write"), "{summary}");
    let lost = measured.iter().find(|(case, _)| case.contains("lost")).unwrap();
    assert!(lost.1.as_ref().is_err_and(|reason| reason.contains("does not support")), "{summary}");
    assert_eq!(cluster.objects(), Vec::<Value>::new());
}

#[test]
fn a_cluster_that_refuses_is_reported_and_left_clean() {
    let Some(cluster) = FakeCluster::new() else { return };
    for (options, expected) in [
        ("class=refused", "claims are refused"),
        ("class=fast,image=absent", "0 of 3 pods are ready"),
        ("class=fast,image=absent", "there is no image 'absent'"),
    ] {
        let output = cluster.run("blend.toml", options, &[]);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains(expected), "{options}: {said}");
        assert_eq!(cluster.objects(), Vec::<Value>::new());
    }
}
