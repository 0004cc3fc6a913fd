//! A cluster of three hosts in network namespaces: the stages, their repetition and interruption,
//! failures of daemons, and the removal.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use api::types::ClusterHealth;
use cluster::{QuickstartPlan, StepOutcome, StepReport, Workspace, deploy, remove, status};

/// Removes the cluster at the end of the test, also after a failure.
struct TestCluster {
    plan: QuickstartPlan,
    _base: tempfile::TempDir,
}

impl TestCluster {
    fn new() -> Self {
        let base = tempfile::Builder::new().prefix("gbc").tempdir_in("/var/tmp").unwrap();
        let name = format!("t{}", std::process::id());
        let plan =
            QuickstartPlan { name, base: base.path().to_owned(), hosts: 3, drives: 1, drive_bytes: 3 << 30 };
        Self { plan, _base: base }
    }

    fn workspace(&self) -> Workspace {
        Workspace::open(&self.plan.base, &self.plan.name).unwrap()
    }

    fn deploy(&self) -> Result<Vec<StepReport>, cluster::Error> {
        let result = deploy(&self.workspace(), &BTreeSet::new(), false, &show)?;
        assert!(result.configuration.is_valid(), "{:?}", result.configuration.problems());
        Ok(result.steps)
    }

    fn pid(&self, host: &str, daemon: &str) -> String {
        let path = self.workspace().directory().join(format!("hosts/{host}/run/{daemon}.pid"));
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    fn kill(&self, host: &str, daemon: &str) {
        let pid = self.pid(host, daemon);
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        // A process that runs on another processor ends a moment later.
        wait(|| !is_running(&pid));
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if self.plan.base.join(&self.plan.name).is_dir() {
            let removed = self.plan.remove(&show);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
    }
}

fn show(report: &StepReport) {
    println!("{} {} {:?} {:.1}", report.host, report.step, report.outcome, report.seconds);
}

/// Returns false for a process that has ended, also before its parent has collected it.
fn is_running(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !(status.is_empty() || status.contains("State:\tZ"))
}

fn wait(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn changed(steps: &[StepReport]) -> Vec<&str> {
    let changed = steps.iter().filter(|step| step.outcome != StepOutcome::Unchanged);
    changed.map(|step| step.step.as_str()).collect()
}

#[test]
fn a_cluster_is_deployed_repeated_resumed_and_removed() {
    let programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ip"];
    if !test_support::has_root() || !test_support::has_programs(&programs) {
        return;
    }
    let cluster = TestCluster::new();
    let configuration = cluster.plan.configure(&show).unwrap();
    assert!(configuration.is_valid(), "{:?}", configuration.problems());

    // A dry run changes nothing.
    let planned = deploy(&cluster.workspace(), &BTreeSet::new(), true, &show).unwrap().steps;
    assert!(planned.iter().all(|step| step.outcome == StepOutcome::Planned));
    assert!(!cluster.workspace().directory().join("hosts").exists());

    // Another program fills a drive between the inventory and its use: the deployment ends there.
    let drive = cluster.workspace().directory().join("drives/node3-1");
    let spoiled = Mutex::new(false);
    let spoil = |report: &StepReport| {
        show(report);
        let mut spoiled = spoiled.lock().unwrap();
        if report.step.contains("quorum") && !*spoiled {
            *spoiled = true;
            let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(&drive).status().unwrap();
            assert!(made.success());
        }
    };
    let error = deploy(&cluster.workspace(), &BTreeSet::new(), false, &spoil).unwrap_err();
    assert!(error.to_string().contains("holds ext4 now"), "{error}");

    // The contents are refused until they are named; then the remaining steps run.
    let refused = deploy(&cluster.workspace(), &BTreeSet::new(), false, &show).unwrap();
    let problems = refused.configuration.problems();
    assert!(problems.len() == 1 && problems[0].contains("holds ext4"), "{problems:?}");
    let wipe = BTreeSet::from([format!("node3:{}", drive.display())]);
    let result = deploy(&cluster.workspace(), &wipe, false, &show).unwrap();
    assert!(result.configuration.is_valid());
    assert!(!changed(&result.steps).contains(&"create and start the monitor"), "it ran already");
    let healthy = status(&cluster.workspace()).unwrap();
    assert_eq!((healthy.health, healthy.osds.len()), (ClusterHealth::Healthy, 3), "{healthy:?}");
    assert!(healthy.osds.iter().all(|osd| osd.state == "up" && osd.drive.is_some()), "{healthy:?}");

    // A repetition changes nothing, and no daemon restarts. With the drive named again, its OSD
    // stays.
    let pids = |daemons: &[(&str, &str)]| {
        daemons.iter().map(|(host, name)| cluster.pid(host, name)).collect::<Vec<_>>()
    };
    let daemons = [("node1", "mon.node1"), ("node1", "mgr.node1"), ("node2", "mon.node2")];
    let before = pids(&daemons);
    let steps = deploy(&cluster.workspace(), &wipe, false, &show).unwrap().steps;
    assert_eq!(changed(&steps), Vec::<&str>::new());
    assert_eq!(pids(&daemons), before);

    // A killed monitor is a problem with a consequence and an action; a deployment restarts it.
    cluster.kill("node2", "mon.node2");
    wait(|| status(&cluster.workspace()).unwrap().health != ClusterHealth::Healthy);
    let degraded = status(&cluster.workspace()).unwrap();
    assert_eq!(degraded.health, ClusterHealth::Degraded, "{degraded:?}");
    let problem =
        degraded.problems.iter().find(|problem| problem.check.as_deref() == Some("MON_DOWN")).unwrap();
    assert!(
        problem.consequence.contains("most monitors") && problem.action.contains("deploy"),
        "{problem:?}"
    );
    let steps = cluster.deploy().unwrap();
    assert_eq!(changed(&steps)[0], "create and start the monitor");

    // Three copies need three hosts.
    let error = remove(&cluster.workspace(), "node3", &show).unwrap_err();
    assert_eq!(error.kind(), cluster::ErrorKind::Unsafe, "{error}");

    // The removal ends every daemon, and nothing of the cluster remains.
    let pid = cluster.pid("node1", "mon.node1");
    cluster.plan.remove(&show).unwrap();
    assert!(!is_running(&pid));
    assert!(!cluster.plan.base.join(&cluster.plan.name).exists());
}
