//! Snapshots, clones, rollbacks and deletions at once with a load, a scrub and bytes that flip on a
//! drive.

use std::sync::atomic::{AtomicBool, Ordering};

use super::bit_flips::{flip_bits, open_direct};
use super::harness::{Daemon, DaemonHome};
use super::nbd::{Client, pattern};

const BLOCK: usize = 4096;
/// Blocks of a volume that its writer overwrites.
const BLOCKS: u64 = 2048;
/// Lives of the snapshots of each volume.
const CYCLES: u64 = 12;

/// Overwrites and reads blocks of a volume until `stop`. Returns the number of operations.
fn overwrite(home: &DaemonHome, volume: &str, stop: &AtomicBool) -> u64 {
    let mut client = Client::connect(&home.nbd_socket(), volume).unwrap();
    let mut versions = vec![0u64; BLOCKS as usize];
    let mut random = 7u64;
    let content = |block: u64, version: u64| match version {
        0 => vec![0; BLOCK],
        _ => pattern(block << 32 | version, BLOCK),
    };
    for operation in 1.. {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (random >> 33) % BLOCKS;
        let version = &mut versions[block as usize];
        if random >> 20 & 1 == 0 {
            *version = operation;
            client.write(block * BLOCK as u64, &content(block, operation)).unwrap();
        } else {
            let found = client.read(block * BLOCK as u64, BLOCK).unwrap();
            assert!(found == content(block, *version), "{volume}: block {block}, version {version}");
        }
        if stop.load(Ordering::Relaxed) {
            return operation;
        }
    }
    unreachable!()
}

/// Flips bytes of a drive's zones until `stop`.
fn flip(home: &DaemonHome, stop: &AtomicBool) {
    let path = home.path("drives").join("fast-2.drive");
    let file = open_direct(&path);
    let zones = file.metadata().unwrap().len() - (4 << 20);
    let mut random = 99u64;
    while !stop.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (4 << 20) + (random >> 16) % zones;
        flip_bits(&file, at, 4);
        // The damage stays rare enough for the repair to keep up.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Writes the first MiB of a volume or reads it.
fn first_mib(home: &DaemonHome, daemon: &Daemon<'_>, volume: &str, written: Option<u64>) -> Vec<u8> {
    daemon.ok(&["export", "create", volume, "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), volume).unwrap();
    if let Some(seed) = written {
        client.write(0, &pattern(seed, 1 << 20)).unwrap();
    }
    let found = client.read(0, 1 << 20).unwrap();
    drop(client);
    daemon.ok(&["export", "delete", volume, "--force"]);
    found
}

/// Makes, reads, rolls back to and deletes snapshots and clones of a volume.
fn live_through_snapshots(home: &DaemonHome, daemon: &Daemon<'_>, volume: &str) {
    daemon.ok(&["volume", "create", volume, "--size", "64M"]);
    for cycle in 0..CYCLES {
        let snapshot = format!("{volume}@{cycle}");
        let clone = format!("{}-clone{cycle}", volume.split_once('/').unwrap().1);
        let clone_name = format!("fast/{clone}");
        first_mib(home, daemon, volume, Some(2 * cycle + 1));
        daemon.ok(&["volume", "snapshot", &snapshot]);
        first_mib(home, daemon, volume, Some(2 * cycle + 2));
        daemon.ok(&["volume", "clone", &snapshot, &clone]);
        let expected = pattern(2 * cycle + 1, 1 << 20);
        assert!(first_mib(home, daemon, &clone_name, None) == expected, "{clone_name}");
        daemon.ok(&["volume", "rollback", &snapshot, "--yes"]);
        assert!(first_mib(home, daemon, volume, None) == expected, "{snapshot}");
        // The snapshot ends before the clone or after it.
        let deletions = if cycle % 2 == 0 { [&snapshot, &clone_name] } else { [&clone_name, &snapshot] };
        for deleted in deletions {
            daemon.ok(&["volume", "delete", deleted, "--yes"]);
        }
        assert!(first_mib(home, daemon, volume, None) == expected, "{volume} after cycle {cycle}");
    }
    daemon.ok(&["volume", "delete", volume, "--yes"]);
}

#[test]
fn snapshots_come_and_go_beside_a_load_and_a_damaged_drive() {
    let home = DaemonHome::new();
    // The damaged drive stays in the pool.
    let daemon = home.start_with(&["--threads", "2", "--retire-after", "0"]);
    daemon.make_pool();
    daemon.ok(&["volume", "create", "fast/vm02", "--size", "64M"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    daemon.ok(&["export", "create", "fast/vm02", "--nbd"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loads = ["fast/vm01", "fast/vm02"].map(|volume| scope.spawn(|| overwrite(&home, volume, &stop)));
        let damage = scope.spawn(|| flip(&home, &stop));
        let lives = ["fast/a", "fast/b"].map(|volume| {
            scope.spawn({
                let (home, daemon) = (&home, &daemon);
                move || live_through_snapshots(home, daemon, volume)
            })
        });
        let scrubs = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                daemon.ok(&["pool", "scrub", "fast", "--wait"]);
            }
        });
        let results = lives.map(std::thread::ScopedJoinHandle::join);
        stop.store(true, Ordering::Relaxed);
        for load in loads {
            assert!(load.join().unwrap() > 100);
        }
        damage.join().unwrap();
        scrubs.join().unwrap();
        for result in results {
            result.unwrap();
        }
    });
    let errors = daemon.pool("fast")["drives"][2]["checksum_errors"].as_u64().unwrap();
    assert!(errors > 0, "no damage was found");
    assert_eq!(daemon.ok(&["volume", "list", "-q"]), "fast/vm01\nfast/vm02\n");
    daemon.ok(&["pool", "scrub", "fast", "--wait"]);
    daemon.stop();
}
