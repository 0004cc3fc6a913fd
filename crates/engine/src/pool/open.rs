//! Opening a pool: from drives in any order to shards in service.
//!
//! Steps: read superblocks; decide which state is the newest and which drives take part; let every shard find the end of
//! its log; publish all that in a new opening; replay; serve. Until the publish nothing is written but cells that a
//! crash had left out of rows that are complete otherwise.

use std::rc::Rc;
use std::sync::Arc;

use format::limits::LINEAGE_MAX;
use format::{DriveState, Generation, Lineage, ShardIndex, Superblock};
use reactor::{Home, Reactor, Remote};

use super::catalogue::Catalogue;
use super::create::short_path;
use super::superblocks::{OnDrive, newest, read_superblocks};
use super::{DriveSource, Inner, Pool, Tuning};
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{Geometry, Slot};
use crate::log::Identity;
use crate::shard::{Candidate, Examination, Shard, ShardPlan};
use crate::space::{Reserve, Space};
use crate::zones::Zones;

/// How to open a pool.
#[derive(Clone)]
pub struct OpenOptions {
    /// Settings.
    pub tuning: Tuning,
    /// The reactors that the shards are spread over; the one that runs this call if empty.
    pub reactors: Vec<Remote>,
    /// A random number: tells this opening from every other.
    pub nonce: u64,
}

/// What opening a pool found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// True if it was closed in order.
    pub clean: bool,
    /// Records of the log that were replayed.
    pub replayed: usize,
    /// Records at the log's end that a crash had cut off, and that nobody had been promised.
    pub dropped: usize,
    /// Cells of the last rows that a crash had left unwritten, and that were completed.
    pub completed: u64,
    /// Drives of the pool that are not in use, by path.
    pub missing: Vec<String>,
}

/// The drives of a pool, put in order.
pub(crate) struct Assembled {
    pub(crate) superblock: Superblock,
    /// A source for each drive of the pool that may be used.
    pub(crate) sources: Vec<Option<Arc<dyn DriveSource>>>,
    /// The slot that holds each drive's superblock.
    pub(crate) slots: Vec<Slot>,
}

