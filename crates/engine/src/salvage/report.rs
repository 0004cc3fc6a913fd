//! The report on a damaged pool, and the messages of findings about lost metadata.

use std::ops::Range;
use std::rc::Rc;

use format::limits::{BLOCK, SLICE};
use format::{DriveState, LayerId, Superblock};

use super::catalogue::SalvageCatalogue;
use crate::error::Error;
use crate::finding::{Finding, FindingKind, LostRange};
use crate::invariant::narrow;
use crate::pool::AssembledPool;
use crate::shard::{LostPart, LostPartKind, SalvageShard};
use crate::slices::Slices;

/// The most ranges that a finding lists.
const RANGES_MAX: u64 = 256;

/// The report on a damaged pool.
#[derive(Clone, Debug, Default)]
pub struct SalvageReport {
    /// True if the pool was closed cleanly.
    pub clean: bool,
    /// The epoch and generation of the newest state on the drives. Missing drives may hold a newer
    /// one.
    pub state: (u64, u64),
    /// The drives of the pool.
    pub drives: Vec<SalvagedDrive>,
    /// The reason why the pool cannot be opened, if any, and the unreadable parts of its maps,
    /// tables, catalogue and log.
    pub problems: Vec<Finding>,
    /// Records of the log after the checkpoints, which were replayed in memory.
    pub records: u64,
    /// Number of layers of volumes whose record cannot be read.
    pub unowned_layers: u64,
    /// True if records of the log are lost: every block may be older than its newest write.
    pub stale: bool,
}

/// A drive of a damaged pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedDrive {
    /// The drive's index in the pool.
    pub index: u16,
    /// The path recorded by the pool.
    pub path: String,
    /// The state in the newest superblock.
    pub state: DriveState,
    /// True if the drive is present and is read.
    pub present: bool,
}

impl SalvageReport {
    pub(super) fn of(
        assembled: &AssembledPool,
        shards: &[Rc<SalvageShard>],
        catalogue: &SalvageCatalogue,
    ) -> Self {
        let superblock = &assembled.superblock;
        let mut report = Self {
            clean: superblock.clean,
            state: (superblock.epoch().epoch, superblock.generation.get()),
            drives: drives(superblock, |index| assembled.sources.get(index).is_some_and(Option::is_some)),
            problems: assembled.findings.findings(),
            records: shards.iter().map(|shard| shard.records()).sum(),
            unowned_layers: catalogue.unowned(shards).len() as u64,
            stale: shards.iter().any(|shard| shard.is_stale()),
        };
        for (index, shard) in shards.iter().enumerate() {
            let lost = shard.lost();
            report.problems.extend(lost.iter().map(|part| describe(part, index, catalogue)));
        }
        report.problems.extend(describe_catalogue(catalogue, shards));
        report
    }
}

fn drives(superblock: &Superblock, is_present: impl Fn(usize) -> bool) -> Vec<SalvagedDrive> {
    let numbered = superblock.drives.iter().enumerate();
    let members = numbered.filter(|(_, record)| record.state != DriveState::Removed);
    let drive = |(index, record): (usize, &format::DriveRecord)| SalvagedDrive {
        index: narrow(index, "C5"),
        path: record.path.clone(),
        state: record.state,
        present: is_present(index),
    };
    members.map(drive).collect()
}

