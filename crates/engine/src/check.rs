//! The offline verifier: a whole pool, read-only, every invariant that its bytes can show.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use format::{DriveIndex, DriveState, LayerId, PoolId, Superblock};

use crate::error::Result;
use crate::pool::{DriveFindings, DriveSource, LostRange, Shared, Tuning, Wanted, gather, plan_shard};
use crate::salvage::{SalvageCatalogue, describe, describe_catalogue, survey};
use crate::shard::{Candidate, LostCells, Probe, SalvageShard, verify_shard};
use crate::space::Space;

/// Ranges of bytes that one finding names at most.
const RANGES_MAX: usize = 256;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Bytes on a drive are not what they should be, and the rest of their row gives them back.
    Damaged,
    /// A block cannot be had any more.
    Lost,
    /// The pool's own structures contradict one another. No hardware fault does that: it is a bug.
    Inconsistent,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub kind: FindingKind,
    /// The drive, where one is to blame.
    pub drive: Option<u16>,
    /// What and where.
    pub message: String,
    /// Bytes of volumes that are lost with it, as far as it tells: the first of them if they are many. Snapshots and clones show them
    /// too; [`CheckReport::lost`] has all.
    pub lost: Vec<LostRange>,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, drive: Option<DriveIndex>, message: String) -> Self {
        Self { kind, drive: drive.map(DriveIndex::get), message, lost: Vec::new() }
    }
}

/// What the verifier saw.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The pool.
    pub pool: PoolId,
    /// Its name.
    pub name: String,
    /// True if it was closed in order.
    pub clean: bool,
    /// Drives that are missing or out of use, by path.
    pub missing: Vec<String>,
    /// Volumes.
    pub volumes: u64,
    /// Data blocks of volumes, all verified.
    pub data_blocks: u64,
    /// Blocks of the map, the tables and the catalogue.
    pub meta_blocks: u64,
    /// Segments in use.
    pub segments: u64,
    /// Those of them in which nothing lives: they are written just now, or the next checkpoints let them go.
    pub empty_segments: u64,
    /// Rows whose code was verified.
    pub rows: u64,
    /// Records behind the checkpoints, that an opening would replay.
    pub records: u64,
    /// Cells of the last rows that a crash left unwritten and an opening would complete.
    pub incomplete: u64,
    /// Drives of which one copy of the superblock is damaged, by path: a power cut while it was written leaves that, and the next
    /// opening rewrites it.
    pub damaged_superblocks: Vec<String>,
    /// What is wrong; empty for a sound pool.
    pub findings: Vec<Finding>,
    /// Bytes of volumes and snapshots that cannot be read, by name.
    pub lost: Vec<LostRange>,
    /// True if records of the log are lost: every block may be older than the newest write of it.
    pub stale: bool,
}

/// Verifies the pool on `drives`, which nobody has open, without writing a byte. Parts that cannot be read are findings, and all
/// others are verified. Runs on a reactor.
///
/// # Errors
/// When there is no pool, or its drives contradict one another.
pub async fn check(drives: &[Arc<dyn DriveSource>]) -> Result<CheckReport> {
    let mut behind = BTreeSet::new();
    loop {
        match check_without(drives, &behind).await? {
            Ok(report) => return Ok(report),
            // Grows each time.
            Err(more) => behind.extend(more),
        }
    }
}

/// The parts of a pool that were verified.
#[derive(Default)]
struct Verified {
    shards: Vec<Rc<SalvageShard>>,
    /// How it is known of each shard which blocks can be read.
    looks: Vec<Probe>,
    layers: BTreeMap<LayerId, u64>,
    lost: Vec<(usize, LostCells)>,
}

