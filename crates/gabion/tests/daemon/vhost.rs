//! vhost-user disks with a test front end: creation, restart, resize, removal, and kills under
//! load.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use vhost::vhost_user::VhostUserFrontend;

use super::exports::ticks;
use super::front_end::{DISCARD, DeviceSetup, FrontEnd, IO_ERROR, Io, MEMORY, OK, RO};
use super::harness::{DaemonHome, until};
use super::nbd::pattern;

const BLOCK: u64 = 4096;
/// Sectors per block.
const SECTORS: u64 = BLOCK / 512;

fn socket(home: &DaemonHome) -> PathBuf {
    home.path("vhost/fast/vm01.sock")
}

fn connect(home: &DaemonHome, setup: &DeviceSetup) -> FrontEnd {
    FrontEnd::new(&socket(home), setup)
}

#[test]
fn a_vhost_user_disk_survives_a_restart() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--threads", "2"]);
    daemon.make_pool();
    let made = daemon.json(&["export", "create", "fast/vm01", "--vhost-user", "--queues", "3"]);
    assert_eq!(made["uris"], json!([format!("unix:{}", socket(&home).display())]));
    assert_eq!(
        (&made["protocol"], &made["queues"], &made["state"]),
        (&json!("vhost_user"), &json!(3), &json!("active"))
    );
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--nbd"]);
    assert!(refusal.contains("exported already"), "{refusal}");

    let setup = DeviceSetup { queues: 3, ..DeviceSetup::default() };
    let mut front = connect(&home, &setup);
    assert_eq!(front.capacity(), 1 << 30);
    assert_eq!(daemon.json(&["export", "list"])[0]["connections"], 1);
    let data = pattern(1, 1 << 20);
    front.write(8, &data);
    for queue in 0..3 {
        let answer = front.run_on(queue, &Io::read(8, 1 << 20));
        assert!(answer.status == OK && answer.data == data, "queue {queue}");
    }
    front.run(&Io::flush());
    assert_eq!(front.run_on(0, &Io::write(2 << 20, &[1; 512])).status, IO_ERROR, "behind the end");
    let before = daemon.json(&["volume", "show", "fast/vm01"])["stored"].as_u64().unwrap();
    front.run(&Io::ranges(DISCARD, &[(8, 2048 - 8, 0)]));
    let after = daemon.json(&["volume", "show", "fast/vm01"])["stored"].as_u64().unwrap();
    assert_eq!((before, after), (1 << 20, BLOCK), "trimmed space is free");
    daemon.stop();

    let daemon = home.start_with(&["--threads", "2"]);
    let mut front = front.reconnect(&socket(&home), &setup);
    assert_eq!(front.read(2048, 4096), data[data.len() - 4096..]);
    drop(front);
    until("the machine is gone", || daemon.json(&["export", "list"])[0]["connections"] == 0);
    daemon.stop();
}

#[test]
fn a_daemon_with_an_idle_guest_uses_no_cpu_time() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--threads", "2"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--vhost-user"]);
    let mut front = connect(&home, &DeviceSetup { queues: 4, ..DeviceSetup::default() });
    for queue in 0..4 {
        assert_eq!(front.run_on(queue, &Io::write(0, &[1; 4096])).status, OK);
    }
    // At most 1 % of a core with a connected guest.
    until("a second passes in which nothing is done", || {
        let before = ticks(daemon.pid());
        std::thread::sleep(Duration::from_secs(1));
        ticks(daemon.pid()) <= before + 1
    });
    assert_eq!(front.run_on(3, &Io::read(0, 4096)).data, [1; 4096], "it wakes up");
    daemon.stop();
}

#[test]
fn a_guest_sees_the_new_size_of_its_disk() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--vhost-user"]);
    let mut front = connect(&home, &DeviceSetup::default());
    let (ours, theirs) = UnixStream::pair().unwrap();
    front.frontend.set_backend_request_fd(&theirs).unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    daemon.ok(&["volume", "resize", "fast/vm01", "--size", "2G"]);
    let mut message = [0; 12];
    (&ours).read_exact(&mut message).unwrap();
    assert_eq!(message[0], 2, "the configuration has changed");
    assert_eq!(front.capacity(), 2 << 30);
    front.write((2 << 21) - 8, &[3; 4096]);
    daemon.stop();
}

