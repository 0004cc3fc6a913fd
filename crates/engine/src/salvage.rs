//! Salvage: reads a damaged pool, whether it can be opened or not.
//!
//! Parts of the pool's maps, tables and catalogue may be unreadable, more drives may be missing
//! than the scheme tolerates, and records of the log may be lost. Invariants: no byte is written to
//! any drive; a block that cannot be read is an error with its location; a block that may be older
//! than its newest write is returned only if the caller accepts stale data.
//!
//! Must not know: frontends.

mod catalogue;
mod report;
mod survey;
mod volume;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use format::{PoolId, Scheme, Superblock};
use futures_util::future::LocalBoxFuture;

pub(crate) use catalogue::SalvageCatalogue;
pub use report::{SalvageReport, SalvagedDrive};
pub(crate) use report::{describe, describe_catalogue};
pub(crate) use survey::survey;
pub use survey::{ByteRange, VolumeSurvey};
pub use volume::{SalvageExtent, SalvageState, SalvageVolume, SalvageVolumeInfo, UnreadableRange};

use crate::drive_source::DriveSource;
use crate::error::{Error, ErrorKind, Result};
use crate::finding::{Finding, FindingKind};
use crate::pool::{DriveFilter, ShardShared, assemble, assemble_unchecked, plan_shard};
use crate::shard::{Candidate, Purpose, SalvageShard};
use crate::space::Space;
use crate::tuning::Tuning;

/// Options of [`salvage`].
#[derive(Clone, Copy, Debug)]
pub struct SalvageOptions {
    /// Reads blocks that may be older than their newest write, or deleted since. The log is
    /// searched for blocks whose map entry is unknown.
    pub accept_stale: bool,
    /// Memory for the map of all shards, in bytes. The replayed log takes additional memory.
    pub map_bytes: u64,
}

impl Default for SalvageOptions {
    fn default() -> Self {
        Self { accept_stale: false, map_bytes: Tuning::default().map_bytes }
    }
}

/// A read-only view of a damaged pool, on the reactor that [`salvage`] ran on.
pub struct Salvage {
    superblock: Superblock,
    accept_stale: bool,
    shards: Rc<[Rc<SalvageShard>]>,
    catalogue: SalvageCatalogue,
    report: SalvageReport,
}

/// Examines the pool on `drives`, which must not be open, as far as it can be read. Writes nothing.
/// Runs on a reactor.
///
/// # Errors
/// When no superblock can be read, or the drives have diverged (split brain).
pub fn salvage<'a>(
    drives: &'a [Arc<dyn DriveSource>],
    options: &'a SalvageOptions,
) -> LocalBoxFuture<'a, Result<Rc<Salvage>>> {
    Box::pin(async move {
        let assembled = assemble_unchecked(drives, DriveFilter::All).await?;
        let superblock = assembled.superblock.clone();
        let mut problems = Vec::new();
        if let Err(error) = assemble(drives, &BTreeSet::new()).await {
            problems.push(Finding::new(FindingKind::Lost, None, error.to_string()));
        }
        // Unused, because nothing is written.
        let space = Arc::new(Space::new(superblock.shards.len(), 0));
        let shared = ShardShared { space, repair: Arc::default(), scrub: Arc::default() };
        let tuning = Tuning { map_bytes: options.map_bytes, ..Tuning::default() };
        let mut shards = Vec::new();
        for index in 0..superblock.shards.len() {
            let plan = plan_shard(&superblock, &assembled.sources, index, tuning, &shared);
            let (candidate, _) = Candidate::examine(plan, true).await?;
            let Some(shard) = SalvageShard::of(&candidate, Purpose::Read).await else {
                return Err(Error::new(ErrorKind::Closed, "the shard was examined before"));
            };
            if options.accept_stale {
                shard.discover().await;
                if shard.has_unknown() {
                    shard.search().await;
                }
            }
            shards.push(Rc::new(shard));
        }
        let shards: Rc<[Rc<SalvageShard>]> = shards.into();
        let catalogue = SalvageCatalogue::read(&shards).await;
        let mut report = SalvageReport::of(&assembled, &shards, &catalogue);
        report.problems.splice(0..0, problems);
        Ok(Rc::new(Salvage { superblock, accept_stale: options.accept_stale, shards, catalogue, report }))
    })
}

impl Salvage {
    /// Returns the pool's identity.
    pub fn id(&self) -> PoolId {
        self.superblock.pool
    }

    /// Returns the pool's name.
    pub fn name(&self) -> &str {
        &self.superblock.name
    }

    /// Returns the scheme of the pool's newest data.
    pub fn scheme(&self) -> Scheme {
        self.superblock.scheme
    }

    /// Returns the state of the pool and the reasons why it cannot be opened.
    pub fn report(&self) -> &SalvageReport {
        &self.report
    }

    /// Returns the volumes and snapshots, sorted by name.
    pub fn volumes(&self) -> Vec<SalvageVolumeInfo> {
        self.catalogue.volumes.iter().map(|volume| self.info(volume)).collect()
    }

    /// Returns a volume or snapshot.
    ///
    /// # Errors
    /// `NotFound`; the message notes unreadable volume records.
    pub fn volume(self: &Rc<Self>, name: &str) -> Result<SalvageVolume> {
        match self.catalogue.volumes.iter().position(|volume| volume.name == name) {
            Some(index) => Ok(SalvageVolume::new(self.clone(), index)),
            None => {
                let noun = if name.contains('@') { "snapshot" } else { "volume" };
                let hint = match self.catalogue.lost.is_empty() {
                    true => "",
                    false => ": some volume records cannot be read",
                };
                Err(Error::new(ErrorKind::NotFound, format!("no {noun} '{name}'{hint}")))
            }
        }
    }
}
