//! Volumes of a cluster of four hosts in network namespaces: administration, exports, and data
//! through the loss of a host, of a monitor and of the daemon; users and buckets of its gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cluster::{QuickstartPlan, ServiceOptions, StepOutcome, StepReport, Workspace};
use serde_json::json;

use super::cluster_benchmarks::{self, ClusterBench};
use super::cluster_objects;
use super::front_end::{DeviceSetup, FrontEnd, Io};
use super::harness::{Daemon, DaemonHome, until};
use super::https::{Https, token};
use super::nbd::{Client, pattern};

const BLOCK: u64 = 4096;
/// Blocks under load.
const BLOCKS: u64 = 2048;

/// Removes the cluster at the end of the test, also after a failure.
struct TestCluster {
    plan: QuickstartPlan,
    base: tempfile::TempDir,
}

impl TestCluster {
    /// Deploys a cluster with its services. Nothing if the test is skipped.
    fn new() -> Option<Self> {
        let programs = [
            "ceph-mon",
            "ceph-mgr",
            "ceph-osd",
            "ceph-mds",
            "radosgw",
            "radosgw-admin",
            "ceph-fuse",
            "rbd",
            "ip",
        ];
        if !test_support::has_root() || !test_support::has_programs(&programs) {
            return None;
        }
        let base = tempfile::Builder::new().prefix("gbc").tempdir_in("/var/tmp").unwrap();
        let plan = QuickstartPlan {
            name: format!("v{}", std::process::id()),
            base: base.path().to_owned(),
            hosts: 4,
            drives: 1,
            drive_bytes: 4 << 30,
        };
        let made = Self { plan, base };
        assert!(made.plan.configure(&show).unwrap().is_valid());
        let deployed = cluster::deploy(&made.workspace(), &BTreeSet::new(), false, &show).unwrap();
        assert!(deployed.configuration.is_valid(), "{:?}", deployed.configuration.problems());
        Some(made)
    }

    fn workspace(&self) -> Workspace {
        Workspace::open(&self.plan.base, &self.plan.name).unwrap()
    }

    fn services(&self, options: &ServiceOptions, dry_run: bool) -> Vec<StepReport> {
        cluster::services(&self.workspace(), options, dry_run, &show).unwrap().steps
    }

    /// Returns the address of the first object gateway.
    fn gateway(&self) -> String {
        let planned = cluster::services(&self.workspace(), &ServiceOptions::default(), true, &show).unwrap();
        planned.services.into_iter().find(|service| service.service == "S3").unwrap().address
    }

    /// Returns the process ids of daemons of a host whose names begin with a text.
    fn processes(&self, host: &str, prefix: &str) -> Vec<String> {
        let run = self.workspace().directory().join(format!("hosts/{host}/run"));
        let paths = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
        let is_meant = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(prefix) && name.ends_with(".pid")
        };
        let found = paths.filter(is_meant);
        found.map(|path| std::fs::read_to_string(path).unwrap().trim().to_owned()).collect()
    }

    /// Kills daemons of a host by their names, or all of them.
    fn kill(&self, host: &str, only: Option<&str>) {
        let pids = self.processes(host, only.unwrap_or_default());
        assert!(!pids.is_empty(), "{host} {only:?}");
        for pid in pids {
            signal(&pid, "-9");
            until("a killed daemon is gone", || !Path::new("/proc").join(&pid).exists());
        }
    }

    /// Connects a host with the network, or cuts it off.
    fn set_link(&self, host: u8, state: &str) {
        let number = std::fs::read_to_string(self.workspace().directory().join("network")).unwrap();
        let link = format!("gbc{}v{host}", number.trim());
        assert!(Command::new("ip").args(["link", "set", &link, state]).status().unwrap().success(), "{link}");
    }

    /// Returns the number of OSDs that are up.
    fn osds_up(&self) -> usize {
        let status = cluster::status(&self.workspace()).unwrap();
        status.osds.iter().filter(|osd| osd.state == "up").count()
    }

    /// Waits until all OSDs are up and all placement groups have all of their copies.
    fn wait_clean(&self) {
        until("the cluster has all copies", || {
            let status = cluster::status(&self.workspace()).unwrap();
            let clean = status.placement_groups.keys().all(|state| state == "active+clean");
            clean && status.osds.iter().all(|osd| osd.state == "up")
        });
    }

    /// Starts the daemons of a host as at its boot.
    fn boot(&self, host: &str) {
        let network = format!("--net=/run/netns/gabion-{}-{host}", self.plan.name);
        let script = self.workspace().directory().join(format!("hosts/{host}/boot.sh"));
        let run = Command::new("nsenter").args([&network, "--", "sh"]).arg(script).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    }

    /// Starts a daemon of Gabion that serves the cluster.
    fn start<'a>(&self, home: &'a DaemonHome) -> Daemon<'a> {
        let base = self.base.path().to_str().unwrap();
        home.start_with(&["--threads", "2", "--clusters-directory", base, "--api-listen", "127.0.0.1:0"])
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

