//! Kills of the driver and of the daemon at random moments of calls, which a cluster repeats until
//! they succeed: no data is lost, and nothing is left of deleted volumes.

use std::future::Future;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use csi::proto::csi::{CreateSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeRequest};
use tonic::Status;

use super::driver::{
    CleanUp, Driver, is_possible, log, loops_below, loops_without_file, mounted, mounts_below, publish,
    stage, target, unpublish, unstage, volume,
};
use super::harness::{DEADLINE, Daemon, DaemonHome};

/// Cycles of a run, unless GABION_CSI_CYCLES has another number.
const CYCLES: u32 = 5;
/// Latest moment of a kill after the begin of a call, in microseconds.
const KILL_WITHIN_US: u64 = 60_000;
/// Pause between two attempts of a call.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A cluster that kills its driver and its daemon.
struct KillingCluster<'a> {
    home: &'a DaemonHome,
    driver: Driver,
    daemon: Option<Daemon<'a>>,
    random: u64,
    kills: [u32; 2],
}

impl KillingCluster<'_> {
    /// Returns a number below `limit`, by Knuth's generator.
    fn below(&mut self, limit: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    /// Repeats a call until it succeeds; kills a process during some attempts.
    fn call<T, C, F>(&mut self, name: &str, call: C) -> T
    where
        C: Fn(&Driver) -> F,
        F: Future<Output = Result<T, Status>>,
    {
        let started = Instant::now();
        loop {
            let victim = self.below(6);
            let after = Duration::from_micros(self.below(KILL_WITHIN_US));
            let called = call(&self.driver);
            let ended = self.driver.runtime.block_on(async {
                let mut called = std::pin::pin!(called);
                if victim > 1 {
                    return Some(called.await);
                }
                tokio::time::timeout(after, &mut called).await.ok()
            });
            match victim {
                0 => {
                    self.driver.restart(self.home);
                    self.kills[0] += 1;
                }
                1 => {
                    self.daemon.take().unwrap().kill();
                    self.daemon = Some(self.home.start());
                    self.kills[1] += 1;
                }
                _ => {}
            }
            match ended {
                Some(Ok(value)) => return value,
                Some(Err(status)) => {
                    assert!(started.elapsed() < DEADLINE, "{name}: {status:?}\n{}", log(self.home));
                    std::thread::sleep(RETRY_PAUSE);
                }
                None => assert!(started.elapsed() < DEADLINE, "{name}\n{}", log(self.home)),
            }
        }
    }

    fn mount(&mut self, id: &str, at: &Path) {
        let of = mounted("xfs");
        let (stage, publish) = (stage(id, at, &of), publish(id, at, &of));
        self.call("stage", |driver| {
            let (mut node, request) = (driver.node.clone(), stage.clone());
            async move { node.node_stage_volume(request).await }
        });
        self.call("publish", |driver| {
            let (mut node, request) = (driver.node.clone(), publish.clone());
            async move { node.node_publish_volume(request).await }
        });
    }

    fn unmount(&mut self, id: &str, at: &Path) {
        let (unpublish, unstage) = (unpublish(id, at), unstage(id, at));
        self.call("unpublish", |driver| {
            let (mut node, request) = (driver.node.clone(), unpublish.clone());
            async move { node.node_unpublish_volume(request).await }
        });
        self.call("unstage", |driver| {
            let (mut node, request) = (driver.node.clone(), unstage.clone());
            async move { node.node_unstage_volume(request).await }
        });
    }

    /// Runs an action of a pod until it succeeds. If the daemon was killed below its volume, the
    /// pod is deleted and created again.
    fn pod(&mut self, id: &str, at: &Path, action: impl Fn(&Path) -> std::io::Result<()>) {
        let started = Instant::now();
        while let Err(error) = action(&target(at)) {
            assert!(started.elapsed() < DEADLINE, "{error}\n{}", log(self.home));
            self.unmount(id, at);
            self.mount(id, at);
        }
    }

    fn cycle(&mut self, number: u32) {
        let name = format!("pvc-{number}");
        let request = volume(&name, 1 << 30, &mounted("xfs"));
        let id = self.call("create", |driver| {
            let (mut controller, request) = (driver.controller.clone(), request.clone());
            async move { Ok(controller.create_volume(request).await?.into_inner().volume.unwrap().volume_id) }
        });
        let at = self.home.path("kubelet");
        self.mount(&id, &at);
        let text = format!("contents of {name}");
        self.pod(&id, &at, |files| write_durably(&files.join("file"), &text));
        let request = CreateSnapshotRequest {
            source_volume_id: id.clone(),
            name: format!("snapshot-{number}"),
            ..Default::default()
        };
        let snapshot_id = self.call("snapshot", |driver| {
            let (mut controller, request) = (driver.controller.clone(), request.clone());
            async move {
                Ok(controller.create_snapshot(request).await?.into_inner().snapshot.unwrap().snapshot_id)
            }
        });
        self.unmount(&id, &at);
        self.mount(&id, &at);
        self.pod(&id, &at, |files| {
            let read = std::fs::read_to_string(files.join("file"))?;
            assert_eq!(read, text, "flushed data was lost");
            Ok(())
        });
        self.unmount(&id, &at);
        let request = DeleteSnapshotRequest { snapshot_id, ..Default::default() };
        self.call("delete snapshot", |driver| {
            let (mut controller, request) = (driver.controller.clone(), request.clone());
            async move { controller.delete_snapshot(request).await }
        });
        let request = DeleteVolumeRequest { volume_id: id, ..Default::default() };
        self.call("delete", |driver| {
            let (mut controller, request) = (driver.controller.clone(), request.clone());
            async move { controller.delete_volume(request).await }
        });
    }
}

/// Writes a file, and makes the file and its name durable.
fn write_durably(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::File::open(path)?.sync_all()?;
    let directory = std::fs::File::open(path.parent().unwrap())?;
    rustix::fs::fsync(directory.as_fd())?;
    Ok(())
}

#[test]
fn kills_at_random_moments_lose_and_leak_nothing() {
    if !is_possible() {
        return;
    }
    let cycles = std::env::var("GABION_CSI_CYCLES").map_or(CYCLES, |number| number.parse().unwrap());
    let seed = std::env::var("GABION_CSI_SEED").map_or(1, |number| number.parse().unwrap());
    let home = DaemonHome::new();
    let _clean = CleanUp(home.path(""));
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    let driver = Driver::start(&home);
    let lost_before = loops_without_file().len();
    let mut cluster =
        KillingCluster { home: &home, driver, daemon: Some(daemon), random: seed, kills: [0; 2] };
    for number in 0..cycles {
        cluster.cycle(number);
    }
    let [drivers, daemons] = cluster.kills;
    println!("{cycles} cycles, {drivers} kills of the driver, {daemons} kills of the daemon");
    let daemon = cluster.daemon.take().unwrap();
    assert_eq!(daemon.ok(&["volume", "list", "fast", "--snapshots", "--quiet"]).trim(), "");
    assert_eq!(daemon.ok(&["export", "list", "--quiet"]).trim(), "");
    assert_eq!(mounts_below(&home.path("")), Vec::<String>::new());
    assert_eq!(loops_below(&home.path("")), Vec::<String>::new());
    // Loop devices of the killed daemons: other tests have none while their daemon runs.
    let mut lost = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        lost = loops_without_file();
        if lost.len() <= lost_before {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{lost_before} loop devices of dead files before the test, now {lost:?}");
}
