//! Pools on memory drives, without faults. The simulator tests faults.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reactor::{
    Buffer, Clock, Drive, DriveProperties, Io, IoError, IoErrorKind, Memory, ParkDriver, Reactor, Span,
    SystemClock,
};

use super::*;
use crate::DriveSource;
use crate::ErrorKind;
use crate::Tuning;

struct MemorySource(Arc<Memory>, usize);

impl DriveSource for MemorySource {
    fn open(&self) -> Rc<dyn Drive> {
        self.0.open()
    }

    fn path(&self) -> String {
        format!("memory{}", self.1)
    }
}

pub(super) fn drives(count: usize, bytes: usize) -> Vec<Arc<dyn DriveSource>> {
    (0..count)
        .map(|index| Arc::new(MemorySource(Memory::new(bytes).unwrap(), index)) as Arc<dyn DriveSource>)
        .collect()
}

pub(super) fn run<T>(work: impl AsyncFnOnce() -> T) -> T {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    let result = reactor.run(work());
    reactor.shut_down();
    result
}

pub(super) fn create_options(scheme: &str) -> CreateOptions {
    CreateOptions {
        name: "pool".into(),
        scheme: scheme.parse().unwrap(),
        shards: 2,
        zone_bytes: Some(256 << 10),
        now: 0,
        entropy: [7; 32],
    }
}

pub(super) fn open_options() -> OpenOptions {
    OpenOptions {
        tuning: Tuning::default(),
        reactors: Vec::new(),
        nonce: 5,
        now: Arc::new(|| 1_700_000_000),
        state_store: None,
        accept_stale: false,
    }
}

pub(super) fn pattern(seed: u64, length: usize) -> Buffer {
    let mut buffer = Buffer::new(length);
    let mut state = seed | 1;
    for byte in buffer.as_mut_slice() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8;
    }
    buffer
}

pub(super) async fn read(volume: &crate::AttachedVolume, offset: u64, length: usize) -> Vec<u8> {
    let buffer = Buffer::new(length);
    volume.read(offset, &buffer.span()).await.unwrap();
    buffer.as_slice().to_vec()
}