fn signal(pid: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success(), "{signal} {pid}");
}

fn show(report: &StepReport) {
    println!("{} {} {:?} {:.1}", report.host, report.step, report.outcome, report.seconds);
    if let Some(error) = &report.error {
        println!("{error}");
    }
}

fn changed(steps: &[StepReport]) -> Vec<&str> {
    let changed = steps.iter().filter(|step| step.outcome != StepOutcome::Unchanged);
    changed.map(|step| step.step.as_str()).collect()
}

/// A writer of blocks with increasing versions.
#[derive(Default)]
struct VersionedBlocks {
    acknowledged: BTreeMap<u64, u64>,
    /// A write without an answer: its block holds the old or the new version.
    pending: Option<(u64, u64)>,
    version: u64,
}

impl VersionedBlocks {
    fn content(block: u64, version: u64) -> Vec<u8> {
        if version == 0 { vec![0; BLOCK as usize] } else { pattern(block << 32 | version, BLOCK as usize) }
    }

    /// Writes zeros to every block.
    fn clear(&mut self, client: &mut Client) {
        client.write(0, &vec![0; (BLOCKS * BLOCK) as usize]).unwrap();
        self.acknowledged.clear();
    }

    /// Writes until `stop` is set or the connection ends.
    fn write_until(&mut self, client: &mut Client, stop: &AtomicBool, count: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            self.version += 1;
            let block = self.version.wrapping_mul(0x9E37_79B9_7F4A_7C15) % BLOCKS;
            self.pending = Some((block, self.version));
            if client.write(block * BLOCK, &Self::content(block, self.version)).is_err() {
                return;
            }
            self.acknowledged.insert(block, self.version);
            self.pending = None;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares every block with its acknowledged version.
    fn verify(&mut self, client: &mut Client, when: &str) {
        for block in 0..BLOCKS {
            let found = client.read(block * BLOCK, BLOCK as usize).unwrap();
            let version = self.acknowledged.get(&block).copied().unwrap_or(0);
            if let Some((pending, newer)) = self.pending
                && pending == block
                && found == Self::content(block, newer)
            {
                self.acknowledged.insert(block, newer);
                continue;
            }
            assert!(found == Self::content(block, version), "{when}: block {block} lost version {version}");
        }
        self.pending = None;
    }

    /// Runs `event` under load, which must make progress after it.
    fn under_load(&mut self, client: &mut Client, event: impl FnOnce()) {
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let (writer, stop, count) = (self, &stop, &count);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_until(client, stop, count));
            let progress = |writes: u64| {
                let goal = count.load(Ordering::Relaxed) + writes;
                until("writes make progress", || count.load(Ordering::Relaxed) >= goal);
            };
            progress(20);
            event();
            progress(100);
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn volumes_of_a_cluster_survive_the_loss_of_hosts_and_of_the_daemon() {
    let Some(cluster) = TestCluster::new() else { return };
    let name = cluster.plan.name.clone();
    let volume = format!("{name}/vm01");
    let home = DaemonHome::new();
    let daemon = cluster.start(&home);
    let refusal = daemon.refused(&["volume", "create", &volume, "--size", "64M"]);
    assert!(refusal.contains(&format!("gabion cluster services {name}")), "{refusal}");

    let refusal = daemon.refused(&["user", "create", "anna", "--cluster", &name]);
    assert!(refusal.contains(&format!("gabion cluster services {name}")), "{refusal}");

    daemons_have_the_mounts_of_this_host(&cluster);
    services_are_created_once(&cluster);
    the_api_shows_the_cluster(&cluster, &daemon, &home);
    volumes_are_administered(&daemon, &name);
    cluster_objects::are_administered(&daemon, &name, &cluster.gateway());
    data_is_in_the_named_pool(&cluster, &daemon, &home.nbd_socket(), &name);
    an_image_without_a_lock_is_only_read(&cluster, &daemon, &name);
    cluster_benchmarks::suites_are_measured(&ClusterBench {
        cluster: &name,
        base: cluster.base.path(),
        runs: home.path("runs"),
    });
    let left = daemon.json(&["volume", "list", &name]);
    assert_eq!(left.as_array().unwrap().len(), 1, "the volumes of the runs are deleted: {left}");
    let identity = data_is_served(&home, &daemon, &name);

    // A host and then a monitor of another host are lost under load.
    let mut blocks = VersionedBlocks::default();
    let mut client = Client::connect(&home.nbd_socket(), &volume).unwrap();
    blocks.clear(&mut client);

    // An OSD that does not answer delays writes until it counts as down, and fails none.
    blocks.under_load(&mut client, || {
        let stopped = cluster.processes("node3", "osd.");
        stopped.iter().for_each(|pid| signal(pid, "-STOP"));
        until("the stopped OSD counts as down", || cluster.osds_up() == 3);
        stopped.iter().for_each(|pid| signal(pid, "-CONT"));
        until("the OSD is up again", || cluster.osds_up() == 4);
    });
    blocks.verify(&mut client, "after an OSD did not answer");
    cluster.wait_clean();

    // The network is cut between halves: two hosts and their client, and the others. Writes whose
    // copies are mostly on the other side wait until the halves are connected.
    blocks.under_load(&mut client, || {
        for host in [3, 4] {
            cluster.set_link(host, "down");
        }
        until("half of the OSDs count as down", || cluster.osds_up() == 2);
        for host in [3, 4] {
            cluster.set_link(host, "up");
        }
        until("all OSDs are up again", || cluster.osds_up() == 4);
    });
    blocks.verify(&mut client, "after a cut between halves");
    cluster.wait_clean();

    blocks.under_load(&mut client, || cluster.kill("node4", None));
    blocks.verify(&mut client, "after the loss of a host");
    blocks.under_load(&mut client, || cluster.kill("node2", Some("mon.node2")));
    blocks.verify(&mut client, "after the loss of a monitor");

    // The daemon is killed under load, and breaks the lock of the killed one.
    let mut second = Client::connect(&home.nbd_socket(), &volume).unwrap();
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| blocks.write_until(&mut second, &stop, &count));
        until("writes make progress", || count.load(Ordering::Relaxed) >= 50);
        daemon.kill();
    });
    // The next one starts before the configuration of the cluster is there.
    let directory = cluster.base.path().join(&name);
    let (configuration, hidden) = (directory.join("ceph.conf"), directory.join("hidden"));
    std::fs::rename(&configuration, &hidden).unwrap();
    let daemon = cluster.start(&home);
    let active = || {
        let exports = daemon.json(&["export", "list"]);
        exports.as_array().unwrap().iter().all(|export| export["state"] == "active")
    };
    assert!(!active());
    std::fs::rename(&hidden, &configuration).unwrap();
    until("the exports are active again", active);
    let mut client = Client::connect(&home.nbd_socket(), &volume).unwrap();
    blocks.verify(&mut client, "after a kill of the daemon");
    blocks.under_load(&mut client, || {});
    blocks.verify(&mut client, "after the restart");
    client.flush().unwrap();
    drop((client, second));
    assert_eq!(daemon.json(&["volume", "show", &volume])["id"], identity);

    // Everything is deleted, and the cluster is healthy after a deployment.
    daemon.ok(&["export", "delete", &volume, "--id", "nbd", "--force"]);
    daemon.ok(&["export", "delete", &volume, "--force"]);
    daemon.ok(&["volume", "delete", &volume, "--yes"]);
    let left = daemon.json(&["volume", "list", &name]);
    assert_eq!(left, json!([]));
    daemon.stop();
    cluster.boot("node4");
    let again = cluster::deploy(&cluster.workspace(), &BTreeSet::new(), false, &show).unwrap();
    let changes = changed(&again.steps);
    assert!(changes.contains(&"create and start the monitor"), "{changes:?}");
    assert!(!changes.iter().any(|step| step.contains("OSD")), "it started at boot: {changes:?}");
    cluster.services(&ServiceOptions::default(), false);
    adoption_reads_the_cluster(&cluster);
    cluster.plan.remove(&show).unwrap();
}

