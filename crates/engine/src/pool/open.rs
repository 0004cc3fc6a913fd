//! Opening a pool: from drives in any order to shards in service.
//!
//! Steps: read superblocks; decide which state is the newest and which drives take part; let every shard find the end of
//! its log; publish all that in a new opening; replay; serve. Until the publish nothing is written but cells that a
//! crash had left out of rows that are complete otherwise.

use std::rc::Rc;
use std::sync::Arc;

use format::limits::LINEAGE_MAX;
use format::{DriveIndex, DriveRecord, DriveState, EventKind, Generation, Lineage, ShardIndex, Superblock};
use reactor::{Home, Reactor, Remote};

use super::catalogue::Catalogue;
use super::create::short_path;
use super::superblocks::{OnDrive, newest, read_superblocks};
use super::{DriveSource, Inner, Journal, Pool, Tuning};
use crate::control::{Control, columns_missing, keep_leaving};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Events, WallClock};
use crate::geometry::{Geometry, Slot};
use crate::latched::latched;
use crate::log::Identity;
use crate::repair::Repair;
use crate::scrub::Scrub;
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
    /// The time of day: when something happened, and when it is time to scrub.
    pub now: WallClock,
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
    /// Drives that were missing and have come back, by path: what they missed is completed.
    pub returned: Vec<String>,
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
        let OnDrive::Superblock(theirs, id, slot) = on_drive else { continue };
        let Some(index) = superblock.drives.iter().position(|record| record.id == *id) else { continue };
        let record = superblock.drives.get(index);
        // A drive that missed anything that was relied on is not called online by the newest state (C1): one that is,
        // and says less, merely was not reached by the last publish.
        let returns = |record: &DriveRecord| {
            let is_as_it_was = superblock.remembers(theirs) && source.open().properties().size >= record.size;
            record.state == DriveState::Missing && is_as_it_was
        };
        let usable = record.is_some_and(|record| record.state.is_in_use() || returns(record));
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
    check_enough(&superblock, &sources)?;
    Ok(Assembled { superblock, sources, slots })
}

/// Refuses a pool of which more is missing than its scheme bears.
fn check_enough(superblock: &Superblock, sources: &[Option<Arc<dyn DriveSource>>]) -> Result<()> {
    let belong = superblock.drives.iter().zip(sources);
    let belong: Vec<_> = belong.filter(|(record, _)| record.state != DriveState::Removed).collect();
    let there = belong.iter().filter(|(_, source)| source.is_some()).count();
    // What has come back misses something, too.
    let missing: Vec<_> =
        belong.iter().filter(|(record, source)| source.is_none() || record.state.counts_as_lost()).collect();
    let too_few = usize::from(superblock.scheme.width()).saturating_sub(there);
    if missing.len().max(too_few) <= usize::from(superblock.scheme.parity()) {
        return Ok(());
    }
    let paths: Vec<_> = missing.iter().map(|(record, _)| record.path.as_str()).collect();
    let message = format!(
        "pool '{}' ({}) bears the loss of {} of its {} drives, and {} are missing, out of use, or missed something: {}",
        superblock.name,
        superblock.scheme,
        superblock.scheme.parity(),
        belong.len(),
        missing.len(),
        paths.join(", ")
    );
    Err(Error::new(ErrorKind::NotAPool, message))
}

/// Opens the pool on `drives`, given in any order. Runs on the reactor that is to be the pool's home.
///
/// # Errors
/// When there is no pool, too many drives are missing, or what was durable cannot be read. Nothing is held on to then.
pub async fn open(drives: &[Arc<dyn DriveSource>], options: &OpenOptions) -> Result<(Pool, OpenReport)> {
    let mut started = Started::default();
    let opened = open_parts(drives, options, &mut started).await;
    if opened.is_err() {
        started.dismiss().await;
    }
    opened
}

/// The parts of a pool that run already, on their reactors.
#[derive(Default)]
struct Started {
    candidates: Vec<Home<Candidate>>,
    shards: Vec<Home<Shard>>,
    control: Option<(Rc<Control>, Home<Control>)>,
}

impl Started {
    /// Ends all of them.
    async fn dismiss(self) {
        for candidate in self.candidates {
            let home = candidate.clone();
            let _ = candidate.call(move |_| async move { home.evict() }).await;
        }
        for shard in self.shards {
            let home = shard.clone();
            let stop = move |shard: Rc<Shard>| async move {
                let _ = shard.stop(false).await;
                home.evict();
            };
            let _ = shard.call(stop).await;
        }
        if let Some((control, home)) = self.control {
            control.stop().await;
            home.evict();
        }
    }
}

