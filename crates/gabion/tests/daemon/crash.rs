//! The real daemon killed with SIGKILL again and again under load, with all drives and with one missing.
//!
//! Two loads. fio writes its part with a pattern and flushes it before each kill; after the restart it verifies all of it.
//! Meanwhile four writers of our own overwrite blocks with growing versions and flush now and then; the daemon is killed in
//! the midst of that. After the restart each block must hold a version that was written, no older than the last one that
//! was flushed, and every block whole. `GABION_CRASH_ROUNDS` sets how often (`./run crash 50`).

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{Home, until};
use super::nbd::{Client, pattern};

const BLOCK: u64 = 4096;
/// fio's part of the volume, from its start.
const FIO_BYTES: u64 = 16 << 20;
const WRITERS: u64 = 4;
/// Blocks of each writer.
const BLOCKS: u64 = 8192;

/// What a block may hold.
#[derive(Clone, Default)]
struct Known {
    /// The last version that a flush has made durable; 0 for never written.
    durable: u64,
    /// Versions written since, in order.
    later: Vec<u64>,
}

/// One writer: its blocks, and what is known of them.
struct Writer {
    first: u64,
    known: Vec<Known>,
    version: u64,
    random: u64,
}

impl Writer {
    fn new(index: u64) -> Self {
        Self {
            first: FIO_BYTES / BLOCK + index * BLOCKS,
            known: vec![Known::default(); BLOCKS as usize],
            version: 0,
            random: 0x9E37_79B9_7F4A_7C15 ^ index,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// What a block holds in a version.
    fn content(&self, block: u64, version: u64) -> Vec<u8> {
        if version == 0 { vec![0; BLOCK as usize] } else { pattern(block << 32 | version, BLOCK as usize) }
    }

    /// Writes and flushes until the daemon is gone.
    fn write_until_killed(&mut self, socket: &Path, answered: &AtomicU64) {
        let Ok(mut client) = Client::connect(socket, "fast/vm01") else { return };
        loop {
            let count = if self.draw(4) == 0 { 1 + self.draw(16) } else { 1 };
            let block = self.draw(BLOCKS - count);
            self.version += 1;
            let version = self.version;
            let data: Vec<u8> =
                (block..block + count).flat_map(|block| self.content(self.first + block, version)).collect();
            for block in block..block + count {
                self.known[block as usize].later.push(version);
            }
            if client.write((self.first + block) * BLOCK, &data).is_err() {
                return;
            }
            answered.fetch_add(1, Ordering::Relaxed);
            if self.draw(32) == 0 {
                if client.flush().is_err() {
                    return;
                }
                // This writer waits for every answer: all that it wrote is durable now.
                for known in self.known.iter_mut().filter(|known| !known.later.is_empty()) {
                    known.durable = known.later.pop().unwrap();
                    known.later.clear();
                }
            }
        }
    }

    /// Compares every block with what it may hold; what it holds is what is known from then on.
    fn verify(&mut self, socket: &Path, round: u32) {
        let mut client = Client::connect(socket, "fast/vm01").unwrap();
        const AT_ONCE: u64 = 256;
        for start in (0..BLOCKS).step_by(AT_ONCE as usize) {
            let bytes = client.read((self.first + start) * BLOCK, (AT_ONCE * BLOCK) as usize).unwrap();
            for (block, found) in (start..).zip(bytes.chunks(BLOCK as usize)) {
                let Known { durable, later } = self.known[block as usize].clone();
                let mut may = std::iter::once(durable).chain(later.iter().copied());
                let version = may.find(|version| self.content(self.first + block, *version) == found);
                let Some(version) = version else {
                    panic!(
                        "round {round}: block {} holds neither version {durable}, which was flushed, nor one of {later:?}",
                        self.first + block
                    );
                };
                self.known[block as usize] = Known { durable: version, later: Vec::new() };
            }
        }
    }
}

/// fio over its part; `None` if it is not installed.
fn fio(socket: &Path, seed: u32, more: &[&str]) {
    let uri = format!("--uri=nbd+unix:///fast/vm01?socket={}", socket.display());
    // Each round has a pattern of its own: a block of an earlier one is found out.
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
        .args(more)
        .current_dir(socket.parent().unwrap())
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("verify:"), "{said}");
}

#[test]
fn everything_flushed_is_there_after_kills_at_random_moments() {
    let rounds: u32 = std::env::var("GABION_CRASH_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    if !test_support::has_fio_nbd() {
        return;
    }
    let home = Home::new();
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
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut moment = 0x2545_F491_4F6C_DD1Du64;
    for round in 0..rounds {
        fio(&socket, round, &["--do_verify=0", "--end_fsync=1"]);
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let writes = 1 + (moment >> 33) % 3000;
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| writer.write_until_killed(&socket, &answered));
            }
            until("the writers get on", || answered.load(Ordering::Relaxed) >= writes);
            daemon.kill();
        });
        if round == rounds / 2 {
            // From here on a drive is missing: somebody has pulled it while the machine was down.
            let drive = home.path("drives").join("fast-3.drive");
            std::fs::rename(&drive, home.path("pulled")).unwrap();
        }
        daemon = home.start();
        let is_whole = daemon.pool("fast")["health"] == "healthy";
        assert_eq!(is_whole, round < rounds / 2, "round {round}");
        fio(&socket, round, &["--verify_only=1"]);
        writers.iter_mut().for_each(|writer| writer.verify(&socket, round));
    }
    daemon.stop();
}