/// Returns the finding for a lost part of a shard's metadata.
pub(crate) fn describe(lost: &LostPart, shard: usize, catalogue: &SalvageCatalogue) -> Finding {
    let at = lost.address().map_or_else(String::new, |address| format!(" at {address}"));
    let why = lost.error.as_ref().map_or_else(String::new, |error: &Error| format!(" ({error})"));
    let mut ranges = Vec::new();
    let message = match &lost.part {
        LostPartKind::Root => format!(
            "the root of the checkpoint of shard {shard}{at} cannot be read{why}: data written to the shard before the \
             checkpoint cannot be found"
        ),
        LostPartKind::Segments(ids) => format!(
            "a block of the segment table of shard {shard}{at} cannot be read{why}: the locations of segments {} to {} are unknown",
            ids.start,
            ids.end.saturating_sub(1)
        ),
        LostPartKind::Live(_) => {
            format!("a block of live counts of shard {shard}{at} cannot be read{why}: no data is lost")
        }
        LostPartKind::Layers => format!(
            "a block of the layer table of shard {shard}{at} cannot be read{why}: the maps of the layers that it lists cannot be found"
        ),
        LostPartKind::Node(node) => {
            let first = node.first_block();
            let (name, blocks) = catalogue.describe(shard, node.layer, first..first + node.blocks());
            ranges = catalogue.ranges(shard, node.layer, first..first + node.blocks());
            format!(
                "the map node of level {} for blocks {first} to {} of layer {} in shard {shard}{at} cannot be read{why}: up to \
                 {blocks} blocks of {name} cannot be found",
                node.level,
                first + node.blocks() - 1,
                node.layer
            )
        }
        LostPartKind::Records(first, last) => format!(
            "records {first} to {last} of the log of shard {shard} are lost: all data of the shard may be older than the newest write"
        ),
        LostPartKind::LogEnd(segment, row) => format!(
            "segment {segment} of shard {shard} cannot be read from row {row} on, which may hold records of the log: all data of \
             the shard may be older than the newest write"
        ),
        LostPartKind::Header(segment, row) => format!(
            "the log of shard {shard} is damaged in segment {segment} row {row}{why}: all data of the shard may be older than \
             the newest write"
        ),
    };
    Finding { lost: ranges, ..Finding::new(FindingKind::Lost, None, message) }
}

/// Returns the findings about volume records.
pub(crate) fn describe_catalogue(catalogue: &SalvageCatalogue, shards: &[Rc<SalvageShard>]) -> Vec<Finding> {
    let mut findings = catalogue.findings.clone();
    for numbers in &catalogue.lost {
        let message = format!(
            "records {} to {} of the catalogue cannot be read: the volumes with these numbers cannot be found",
            numbers.start,
            numbers.end - 1
        );
        findings.push(Finding::new(FindingKind::Lost, None, message));
    }
    let unowned = catalogue.unowned(shards);
    if !catalogue.lost.is_empty() && !unowned.is_empty() {
        let message = format!("{} layers belong to volumes whose record cannot be read", unowned.len());
        findings.push(Finding::new(FindingKind::Lost, None, message));
    }
    findings
}

impl SalvageCatalogue {
    /// Returns the name of the volume that owns a layer, and the number of the given blocks of a
    /// shard that lie within the volume.
    fn describe(&self, shard: usize, layer: LayerId, blocks: Range<u64>) -> (String, u64) {
        let count = blocks.end - blocks.start;
        match self.records.values().find(|record| record.layer == layer) {
            Some(record) => {
                let slices = Slices::of(record.spread, self.shards);
                let end = slices.local_bound(shard, record.size.div_ceil(BLOCK as u64));
                let within = end.min(blocks.end).saturating_sub(blocks.start);
                (format!("'{}'", record.name), within)
            }
            None if layer == LayerId::SYSTEM => ("the catalogue".into(), count),
            None if layer == LayerId::EVENTS => ("the event log".into(), count),
            None if layer == LayerId::LOST => ("the list of lost blocks".into(), count),
            None => (format!("layer {layer}, which has no readable record,"), count),
        }
    }

    /// Returns the byte ranges of the owning volume that blocks of a layer in a shard map to, the
    /// first 256 of them if there are more.
    pub(crate) fn ranges(&self, shard: usize, layer: LayerId, blocks: Range<u64>) -> Vec<LostRange> {
        let Some(record) = self.records.values().find(|record| record.layer == layer) else {
            return Vec::new();
        };
        let slices = Slices::of(record.spread, self.shards);
        let end = slices.local_bound(shard, record.size.div_ceil(BLOCK as u64)).min(blocks.end);
        let count = end.saturating_sub(blocks.start).min(RANGES_MAX * SLICE / BLOCK as u64);
        let global = slices.volume_runs(shard, blocks.start, count);
        let range = |(block, count): (u64, u64)| {
            let offset = block * BLOCK as u64;
            let length = (count * BLOCK as u64).min(record.size.saturating_sub(offset));
            LostRange { volume: record.name.clone(), offset, length }
        };
        global.into_iter().map(range).collect()
    }
}