async fn open_parts(
    drives: &[Arc<dyn DriveSource>],
    options: &OpenOptions,
    started: &mut Started,
) -> Result<(Pool, OpenReport)> {
    let Assembled { mut superblock, sources, slots } = assemble(drives).await?;
    let sources: Vec<_> = sources.into_iter().map(|source| source.map(latched)).collect();
    let mut report = OpenReport { clean: superblock.clean, ..OpenReport::default() };
    let events = Arc::new(Events::new(options.now.clone()));
    report.returned = begin_opening(&mut superblock, &sources, options.nonce, &events);

    let reactors = if options.reactors.is_empty() {
        vec![Reactor::current().remote()]
    } else {
        options.reactors.clone()
    };
    let geometry = Geometry::of(&superblock);
    let space = Arc::new(Space::new(superblock.shards.len(), geometry.segment_payload()));
    let repair = Arc::new(Repair::new(options.tuning.repair, superblock.shards.len()));
    let scrub = Scrub::beside(&repair);
    let shared = Shared { space: space.clone(), repair: repair.clone(), scrub: scrub.clone() };
    let mut zones =
        Zones::new(superblock.drives.iter().map(|drive| (drive.zones, drive.state.takes_segments())));
    for (index, remote) in (0..superblock.shards.len()).zip(reactors.iter().cycle()) {
        let plan = plan_shard(&superblock, &sources, index, options.tuning, &shared);
        let (candidate, examination) = remote.call(move || examine_here(plan)).await??;
        started.candidates.push(candidate);
        report.replayed += examination.records;
        report.dropped += examination.dropped;
        report.completed += examination.completed;
        for drive in &examination.failed {
            fail_at_opening(&mut superblock, &mut zones, *drive)?;
            events.say_of(*drive, EventKind::DriveFailed, "it did not take the last rows of the log");
        }
        take_over(&mut superblock, &mut zones, index, examination)?;
    }
    report.missing = superblock
        .drives
        .iter()
        .filter(|drive| drive.state.is_lost())
        .map(|drive| drive.path.clone())
        .collect();

    let reserve = Reserve::of(&superblock);
    let opened = sources.iter().map(|source| source.as_ref().map(|source| source.open())).collect();
    let told = (space, events.clone());
    let looks = (options.tuning.retire_after, scrub.clone());
    let control = Control::new(superblock.clone(), zones, opened, slots, reserve, told, looks);
    Reactor::current().spawn(control.clone().run()).detach();
    Reactor::current().spawn(Control::trim(Rc::downgrade(&control))).detach();
    let home = Home::settle(&Reactor::current(), control.clone());
    started.control = Some((control.clone(), home.clone()));
    control.publish(|_| ()).await?;
    resume_all(&control, &home, started).await?;
    let shards: Arc<[Home<Shard>]> = started.shards.clone().into();
    let (catalogue, journal) = start_catalogue(&shards, &events).await?;
    match report.clean {
        true => events.say(EventKind::Opened, 0, ""),
        false => events.say(EventKind::Recovered, report.replayed as u64, ""),
    }
    events.tell(journal.clone());
    journal.call(|journal| async move { journal.write_queued().await }).await?;
    let inner = Inner {
        id: superblock.pool,
        name: superblock.name.clone(),
        scheme: superblock.scheme,
        zone_bytes: superblock.zone_bytes,
        atomic_blocks: Geometry::of(&superblock).atomic_blocks(),
        control: home,
        catalogue,
        journal,
        shards,
        repair,
        scrub,
    };
    let pool = Pool { inner: Arc::new(inner) };
    pool.repair_soon().await?;
    control.retire_soon();
    control.go_on_with_scrub();
    Ok((pool, report))
}

