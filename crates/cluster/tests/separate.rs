//! OSDs whose databases and write-ahead logs are on a fast drive: a loop device with partitions on
//! one host, a file on another. Deployment, repetition, removal, and the loss of the fast drive.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::types::{ClusterHealth, ClusterOsd, ClusterStatus};
use cluster::{ProposalArgs, QuickstartPlan, StepOutcome, StepReport, Workspace};
use serde_json::Value;

/// Places the parts of two data drives of 3 GiB on a fast drive of 2 GiB.
const PROPOSAL: &str = "name=default ratio=2 db=2 wal=2 data=3 db-size=700m wal-size=150m leftovers=true";

/// Removes the cluster and the loop device at the end of the test, also after a failure.
struct TestCluster {
    plan: QuickstartPlan,
    base: tempfile::TempDir,
    device: String,
}

impl TestCluster {
    /// Configures a cluster: two hosts with two data drives and a fast one, two with one drive.
    fn new() -> Self {
        let base = tempfile::Builder::new().prefix("gbc").tempdir_in("/var/tmp").unwrap();
        let name = format!("s{}", std::process::id());
        let plan =
            QuickstartPlan { name, base: base.path().to_owned(), hosts: 4, drives: 2, drive_bytes: 3 << 30 };
        let fast = base.path().join("device");
        std::fs::File::create(&fast).unwrap().set_len(2 << 30).unwrap();
        let device = run("losetup", &["-f", "--show", "-P", fast.to_str().unwrap()]).trim().to_owned();
        let made = Self { plan, base, device };
        assert!(made.plan.configure(&show).unwrap().is_valid());
        let file = made.file_drive();
        std::fs::File::create(&file).unwrap().set_len(2 << 30).unwrap();
        let mut hosts = String::new();
        let drives = |host: u8, count: u8| -> Vec<String> {
            (1..=count).map(|drive| made.drive(&format!("node{host}-{drive}"))).collect()
        };
        for (host, mut drives) in [(1, drives(1, 2)), (2, drives(2, 2)), (3, drives(3, 1)), (4, drives(4, 1))]
        {
            drives.extend((host == 1).then(|| made.device.clone()));
            drives.extend((host == 2).then(|| file.to_str().unwrap().to_owned()));
            let address = format!("local:gabion-{}-node{host}", made.plan.name);
            writeln!(hosts, "[[host]]\nname = \"node{host}\"\naddress = \"{address}\"\ndrives = {drives:?}")
                .unwrap();
        }
        let hosts_file = made.base.path().join("hosts.toml");
        std::fs::write(&hosts_file, hosts).unwrap();
        cluster::prepare(&made.plan.base, &made.plan.name, &hosts_file, false, &show).unwrap();
        let proposal: ProposalArgs = PROPOSAL.parse().unwrap();
        cluster::discover(&made.workspace(), &[proposal], false).unwrap();
        let configuration =
            cluster::configure(&made.workspace(), None, false, &BTreeSet::new(), false).unwrap();
        assert!(configuration.is_valid(), "{:?}", configuration.problems());
        made
    }

    fn workspace(&self) -> Workspace {
        Workspace::open(&self.plan.base, &self.plan.name).unwrap()
    }

    /// Returns the path of a file drive.
    fn drive(&self, name: &str) -> String {
        self.workspace().directory().join("drives").join(name).to_str().unwrap().to_owned()
    }

    /// Returns the fast drive of node2, a file.
    fn file_drive(&self) -> PathBuf {
        self.drive("fast").into()
    }

