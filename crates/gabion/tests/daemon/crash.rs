//! The daemon is killed with SIGKILL repeatedly under load, healthy and with a missing drive.
//!
//! There are two loads. fio writes its part of the volume with a pattern, flushes it before each
//! kill, and verifies all of it after the restart. At the same time, four writers overwrite blocks
//! with increasing versions and flush sometimes; the daemon is killed during these writes. After
//! the restart, each block must hold one complete version that is not older than the last flushed
//! one. `GABION_CRASH_ROUNDS` sets the number of rounds (`./run crash 50`).

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{DaemonHome, until};
use super::nbd::{Client, pattern};

const BLOCK: u64 = 4096;
/// The part of the volume used by fio, from its start.
const FIO_BYTES: u64 = 16 << 20;
const WRITERS: u64 = 4;
/// Number of blocks per writer.
const BLOCKS: u64 = 8192;

/// The possible versions of a block.
#[derive(Clone, Default)]
struct BlockVersions {
    /// The last flushed version; 0 if there is none.
    durable: u64,
    /// Later versions, in order.
    later: Vec<u64>,
}

/// A writer with its blocks and their possible versions.
struct VersionedWriter {
    first: u64,
    versions: Vec<BlockVersions>,
    version: u64,
    random: u64,
}

impl VersionedWriter {
    fn new(index: u64) -> Self {
        Self {
            first: FIO_BYTES / BLOCK + index * BLOCKS,
            versions: vec![BlockVersions::default(); BLOCKS as usize],
            version: 0,
            random: 0x9E37_79B9_7F4A_7C15 ^ index,
        }
    }

    fn random_below(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Returns the content of a block in a version.
    fn content(&self, block: u64, version: u64) -> Vec<u8> {
        if version == 0 { vec![0; BLOCK as usize] } else { pattern(block << 32 | version, BLOCK as usize) }
    }

    /// Writes and flushes until the daemon is killed.
    fn write_until_killed(&mut self, socket: &Path, acknowledged: &AtomicU64) {
        let Ok(mut client) = Client::connect(socket, "fast/vm01") else { return };
        loop {
            let count = if self.random_below(4) == 0 { 1 + self.random_below(16) } else { 1 };
            let block = self.random_below(BLOCKS - count);
            self.version += 1;
            let version = self.version;
            let data: Vec<u8> =
                (block..block + count).flat_map(|block| self.content(self.first + block, version)).collect();
            for block in block..block + count {
                self.versions[block as usize].later.push(version);
            }
            if client.write((self.first + block) * BLOCK, &data).is_err() {
                return;
            }
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if self.random_below(32) == 0 {
                if client.flush().is_err() {
                    return;
                }
                // The writer has no writes in flight: all its writes are durable now.
                for versions in self.versions.iter_mut().filter(|versions| !versions.later.is_empty()) {
                    versions.durable = versions.later.pop().unwrap();
                    versions.later.clear();
                }
            }
        }
    }

    /// Checks every block against its possible versions; the found version is then the durable one.
    fn verify(&mut self, socket: &Path, round: u32) {
        let mut client = Client::connect(socket, "fast/vm01").unwrap();
        const BATCH: u64 = 256;
        for start in (0..BLOCKS).step_by(BATCH as usize) {
            let bytes = client.read((self.first + start) * BLOCK, (BATCH * BLOCK) as usize).unwrap();
            for (block, found) in (start..).zip(bytes.chunks(BLOCK as usize)) {
                let BlockVersions { durable, later } = self.versions[block as usize].clone();
                let mut candidates = std::iter::once(durable).chain(later.iter().copied());
                let version = candidates.find(|version| self.content(self.first + block, *version) == found);
                let Some(version) = version else {
                    panic!(
                        "round {round}: block {} holds neither the flushed version {durable} nor one of {later:?}",
                        self.first + block
                    );
                };
                self.versions[block as usize] = BlockVersions { durable: version, later: Vec::new() };
            }
        }
    }
}

/// Runs fio on its part of the volume.
fn fio(socket: &Path, seed: u32, extra: &[&str]) {
    let uri = format!("--uri=nbd+unix:///fast/vm01?socket={}", socket.display());
    // The pattern differs between rounds, so that stale blocks are detected.
    let pattern = format!("--verify_pattern=%o0x{:08x}", 0x5EED_0000 + seed);
    let (seed, size) = (format!("--randseed={seed}"), format!("--size={FIO_BYTES}"));
    let fixed = [
        "--name=verified",
        "--ioengine=nbd",
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=16",
        "--verify=pattern",
    ];
    let output = Command::new("fio")
        .args(fixed)
        .args([&uri, &seed, &size, &pattern])
        .args(extra)
        .current_dir(socket.parent().unwrap())
        .output()
        .unwrap();
    let output_text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output_text.contains("verify:"), "{output_text}");
}

#[test]
fn flushed_data_survives_kills_at_random_times() {
    let rounds: u32 = std::env::var("GABION_CRASH_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    if !test_support::has_fio_nbd() {
        return;
    }
    let home = DaemonHome::new();
    let mut daemon = home.start();
    let drives = home.arg("drives");
    let pool = [
        "pool",
        "create",
        "fast",
        "--scheme",
        "4+1",
        "--files",
        &drives,
        "--file-size",
        "128M",
        "--count",
        "5",
    ];
    daemon.ok(&pool);
    daemon.ok(&["volume", "create", "fast/vm01", "--size", "256M", "--sector", "4096"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let socket = home.nbd_socket();
    let mut writers: Vec<VersionedWriter> = (0..WRITERS).map(VersionedWriter::new).collect();
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    for round in 0..rounds {
        fio(&socket, round, &["--do_verify=0", "--end_fsync=1"]);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let writes = 1 + (random >> 33) % 3000;
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| writer.write_until_killed(&socket, &acknowledged));
            }
            until("the writers make progress", || acknowledged.load(Ordering::Relaxed) >= writes);
            daemon.kill();
        });
        if round == rounds / 2 {
            // A drive is missing from now on.
            let drive = home.path("drives").join("fast-3.drive");
            std::fs::rename(&drive, home.path("pulled")).unwrap();
        }
        daemon = home.start();
        let is_healthy = daemon.pool("fast")["health"] == "healthy";
        assert_eq!(is_healthy, round < rounds / 2, "round {round}");
        fio(&socket, round, &["--verify_only=1"]);
        writers.iter_mut().for_each(|writer| writer.verify(&socket, round));
    }
    daemon.stop();
}