#[test]
fn data_survives_a_clean_close_and_a_crash() {
    for scheme in ["4+1", "1+1", "1+2", "2+2", "4+2", "3+0", "8+2"] {
        let options = create_options(scheme);
        let drives = drives(usize::from(options.scheme.width()), 64 << 20);
        let big = pattern(1, 3 << 20);
        let small = pattern(2, 512);
        run(async || {
            create(&drives, &options).await.unwrap();
            let (pool, report) = open(&drives, &open_options()).await.unwrap();
            assert!(report.clean);
            pool.create_volume("a", 100 << 20, 512, 0).await.unwrap();
            let volume = pool.open_volume("a").await.unwrap().attach();
            volume.write(8192, &big.span()).await.unwrap();
            volume.write(5 << 20, &small.span()).await.unwrap();
            volume.write((50 << 20) + 3584, &small.span()).await.unwrap();
            volume.flush().await.unwrap();
            // Dropped without closing, as in a crash.
        });
        for round in 0..3 {
            run(async || {
                let (pool, report) = open(&drives, &open_options()).await.unwrap();
                assert_eq!(report.clean, round > 0, "{scheme} round {round}");
                let volume = pool.open_volume("a").await.unwrap().attach();
                assert!(read(&volume, 8192, 3 << 20).await == big.as_slice(), "{scheme} round {round}");
                assert_eq!(read(&volume, 5 << 20, 512).await, small.as_slice());
                assert_eq!(read(&volume, (50 << 20) + 3584, 512).await, small.as_slice());
                assert_eq!(read(&volume, 0, 8192).await, vec![0; 8192]);
                drop(volume);
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn a_full_pool_accepts_zeros_over_holes_and_stored_blocks() {
    let drives = drives(5, 24 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 1 << 30, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        let stored = pattern(5, 4096);
        volume.write(0, &stored.span()).await.unwrap();
        let data = pattern(3, 1 << 20);
        let mut end = 4 << 20;
        while volume.write(end, &data.span()).await.is_ok() {
            end += 1 << 20;
        }
        // A smaller write fails as well: the pool is full.
        let refused = volume.write(4096, &stored.span()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        // Half a stored block and half a hole.
        volume.write(2048, &Buffer::zeroed(4096).span()).await.unwrap();
        let found = read(&volume, 0, 8192).await;
        assert_eq!(found[..2048], stored.as_slice()[..2048]);
        assert!(found[2048..].iter().all(|byte| *byte == 0));
        drop(volume);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_full_pool_refuses_writes_and_recovers_by_deletion() {
    let drives = drives(5, 24 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let empty = pool.status().await.unwrap().space;
        for round in 0..3 {
            pool.create_volume("a", 1 << 30, 4096, 0).await.unwrap();
            let volume = pool.open_volume("a").await.unwrap().attach();
            let data = pattern(3, 1 << 20);
            let mut written = 0;
            let error = loop {
                match volume.write(written, &data.span()).await {
                    Ok(()) => written += 1 << 20,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(written > 32 << 20, "round {round}: only {written} bytes fit");
            for offset in (0..written).step_by(1 << 20) {
                assert!(read(&volume, offset, 1 << 20).await == data.as_slice());
            }
            volume.flush().await.unwrap();
            drop(volume);
            pool.delete_volume("a").await.unwrap();
            while !pool.volumes().await.unwrap().is_empty() {
                reactor::Reactor::current().yield_now().await;
            }
            pool.checkpoint().await.unwrap();
            pool.checkpoint().await.unwrap();
        }
        // Each of the two shards keeps an open segment of each class, spare segments, and the
        // segments of the last checkpoints.
        let mut tries = 0;
        while pool.status().await.unwrap().space.free_segments + 10 < empty.free_segments {
            tries += 1;
            assert!(tries < 100, "{:?} {:?}", pool.status().await.unwrap().space, empty);
            reactor::Reactor::current().yield_now().await;
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn volume_names_and_sizes_are_validated() {
    let drives = drives(2, 24 << 20);
    run(async || {
        create(&drives, &create_options("1+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        for name in ["", "a/b", "a\nb", ".a", "-a", "a b", &"x".repeat(64), "\u{0}"] {
            let error = pool.create_volume(name, 4096, 4096, 0).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name:?}");
        }
        for (size, sector) in
            [(0, 4096), (4095, 4096), (513, 512), (4096, 1024), (u64::MAX, 512), ((1 << 50) + 512, 512)]
        {
            let error = pool.create_volume("a", size, sector, 0).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{size} {sector}");
        }
        pool.create_volume("a", 1 << 50, 512, 0).await.unwrap();
        assert_eq!(pool.create_volume("a", 4096, 512, 0).await.unwrap_err().kind(), ErrorKind::Exists);
        let volume = pool.open_volume("a").await.unwrap();
        assert_eq!(pool.delete_volume("a").await.unwrap_err().kind(), ErrorKind::Busy);
        drop(volume);
        assert_eq!(pool.resize_volume("a", 4096, false).await.unwrap_err().kind(), ErrorKind::Invalid);
        pool.resize_volume("a", 4096, true).await.unwrap();
        pool.delete_volume("a").await.unwrap();
        assert_eq!(pool.delete_volume("none").await.unwrap_err().kind(), ErrorKind::NotFound);
        pool.close().await.unwrap();
    });
}

#[test]
fn failed_drives_are_tolerated_up_to_the_parity() {
    let drives = drives(6, 64 << 20);
    let data = pattern(9, 5 << 20);
    run(async || {
        create(&drives, &create_options("4+2")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 100 << 20, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        volume.write(0, &data.span()).await.unwrap();
        pool.fail_drive(1).await.unwrap();
        volume.write(10 << 20, &data.span()).await.unwrap();
        pool.fail_drive(4).await.unwrap();
        volume.write(20 << 20, &data.span()).await.unwrap();
        assert_eq!(pool.fail_drive(0).await.unwrap_err().kind(), ErrorKind::PoolFailed);
        for offset in [0, 10 << 20, 20 << 20] {
            assert!(read(&volume, offset, 5 << 20).await == data.as_slice());
            assert!(read(&volume, offset + 4096, 4096).await == data.as_slice()[4096..8192]);
        }
        volume.flush().await.unwrap();
    });
    // With two failed drives no other drive may be missing.
    run(async || {
        let (pool, report) = open(&drives, &open_options()).await.unwrap();
        assert_eq!(report.missing, ["memory1", "memory4"]);
        let volume = pool.open_volume("a").await.unwrap().attach();
        for offset in [0, 10 << 20, 20 << 20] {
            assert!(read(&volume, offset, 5 << 20).await == data.as_slice());
        }
        drop(volume);
        pool.close().await.unwrap();
        let without: Vec<_> = drives[..5].to_vec();
        let error = open(&without, &open_options()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotAPool, "{error}");
    });
}

/// Counters and settings of a monitored drive.
#[derive(Default)]
struct DriveMonitor {
    /// Bytes read from the drive.
    read: AtomicU64,
    /// True if the drive is a sparse file on a file system that may be full.
    sparse: bool,
    full: AtomicBool,
}

struct MonitoredDrive(Rc<dyn Drive>, Arc<DriveMonitor>);

impl Drive for MonitoredDrive {
    fn properties(&self) -> DriveProperties {
        DriveProperties { sparse: self.1.sparse, ..self.0.properties() }
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        let bytes: usize = into.iter().map(Span::len).sum();
        self.1.read.fetch_add(bytes as u64, Ordering::Relaxed);
        self.0.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        self.0.write(offset, from)
    }

    fn flush(&self) -> Io {
        self.0.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        self.0.discard(offset, length)
    }

    fn reserve(&self, offset: u64, length: u64) -> Io {
        if self.1.full.load(Ordering::Relaxed) {
            return Io::ready(Err(IoError::new(IoErrorKind::NoSpace)));
        }
        self.0.reserve(offset, length)
    }
}

struct MonitoredSource(MemorySource, Arc<DriveMonitor>);

impl DriveSource for MonitoredSource {
    fn open(&self) -> Rc<dyn Drive> {
        Rc::new(MonitoredDrive(self.0.open(), self.1.clone()))
    }

    fn path(&self) -> String {
        self.0.path()
    }
}

fn monitored((index, monitor): (usize, &Arc<DriveMonitor>), bytes: usize) -> Arc<dyn DriveSource> {
    Arc::new(MonitoredSource(MemorySource(Memory::new(bytes).unwrap(), index), monitor.clone()))
}

/// A failed drive does not slow down long reads: the parity of each row is read in its place.
/// Records start with a header and end at any column, so a request's columns are rarely aligned to
/// rows.
#[test]
fn a_long_read_without_a_drive_reads_each_row_once() {
    let monitors: Vec<_> = (0..5).map(|_| Arc::new(DriveMonitor::default())).collect();
    let drives: Vec<_> = monitors.iter().enumerate().map(|numbered| monitored(numbered, 64 << 20)).collect();
    let data = pattern(4, 1 << 20);
    run(async || {
        create(&drives, &CreateOptions { zone_bytes: Some(1 << 20), ..create_options("4+1") }).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 64 << 20, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        for at in 0..40 {
            volume.write(at << 20, &data.span()).await.unwrap();
        }
        pool.fail_drive(1).await.unwrap();
        let bytes_read = || monitors.iter().map(|monitor| monitor.read.load(Ordering::Relaxed));
        let before: Vec<u64> = bytes_read().collect();
        for at in 0..40 {
            assert!(read(&volume, at << 20, 1 << 20).await == data.as_slice(), "{at}");
        }
        let read: Vec<u64> = bytes_read().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(read[1], 0, "the drive has failed");
        let (all, share) = (read.iter().sum::<u64>(), 10 << 20);
        assert!(all <= (40 << 20) / 100 * 103, "{all} bytes for {}", 40 << 20);
        // The reads are distributed evenly over the other drives.
        for (drive, bytes) in read.iter().enumerate().filter(|(drive, _)| *drive != 1) {
            assert!(bytes.abs_diff(share) < share / 10, "drive {drive} has read {bytes} of {share}");
        }
    });
}

/// Writes fail instead of waiting while no checkpoint can be written, and succeed again afterwards.
#[test]
fn writes_are_refused_while_no_checkpoint_can_be_written() {
    let monitor = Arc::new(DriveMonitor { sparse: true, ..DriveMonitor::default() });
    // Space is reserved in steps of 64 MiB of a drive.
    let drives: Vec<_> = (0..3).map(|index| monitored((index, &monitor), 256 << 20)).collect();
    let block = pattern(5, 4096);
    run(async || {
        create(&drives, &CreateOptions { zone_bytes: Some(1 << 20), ..create_options("2+1") }).await.unwrap();
        let mut options = open_options();
        options.tuning.map_bytes = 0;
        let (pool, _) = open(&drives, &options).await.unwrap();
        pool.create_volume("a", 1 << 40, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        monitor.full.store(true, Ordering::Relaxed);
        let mut written = 0;
        // Each write goes to another leaf of the map.
        let refused = loop {
            match volume.write(written << 20, &block.span()).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert!(refused.to_string().contains("file system"), "{refused}");
        let counted: u64 =
            pool.status().await.unwrap().shards.iter().map(|shard| shard.checkpoints_refused).sum();
        assert!(counted > 0, "{refused} after {written}");
        monitor.full.store(false, Ordering::Relaxed);
        for at in 0..written + 100 {
            volume.write(at << 20, &block.span()).await.unwrap();
        }
    });
}

#[test]
fn a_drive_identifies_its_pool_until_it_is_erased() {
    let drives = drives(6, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.fail_drive(5).await.unwrap();
        pool.close().await.unwrap();
        let mut labels = Vec::new();
        for source in &drives {
            let DriveContents::Pool(found) = identify(&**source).await else { panic!("no pool") };
            labels.push(*found);
        }
        let newest = labels.iter().max_by_key(|found| found.written).unwrap();
        assert_eq!(
            (newest.name.as_str(), newest.scheme.to_string().as_str(), newest.clean),
            ("pool", "4+1", true)
        );
        let states: Vec<_> = newest.members.iter().map(|member| member.state == DriveState::Online).collect();
        assert_eq!(states, [true, true, true, true, true, false]);
        assert_eq!(newest.members[3].id, labels[3].drive);
        // The failed drive still holds the state before its failure.
        assert!(labels[5].written < newest.written && labels[5].members[5].state == DriveState::Online);
        erase(&*drives[0]).await.unwrap();
        assert_eq!(identify(&*drives[0]).await, DriveContents::NoPool);
        assert_eq!(open(&drives, &open_options()).await.err().unwrap().kind(), ErrorKind::NotAPool);
    });
}

/// Returns the number of references to each drive, without those of the test.
fn references(memories: &[Arc<Memory>]) -> Vec<usize> {
    memories.iter().map(|memory| Arc::strong_count(memory) - 2).collect()
}

fn memories(count: usize, bytes: usize) -> (Vec<Arc<Memory>>, Vec<Arc<dyn DriveSource>>) {
    let memories: Vec<_> = (0..count).map(|_| Memory::new(bytes).unwrap()).collect();
    let source = |(index, memory): (usize, &Arc<Memory>)| {
        Arc::new(MemorySource(memory.clone(), index)) as Arc<dyn DriveSource>
    };
    let sources = memories.iter().enumerate().map(source).collect();
    (memories, sources)
}

#[test]
fn a_closed_pool_releases_all_drives_during_any_activity() {
    let (memories, drives) = memories(5, 24 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        for name in ["kept", "deleted"] {
            pool.create_volume(name, 1 << 30, 4096, 0).await.unwrap();
        }
        // Fills the pool with data and garbage until the cleaner runs. Then writing stops, and the
        // cleaner waits for its turn. The deletion is long as well.
        let kept = pool.open_volume("kept").await.unwrap().attach();
        let deleted = pool.open_volume("deleted").await.unwrap().attach();
        let data = pattern(3, 256 << 10);
        for at in (0..16u64 << 20).step_by(256 << 10) {
            kept.write(at, &data.span()).await.unwrap();
            deleted.write(at, &data.span()).await.unwrap();
        }
        let moved = async || -> u64 {
            pool.status().await.unwrap().shards.iter().map(|shard| shard.log.moved_blocks).sum()
        };
        let mut at = 1;
        while moved().await == 0 {
            at = at * 29 % 4093;
            kept.write(at * 4096, &data.span().slice(0..4096)).await.unwrap();
        }
        drop((kept, deleted));
        pool.delete_volume("deleted").await.unwrap();
        pool.close().await.unwrap();
        // Tasks that ended in this turn of the reactor are dropped in the next.
        reactor::Reactor::current().yield_now().await;
        assert_eq!(references(&memories), [0; 5]);
        let (pool, report) = open(&drives, &open_options()).await.unwrap();
        assert!(report.clean);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_failed_open_releases_all_drives() {
    let (memories, drives) = memories(5, 24 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 1 << 30, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        // The second slice, which is on the second shard.
        volume.write(0, &pattern(1, 8192).span()).await.unwrap();
        volume.flush().await.unwrap();
        pool.checkpoint().await.unwrap();
        volume.write(4 << 20, &pattern(2, 8192).span()).await.unwrap();
        volume.flush().await.unwrap();
        drop(volume);
        pool.close().await.unwrap();
        // Without the catalogue's block the last step of opening fails.
        let magic = b"GVOL";
        for memory in &memories {
            let drive = memory.open();
            let whole = Buffer::new(24 << 20);
            drive.read(0, &[whole.span()]).await.unwrap();
            let blocks = whole.as_slice().chunks(4096).enumerate();
            let found: Vec<_> =
                blocks.filter(|(_, block)| block.starts_with(magic)).map(|(at, _)| at).collect();
            for at in found {
                drive.write(at as u64 * 4096, &[Buffer::zeroed(4096).span()]).await.unwrap();
            }
        }
        let error = open(&drives, &open_options()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        reactor::Reactor::current().yield_now().await;
        assert_eq!(references(&memories), [0; 5]);
    });
}

#[test]
fn a_replay_applies_records_in_the_original_order() {
    let drives = drives(5, 64 << 20);
    let data = pattern(7, 4096);
    let mut before = Vec::new();
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 64 << 20, 4096, 0).await.unwrap();
        let volume = Rc::new(pool.open_volume("a").await.unwrap().attach());
        volume.write(0, &data.span()).await.unwrap();
        // A discard over blocks and holes and a concurrent write within its range: either may take
        // effect first, but in the same order before and after a crash. Requests alternate between
        // kinds: after a discard the write is next.
        volume.write(3 << 20, &data.span()).await.unwrap();
        volume.discard(3 << 20, 4096).await.unwrap();
        let reactor = reactor::Reactor::current();
        let (one, other) = (volume.clone(), volume.clone());
        let discarded = reactor.spawn(async move { one.discard(0, 4 << 20).await });
        let written = reactor.spawn(async move { other.write(2 << 20, &pattern(8, 4096).span()).await });
        discarded.await.unwrap();
        written.await.unwrap();
        volume.flush().await.unwrap();
        before = read(&volume, 0, 4 << 20).await;
        // Dropped without closing, as in a crash.
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        assert!(read(&volume, 0, 4 << 20).await == before);
        drop(volume);
        pool.close().await.unwrap();
    });
}

/// Data of memory drives is verified during the copy: damaged blocks are reconstructed from the
/// other drives.
#[test]
fn damaged_blocks_of_memory_drives_are_reconstructed() {
    let (memories, drives) = memories(5, 24 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 64 << 20, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        let data = pattern(9, 1 << 20);
        volume.write(0, &data.span()).await.unwrap();
        let drives: Vec<_> = memories.iter().map(Memory::open).collect();
        let mut damaged = 0;
        for drive in &drives {
            let whole = Buffer::new(24 << 20);
            drive.read(0, &[whole.span()]).await.unwrap();
            // Up to one block of each row, so that the rest of the row can reconstruct it.
            let wanted = [17, 200].map(|block: usize| &data.as_slice()[block * 4096..][..4096]);
            for (at, block) in whole.as_slice().chunks(4096).enumerate() {
                if wanted.contains(&block) {
                    let mut changed = Buffer::copy_of(block);
                    changed.as_mut_slice()[4095] ^= 0x40;
                    drive.write(at as u64 * 4096, &[changed.span()]).await.unwrap();
                    damaged += 1;
                }
            }
        }
        assert_eq!(damaged, 2, "each block is stored once");
        // As a single block, and within a long read.
        assert_eq!(read(&volume, 17 * 4096, 4096).await, data.as_slice()[17 * 4096..][..4096]);
        assert!(read(&volume, 0, 1 << 20).await == data.as_slice());
        drop(volume);
        pool.close().await.unwrap();
    });
}