/// Verifies the pool without the drives that are known to be behind; gives others that are.
async fn check_without(
    drives: &[Arc<dyn DriveSource>],
    behind: &BTreeSet<DriveIndex>,
) -> Result<std::result::Result<CheckReport, BTreeSet<DriveIndex>>> {
    let assembled = gather(drives, Wanted::InUse(behind)).await?;
    let superblock = &assembled.superblock;
    let mut report = CheckReport {
        pool: superblock.pool,
        name: superblock.name.clone(),
        clean: superblock.clean,
        missing: missing(superblock, &assembled.sources),
        damaged_superblocks: assembled.found.damaged_superblocks.clone(),
        findings: assembled.found.findings(),
        ..CheckReport::default()
    };
    if let Err(error) = assembled.check_enough() {
        report.findings.push(Finding::new(FindingKind::Lost, None, error.to_string()));
    }
    let mut zones = BTreeMap::new();
    let mut verified = Verified::default();
    // Nobody decides by it: nothing is written.
    let space = Arc::new(Space::new(superblock.shards.len(), 0));
    let shared = Shared { space, repair: Arc::default(), scrub: Arc::default() };
    for index in 0..superblock.shards.len() {
        let plan = plan_shard(superblock, &assembled.sources, index, Tuning::default(), &shared);
        let (candidate, examination) = Candidate::examine(plan, true).await?;
        if !examination.behind.is_empty() {
            return Ok(Err(examination.behind));
        }
        report.incomplete += examination.completed;
        for (drive, zone) in examination.zones {
            if let Some(other) = zones.insert((drive, zone), index) {
                let message =
                    format!("Z1: zone {zone} of drive {drive} is in segments of shards {index} and {other}");
                report.findings.push(Finding::new(FindingKind::Inconsistent, Some(drive), message));
            }
        }
        let Some((found, shard)) = verify_shard(&candidate).await else { continue };
        found.layers.iter().for_each(|(layer, blocks)| *verified.layers.entry(*layer).or_default() += blocks);
        report.meta_blocks += found.meta_blocks;
        report.segments += found.segments;
        report.empty_segments += found.empty_segments;
        report.rows += found.rows;
        report.records += found.records;
        report.findings.extend(found.findings);
        verified.lost.extend(found.lost.into_iter().map(|lost| (index, lost)));
        verified.looks.push(Probe::Known(found.lost_cells));
        verified.shards.push(Rc::new(shard));
    }
    report_contents(&mut report, verified).await;
    Ok(Ok(report))
}

/// Reports what of volumes there is, and what of them is lost.
async fn report_contents(report: &mut CheckReport, verified: Verified) {
    let shards: Rc<[Rc<SalvageShard>]> = verified.shards.into();
    let catalogue = SalvageCatalogue::read(&shards).await;
    report.volumes = catalogue.records.len() as u64;
    report.stale = shards.iter().any(|shard| shard.is_stale());
    let owned: BTreeSet<LayerId> = catalogue.records.values().map(|record| record.layer).collect();
    for (layer, blocks) in verified.layers {
        if layer < LayerId::FIRST_USER {
            report.meta_blocks += blocks;
            continue;
        }
        report.data_blocks += blocks;
        if !owned.contains(&layer) && catalogue.lost.is_empty() && !report.stale {
            let message = format!("layer {layer} with {blocks} blocks belongs to no volume");
            report.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
    }
    for (index, shard) in shards.iter().enumerate() {
        report.findings.extend(shard.lost().iter().map(|lost| describe(lost, index, &catalogue)));
    }
    report.findings.extend(describe_catalogue(&catalogue, &shards));
    for (shard, LostCells { mut finding, blocks }) in verified.lost {
        let ranges = blocks.into_iter().flat_map(|(layer, run)| catalogue.ranges(shard, layer, run));
        finding.lost = ranges.take(RANGES_MAX).collect();
        report.findings.push(finding);
    }
    if report.findings.iter().all(|finding| finding.kind != FindingKind::Lost) {
        return;
    }
    let looks: Rc<[Probe]> = verified.looks.into();
    for volume in &catalogue.volumes {
        let found = survey(&shards, volume, &looks, |_| ()).await;
        report.lost.extend(found.lost_ranges.into_iter().map(|range| LostRange {
            volume: volume.name.clone(),
            offset: range.offset,
            length: range.length,
        }));
    }
}

impl DriveFindings {
    /// What superblocks and sizes of drives tell.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let damaged = |message: String| Finding::new(FindingKind::Damaged, None, message);
        let stale = self.stale.iter().map(|path| {
            damaged(format!(
                "{path} holds an old copy of itself: an opening takes it as missing and rebuilds it"
            ))
        });
        let shrunk = self.shrunk.iter().map(|drive| {
            damaged(format!(
                "{drive} is smaller than when it joined the pool: an opening takes it as missing"
            ))
        });
        let copies =
            self.copies.iter().map(|path| damaged(format!("{path} is a copy of another drive of the pool")));
        stale.chain(shrunk).chain(copies).collect()
    }
}

fn missing(superblock: &Superblock, sources: &[Option<Arc<dyn DriveSource>>]) -> Vec<String> {
    let drives = superblock.drives.iter().zip(sources);
    let gone = drives.filter(|(record, source)| source.is_none() && record.state != DriveState::Removed);
    gone.map(|(record, _)| record.path.clone()).collect()
}