/// The clusters in the API, as the console shows them.
fn the_api_shows_the_cluster(cluster: &TestCluster, daemon: &Daemon<'_>, home: &DaemonHome) {
    let https = Https::of(daemon, home);
    let viewer = token(daemon, "viewer", "viewer");
    let get = |path: &str| https.with_token(&viewer, "GET", path, "");
    let name = &cluster.plan.name;
    assert_eq!(
        get("/v1/clusters").json(),
        json!([{"name": name, "configured": true, "volumes": true}]),
        "{}",
        daemon.log()
    );
    let path = format!("/v1/clusters/{name}");
    let status = get(&path).json();
    assert_eq!((&status["health"], &status["problems"]), (&json!("healthy"), &json!([])), "{status}");
    let hosts = status["hosts"].as_array().unwrap();
    assert_eq!((hosts.len(), &hosts[0]["in_quorum"], &hosts[0]["osds_up"]), (4, &json!(true), &json!(1)));
    let pools = status["pools"].as_array().unwrap();
    let pool = |name: &str| pools.iter().find(|pool| pool["name"] == name).unwrap();
    assert_eq!(
        (&pool("rbd")["protection"], &pool("rbd")["applications"]),
        (&json!("3 copies"), &json!(["rbd"]))
    );
    assert_eq!(pool("backup")["protection"], "2+2");
    assert!(pool("rbd")["available"].as_u64().unwrap() > 1 << 30, "{status}");
    assert_eq!(status["osds"].as_array().unwrap().len(), 4);
    let unknown = get("/v1/clusters/other");
    assert_eq!((unknown.status, &unknown.json()["error"]["kind"]), (404, &json!("not_found")));
}