    /// Returns the files of the parts of node2.
    fn file_parts(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.workspace().directory().join("drives")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_str().unwrap().contains("/fast.")).collect()
    }

    /// Returns the names of the partitions of node1.
    fn partitions(&self) -> Vec<String> {
        let listed = Command::new("partx").args(["-g", "-r", "-o", "NAME", &self.device]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn deploy(&self) -> Result<Vec<StepReport>, cluster::Error> {
        let result = cluster::deploy(&self.workspace(), &BTreeSet::new(), false, &show)?;
        assert!(result.configuration.is_valid(), "{:?}", result.configuration.problems());
        Ok(result.steps)
    }

    fn status(&self) -> ClusterStatus {
        cluster::status(&self.workspace()).unwrap()
    }

    /// Returns the metadata that the OSDs report.
    fn metadata(&self) -> Vec<Value> {
        let conf = self.workspace().directory().join("ceph.conf");
        let output = run("ceph", &["-c", conf.to_str().unwrap(), "osd", "metadata", "--format", "json"]);
        serde_json::from_str(&output).unwrap()
    }

    fn kill(&self, host: &str, osd: u64) {
        let path = self.workspace().directory().join(format!("hosts/{host}/run/osd.{osd}.pid"));
        let pid = std::fs::read_to_string(path).unwrap().trim().to_owned();
        run("kill", &["-9", &pid]);
        wait("a killed OSD is gone", || !Path::new("/proc").join(&pid).exists());
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if self.plan.base.join(&self.plan.name).is_dir() {
            let removed = self.plan.remove(&show);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
        let detached = Command::new("losetup").args(["-d", &self.device]).status().unwrap();
        assert!(detached.success() || std::thread::panicking());
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn show(report: &StepReport) {
    println!("{} {} {:?} {:.1}", report.host, report.step, report.outcome, report.seconds);
    if let Some(error) = &report.error {
        println!("{error}");
    }
}

fn wait(expectation: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "{expectation}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn changed(steps: &[StepReport]) -> Vec<&str> {
    let changed = steps.iter().filter(|step| step.outcome != StepOutcome::Unchanged);
    changed.map(|step| step.step.as_str()).collect()
}

#[test]
fn databases_and_logs_are_on_a_fast_drive() {
    let programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ip", "losetup", "sgdisk", "partx"];
    if !test_support::has_root() || !test_support::has_programs(&programs) {
        return;
    }
    let cluster = TestCluster::new();
    cluster.deploy().unwrap();
    let status = cluster.status();
    assert_eq!((status.health, status.osds.len()), (ClusterHealth::Healthy, 6), "{status:?}");
    let on = |fast: &str| -> Vec<&ClusterOsd> {
        let is_on = |osd: &&ClusterOsd| osd.db.as_deref() == Some(fast) && osd.wal.as_deref() == Some(fast);
        status.osds.iter().filter(is_on).collect()
    };
    let file = cluster.file_drive().to_str().unwrap().to_owned();
    let (on_device, on_file) = (on(&cluster.device), on(&file));
    assert_eq!((on_device.len(), on_file.len()), (2, 2), "{status:?}");
    assert!(status.osds.iter().filter(|osd| osd.db.is_none()).all(|osd| osd.host.as_str() > "node2"));

    // The OSDs use their parts.
    for osd in cluster.metadata() {
        let id = osd["id"].as_u64().unwrap();
        let expected = on_device.iter().chain(&on_file).any(|one| one.id == id);
        let expected = if expected { ("1", "1") } else { ("0", "0") };
        let found =
            (osd["bluefs_dedicated_db"].as_str().unwrap(), osd["bluefs_dedicated_wal"].as_str().unwrap());
        assert_eq!(found, expected, "{osd}");
    }
    assert_eq!((cluster.partitions().len(), cluster.file_parts().len()), (4, 4));
    assert_eq!(changed(&cluster.deploy().unwrap()), Vec::<&str>::new());

    // The removal of an OSD frees its parts, and no others.
    let removed = format!("node1:{}", on_device[0].drive.as_ref().unwrap());
    cluster::remove(&cluster.workspace(), &removed, &show).unwrap();
    assert_eq!(cluster.partitions().len(), 2, "{:?}", cluster.partitions());
    let status = cluster.status();
    assert!(status.osds.len() == 5 && status.osds.iter().all(|osd| osd.state == "up"), "{status:?}");

    the_loss_of_a_fast_drive_takes_its_osds_down(&cluster, &on_file, &file);

    // The removal of the cluster leaves the device empty.
    cluster.plan.remove(&show).unwrap();
    assert_eq!(cluster.partitions(), Vec::<String>::new());
    let output = Command::new("blkid").args(["-p", &cluster.device]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

fn the_loss_of_a_fast_drive_takes_its_osds_down(cluster: &TestCluster, on_file: &[&ClusterOsd], file: &str) {
    on_file.iter().for_each(|osd| cluster.kill("node2", osd.id));
    cluster.file_parts().iter().for_each(|part| std::fs::remove_file(part).unwrap());
    let named = |status: &ClusterStatus| {
        status.problems.iter().find(|problem| problem.message.contains(file)).cloned()
    };
    wait("the status names the drive", || named(&cluster.status()).is_some());
    let problem = named(&cluster.status()).unwrap();
    for osd in on_file {
        assert!(problem.message.contains(&format!("osd.{}", osd.id)), "{problem:?}");
    }
    let target = format!("node2:{file}");
    assert!(problem.action.contains(&target), "{problem:?}");

    // A deployment does not restart them, and names the way out.
    let error = cluster.deploy().unwrap_err().to_string();
    assert!(error.contains("has lost its database") && error.contains(&target), "{error}");
    let steps = cluster::remove(&cluster.workspace(), &target, &show).unwrap();
    assert_eq!(steps.len(), 2, "{steps:?}");
    wait("the others have all data", || cluster.status().health == ClusterHealth::Healthy);
    let status = cluster.status();
    assert_eq!((status.osds.len(), named(&status)), (3, None), "{status:?}");
    assert_eq!(cluster.file_parts(), Vec::<PathBuf>::new());
}
