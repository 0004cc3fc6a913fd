//! Pools with damage beyond the scheme's tolerance: `check` and salvage find all remaining data and
//! never return wrong data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use engine::{
    CheckReport, ErrorKind, FindingKind, Pool, Salvage, SalvageOptions, SalvageState, SalvageVolume,
    VolumeSurvey, salvage,
};
use format::limits::SUPERBLOCK_SLOT;
use reactor::Buffer;

use crate::disk::DiskImage;
use crate::model::content;
use crate::random::Random;
use crate::repair_tests::{BLOCK, machine, with_pool};
use crate::run::{BootEnd, Machine, Setup};

/// Blocks that are read together.
const RUN: usize = 64;

/// The first page of a drive after its superblocks.
const ZONES: u64 = 2 * SUPERBLOCK_SLOT / BLOCK;

/// The values that each block of a volume has had, in order.
type History = BTreeMap<String, Vec<Vec<u64>>>;

/// A pool with volumes, snapshots and a clone, and the history of their data.
struct DamagedPool {
    machine: Rc<Machine>,
    history: History,
    images: Vec<DiskImage>,
    clean: bool,
}

/// The result of reading an entire pool.
struct SalvageResult {
    /// Unreadable blocks, by volume.
    failed: BTreeMap<String, BTreeSet<u64>>,
    surveys: BTreeMap<String, VolumeSurvey>,
    stale: BTreeMap<String, bool>,
}