/// A copy of the mounts in a daemon would keep every device of this host in use.
fn daemons_have_the_mounts_of_this_host(cluster: &TestCluster) {
    let mounts = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap();
    let hosts = std::fs::read_dir(cluster.workspace().directory().join("hosts")).unwrap();
    let names = hosts.map(|host| host.unwrap().file_name().into_string().unwrap());
    let processes: Vec<_> = names.flat_map(|host| cluster.processes(&host, "")).collect();
    assert!(!processes.is_empty());
    for process in processes {
        assert_eq!(mounts(&process), mounts("self"), "process {process}");
    }
}

fn services_are_created_once(cluster: &TestCluster) {
    let pools = ["backup=ec:2+2", "ec22=ec:2+2,rbd", "files22=ec:2+2,cephfs"];
    let pools = pools.map(|pool| pool.parse().unwrap()).into();
    let options = ServiceOptions { volumes: None, pools };
    let planned = cluster.services(&options, true);
    assert!(planned.iter().all(|step| step.outcome == StepOutcome::Planned));
    let steps = cluster.services(&options, false);
    assert!(changed(&steps).contains(&"create the file system"), "{steps:?}");
    for options in [&options, &ServiceOptions::default()] {
        // Also without the additional pools, to which the users keep their access.
        let again = cluster.services(options, false);
        assert_eq!(changed(&again), Vec::<&str>::new());
    }
    let other = ServiceOptions { volumes: None, pools: vec!["backup=ec:2+1".parse().unwrap()] };
    let error = cluster::services(&cluster.workspace(), &other, false, &show).unwrap_err();
    assert!(error.to_string().contains("another redundancy"), "{error}");
    let large = ServiceOptions { volumes: Some("ec:8+3".parse().unwrap()), pools: Vec::new() };
    let error = cluster::services(&cluster.workspace(), &large, false, &show).unwrap_err();
    assert!(error.to_string().contains("needs 11 storage hosts"), "{error}");
}