#[test]
fn a_read_only_disk_refuses_writes() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--vhost-user", "--read-only"]);
    let mut front = connect(&home, &DeviceSetup::default());
    assert_eq!(front.features & RO, RO);
    assert_eq!(front.run_on(0, &Io::write(0, &[1; 512])).status, IO_ERROR);
    assert_eq!(front.read(0, 512), [0; 512]);
    daemon.stop();
}

#[test]
fn a_disk_is_removed_by_force_and_returns_with_its_pool() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--vhost-user"]);
    let mut front = connect(&home, &DeviceSetup::default());
    front.write(0, &[5; 4096]);
    let refusal = daemon.refused(&["pool", "close", "fast"]);
    assert!(refusal.contains("exported"), "{refusal}");
    daemon.ok(&["pool", "close", "fast", "--force"]);
    assert!(front.is_disconnected());
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "waiting");
    assert!(!socket(&home).exists());
    daemon.ok(&["pool", "open", "fast"]);
    let mut front = front.reconnect(&socket(&home), &DeviceSetup::default());
    assert_eq!(front.read(0, 4096), [5; 4096]);
    // The volume of a deleted export can be deleted while a guest is connected.
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(front.is_disconnected());
    assert!(!socket(&home).exists());
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}

#[test]
fn invalid_vhost_user_exports_are_refused_with_the_reason() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--threads", "2"]);
    daemon.make_pool();
    for (more, expected) in [
        (&["--queues", "0"][..], "1 to 64 queues"),
        (&["--queues", "65"], "1 to 64 queues"),
        (&["--reactors", "0,2"], "there is no reactor 2: the daemon runs 2"),
    ] {
        let refusal = daemon.refused(&[&["export", "create", "fast/vm01", "--vhost-user"], more].concat());
        assert!(refusal.contains(expected), "{refusal}");
    }
    let long = "a".repeat(63);
    daemon.ok(&["volume", "create", &format!("fast/{long}"), "--size", "1M"]);
    let places = daemon.refused(&["export", "create", "fast/vm02", "--vhost-user"]);
    assert!(places.contains("no volume 'vm02'"), "{places}");
    // Another file at the socket path is kept.
    std::fs::create_dir_all(home.path("vhost/fast")).unwrap();
    std::fs::write(socket(&home), "precious").unwrap();
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--vhost-user"]);
    assert!(refusal.contains("vm01.sock") && refusal.contains("--vhost-directory"), "{refusal}");
    assert_eq!(std::fs::read(socket(&home)).unwrap(), b"precious");
    assert_eq!(daemon.json(&["export", "list"]), json!([]), "refused exports are not stored");
    std::fs::remove_file(socket(&home)).unwrap();
    daemon.ok(&["export", "create", "fast/vm01", "--vhost-user", "--reactors", "1"]);
    connect(&home, &DeviceSetup::default()).write(0, &[1; 512]);
    daemon.stop();
    // With fewer reactors than before, the daemon warns and exports the volume.
    let daemon = home.start_with(&["--threads", "1"]);
    let export = &daemon.json(&["export", "list"])[0];
    assert_eq!(export["state"], "waiting");
    assert!(export["reason"].as_str().unwrap().contains("there is no reactor 1"), "{export}");
    drop(daemon);

    let deep = home.arg(&"d".repeat(100));
    let daemon = home.start_with(&["--vhost-directory", &deep, "--threads", "2"]);
    let export = &daemon.json(&["export", "list"])[0];
    assert!(export["reason"].as_str().unwrap().contains("longer than the 107 bytes"), "{export}");
    drop(daemon);
}