/// A drive that did not take the cells that a crash had left out: it is lost as one that fails a write in service.
fn fail_at_opening(superblock: &mut Superblock, zones: &mut Zones, drive: DriveIndex) -> Result<()> {
    if let Some(record) = superblock.drives.get_mut(drive.index()) {
        record.state = DriveState::Failed;
        record.since = Generation::new(1);
    }
    zones.set_online(drive, false);
    if columns_missing(superblock) > usize::from(superblock.scheme.parity()) {
        let message = format!("drive {drive} does not take writes, and the pool cannot bear its loss");
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    Ok(())
}

/// Marks a new opening in the superblock, and the drives that are not there, or are there again; gives the paths of those.
fn begin_opening(
    superblock: &mut Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    nonce: u64,
    events: &Events,
) -> Vec<String> {
    let mut returned = Vec::new();
    let epoch = superblock.epoch().epoch + 1;
    superblock.lineage.push(Lineage { epoch, nonce });
    let excess = superblock.lineage.len().saturating_sub(LINEAGE_MAX);
    superblock.lineage.drain(..excess);
    superblock.generation = Generation::new(0);
    superblock.clean = false;
    for ((index, record), source) in (0..).map(DriveIndex::new).zip(&mut superblock.drives).zip(sources) {
        match source {
            Some(source) => {
                record.path = short_path(&source.path());
                if record.state == DriveState::Missing {
                    (record.state, record.since) = (DriveState::Returning, Generation::new(1));
                    events.say_of(index, EventKind::DriveReturned, &record.path);
                    returned.push(record.path.clone());
                }
            }
            None if record.state.is_in_use() => {
                record.state = DriveState::Missing;
                record.since = Generation::new(1);
                let why = format!("{}: not there when the pool was opened", record.path);
                events.say_of(index, EventKind::DriveLost, &why);
            }
            None => {}
        }
    }
    keep_leaving(superblock, Generation::new(1), events);
    returned
}

/// What the reactors of a pool share.
pub(crate) struct Shared {
    pub(crate) space: Arc<Space>,
    pub(crate) repair: Arc<Repair>,
    pub(crate) scrub: Arc<Scrub>,
}

pub(crate) fn plan_shard(
    superblock: &Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    index: usize,
    tuning: Tuning,
    shared: &Shared,
) -> ShardPlan {
    let shards = superblock.shards.len() as u64;
    let geometry = Geometry::of(superblock);
    let shard = ShardIndex::new(u16::try_from(index).unwrap_or(u16::MAX));
    let belong = superblock.drives.iter().filter(|drive| drive.state != DriveState::Removed);
    let pool_blocks: u64 = belong.map(|drive| u64::from(drive.zones) * u64::from(geometry.rows())).sum();
    // Small pools make checkpoints more often: what is freed comes back only with one.
    let checkpoint_blocks = (tuning.checkpoint_bytes / 4096).min(pool_blocks / shards / 8).max(256);
    let map_nodes = (tuning.map_bytes / 4096 / shards).max(64);
    let recent_max = format::recent_segments_max(superblock.shards.len(), superblock.table_width);
    let dirty_nodes = Reserve::of(superblock).dirty_nodes(&geometry, shards, recent_max as u64 / 4);
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
        space: shared.space.clone(),
        repair: shared.repair.clone(),
        scrub: shared.scrub.clone(),
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

async fn resume_all(control: &Rc<Control>, home: &Home<Control>, started: &mut Started) -> Result<()> {
    for candidate in started.candidates.clone() {
        let home = home.clone();
        let start = move |candidate: Rc<Candidate>| async move {
            candidate.start(home).map(|shard| Home::settle(&Reactor::current(), shard))
        };
        let shard = candidate.call(start).await??;
        started.shards.push(shard.clone());
        // Before it replays, which may lose a drive: it must be told then, as of what was lost before.
        control.add_shard(shard.clone()).await?;
        let of = candidate.clone();
        let resume = move |candidate: Rc<Candidate>| async move {
            let Some(shard) = shard.local() else {
                return Err(Error::new(ErrorKind::Closed, "a shard is where its candidate was"));
            };
            candidate.resume(&shard).await?;
            of.evict();
            Ok(())
        };
        candidate.call(resume).await??;
    }
    Ok(())
}

/// The catalogue and the journal live where shard 0 does.
async fn start_catalogue(
    shards: &Arc<[Home<Shard>]>,
    events: &Arc<Events>,
) -> Result<(Home<Catalogue>, Home<Journal>)> {
    let Some(first) = shards.first() else {
        return Err(Error::new(ErrorKind::NotAPool, "a pool without shards"));
    };
    let (all, events) = (shards.clone(), events.clone());
    let start = move |shard: Rc<Shard>| async move {
        let journal = Journal::load(shard.clone(), events.clone()).await?;
        let catalogue = Catalogue::load(shard, all, events).await?;
        let reactor = Reactor::current();
        Ok::<_, Error>((Home::settle(&reactor, catalogue), Home::settle(&reactor, journal)))
    };
    first.call(start).await?
}
