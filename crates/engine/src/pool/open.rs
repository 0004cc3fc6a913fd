//! Opening a pool: from drives in any order to shards in service.
//!
//! Steps: read superblocks; decide which state is the newest and which drives take part; let every shard find the end of
//! its log; publish all that in a new opening; replay; serve. Until the publish nothing is written but cells that a
//! crash had left out of rows that are complete otherwise.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use format::limits::LINEAGE_MAX;
use format::{DriveIndex, DriveState, EventKind, Generation, PoolOpening, ShardIndex, Superblock};
use reactor::{Handle, Reactor, Remote};

use super::catalogue::Catalogue;
use super::create::short_path;
use super::superblocks::{DriveSuperblock, OnDrive, newest, read_superblocks};
use super::{DriveSource, Inner, Journal, Pool, StateMemory, StateStamp, Tuning};
use crate::control::{Control, cancel_draining, columns_missing};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Events, WallClock};
use crate::geometry::{Geometry, SuperblockSlot};
use crate::latched::latched;
use crate::log::Identity;
use crate::repair::BackgroundLimiter;
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
    /// Keeps the newest state beside the drives: an older one is refused.
    pub memory: Option<Arc<dyn StateMemory>>,
    /// Open an older state all the same: what was written since is lost.
    pub accept_stale: bool,
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
    /// Drives that hold an older state than they were given, by path: nothing on them is believed, and all of it is rebuilt.
    pub stale: Vec<String>,
    /// Drives that are smaller than when they joined, by path and with both sizes: they count as missing.
    pub shrunk: Vec<String>,
    /// Copies of drives of the pool, by path: they are not used.
    pub copies: Vec<String>,
    /// Drives of which one copy of the superblock is damaged, by path: it is rewritten.
    pub damaged_superblocks: Vec<String>,
    /// Every drive in use shows a damaged copy of its superblock: a newer state than the one that was opened may have been lost.
    pub uncertain: bool,
}

/// The drives of a pool, put in order.
pub(crate) struct Assembled {
    pub(crate) superblock: Superblock,
    /// A source for each drive of the pool that may be used.
    pub(crate) sources: Vec<Option<Arc<dyn DriveSource>>>,
    /// The slot that holds each drive's superblock.
    pub(crate) slots: Vec<SuperblockSlot>,
    /// The state that each drive holds.
    held: Vec<StateStamp>,
    /// Drives that belong to the pool and hold nothing that may be believed.
    stale: Vec<Stale>,
    pub(crate) found: DriveFindings,
}

/// A drive of the pool that holds an old copy of itself.
struct Stale {
    index: DriveIndex,
    held: StateStamp,
    source: Arc<dyn DriveSource>,
}

/// What is wrong with drives of a pool, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriveFindings {
    pub(crate) stale: Vec<String>,
    pub(crate) shrunk: Vec<String>,
    pub(crate) copies: Vec<String>,
    pub(crate) damaged_superblocks: Vec<String>,
    pub(crate) uncertain: bool,
}

/// Reads every drive and puts them in the pool's order. Drives that are missing, out of use or not to be believed have no source;
/// those in `behind` are not to be believed, whatever their superblocks say.
///
/// # Errors
/// When there is no pool, or more drives are missing than its scheme bears.
pub(crate) async fn assemble(
    drives: &[Arc<dyn DriveSource>],
    behind: &BTreeSet<DriveIndex>,
) -> Result<Assembled> {
    let assembled = gather(drives, Wanted::InUse(behind)).await?;
    assembled.check_enough()?;
    Ok(assembled)
}

/// The drives of a pool that are put in order.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Those that an opening uses: not those that are out of use, hold an old copy, have shrunk, or are in this set.
    InUse(&'a BTreeSet<DriveIndex>),
    /// All that belong to the pool. Whatever is read from them must be verified.
    All,
}