async fn write(pool: &Pool, history: &mut History, name: &str, blocks: Range<u64>, value: u64) {
    let volume = pool.open_volume(name).await.unwrap().attach();
    for first in blocks.clone().step_by(32) {
        let until = blocks.end.min(first + 32);
        let bytes: Vec<u8> = (first..until).flat_map(|block| content(value, block, 4096)).collect();
        volume.write(first * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
    }
    volume.flush().await.unwrap();
    record(history, name, blocks, value);
}

fn record(history: &mut History, name: &str, blocks: Range<u64>, value: u64) {
    let known = history.get_mut(name).unwrap();
    blocks.for_each(|block| known[usize::try_from(block).unwrap()].push(value));
}

async fn create(pool: &Pool, history: &mut History, name: &str, blocks: u64, sector: u32) {
    pool.create_volume(name, blocks * BLOCK, sector, 0).await.unwrap();
    history.insert(name.into(), vec![vec![0]; usize::try_from(blocks).unwrap()]);
}

fn copy(history: &mut History, from: &str, to: &str) {
    let known = history[from].clone();
    history.insert(to.into(), known);
}

impl DamagedPool {
    /// Creates a pool that was closed cleanly, or was cut off with flushed data in its log.
    fn new(setup: &Setup, seed: u64, clean: bool) -> Self {
        let machine = machine(setup, seed);
        let mut history = with_pool(&machine, async |pool| {
            let mut history = History::new();
            create(pool, &mut history, "v", 700, 4096).await;
            write(pool, &mut history, "v", 0..600, 3).await;
            pool.snapshot_volume("v@one", 0).await.unwrap();
            copy(&mut history, "v", "v@one");
            write(pool, &mut history, "v", 100..200, 5).await;
            let volume = pool.open_volume("v").await.unwrap().attach();
            volume.discard(50 * BLOCK, 10 * BLOCK).await.unwrap();
            record(&mut history, "v", 50..60, 0);
            pool.clone_volume("v@one", "c", 0).await.unwrap();
            copy(&mut history, "v@one", "c");
            write(pool, &mut history, "c", 10..20, 7).await;
            create(pool, &mut history, "sparse", 20_000, 512).await;
            for first in [0, 5_000, 19_990] {
                write(pool, &mut history, "sparse", first..first + 10, 9).await;
            }
            pool.checkpoint().await.unwrap();
            history
        });
        if !clean {
            let this = machine.clone();
            let known = history.clone();
            let ended = machine.boot(async move || {
                let (pool, _) = this.open().await.unwrap();
                let mut history = known;
                write(&pool, &mut history, "v", 300..340, 11).await;
                write(&pool, &mut history, "sparse", 5_005..5_020, 13).await;
                pool.snapshot_volume("c@two", 0).await.unwrap();
                copy(&mut history, "c", "c@two");
                write(&pool, &mut history, "c", 15..30, 15).await;
                history
            });
            let BootEnd::Completed(newer) = ended else { panic!("unexpected power cut") };
            history = newer;
            machine.cut_power();
        }
        let images = machine.disks.iter().map(|disk| disk.image()).collect();
        Self { machine, history, images, clean }
    }

    /// Removes all damage.
    fn restore(&self) {
        self.machine.absent.borrow_mut().fill(false);
        self.machine.trigger.operations.set(0);
        for (disk, image) in self.machine.disks.iter().zip(&self.images) {
            disk.set_dead(false);
            disk.restore(image);
        }
    }

    /// Returns the written pages of zones, as drive and page.
    fn pages(&self) -> Vec<(usize, u64)> {
        let of = |(index, disk): (usize, &Rc<crate::disk::Disk>)| {
            disk.pages()
                .into_iter()
                .filter(|page| *page >= ZONES)
                .map(move |page| (index, page))
                .collect::<Vec<_>>()
        };
        self.machine.disks.iter().enumerate().flat_map(of).collect()
    }

    /// Reads all remaining data and compares it with the history.
    fn salvage(&self, accept_stale: bool) -> SalvageResult {
        let before: Vec<DiskImage> = self.machine.disks.iter().map(|disk| disk.image()).collect();
        let stores = self.machine.trigger.stores.get();
        let this = self.machine.clone();
        let options = SalvageOptions { accept_stale, ..SalvageOptions::default() };
        let history = self.history.clone();
        let ended = self.machine.boot(async move || {
            let found = salvage(&this.sources(), &options).await.unwrap();
            read_all(&found, &history, accept_stale).await
        });
        let BootEnd::Completed(seen) = ended else { panic!("unexpected power cut") };
        assert_eq!(self.machine.trigger.stores.get(), stores, "salvage wrote or flushed");
        for (disk, before) in self.machine.disks.iter().zip(before) {
            assert!(disk.image() == before, "a drive has changed");
        }
        seen
    }

    /// Runs [`DamagedPool::salvage`] and compares its result with the verifier's report.
    fn check(&self) -> (SalvageResult, CheckReport) {
        let stores = self.machine.trigger.stores.get();
        let report = self.machine.check().unwrap();
        assert_eq!(self.machine.trigger.stores.get(), stores, "the verifier wrote or flushed");
        let seen = self.salvage(false);
        assert_eq!(
            report.stale,
            seen.stale.values().any(|stale| *stale) || report.stale && seen.stale.is_empty()
        );
        for (name, survey) in &seen.surveys {
            let lost: Vec<(u64, u64)> = report
                .lost
                .iter()
                .filter(|range| range.volume == *name)
                .map(|range| (range.offset, range.length))
                .collect();
            let read: Vec<(u64, u64)> =
                survey.lost_ranges.iter().map(|range| (range.offset, range.length)).collect();
            assert_eq!(lost, read, "{name}: the verifier and salvage differ");
        }
        let is_lost = |finding: &engine::Finding| finding.kind == FindingKind::Lost;
        let lost_any =
            seen.surveys.values().any(|survey| survey.lost > 0) || seen.surveys.len() < self.history.len();
        assert!(!lost_any || report.findings.iter().any(is_lost), "{report:#?}");
        let bugs: Vec<_> =
            report.findings.iter().filter(|finding| finding.kind == FindingKind::Inconsistent).collect();
        assert!(bugs.is_empty(), "damage is reported as inconsistency: {bugs:#?}");
        (seen, report)
    }
}

async fn read_all(found: &Rc<Salvage>, history: &History, accept_stale: bool) -> SalvageResult {
    let mut seen =
        SalvageResult { failed: BTreeMap::new(), surveys: BTreeMap::new(), stale: BTreeMap::new() };
    for info in found.volumes() {
        let volume = found.volume(&info.name).unwrap();
        let name = &info.name;
        let Some(known) = history.get(name) else {
            assert!(accept_stale && name.contains('#'), "volume {name} never existed");
            continue;
        };
        assert_eq!(info.size, known.len() as u64 * BLOCK, "{name}");
        let exact = volume.survey(true, &mut |_| ()).await;
        let rough = volume.survey(false, &mut |_| ()).await;
        let (lost, stale) = (blocks_of(&exact.lost_ranges), blocks_of(&exact.stale_ranges));
        assert!(
            blocks_of(&rough.lost_ranges).is_subset(&lost),
            "{name}: the survey without reads found losses that the survey with reads did not"
        );
        let mut failed = BTreeSet::new();
        let buffer = Buffer::new(RUN * 4096);
        for run in (0..known.len()).step_by(RUN) {
            let run = run..known.len().min(run + RUN);
            let errors = read_blocks(&volume, run.clone(), &buffer).await;
            let read = errors.iter().zip(buffer.as_slice().chunks(4096));
            for ((block, values), (error, bytes)) in (0..).zip(known).skip(run.start).zip(read) {
                let is_stale = info.stale || stale.contains(&block);
                let Some(error) = error else {
                    assert!(accept_stale || !is_stale, "{name} block {block}: stale data without consent");
                    let newest = values.last().unwrap();
                    let right = |value: &u64| match value {
                        0 => bytes == [0; 4096],
                        _ => bytes == content(*value, block, 4096),
                    };
                    let fine = if is_stale { values.iter().any(right) } else { right(newest) };
                    assert!(fine, "{name} block {block} is wrong; stale: {is_stale}");
                    continue;
                };
                let expected = match lost.contains(&block) || !is_stale {
                    true => [ErrorKind::Corrupt, ErrorKind::Io, ErrorKind::Stale],
                    false => [ErrorKind::Stale; 3],
                };
                assert!(expected.contains(error), "{name} block {block}: {error:?}");
                failed.insert(block);
            }
        }
        let expected: BTreeSet<u64> = match accept_stale {
            true => lost.clone(),
            false => lost.union(&stale).copied().collect(),
        };
        assert_eq!(failed, expected, "{name}: the reported losses differ from the unreadable blocks");
        check_extents(&volume, info.size, &rough).await;
        seen.failed.insert(name.clone(), failed);
        seen.surveys.insert(name.clone(), exact);
        seen.stale.insert(name.clone(), info.stale);
    }
    seen
}

/// Reads a run of blocks into the front of a buffer, or each block by itself if the run cannot be
/// read. Returns the error of each block.
async fn read_blocks(volume: &SalvageVolume, run: Range<usize>, into: &Buffer) -> Vec<Option<ErrorKind>> {
    let first = run.start;
    let read = async |blocks: Range<usize>| {
        let span = into.span().slice((blocks.start - first) * 4096..(blocks.end - first) * 4096);
        volume.read(blocks.start as u64 * BLOCK, &span).await.err().map(|error| error.kind())
    };
    if read(run.clone()).await.is_none() {
        return vec![None; run.len()];
    }
    let mut errors = Vec::new();
    for block in run {
        errors.push(read(block..block + 1).await);
    }
    errors
}

/// Checks that the extents of a volume cover it and match the survey.
async fn check_extents(volume: &SalvageVolume, size: u64, survey: &VolumeSurvey) {
    let mut lost = BTreeSet::new();
    let mut at = 0;
    while at < size {
        for extent in volume.extents(at, size - at).await.unwrap() {
            assert!(extent.length > 0);
            if extent.state == SalvageState::Lost {
                lost.extend(at / BLOCK..(at + extent.length) / BLOCK);
            }
            at += extent.length;
        }
    }
    assert_eq!((at, lost), (size, blocks_of(&survey.lost_ranges)));
}

fn blocks_of(ranges: &[engine::ByteRange]) -> BTreeSet<u64> {
    ranges.iter().flat_map(|range| range.offset / BLOCK..(range.offset + range.length) / BLOCK).collect()
}

/// Damage within the scheme's tolerance loses nothing. A crashed pool is salvaged in the state in
/// which it would be opened.
#[test]
fn damage_within_the_tolerance_loses_nothing() {
    for (scheme, drives, shards, clean) in
        [("4+1", 5, 1, true), ("4+1", 6, 2, false), ("2+2", 5, 3, false), ("1+1", 3, 1, false)]
    {
        let scene = DamagedPool::new(&Setup { shards, ..Setup::small(scheme, drives) }, 300, clean);
        for missing in [None, Some(0), Some(2)] {
            scene.restore();
            if let Some(missing) = missing {
                scene.machine.absent.borrow_mut()[missing] = true;
            }
            let (seen, report) = scene.check();
            assert!(!report.stale && report.lost.is_empty() && report.findings.is_empty(), "{report:#?}");
            assert_eq!(seen.surveys.len(), scene.history.len());
            assert!(seen.failed.values().all(BTreeSet::is_empty));
        }
    }
}

/// Each page of a pool without parity is lost in turn: pages of the map, the tables, the catalogue,
/// the log and the data.
#[test]
fn any_single_page_may_be_lost() {
    for (shards, clean, step) in [(1, true, 1), (2, false, 1), (1, false, 2)] {
        let scene =
            DamagedPool::new(&Setup { shards, ..Setup::small("2+0", 2) }, 310 + u64::from(shards), clean);
        let (mut metadata, mut stale) = (0, 0);
        let pages = scene.pages();
        for (drive, page) in pages.into_iter().step_by(step) {
            scene.restore();
            scene.machine.disks[drive].mark_unreadable(page);
            let (seen, report) = scene.check();
            let nodes = report.findings.iter().any(|finding| finding.message.contains("the map node"));
            metadata += u32::from(nodes);
            stale += u32::from(report.stale);
            assert!(!scene.clean || !report.stale, "a cleanly closed pool has nothing to replay");
            if nodes || report.stale || seen.surveys.len() < scene.history.len() {
                scene.salvage(true);
            }
        }
        assert!(metadata > 5, "{metadata} pages held map nodes");
        assert!(scene.clean || stale > 5, "{stale} pages held headers of the log");
    }
}

/// As above, with wrong bytes in place of unreadable ones.
#[test]
fn any_single_page_may_be_wrong() {
    let scene = DamagedPool::new(&Setup::small("2+0", 2), 320, true);
    for (drive, page) in scene.pages() {
        scene.restore();
        assert!(scene.machine.disks[drive].flip_bit(page, usize::try_from(page).unwrap() * 7919));
        scene.check();
    }
}

/// More drives are missing than the scheme tolerates, and pages of other drives are lost.
#[test]
fn drives_beyond_the_tolerance_may_be_missing() {
    let mut read = 0;
    for (seed, (scheme, drives, shards)) in
        (0..).zip([("2+1", 6, 1), ("4+1", 7, 2), ("1+1", 5, 3), ("2+2", 6, 1), ("4+2", 8, 2), ("3+0", 4, 1)])
    {
        for clean in [true, false] {
            let scene =
                DamagedPool::new(&Setup { shards, ..Setup::small(scheme, drives) }, 330 + seed, clean);
            let random = Random::new(seed * 2 + u64::from(clean));
            for round in 0..12 {
                scene.restore();
                for _ in 0..random.between(1, 3) {
                    let drive = usize::try_from(random.below(drives as u64)).unwrap();
                    match round % 3 {
                        0 => scene.machine.absent.borrow_mut()[drive] = true,
                        1 => scene.machine.disks[drive].set_dead(true),
                        _ => {}
                    }
                }
                if round % 4 >= 2 {
                    for (drive, page) in scene.pages() {
                        if random.once_in(6) {
                            scene.machine.disks[drive].mark_unreadable(page);
                        }
                    }
                }
                if !has_readable_drive(&scene.machine) {
                    continue;
                }
                let (seen, _) = scene.check();
                read += seen.surveys.values().map(|survey| survey.readable).sum::<u64>();
                scene.salvage(true);
            }
        }
    }
    assert!(read > 100 << 20, "{read} bytes were read");
}

/// Returns true if a drive with a superblock is present.
fn has_readable_drive(machine: &Machine) -> bool {
    let absent = machine.absent.borrow().clone();
    machine.disks.iter().zip(absent).any(|(disk, absent)| !absent && !disk.is_dead())
}