/// Creates, resizes, clones and deletes volumes.
fn volumes_are_administered(daemon: &Daemon<'_>, name: &str) {
    let volume = format!("{name}/vm01");
    let created = daemon.json(&["volume", "create", &volume, "--size", "64M"]);
    assert_eq!((&created["size"], &created["stored"]), (&json!(64 << 20), &json!(0)));
    assert_eq!(daemon.ok(&["volume", "list", "-q"]).trim(), volume, "all clusters are listed");
    let refusal = daemon.refused(&["volume", "create", &volume, "--size", "64M"]);
    assert!(refusal.contains("already has a volume 'vm01'"), "{refusal}");
    let refusal = daemon.refused(&["volume", "show", &format!("{name}/none")]);
    assert!(refusal.contains("has no volume 'none'") && refusal.contains("volume list"), "{refusal}");
    let refusal = daemon.refused(&["volume", "resize", &volume, "--size", "32M"]);
    assert!(refusal.contains("--shrink"), "{refusal}");
    daemon.ok(&["volume", "resize", &volume, "--size", "96M"]);
    daemon.ok(&["volume", "snapshot", &format!("{volume}@empty")]);
    let refusal = daemon.refused(&["volume", "delete", &volume, "--yes"]);
    assert!(refusal.contains("snapshots"), "{refusal}");
    daemon.ok(&["volume", "clone", &format!("{volume}@empty"), "copy"]);
    let copy = daemon.json(&["volume", "show", &format!("{name}/copy")]);
    assert_eq!((&copy["origin"], &copy["size"]), (&json!("vm01@empty"), &json!(96 << 20)));
    daemon.ok(&["volume", "delete", &format!("{name}/copy"), "--yes"]);
    daemon.ok(&["volume", "delete", &format!("{volume}@empty"), "--yes"]);
    let refusal = daemon.refused(&["volume", "set", &volume, "--iops", "100"]);
    assert!(refusal.contains("is a cluster"), "{refusal}");
    let names = daemon.json(&["volume", "list", name, "--snapshots"]);
    assert_eq!(names.as_array().unwrap().len(), 1, "{names}");
}

/// A volume whose data is in another pool than its description.
fn data_is_in_the_named_pool(cluster: &TestCluster, daemon: &Daemon<'_>, socket: &Path, name: &str) {
    let volume = format!("{name}/parity");
    let refusal = daemon.refused(&["volume", "create", &volume, "--size", "64M", "--data-pool", "none"]);
    assert!(refusal.contains("has no pool 'none'") && refusal.contains("--pool none="), "{refusal}");
    // The user of volumes has no access to the pools of others.
    let refusal = daemon.refused(&["volume", "create", &volume, "--size", "64M", "--data-pool", "backup"]);
    assert!(refusal.contains("with its data in pool 'backup'"), "{refusal}");
    daemon.ok(&["volume", "create", &volume, "--size", "64M", "--data-pool", "ec22"]);
    daemon.ok(&["export", "create", &volume, "--nbd"]);
    let mut client = Client::connect(socket, &volume).unwrap();
    let data = pattern(3, 8 << 20);
    client.write(0, &data).unwrap();
    assert!(client.read(0, data.len()).unwrap() == data);
    drop(client);
    let stored = |pool: &str| {
        let status = cluster::status(&cluster.workspace()).unwrap();
        status.pools.into_iter().find(|one| one.name == pool).unwrap().stored
    };
    until("the data is in the pool", || stored("ec22") >= 8 << 20);
    assert!(stored("rbd") < 1 << 20);
    daemon.ok(&["export", "delete", &volume, "--force"]);
    daemon.ok(&["volume", "delete", &volume, "--yes"]);
}