/// As [`assemble`], however few drives there are.
///
/// # Errors
/// When there is no pool, or the drives contradict one another.
pub(crate) async fn gather(drives: &[Arc<dyn DriveSource>], wanted: Wanted<'_>) -> Result<Assembled> {
    let mut read = Vec::new();
    for source in drives {
        read.push((source.path(), read_superblocks(&*source.open()).await));
    }
    let superblock = newest(&read)?;
    let mut found = DriveFindings::default();
    let chosen = without_copies(&superblock, &read, &mut found)?;
    let count = superblock.drives.len();
    let (mut sources, mut slots) = (vec![None; count], vec![SuperblockSlot::First; count]);
    let (mut held, mut stale) = (vec![StateStamp::default(); count], Vec::new());
    let mut intact = 0;
    for (at, on_drive) in chosen {
        let Some(source) = drives.get(at) else { continue };
        let DriveSuperblock { superblock: theirs, drive, slot, other_is_damaged } = on_drive;
        let numbered = (0..).map(DriveIndex::new).zip(&superblock.drives);
        let Some((index, record)) = numbered.into_iter().find(|(_, record)| record.id == *drive) else {
            continue;
        };
        // A drive that missed anything that was relied on is not called online by the newest state (C1): one that is,
        // and holds the state before, merely was not reached by the last publish.
        let may_be_used = match wanted {
            Wanted::InUse(_) => record.state.is_in_use() || record.state == DriveState::Missing,
            Wanted::All => record.state != DriveState::Removed,
        };
        if !may_be_used || !superblock.accounts_for(theirs, *drive) {
            continue;
        }
        let (path, size) = (source.path(), source.open().properties().size);
        if size < record.size {
            found.shrunk.push(format!("{path} ({size} of {} bytes)", record.size));
        }
        let is_behind = matches!(wanted, Wanted::InUse(behind) if behind.contains(&index));
        let is_stale = size >= record.size && (theirs.stamp().is_before(&record.confirmed) || is_behind);
        if is_stale {
            found.stale.push(path.clone());
            stale.push(Stale { index, held: theirs.stamp(), source: source.clone() });
        }
        if matches!(wanted, Wanted::InUse(_)) && (is_stale || size < record.size) {
            continue;
        }
        if *other_is_damaged {
            found.damaged_superblocks.push(path);
        } else {
            intact += 1;
        }
        let place = index.index();
        sources.get_mut(place).into_iter().for_each(|into| *into = Some(source.clone()));
        slots.get_mut(place).into_iter().for_each(|into| *into = *slot);
        held.get_mut(place).into_iter().for_each(|into| *into = theirs.stamp());
    }
    found.uncertain = intact == 0 && !found.damaged_superblocks.is_empty();
    Ok(Assembled { superblock, sources, slots, held, stale, found })
}

/// What each drive says, by its number among those given; of several that claim to be the same drive, the original: the one
/// that holds the newest state, or else lies where the pool last found the drive.
///
/// # Errors
/// `NotAPool` if that does not tell them apart.
fn without_copies<'a>(
    superblock: &Superblock,
    read: &'a [(String, OnDrive)],
    found: &mut DriveFindings,
) -> Result<Vec<(usize, &'a DriveSuperblock)>> {
    let mut chosen: Vec<(usize, &DriveSuperblock)> = Vec::new();
    for (at, (path, on_drive)) in read.iter().enumerate() {
        let OnDrive::Superblock(on_drive) = on_drive else { continue };
        let Some(other) = chosen.iter().position(|(_, other)| other.drive == on_drive.drive) else {
            chosen.push((at, &**on_drive));
            continue;
        };
        let Some((other_at, other_on_drive)) = chosen.get(other).copied() else { continue };
        let other_path = read.get(other_at).map_or("", |(path, _)| path.as_str());
        let known = superblock.drives.iter().find(|record| record.id == on_drive.drive);
        let known = known.map_or("", |record| record.path.as_str());
        let (stamp, other_stamp) = (on_drive.superblock.stamp(), other_on_drive.superblock.stamp());
        let is_original = if stamp != other_stamp {
            other_stamp.is_before(&stamp)
        } else if (short_path(path) == known) != (short_path(other_path) == known) {
            short_path(path) == known
        } else {
            let message = format!(
                "{path} and {other_path} hold the same drive of pool '{}': one is a copy of the other. Open the pool with \
                 --degraded --drives and without the copy",
                superblock.name
            );
            return Err(Error::new(ErrorKind::NotAPool, message));
        };
        found.copies.push(if is_original { other_path } else { path }.to_owned());
        if is_original && let Some(place) = chosen.get_mut(other) {
            *place = (at, &**on_drive);
        }
    }
    Ok(chosen)
}