/// Reads every drive and puts them in the pool's order. Drives that are missing or out of use have no source.
///
/// # Errors
/// When there is no pool, or more drives are missing than its scheme bears.
pub(crate) async fn assemble(drives: &[Arc<dyn DriveSource>]) -> Result<Assembled> {
    let mut found = Vec::new();
    for source in drives {
        found.push((source.path(), read_superblocks(&*source.open()).await));
    }
    let superblock = newest(&found)?;
    let mut sources = vec![None; superblock.drives.len()];
    let mut slots = vec![Slot::First; superblock.drives.len()];
    for ((path, on_drive), source) in found.iter().zip(drives) {
        let OnDrive::Superblock(_, id, slot) = on_drive else { continue };
        let Some(index) = superblock.drives.iter().position(|record| record.id == *id) else { continue };
        let record = superblock.drives.get(index);
        // A drive that missed anything that was relied on is not called online by the newest state (C1): one that is,
        // and says less, merely was not reached by the last publish.
        let usable = record.is_some_and(|record| record.state == DriveState::Online);
        let Some(place) = sources.get_mut(index).filter(|_| usable) else { continue };
        if place.is_some() {
            let message = format!("{path} is given twice, or is a copy of another drive of the pool");
            return Err(Error::new(ErrorKind::NotAPool, message));
        }
        *place = Some(source.clone());
        if let Some(place) = slots.get_mut(index) {
            *place = *slot;
        }
    }
    let missing: Vec<_> = superblock
        .drives
        .iter()
        .zip(&sources)
        .filter(|(record, source)| source.is_none() && record.state != DriveState::Removed)
        .map(|(record, _)| record.path.clone())
        .collect();
    if missing.len() > usize::from(superblock.scheme.parity()) {
        let message = format!(
            "pool '{}' ({}) bears the loss of {} of its {} drives, and {} are missing or out of use: {}",
            superblock.name,
            superblock.scheme,
            superblock.scheme.parity(),
            superblock.drives.len(),
            missing.len(),
            missing.join(", ")
        );
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    Ok(Assembled { superblock, sources, slots })
}

/// Opens the pool on `drives`, given in any order. Runs on the reactor that is to be the pool's home.
///
/// # Errors
/// When there is no pool, too many drives are missing, or what was durable cannot be read.
pub async fn open(drives: &[Arc<dyn DriveSource>], options: &OpenOptions) -> Result<(Pool, OpenReport)> {
    let Assembled { mut superblock, sources, slots } = assemble(drives).await?;
    let mut report = OpenReport { clean: superblock.clean, ..OpenReport::default() };
    begin_opening(&mut superblock, &sources, options.nonce);

    let reactors = if options.reactors.is_empty() {
        vec![Reactor::current().remote()]
    } else {
        options.reactors.clone()
    };
    let geometry = Geometry::of(&superblock);
    let segment_blocks = u64::from(geometry.rows()) * u64::from(geometry.scheme.data());
    let space = Arc::new(Space::new(superblock.shards.len(), segment_blocks));
    let mut candidates = Vec::new();
    let mut zones =
        Zones::new(superblock.drives.iter().map(|drive| (drive.zones, drive.state == DriveState::Online)));
    for (index, remote) in (0..superblock.shards.len()).zip(reactors.iter().cycle()) {
        let plan = plan_shard(&superblock, &sources, index, options.tuning, &space);
        let (candidate, examination) = remote.call(move || examine_here(plan)).await??;
        report.replayed += examination.records;
        report.dropped += examination.dropped;
        report.completed += examination.completed;
        take_over(&mut superblock, &mut zones, index, examination)?;
        candidates.push(candidate);
    }
    report.missing = superblock
        .drives
        .iter()
        .filter(|drive| matches!(drive.state, DriveState::Missing | DriveState::Failed))
        .map(|drive| drive.path.clone())
        .collect();

    let reserve = Reserve::of(&superblock);
    let opened = sources.iter().map(|source| source.as_ref().map(|source| source.open())).collect();
    let control = Control::new(superblock.clone(), zones, opened, slots, reserve, space);
    Reactor::current().spawn(control.clone().run()).detach();
    Reactor::current().spawn(Control::trim(Rc::downgrade(&control))).detach();
    let home = Home::settle(&Reactor::current(), control.clone());
    control.publish(|_| ()).await?;
    let shards = resume_all(&control, &home, candidates).await?;
    let catalogue = start_catalogue(&shards).await?;
    let inner = Inner {
        id: superblock.pool,
        name: superblock.name.clone(),
        scheme: superblock.scheme,
        zone_bytes: superblock.zone_bytes,
        atomic_blocks: Geometry::of(&superblock).atomic_blocks(),
        control: home,
        catalogue,
        shards,
    };
    Ok((Pool { inner: Arc::new(inner) }, report))
}

/// Marks a new opening in the superblock, and the drives that are not there.
fn begin_opening(superblock: &mut Superblock, sources: &[Option<Arc<dyn DriveSource>>], nonce: u64) {
    let epoch = superblock.epoch().epoch + 1;
    superblock.lineage.push(Lineage { epoch, nonce });
    let excess = superblock.lineage.len().saturating_sub(LINEAGE_MAX);
    superblock.lineage.drain(..excess);
    superblock.generation = Generation::new(0);
    superblock.clean = false;
    for (record, source) in superblock.drives.iter_mut().zip(sources) {
        match source {
            Some(source) => record.path = short_path(&source.path()),
            None if record.state == DriveState::Online => {
                record.state = DriveState::Missing;
                record.since = Generation::new(1);
            }
            None => {}
        }
    }
}

pub(crate) fn plan_shard(
    superblock: &Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    index: usize,
    tuning: Tuning,
    space: &Arc<Space>,
) -> ShardPlan {
    let shards = superblock.shards.len() as u64;
    let geometry = Geometry::of(superblock);
    let shard = ShardIndex::new(u16::try_from(index).unwrap_or(u16::MAX));
    let pool_blocks: u64 =
        superblock.drives.iter().map(|drive| u64::from(drive.zones) * u64::from(geometry.rows())).sum();
    // Small pools make checkpoints more often: what is freed comes back only with one.
    let checkpoint_blocks = (tuning.checkpoint_bytes / 4096).min(pool_blocks / shards / 8).max(256);
    let map_nodes = (tuning.map_bytes / 4096 / shards).max(64);
    // What a checkpoint stores must fit its part of the reserve, with what the one before stored, and the segments that a shard may open before the next one.
    let reserve = u64::from(Reserve::of(superblock).for_checkpoints()) / shards;
    let recent_max = format::recent_segments_max(superblock.shards.len(), superblock.table_width);
    let segments = reserve.clamp(1, recent_max as u64 / 4);
    let dirty_nodes = segments * u64::from(geometry.rows()) * u64::from(geometry.scheme.data()) * 3 / 8;
    ShardPlan {
        identity: Identity { pool: superblock.pool, key: superblock.key, shard },
        geometry,
        record: superblock.shards.get(index).cloned().unwrap_or_default(),
        drives: sources.to_vec(),
        tuning,
        map_nodes: usize::try_from(map_nodes).unwrap_or(usize::MAX),
        dirty_nodes: usize::try_from(dirty_nodes).unwrap_or(usize::MAX),
        checkpoint_blocks,
        recent_max,
        space: space.clone(),
    }
}

async fn examine_here(plan: ShardPlan) -> Result<(Home<Candidate>, Examination)> {
    let (candidate, examination) = Candidate::examine(plan, false).await?;
    Ok((Home::settle(&Reactor::current(), candidate), examination))
}

/// Takes a shard's findings into the superblock and the free zones.
pub(crate) fn take_over(
    superblock: &mut Superblock,
    zones: &mut Zones,
    index: usize,
    examination: Examination,
) -> Result<()> {
    for (drive, zone) in examination.zones {
        if !zones.occupy(drive, zone) {
            let place = crate::error::Place { drive: Some(drive), ..Default::default() };
            let message = format!(
                "zone {zone} is in two segments, or beyond its drive: the segment tables are damaged"
            );
            return Err(Error::corrupt(message, place, None));
        }
    }
    if let Some(record) = superblock.shards.get_mut(index) {
        *record = examination.record;
    }
    Ok(())
}

async fn resume_all(
    control: &Rc<Control>,
    home: &Home<Control>,
    candidates: Vec<Home<Candidate>>,
) -> Result<Arc<[Home<Shard>]>> {
    let mut shards: Vec<Home<Shard>> = Vec::new();
    for candidate in candidates {
        let (home, of) = (home.clone(), candidate.clone());
        let resume = move |candidate: Rc<Candidate>| async move {
            let shard = candidate.resume(home).await;
            of.evict();
            shard.map(|shard| Home::settle(&Reactor::current(), shard))
        };
        let shard = candidate.call(resume).await??;
        shards.push(shard);
        // Known as they come: one that replays may lose a drive.
        control.set_shards(shards.clone());
    }
    Ok(shards.into())
}

/// The catalogue lives where shard 0 does.
async fn start_catalogue(shards: &Arc<[Home<Shard>]>) -> Result<Home<Catalogue>> {
    let Some(first) = shards.first() else {
        return Err(Error::new(ErrorKind::NotAPool, "a pool without shards"));
    };
    let all = shards.clone();
    let start = move |shard: Rc<Shard>| async move {
        let catalogue = Catalogue::load(shard, all).await?;
        Ok::<_, Error>(Home::settle(&Reactor::current(), catalogue))
    };
    first.call(start).await?
}
