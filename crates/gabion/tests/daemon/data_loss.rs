//! Data damaged beyond the scheme: reported first in the status until it is overwritten.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;

use super::harness::{DaemonHome, until};
use super::nbd::{Client, pattern};

const CHUNK: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// The damaged chunk of the volume.
const DAMAGED_CHUNK: u64 = 20;

/// Overwrites the blocks of a chunk on two of the drives that store it.
fn damage(home: &DaemonHome, chunk: u64) {
    let content = pattern(chunk, CHUNK as usize);
    let blocks: HashSet<&[u8]> = content.chunks(BLOCK).collect();
    let mut damaged = 0;
    for drive in 0..5 {
        let path = home.path("drives").join(format!("fast-{drive}.drive"));
        let bytes = std::fs::read(&path).unwrap();
        let offsets = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| blocks.contains(block));
        let offsets: Vec<usize> = offsets.map(|(at, _)| at * BLOCK).collect();
        if offsets.is_empty() || damaged == 2 {
            continue;
        }
        damaged += 1;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        offsets.iter().for_each(|at| file.write_all_at(&[0x5a; BLOCK], *at as u64).unwrap());
        file.sync_all().unwrap();
    }
    assert_eq!(damaged, 2);
}

/// Returns the offsets of unreadable blocks; all others must hold the written data.
fn unreadable(home: &DaemonHome, chunks: u64) -> Vec<u64> {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    let mut unreadable = Vec::new();
    for chunk in 0..chunks {
        let expected = pattern(chunk, CHUNK as usize);
        for (at, expected) in (chunk * CHUNK..).step_by(BLOCK).zip(expected.chunks(BLOCK)) {
            match client.read(at, BLOCK) {
                Ok(read) => assert!(read == expected, "at {at}"),
                Err(_) => unreadable.push(at),
            }
        }
    }
    unreadable
}

#[test]
fn lost_data_is_reported_until_it_is_overwritten() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--retire-after", "0"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for chunk in 0..32 {
        client.write(chunk * CHUNK, &pattern(chunk, CHUNK as usize)).unwrap();
    }
    client.flush().unwrap();
    damage(&home, DAMAGED_CHUNK);
    let scrub = home.gabion(&["pool", "scrub", "fast", "--wait"]);
    assert_eq!(scrub.code, Some(3), "{scrub:?}");
    let lost = unreadable(&home, 32);
    assert!(lost.len() >= 64, "{lost:?}");
    assert!(lost.iter().all(|at| at / CHUNK == DAMAGED_CHUNK), "{lost:?}");

    let shown = |pool: &serde_json::Value| -> Vec<u64> {
        let ranges = pool["lost"].as_array().unwrap();
        let range = |range: &serde_json::Value| {
            assert_eq!(range["volume"], "vm01");
            let (offset, length) = (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap());
            (offset..offset + length).step_by(BLOCK).collect::<Vec<_>>()
        };
        ranges.iter().flat_map(range).collect()
    };
    let check = |daemon: &super::harness::Daemon<'_>| {
        let pool = daemon.pool("fast");
        assert_eq!((&pool["health"], shown(&pool)), (&"data_lost".into(), lost.clone()));
        let status = home.gabion(&["pool", "status", "fast"]);
        assert_eq!(status.code, Some(3), "{status:?}");
        let mut lines = status.out.lines();
        assert!(lines.next().unwrap().contains("pool 'fast': data lost"), "{}", status.out);
        assert!(lines.any(|line| line.contains("vm01 at byte ")), "{}", status.out);
    };
    check(&daemon);
    drop(client);
    daemon.kill();
    let daemon = home.start_with(&["--retire-after", "0"]);
    check(&daemon);

    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(DAMAGED_CHUNK * CHUNK, &pattern(DAMAGED_CHUNK, CHUNK as usize)).unwrap();
    client.flush().unwrap();
    until("nothing is lost", || daemon.pool("fast")["health"] == "healthy");
    assert_eq!(unreadable(&home, 32), [0; 0]);
    drop(client);
    // The lost blocks are errors in the log.
    drop(daemon);
}