/// Refuses a state that is older than one that is known of beside the drives, or went on apart from it.
fn check_known(superblock: &Superblock, known: Option<StateStamp>) -> Result<()> {
    let Some(known) = known.filter(StateStamp::is_set) else { return Ok(()) };
    let (name, now) = (&superblock.name, superblock.stamp());
    let first = superblock.lineage.first().map_or(0, |first| first.epoch);
    let apart = known.opening.epoch >= first && !superblock.lineage.contains(&known.opening);
    if !now.is_before(&known) && !apart {
        return Ok(());
    }
    let message = format!(
        "the drives hold an old state of pool '{name}' (opening {}, generation {}): this host has used a newer one (opening {}, \
         generation {}), which is on drives that are not here",
        now.opening.epoch, now.generation, known.opening.epoch, known.generation
    );
    Err(Error::new(ErrorKind::Stale, message))
}

impl Assembled {
    /// Refuses a pool of which more is missing than its scheme bears.
    ///
    /// # Errors
    /// `NotAPool`, with the drives that are missing.
    pub(crate) fn check_enough(&self) -> Result<()> {
        check_enough(&self.superblock, &self.sources, &self.found)
    }
}

/// See [`Assembled::check_enough`].
fn check_enough(
    superblock: &Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    found: &DriveFindings,
) -> Result<()> {
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
    let because = |drives: &[String], why: &str| match drives {
        [] => String::new(),
        drives => format!("; {why}: {}", drives.join(", ")),
    };
    let message = format!(
        "pool '{}' ({}) survives the loss of {} of its {} drives, and {} are missing, failed or incomplete: {}{}{}",
        superblock.name,
        superblock.scheme,
        superblock.scheme.parity(),
        belong.len(),
        missing.len(),
        paths.join(", "),
        because(&found.stale, "old copies of themselves"),
        because(&found.shrunk, "smaller than they were"),
    );
    Err(Error::new(ErrorKind::NotAPool, message))
}

/// Opens the pool on `drives`, given in any order. Runs on the reactor that is to be the pool's home.
///
/// # Errors
/// When there is no pool, too many drives are missing, or what was durable cannot be read. Nothing is held on to then.
pub async fn open(drives: &[Arc<dyn DriveSource>], options: &OpenOptions) -> Result<(Pool, OpenReport)> {
    let mut behind = BTreeSet::new();
    loop {
        let mut started = Started::default();
        match open_parts(drives, options, &behind, &mut started).await {
            Ok(Opening::Done(pool, report)) => return Ok((pool, report)),
            Ok(Opening::Behind(drives)) => {
                started.dismiss().await;
                // Grows each time.
                behind.extend(drives);
            }
            Err(error) => {
                started.dismiss().await;
                return Err(error);
            }
        }
    }
}

/// How a try to open a pool ended.
enum Opening {
    Done(Pool, OpenReport),
    /// These drives miss what the log says they hold: not without leaving them out.
    Behind(BTreeSet<DriveIndex>),
}

/// The parts of a pool that run already, on their reactors.
#[derive(Default)]
struct Started {
    candidates: Vec<Handle<Candidate>>,
    shards: Vec<Handle<Shard>>,
    control: Option<(Rc<Control>, Handle<Control>)>,
}

impl Started {
    /// Ends all of them.
    async fn dismiss(self) {
        for candidate in self.candidates {
            let home = candidate.clone();
            let _ = candidate.call(move |_| async move { home.unregister() }).await;
        }
        for shard in self.shards {
            let home = shard.clone();
            let stop = move |shard: Rc<Shard>| async move {
                let _ = shard.stop(false).await;
                home.unregister();
            };
            let _ = shard.call(stop).await;
        }
        if let Some((control, home)) = self.control {
            control.stop().await;
            home.unregister();
        }
    }
}

