//! The offline verifier: checks every invariant of a pool that its bytes can show, read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use format::{DriveIndex, DriveState, LayerId, PoolId, Superblock};
use futures_util::future::LocalBoxFuture;

use crate::drive_source::DriveSource;
use crate::error::Result;
use crate::finding::{Finding, FindingKind, LostRange};
use crate::pool::{DriveFilter, DriveFindings, ShardShared, assemble_unchecked, plan_shard};
use crate::salvage::{SalvageCatalogue, describe, describe_catalogue, survey};
use crate::shard::{Candidate, LostCells, Probe, SalvageShard, verify_shard};
use crate::space::Space;
use crate::tuning::Tuning;

/// The most byte ranges that a finding lists.
const RANGES_MAX: usize = 256;

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The pool's identity.
    pub pool: PoolId,
    /// The pool's name.
    pub name: String,
    /// True if the pool was closed cleanly.
    pub clean: bool,
    /// Paths of the drives that are missing or failed.
    pub missing: Vec<String>,
    /// Number of volume records.
    pub volumes: u64,
    /// Data blocks of volumes, all verified.
    pub data_blocks: u64,
    /// Blocks of the map, the tables and the catalogue.
    pub meta_blocks: u64,
    /// Segments in use.
    pub segments: u64,
    /// Segments without live blocks: being written, or freed by the next checkpoints.
    pub empty_segments: u64,
    /// Rows whose parity was verified.
    pub rows: u64,
    /// Log records after the checkpoints, which the next open replays.
    pub records: u64,
    /// Cells of the last rows that a crash left unwritten; the next open completes them.
    pub incomplete: u64,
    /// Paths of the drives with one damaged superblock copy. A power cut during a superblock write
    /// leaves such a copy, and the next open rewrites it.
    pub damaged_superblocks: Vec<String>,
    /// The problems; empty for an intact pool.
    pub findings: Vec<Finding>,
    /// Unreadable byte ranges of volumes and snapshots.
    pub lost: Vec<LostRange>,
    /// True if records of the log are lost: every block may be older than its newest write.
    pub stale: bool,
}

/// Verifies the pool on `drives`, which must not be open, without writing a byte. Unreadable parts
/// become findings; all other parts are verified. Runs on a reactor.
///
/// # Errors
/// When the drives hold no pool, or have diverged (split brain).
pub fn check(drives: &[Arc<dyn DriveSource>]) -> LocalBoxFuture<'_, Result<CheckReport>> {
    Box::pin(async move {
        let mut behind = BTreeSet::new();
        let mut torn_tries = 0;
        loop {
            match check_without(drives, &behind).await? {
                Checked::Report(report) => return Ok(report),
                // Terminates, because `behind` grows each time.
                Checked::FoundBehind(more) => behind.extend(more),
                Checked::LostTornRow(_) if torn_tries < TORN_TRIES => torn_tries += 1,
                Checked::LostTornRow(report) => return Ok(report),
            }
        }
    })
}

/// Further attempts when a row of an unfinished record becomes unreadable during the check. The
/// next attempt finds, as an open would, that the record cannot be completed, and drops it.
const TORN_TRIES: u32 = 2;

/// The outcome of one attempt to verify a pool.
enum Checked {
    Report(CheckReport),
    /// These drives have missed writes, too.
    FoundBehind(BTreeSet<DriveIndex>),
    /// A row that a crash left incomplete was readable at first and is not any more.
    LostTornRow(CheckReport),
}

/// The parts of a pool that were verified.
#[derive(Default)]
struct Verified {
    shards: Vec<Rc<SalvageShard>>,
    /// The method of finding unreadable blocks, for each shard.
    probes: Vec<Probe>,
    layers: BTreeMap<LayerId, u64>,
    lost: Vec<(usize, LostCells)>,
}

