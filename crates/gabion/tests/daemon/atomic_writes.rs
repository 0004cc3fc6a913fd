//! Writes within the promise of `Pool::atomic_write_bytes` are never torn by a SIGKILL.
//!
//! Each writer owns one slice of 4 MiB of a volume and overwrites ranges of it, aligned to blocks
//! or to sectors only, of up to 64 blocks, partial ones included. The daemon is killed during these
//! writes. After the restart, the slice must hold all writes up to one of them, and nothing of the
//! later ones. `GABION_CRASH_ROUNDS` sets the number of rounds (`./run crash 50`).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{DaemonHome, until};
use super::nbd::Client;

const SECTOR: u64 = 512;
/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;
/// The promise: a write that touches so many blocks of one slice is atomic.
const ATOMIC_BLOCKS: u64 = 64;
const SLICE_BLOCKS: u64 = 1024;
const SLICE_BYTES: u64 = SLICE_BLOCKS * BLOCK_SECTORS * SECTOR;
const WRITERS: u64 = 6;
/// Writes between two flushes.
const FLUSH_EVERY: usize = 24;

/// A write of one version to sectors of the writer's slice.
#[derive(Clone)]
struct Write {
    version: u64,
    sectors: std::ops::Range<u64>,
}

/// A writer with the possible contents of its slice.
struct SliceWriter {
    slice: u64,
    /// The version of each sector, as of the last flush.
    flushed: Vec<u64>,
    /// The writes since, in order. Each was acknowledged before the next one was sent.
    writes: Vec<Write>,
    version: u64,
    random: u64,
}

impl SliceWriter {
    fn new(slice: u64) -> Self {
        let flushed = vec![0; (SLICE_BLOCKS * BLOCK_SECTORS) as usize];
        Self { slice, flushed, writes: Vec::new(), version: 0, random: 0x9E37_79B9_7F4A_7C15 ^ slice }
    }

    fn random_below(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Draws a write within the promise. Three of four begin or end within a block.
    fn draw(&mut self) -> Write {
        let count = 1 + self.random_below(ATOMIC_BLOCKS);
        let first = self.random_below(SLICE_BLOCKS - count + 1);
        let (mut start, mut end) = (first * BLOCK_SECTORS, (first + count) * BLOCK_SECTORS);
        let shape = self.random_below(4);
        if shape & 1 != 0 {
            start += self.random_below(BLOCK_SECTORS);
        }
        if shape & 2 != 0 {
            end = (end - self.random_below(BLOCK_SECTORS)).max(start + 1);
        }
        self.version += 1;
        Write { version: self.version, sectors: start..end }
    }

    /// Writes and flushes until the daemon is killed. Returns true if it was killed during a write.
    fn write_until_killed(&mut self, socket: &Path, acknowledged: &AtomicU64) -> bool {
        let mut client = Client::connect(socket, "fast/vm01").unwrap();
        loop {
            let write = self.draw();
            let offset = self.slice * SLICE_BYTES + write.sectors.start * SECTOR;
            let words = (write.sectors.end - write.sectors.start) * SECTOR / 8;
            let data = write.version.to_le_bytes().repeat(words as usize);
            self.writes.push(write);
            if client.write(offset, &data).is_err() {
                return true;
            }
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if self.writes.len() >= FLUSH_EVERY {
                if client.flush().is_err() {
                    return false;
                }
                for write in std::mem::take(&mut self.writes) {
                    apply(&mut self.flushed, &write);
                }
            }
        }
    }

    /// Checks that the slice holds a prefix of the writes, which then is the flushed content.
    /// Returns true if the last write, which was not acknowledged, is among them.
    fn verify(&mut self, client: &mut Client, round: u32) -> bool {
        let found = self.read_versions(client, round);
        let mut expected = self.flushed.clone();
        let writes = std::mem::take(&mut self.writes);
        let mut held = (expected == found).then_some(0);
        for (count, write) in (1..).zip(&writes) {
            apply(&mut expected, write);
            // A later write may hide all that an earlier one wrote: the longest prefix counts.
            held = if expected == found { Some(count) } else { held };
        }
        let Some(held) = held else { panic!("{}", self.describe(round, &found, &writes)) };
        self.flushed = found;
        held > 0 && held == writes.len()
    }

    /// Reads the version of each sector.
    fn read_versions(&self, client: &mut Client, round: u32) -> Vec<u64> {
        let bytes = client.read(self.slice * SLICE_BYTES, SLICE_BYTES as usize).unwrap();
        let sectors = bytes.chunks(SECTOR as usize).enumerate();
        let versions = sectors.map(|(sector, bytes)| {
            let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let whole = bytes.chunks(8).all(|word| word == version.to_le_bytes());
            assert!(whole, "round {round}: sector {sector} of slice {} is torn", self.slice);
            version
        });
        versions.collect()
    }

    fn describe(&self, round: u32, found: &[u64], writes: &[Write]) -> String {
        let shares = writes.iter().map(|write| {
            let range = write.sectors.start as usize..write.sectors.end as usize;
            let there = found[range].iter().filter(|version| **version == write.version).count();
            format!("{there} sectors of version {} at {:?}", write.version, write.sectors)
        });
        let shares: Vec<String> = shares.collect();
        format!(
            "round {round}: slice {} holds no prefix of the writes since the last flush, but {}",
            self.slice,
            shares.join(", ")
        )
    }
}

fn apply(versions: &mut [u64], write: &Write) {
    versions[write.sectors.start as usize..write.sectors.end as usize].fill(write.version);
}

#[test]
fn atomic_writes_survive_kills_untorn() {
    let rounds: u32 = std::env::var("GABION_CRASH_ROUNDS").map_or(8, |rounds| rounds.parse().unwrap());
    let home = DaemonHome::new();
    let mut daemon = home.start();
    let drives = home.arg("drives");
    let files = ["--files", &drives, "--file-size", "128M", "--count", "5"];
    daemon.ok(&[&["pool", "create", "fast", "--scheme", "4+1"], &files[..]].concat());
    daemon.ok(&["volume", "create", "fast/vm01", "--size", "64M", "--sector", "512"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let socket = home.nbd_socket();
    let mut writers: Vec<SliceWriter> = (0..WRITERS).map(SliceWriter::new).collect();
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    let (mut in_flight, mut stored) = (0, 0);
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let writes = 1 + (random >> 33) % 1000;
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let running: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.write_until_killed(&socket, &acknowledged)))
                .collect();
            until("the writers make progress", || acknowledged.load(Ordering::Relaxed) >= writes);
            daemon.kill();
            in_flight += running.into_iter().map(|writer| writer.join().unwrap()).filter(|cut| *cut).count();
        });
        daemon = home.start();
        let mut client = Client::connect(&socket, "fast/vm01").unwrap();
        stored +=
            writers.iter_mut().filter_map(|writer| writer.verify(&mut client, round).then_some(())).count();
    }
    assert!(in_flight > 0, "no kill came during a write");
    println!("{rounds} kills during {in_flight} writes, of which up to {stored} are stored");
    daemon.stop();
}
