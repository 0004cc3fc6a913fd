//! Times of the driver beside many volumes. `./run csi-times` prints them for 1,000 volumes;
//! docs/performance.md has a run.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use csi::proto::csi::DeleteVolumeRequest;
use serde_json::Value;

use super::driver::{CleanUp, Driver, block, from_volume, is_possible, log, mounted, volume};
use super::harness::DaemonHome;

/// Other volumes of the pool, unless GABION_CSI_VOLUMES has another number.
const VOLUMES: u32 = 20;
/// Measured volumes, unless GABION_CSI_ROUNDS has another number.
const ROUNDS: u32 = 2;
/// Longest permitted time of a measured step, far above the expected one: a step that reads the
/// data of a volume, or waits for a timeout, takes longer.
const STEP_MAX: Duration = Duration::from_secs(20);

fn setting(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Prints the median and the longest of some times.
fn report(step: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{step}: median {median:.1?}, longest {longest:.1?}, of {}", times.len());
    assert!(longest < STEP_MAX, "{step}: {longest:?}");
}

/// The calls from the creation of a volume to its mount.
const CALLS: [&str; 3] = ["create_volume", "node_stage_volume", "node_publish_volume"];

/// Returns the driver's own time from the creation of a volume to its mount, from its log: the
/// duration of the calls without the programs that they ran.
fn own_time(home: &DaemonHome, volume: &str) -> Duration {
    let lines = log(home);
    let entries: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_call = |call: &str| {
        let is_first = |entry: &&Value| {
            let object = entry["object"].as_str().unwrap_or_default();
            entry["call"] == call && object.rsplit('/').next() == Some(volume)
        };
        let entry = entries.iter().find(is_first).unwrap();
        assert_eq!(entry["message"], "done", "{entry}");
        let milliseconds = |key: &str| entry[key].as_u64().unwrap();
        Duration::from_millis(milliseconds("milliseconds") - milliseconds("of_programs"))
    };
    CALLS.map(of_call).iter().sum()
}

#[test]
fn volumes_are_made_and_mounted_beside_many_others() {
    if !is_possible() {
        return;
    }
    let (others, rounds) = (setting("GABION_CSI_VOLUMES", VOLUMES), setting("GABION_CSI_ROUNDS", ROUNDS));
    let home = DaemonHome::new();
    let _clean = CleanUp(home.path(""));
    let daemon = home.start();
    daemon.make_pool();
    let mut driver = Driver::start(&home);
    let of = mounted("xfs");
    for number in 0..others {
        driver.create(volume(&format!("other-{number}"), 1 << 30, &of));
    }
    let (mut created, mut staged, mut whole, mut own, mut cloned) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..rounds {
        let started = Instant::now();
        let id = driver.create(volume(&format!("pvc-{number}"), 1 << 30, &of));
        created.push(started.elapsed());
        let at = home.path("one");
        let files = driver.mount(&id, &at, &of);
        whole.push(started.elapsed());
        own.push(own_time(&home, &format!("pvc-{number}")));
        std::fs::write(files.join("file"), "data").unwrap();
        driver.unmount(&id, &at);
        // Without mkfs: the volume has a file system.
        let started = Instant::now();
        let files = driver.mount(&id, &at, &of);
        staged.push(started.elapsed());
        assert_eq!(std::fs::read(files.join("file")).unwrap(), b"data");
        driver.unmount(&id, &at);
    }
    let raw = block();
    let source = driver.create(volume("source", 100 << 30, &raw));
    let device = driver.mount(&source, &home.path("source"), &raw);
    let file = std::fs::File::options().write(true).open(&device).unwrap();
    for gib in 0..100 {
        file.write_all_at(&[gib + 1; 65_536], u64::from(gib) << 30).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    for number in 0..rounds {
        let mut request = volume(&format!("clone-{number}"), 100 << 30, &raw);
        request.volume_content_source = from_volume(&source);
        let started = Instant::now();
        let id = driver.create(request);
        cloned.push(started.elapsed());
        let request = DeleteVolumeRequest { volume_id: id, ..DeleteVolumeRequest::default() };
        driver.runtime.block_on(driver.controller.delete_volume(request)).unwrap();
    }
    driver.unmount(&source, &home.path("source"));
    println!("beside {others} volumes:");
    report("create", created);
    report("create to mounted, with mkfs.xfs", whole);
    report("create to mounted, without the time of programs", own);
    report("stage and publish, without mkfs", staged);
    report("clone of 100 GiB with 6.4 MiB of data", cloned);
}