async fn open_parts(
    drives: &[Arc<dyn DriveSource>],
    options: &OpenOptions,
    behind: &BTreeSet<DriveIndex>,
    started: &mut Started,
) -> Result<Opening> {
    let Assembled { mut superblock, sources, slots, held, stale, found } = assemble(drives, behind).await?;
    if let Some(memory) = options.memory.as_ref().filter(|_| !options.accept_stale) {
        check_known(&superblock, memory.newest(superblock.pool))?;
    }
    let sources: Vec<_> = sources.into_iter().map(|source| source.map(latched)).collect();
    let mut report = OpenReport {
        clean: superblock.clean,
        stale: found.stale,
        shrunk: found.shrunk,
        copies: found.copies,
        damaged_superblocks: found.damaged_superblocks,
        uncertain: found.uncertain,
        ..OpenReport::default()
    };
    let events = Arc::new(Events::new(options.now.clone()));
    report.returned = begin_opening(&mut superblock, &sources, &held, options.nonce, &events);
    let opening = StateStamp { opening: superblock.epoch(), generation: Generation::new(0) };
    for Stale { index, held, .. } in &stale {
        // However often the pool is opened before the drive is rebuilt, its state comes before the confirmed one.
        let record = superblock.drives.get_mut(index.index());
        record.into_iter().for_each(|record| (record.confirmed, record.left_at) = (opening, *held));
    }

    let reactors = if options.reactors.is_empty() {
        vec![Reactor::current().remote()]
    } else {
        options.reactors.clone()
    };
    let geometry = Geometry::of(&superblock);
    let space = Arc::new(Space::new(superblock.shards.len(), geometry.segment_payload()));
    let repair = Arc::new(BackgroundLimiter::new(options.tuning.repair, superblock.shards.len()));
    let scrub = Scrub::new(&repair);
    let shared = Shared { space: space.clone(), repair: repair.clone(), scrub: scrub.clone() };
    let mut zones =
        Zones::new(superblock.drives.iter().map(|drive| (drive.zones, drive.state.accepts_segments())));
    for (index, remote) in (0..superblock.shards.len()).zip(reactors.iter().cycle()) {
        let plan = plan_shard(&superblock, &sources, index, options.tuning, &shared);
        let (candidate, examination) = remote.call(move || examine_here(plan)).await??;
        started.candidates.push(candidate);
        if !examination.behind.is_empty() {
            return Ok(Opening::Behind(examination.behind));
        }
        report.replayed += examination.records;
        report.dropped += examination.dropped;
        report.completed += examination.completed;
        for drive in &examination.failed {
            fail_at_opening(&mut superblock, &mut zones, *drive)?;
            events.emit_drive(*drive, EventKind::DriveFailed, "it did not take the last rows of the log");
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
    let told = (space, events.clone(), options.memory.clone());
    let looks = (options.tuning.retire_after, scrub.clone());
    let control = Control::new(superblock.clone(), zones, opened, slots, reserve, told, looks);
    Reactor::current().spawn(control.clone().run()).detach();
    Reactor::current().spawn(Control::trim(Rc::downgrade(&control))).detach();
    let home = Handle::register(&Reactor::current(), control.clone());
    started.control = Some((control.clone(), home.clone()));
    control.publish(|_| ()).await?;
    resume_all(&control, &home, started).await?;
    let shards: Arc<[Handle<Shard>]> = started.shards.clone().into();
    let (catalogue, journal) = start_catalogue(&shards, &events).await?;
    match report.clean {
        true => events.emit(EventKind::Opened, 0, ""),
        false => events.emit(EventKind::Recovered, report.replayed as u64, ""),
    }
    report.damaged_superblocks.iter().for_each(|path| events.emit(EventKind::SuperblockDamaged, 0, path));
    if report.uncertain {
        events.emit(EventKind::StateUncertain, 0, "");
    }
    events.set_journal(journal.clone());
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
    pool.request_repair().await?;
    control.schedule_retirement();
    control.resume_scrub();
    take_back(&control, stale);
    Ok(Opening::Done(pool, report))
}

/// Takes drives that hold old copies of themselves back into the pool, in the background, to be rebuilt.
fn take_back(control: &Rc<Control>, stale: Vec<Stale>) {
    let control = control.clone();
    let rejoin = async move {
        for Stale { source, .. } in stale {
            let path = source.path();
            if let Err(error) = control.return_drive(source).await {
                tracing::warn!(path, %error, "a drive with an old state does not join the pool again");
            }
        }
    };
    Reactor::current().spawn(rejoin).detach();
}

/// A drive that did not take the cells that a crash had left out: it is lost as one that fails a write in service.
fn fail_at_opening(superblock: &mut Superblock, zones: &mut Zones, drive: DriveIndex) -> Result<()> {
    let left_at = superblock.stamp();
    if let Some(record) = superblock.drives.get_mut(drive.index()) {
        record.state = DriveState::Failed;
        record.since = Generation::new(1);
        record.left_at = left_at;
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
    held: &[StateStamp],
    nonce: u64,
    events: &Events,
) -> Vec<String> {
    let mut returned = Vec::new();
    let left_at = superblock.stamp();
    let epoch = superblock.epoch().epoch + 1;
    superblock.lineage.push(PoolOpening { epoch, nonce });
    let excess = superblock.lineage.len().saturating_sub(LINEAGE_MAX);
    superblock.lineage.drain(..excess);
    superblock.generation = Generation::new(0);
    superblock.clean = false;
    let numbered = (0..).map(DriveIndex::new).zip(&mut superblock.drives);
    for (((index, record), source), held) in numbered.zip(sources).zip(held) {
        match source {
            Some(source) => {
                record.confirmed = *held;
                record.path = short_path(&source.path());
                if record.state == DriveState::Missing {
                    (record.state, record.since) = (DriveState::Returning, Generation::new(1));
                    events.emit_drive(index, EventKind::DriveReturned, &record.path);
                    returned.push(record.path.clone());
                }
            }
            None if record.state.is_in_use() => {
                record.state = DriveState::Missing;
                record.since = Generation::new(1);
                record.left_at = left_at;
                let why = format!("{}: not there when the pool was opened", record.path);
                events.emit_drive(index, EventKind::DriveLost, &why);
            }
            None => {}
        }
    }
    cancel_draining(superblock, Generation::new(1), events);
    returned
}

/// What the reactors of a pool share.
pub(crate) struct Shared {
    pub(crate) space: Arc<Space>,
    pub(crate) repair: Arc<BackgroundLimiter>,
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
        clean: superblock.clean,
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

async fn examine_here(plan: ShardPlan) -> Result<(Handle<Candidate>, Examination)> {
    let (candidate, examination) = Candidate::examine(plan, false).await?;
    Ok((Handle::register(&Reactor::current(), candidate), examination))
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
            let place = crate::error::ErrorLocation { drive: Some(drive), ..Default::default() };
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

async fn resume_all(control: &Rc<Control>, home: &Handle<Control>, started: &mut Started) -> Result<()> {
    for candidate in started.candidates.clone() {
        let home = home.clone();
        let start = move |candidate: Rc<Candidate>| async move {
            candidate.start(home).map(|shard| Handle::register(&Reactor::current(), shard))
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
            of.unregister();
            Ok(())
        };
        candidate.call(resume).await??;
    }
    Ok(())
}

/// The catalogue and the journal live where shard 0 does.
async fn start_catalogue(
    shards: &Arc<[Handle<Shard>]>,
    events: &Arc<Events>,
) -> Result<(Handle<Catalogue>, Handle<Journal>)> {
    let Some(first) = shards.first() else {
        return Err(Error::new(ErrorKind::NotAPool, "a pool without shards"));
    };
    let (all, events) = (shards.clone(), events.clone());
    let start = move |shard: Rc<Shard>| async move {
        let journal = Journal::load(shard.clone(), events.clone()).await?;
        let catalogue = Catalogue::load(shard, all, events).await?;
        let reactor = Reactor::current();
        Ok::<_, Error>((Handle::register(&reactor, catalogue), Handle::register(&reactor, journal)))
    };
    first.call(start).await?
}
