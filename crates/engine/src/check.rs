//! The offline verifier: a whole pool, read-only, every invariant that its bytes can show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use format::{DriveIndex, DriveState, LayerId, PoolId, Superblock};

use crate::error::Result;
use crate::pool::{DriveFindings, DriveSource, Shared, Tuning, assemble, plan_shard};
use crate::shard::{Candidate, verify_shard};
use crate::space::Space;

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
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, drive: Option<DriveIndex>, message: String) -> Self {
        Self { kind, drive: drive.map(DriveIndex::get), message }
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
}

/// Verifies the pool on `drives`, which nobody has open, without writing a byte. Runs on a reactor.
///
/// # Errors
/// When there is no pool, too many drives are missing, or its tables cannot be read at all.
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

/// Verifies the pool without the drives that are known to be behind; gives others that are.
async fn check_without(
    drives: &[Arc<dyn DriveSource>],
    behind: &BTreeSet<DriveIndex>,
) -> Result<std::result::Result<CheckReport, BTreeSet<DriveIndex>>> {
    let assembled = assemble(drives, behind).await?;
    let superblock = &assembled.superblock;
    let mut report = CheckReport {
        pool: superblock.pool,
        name: superblock.name.clone(),
        clean: superblock.clean,
        missing: missing(superblock, &assembled.sources),
        damaged_superblocks: assembled.found.damaged_superblocks.clone(),
        findings: drive_findings(&assembled.found),
        ..CheckReport::default()
    };
    let mut zones = BTreeMap::new();
    let mut volumes = Vec::new();
    let mut layers: BTreeMap<LayerId, u64> = BTreeMap::new();
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
        let found = verify_shard(&candidate).await?;
        found.layers.iter().for_each(|(layer, blocks)| *layers.entry(*layer).or_default() += blocks);
        report.meta_blocks += found.meta_blocks;
        report.segments += found.segments;
        report.empty_segments += found.empty_segments;
        report.rows += found.rows;
        report.records += found.records;
        report.findings.extend(found.findings);
        volumes.extend(found.volumes);
    }
    report.volumes = volumes.len() as u64;
    let owned: BTreeSet<LayerId> = volumes.iter().map(|volume| volume.layer).collect();
    for (layer, blocks) in layers {
        if layer < LayerId::FIRST_USER {
            report.meta_blocks += blocks;
        } else {
            report.data_blocks += blocks;
            if !owned.contains(&layer) {
                let message = format!("layer {layer} with {blocks} blocks belongs to no volume");
                report.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
            }
        }
    }
    Ok(Ok(report))
}

/// What superblocks and sizes of drives tell.
fn drive_findings(found: &DriveFindings) -> Vec<Finding> {
    let damaged = |message: String| Finding::new(FindingKind::Damaged, None, message);
    let stale = found.stale.iter().map(|path| {
        damaged(format!("{path} holds an old copy of itself: an opening takes it as missing and rebuilds it"))
    });
    let shrunk = found.shrunk.iter().map(|drive| {
        damaged(format!("{drive} is smaller than when it joined the pool: an opening takes it as missing"))
    });
    let copies =
        found.copies.iter().map(|path| damaged(format!("{path} is a copy of another drive of the pool")));
    stale.chain(shrunk).chain(copies).collect()
}

fn missing(superblock: &Superblock, sources: &[Option<Arc<dyn DriveSource>>]) -> Vec<String> {
    let drives = superblock.drives.iter().zip(sources);
    let gone = drives.filter(|(record, source)| source.is_none() && record.state != DriveState::Removed);
    gone.map(|(record, _)| record.path.clone()).collect()
}