/// Exports an image that another tool created without the feature of the exclusive lock.
fn an_image_without_a_lock_is_only_read(cluster: &TestCluster, daemon: &Daemon<'_>, name: &str) {
    let directory = cluster.workspace().directory().to_owned();
    let rbd = |arguments: &[&str]| {
        let mut command = std::process::Command::new("rbd");
        command.arg("-c").arg(directory.join("ceph.conf")).args(["-n", "client.gabion", "-k"]);
        let output = command.arg(directory.join("gabion.keyring")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    rbd(&["create", "rbd/plain", "--size", "64M", "--image-feature", "layering"]);
    let volume = format!("{name}/plain");
    let refusal = daemon.refused(&["export", "create", &volume, "--nbd"]);
    assert!(refusal.contains("rbd feature enable rbd/plain exclusive-lock"), "{refusal}");
    daemon.ok(&["export", "create", &volume, "--nbd", "--read-only"]);
    daemon.ok(&["export", "delete", &volume, "--force"]);
    rbd(&["feature", "enable", "rbd/plain", "exclusive-lock"]);
    daemon.ok(&["export", "create", &volume, "--nbd"]);
    daemon.ok(&["export", "delete", &volume, "--force"]);
    daemon.ok(&["volume", "delete", &volume, "--yes"]);
}

/// Serves a volume by two protocols, and a snapshot of it. Returns the identity of the volume.
fn data_is_served(home: &DaemonHome, daemon: &Daemon<'_>, name: &str) -> serde_json::Value {
    let volume = format!("{name}/vm01");
    daemon.ok(&["export", "create", &volume, "--nbd", "--shared"]);
    daemon.ok(&["export", "create", &volume, "--vhost-user", "--shared"]);
    let refusal = daemon.refused(&["volume", "delete", &volume, "--yes"]);
    assert!(refusal.contains("is exported"), "{refusal}");
    let socket = home.nbd_socket();
    let mut client = Client::connect(&socket, &volume).unwrap();
    assert_eq!(client.size, 96 << 20);
    let (data, other) = (pattern(1, 3 << 20), pattern(2, 1 << 20));
    client.write(512 * 7, &data).unwrap();
    client.flush().unwrap();
    assert!(client.read(512 * 7, data.len()).unwrap() == data);
    assert!(client.write(96 << 20, &[1; 512]).is_err(), "a write behind the end");

    // A disk of a virtual machine has the same data.
    let mut guest = FrontEnd::new(&home.path(&format!("vhost/{volume}.sock")), &DeviceSetup::default());
    assert!(guest.run(&Io::read(7, 1 << 20)) == data[..1 << 20]);
    guest.write((8 << 20) / 512, &other);
    guest.run(&Io::flush());
    drop(guest);
    assert!(client.read(8 << 20, 1 << 20).unwrap() == other);

    // A snapshot keeps the data, also for its export.
    let snapshot = format!("{volume}@first");
    daemon.ok(&["volume", "snapshot", &snapshot]);
    client.write(512 * 7, &other).unwrap();
    daemon.ok(&["export", "create", &snapshot, "--nbd"]);
    let mut old = Client::connect(&socket, &snapshot).unwrap();
    assert!(old.read_only && old.read(512 * 7, data.len()).unwrap() == data);
    drop(old);
    let differences = daemon.ok(&["volume", "diff", &snapshot, &volume]);
    assert!(differences.lines().count() >= 1, "{differences}");
    daemon.ok(&["export", "delete", &snapshot, "--force"]);
    daemon.ok(&["volume", "rollback", &snapshot, "--force"]);
    assert!(client.read(512 * 7, data.len()).unwrap() == data, "rolled back");
    daemon.ok(&["volume", "delete", &snapshot, "--yes"]);

    // Trimmed objects are free, and the size grows while a client is connected.
    client.trim(0, 96 << 20).unwrap();
    daemon.ok(&["volume", "resize", &volume, "--size", "128M"]);
    drop(client);
    let mut client = Client::connect(&socket, &volume).unwrap();
    assert_eq!(client.size, 128 << 20);
    assert!(client.read(0, 4096).unwrap() == [0; 4096]);
    daemon.json(&["volume", "show", &volume])["id"].clone()
}

fn adoption_reads_the_cluster(cluster: &TestCluster) {
    let directory = cluster.workspace().directory().to_owned();
    let (conf, keyring) = (directory.join("ceph.conf"), directory.join("ceph.keyring"));
    // A valid key of nobody: the monitors answer, and refuse it.
    let other = directory.join("other.keyring");
    let key = "AQBvaBRfAAAAABAAwFSEJYoVGKQvVXT8vuPPSA==";
    std::fs::write(&other, format!("[client.admin]\n\tkey = {key}\n")).unwrap();
    let error = cluster::adopt(&cluster.plan.base, "refused", &conf, &other).unwrap_err();
    assert!(error.to_string().contains("refuses the key of user 'client.admin'"), "{error}");
    std::fs::remove_file(other).unwrap();
    let status = cluster::adopt(&cluster.plan.base, "adopted", &conf, &keyring).unwrap();
    assert_eq!((status.osds.len(), status.monitors.len()), (4, 3), "{status:?}");
    let adopted = Workspace::open(&cluster.plan.base, "adopted").unwrap();
    let services = cluster::services(&adopted, &ServiceOptions::default(), false, &show).unwrap();
    assert_eq!(
        changed(&services.steps),
        ["create the user of volumes", "create the user of the object gateways"],
        "their keyrings are written here"
    );
    let error = cluster::deploy(&adopted, &BTreeSet::new(), false, &show).unwrap_err();
    assert!(error.to_string().contains("was adopted"), "{error}");
    cluster::remove_all(&adopted, &show).unwrap();
    assert!(cluster::status(&cluster.workspace()).unwrap().osds.iter().all(|osd| osd.state == "up"));
}