/// A guest is not affected by the death of the daemon: completed requests survive, flushed or not,
/// and the next daemon completes the others once.
#[test]
fn a_guest_keeps_running_across_kills_of_the_daemon() {
    const BLOCKS: u64 = 1024;
    let rounds: u64 = std::env::var("GABION_CRASH_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let home = DaemonHome::new();
    let mut daemon = home.start_with(&["--threads", "2"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--vhost-user"]);
    let setup = DeviceSetup { queues: 2, inflight: true, ..DeviceSetup::default() };
    let mut front = connect(&home, &setup);
    // Expected blocks: queue `q` writes the blocks that are `q` modulo 2.
    let mut versions = vec![0u64; 2 * BLOCKS as usize];
    let content = |block: u64, version: u64| match version {
        0 => vec![0; BLOCK as usize],
        version => pattern(block << 32 | version, BLOCK as usize),
    };
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut version = 0;
    for round in 0..rounds {
        // Blocks of the requests in flight, by queue and slot.
        let mut under_way = [[None; 16]; 2];
        let mut answered = 0;
        let enough = 50 + draw(2000);
        while answered < enough {
            for (queue, under_way) in under_way.iter_mut().enumerate() {
                while under_way.iter().flatten().count() < 16 {
                    let block = draw(BLOCKS) * 2 + queue as u64;
                    if under_way.contains(&Some(block)) {
                        continue;
                    }
                    version += 1;
                    versions[block as usize] = version;
                    let io = Io::write(block * SECTORS, &content(block, version));
                    let slot = front.queues[queue].submit(&io);
                    under_way[usize::from(slot)] = Some(block);
                }
                front.queues[queue].kick();
                let answer = front.queues[queue].wait();
                assert_eq!(answer.status, OK);
                assert!(under_way[usize::from(answer.slot)].take().is_some(), "answered twice");
                answered += 1;
            }
        }
        daemon.kill();
        daemon = home.start_with(&["--threads", "2"]);
        front = front.reconnect(&socket(&home), &setup);
        for (queue, under_way) in under_way.iter_mut().enumerate() {
            while under_way.iter().any(Option::is_some) {
                let answer = front.queues[queue].wait();
                assert_eq!(answer.status, OK);
                assert!(under_way[usize::from(answer.slot)].take().is_some(), "answered twice");
            }
            assert_eq!(front.queues[queue].poll_used(), None, "a completion without a request");
        }
        for (block, version) in (0..).zip(&versions) {
            let found = front.run_on((block % 2) as usize, &Io::read(block * SECTORS, BLOCK as u32));
            assert_eq!(found.status, OK);
            assert!(
                found.data == content(block, *version),
                "round {round}: block {block}, version {version}"
            );
        }
    }
    daemon.stop();
}

#[test]
fn a_guest_that_truncates_its_memory_does_not_affect_others() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--threads", "2"]);
    daemon.make_pool();
    daemon.ok(&["volume", "create", "fast/vm02", "--size", "1G"]);
    for volume in ["fast/vm01", "fast/vm02"] {
        daemon.ok(&["export", "create", volume, "--vhost-user"]);
    }
    let mut other = FrontEnd::new(&home.path("vhost/fast/vm02.sock"), &DeviceSetup::default());
    let data = pattern(5, 1 << 20);
    other.write(0, &data);
    // Reads are written directly to guest memory; writes are copied from there.
    for request in [Io::read(0, 1 << 20), Io::write(0, &data)] {
        let mut front = connect(&home, &DeviceSetup::default());
        front.write(0, &data);
        front.run(&Io::flush());
        front.queues[0].submit(&request);
        // The data pages are truncated, the rings are not.
        front.guest.file.set_len(MEMORY / 2).unwrap();
        // The daemon may have polled the first request before.
        front.queues[0].submit(&Io::read(0, 1 << 20));
        front.queues[0].kick.write(1).unwrap();
        assert!(front.is_disconnected());
        assert_eq!(other.read(0, 1 << 20), data);
    }
    until("the machine is gone", || daemon.json(&["export", "list"])[0]["connections"] == 0);
    // The drives are not blamed.
    let pool = daemon.pool("fast");
    assert_eq!((&pool["health"], &pool["problems"]), (&json!("healthy"), &json!([])));
    for drive in pool["drives"].as_array().unwrap() {
        for (name, count) in drive.as_object().unwrap().iter().filter(|(name, _)| name.contains("error")) {
            assert!(count == 0 || count.is_null(), "{name}: {drive}");
        }
    }
    assert!(daemon.log().contains("the front end has removed memory that it shares"));
    let mut front = connect(&home, &DeviceSetup::default());
    front.write(0, &data);
    assert_eq!(front.read(0, 1 << 20), data);
    daemon.stop();
}