/// Verifies the pool without the drives known to have missed writes.
async fn check_without(drives: &[Arc<dyn DriveSource>], behind: &BTreeSet<DriveIndex>) -> Result<Checked> {
    let assembled = assemble_unchecked(drives, DriveFilter::InUse(behind)).await?;
    let superblock = &assembled.superblock;
    let mut report = CheckReport {
        pool: superblock.pool,
        name: superblock.name.clone(),
        clean: superblock.clean,
        missing: missing(superblock, &assembled.sources),
        damaged_superblocks: assembled.findings.damaged_superblocks.clone(),
        findings: assembled.findings.findings(),
        ..CheckReport::default()
    };
    if let Err(error) = assembled.check_redundancy() {
        report.findings.push(Finding::new(FindingKind::Lost, None, error.to_string()));
    }
    let mut zones = BTreeMap::new();
    let mut verified = Verified::default();
    // Unused, because nothing is written.
    let space = Arc::new(Space::new(superblock.shards.len(), 0));
    let shared = ShardShared { space, repair: Arc::default(), scrub: Arc::default() };
    for index in 0..superblock.shards.len() {
        let plan = plan_shard(superblock, &assembled.sources, index, Tuning::default(), &shared);
        let (candidate, examination) = Candidate::examine(plan, true).await?;
        if !examination.behind.is_empty() {
            return Ok(Checked::FoundBehind(examination.behind));
        }
        report.incomplete += examination.completed;
        for (drive, zone) in examination.zones {
            if let Some(other) = zones.insert((drive, zone), index) {
                let message = format!(
                    "Z1: zone {zone} of drive {drive} belongs to segments of shards {index} and {other}"
                );
                report.findings.push(Finding::new(FindingKind::Inconsistent, Some(drive), message));
            }
        }
        let Some((verdict, shard)) = verify_shard(&candidate).await else { continue };
        verdict
            .layers
            .iter()
            .for_each(|(layer, blocks)| *verified.layers.entry(*layer).or_default() += blocks);
        report.meta_blocks += verdict.meta_blocks;
        report.segments += verdict.segments;
        report.empty_segments += verdict.empty_segments;
        report.rows += verdict.rows;
        report.records += verdict.records;
        report.findings.extend(verdict.findings);
        verified.lost.extend(verdict.lost.into_iter().map(|lost| (index, lost)));
        verified.probes.push(Probe::Known(verdict.lost_cells));
        verified.shards.push(Rc::new(shard));
    }
    let shards = verified.shards.clone();
    report_contents(&mut report, verified).await;
    match shards.iter().any(|shard| shard.has_lost_torn_row()) {
        true => Ok(Checked::LostTornRow(report)),
        false => Ok(Checked::Report(report)),
    }
}

/// Reports the contents of the volumes and their lost ranges.
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
            let message = format!("layer {layer} with {blocks} blocks is owned by no volume");
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
    let probes: Rc<[Probe]> = verified.probes.into();
    for volume in &catalogue.volumes {
        let surveyed = survey(&shards, volume, &probes, |_| ()).await;
        report.lost.extend(surveyed.lost_ranges.into_iter().map(|range| LostRange {
            volume: volume.name.clone(),
            offset: range.offset,
            length: range.length,
        }));
    }
}

impl DriveFindings {
    /// Returns the findings that follow from superblocks and drive sizes.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let damaged = |message: String| Finding::new(FindingKind::Damaged, None, message);
        let stale = self.stale.iter().map(|path| {
            damaged(format!(
                "{path} is an outdated copy of the drive: the next open treats it as missing and rebuilds it"
            ))
        });
        let shrunk = self.shrunk.iter().map(|drive| {
            damaged(format!(
                "{drive} is smaller than when it joined the pool: the next open treats it as missing"
            ))
        });
        let copies =
            self.copies.iter().map(|path| damaged(format!("{path} is a copy of another drive of the pool")));
        stale.chain(shrunk).chain(copies).collect()
    }
}

fn missing(superblock: &Superblock, sources: &[Option<Arc<dyn DriveSource>>]) -> Vec<String> {
    let drives = superblock.drives.iter().zip(sources);
    let missing = drives.filter(|(record, source)| source.is_none() && record.state != DriveState::Removed);
    missing.map(|(record, _)| record.path.clone()).collect()
}
