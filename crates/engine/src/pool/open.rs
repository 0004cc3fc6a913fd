//! Opening a pool: from drives in any order to running shards.
//!
//! Steps: read the superblocks; determine the newest state and the drives to use; find the end of
//! every shard's log; publish a new opening; replay; serve. Before the publish nothing is written
//! except cells that a crash left unwritten in rows that are otherwise complete.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use format::limits::LINEAGE_MAX;
use format::{
    DriveIndex, DriveState, EventKind, Generation, PoolOpening, ShardIndex, StateStamp, Superblock,
};
use futures_util::future::LocalBoxFuture;
use reactor::{Handle, Reactor, Remote};

use super::catalogue::Catalogue;
use super::{Journal, Pool, PoolInner};
use crate::control::{Control, cancel_draining, columns_missing};
use crate::drive_setup::short_path;
use crate::drive_source::DriveSource;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Events, WallClock};
use crate::geometry::{Geometry, SuperblockSlot};
use crate::invariant::{narrow, present, to_index};
use crate::latched::latched;
use crate::log::Identity;
use crate::repair::BackgroundLimiter;
use crate::scrub::Scrub;
use crate::shard::{Candidate, Examination, Shard, ShardPlan};
use crate::space::{Reserve, Space};
use crate::state_store::PoolStateStore;
use crate::superblocks::{DriveSuperblock, SuperblockRead, newest, read_superblocks};
use crate::tuning::Tuning;
use crate::zones::Zones;

/// Options for opening a pool.
#[derive(Clone)]
pub struct OpenOptions {
    /// The engine settings.
    pub tuning: Tuning,
    /// The reactors that the shards are distributed over; the calling reactor if empty.
    pub reactors: Vec<Remote>,
    /// A random number that distinguishes this opening from every other.
    pub nonce: u64,
    /// The wall clock, for event times and scheduled scrubs.
    pub now: WallClock,
    /// The store of the newest state outside of the drives. Opening an older state is refused.
    pub state_store: Option<Arc<dyn PoolStateStore>>,
    /// Opens an older state nevertheless. Data written since is lost.
    pub accept_stale: bool,
}

/// The findings of opening a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// True if the pool was closed cleanly.
    pub clean: bool,
    /// Number of replayed log records.
    pub replayed: usize,
    /// Number of incomplete records at the end of the log. They were never acknowledged.
    pub dropped: usize,
    /// Number of cells of the last rows that a crash left unwritten and that were completed.
    pub completed: u64,
    /// Paths of the missing and failed drives.
    pub missing: Vec<String>,
    /// Paths of drives that were missing and have returned. They are resynced.
    pub returned: Vec<String>,
    /// Paths of drives that hold an older state than they had confirmed. Their contents are ignored
    /// and rebuilt.
    pub stale: Vec<String>,
    /// Paths and sizes of drives that are smaller than when they joined. They count as missing.
    pub shrunk: Vec<String>,
    /// Paths of copies of the pool's drives. They are not used.
    pub copies: Vec<String>,
    /// Paths of drives with one damaged superblock copy, which is rewritten.
    pub damaged_superblocks: Vec<String>,
    /// True if every drive in use has a damaged superblock copy: a newer state than the opened one
    /// may have been lost.
    pub uncertain: bool,
}

/// The drives of a pool in the order of their indexes.
pub(crate) struct AssembledPool {
    pub(crate) superblock: Superblock,
    /// The source of each usable drive.
    pub(crate) sources: Vec<Option<Arc<dyn DriveSource>>>,
    /// The superblock slot in use on each drive.
    pub(crate) slots: Vec<SuperblockSlot>,
    /// The state on each drive.
    stamps: Vec<StateStamp>,
    /// Drives of the pool with untrusted contents.
    stale: Vec<StaleDrive>,
    pub(crate) findings: DriveFindings,
}

/// A drive of the pool that holds an outdated copy of its contents.
struct StaleDrive {
    index: DriveIndex,
    stamp: StateStamp,
    source: Arc<dyn DriveSource>,
}

/// Paths of the drives of a pool with problems, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriveFindings {
    pub(crate) stale: Vec<String>,
    pub(crate) shrunk: Vec<String>,
    pub(crate) copies: Vec<String>,
    pub(crate) damaged_superblocks: Vec<String>,
    pub(crate) uncertain: bool,
}

/// Reads every drive and sorts the drives by index. Missing, failed and untrusted drives have no
/// source; drives in `behind` are untrusted regardless of their superblocks.
///
/// # Errors
/// When the drives hold no pool, or more drives are missing than the scheme tolerates.
pub(crate) async fn assemble(
    drives: &[Arc<dyn DriveSource>],
    behind: &BTreeSet<DriveIndex>,
) -> Result<AssembledPool> {
    let assembled = assemble_unchecked(drives, DriveFilter::InUse(behind)).await?;
    assembled.check_redundancy()?;
    Ok(assembled)
}

/// The drives of a pool that are given a source.
#[derive(Clone, Copy)]
pub(crate) enum DriveFilter<'a> {
    /// The drives that an open uses: without failed, outdated and shrunk drives, and without this
    /// set.
    InUse(&'a BTreeSet<DriveIndex>),
    /// All drives of the pool. Data read from them must be verified.
    All,
}

/// Like [`assemble`], with any number of missing drives.
///
/// # Errors
/// When the drives hold no pool, or have diverged (split brain).
pub(crate) async fn assemble_unchecked(
    drives: &[Arc<dyn DriveSource>],
    filter: DriveFilter<'_>,
) -> Result<AssembledPool> {
    let mut read = Vec::new();
    for source in drives {
        read.push((source.path(), read_superblocks(&*source.open()).await));
    }
    let superblock = newest(&read)?;
    let mut findings = DriveFindings::default();
    let originals = select_originals(&superblock, &read, &mut findings)?;
    let count = superblock.drives.len();
    let (mut sources, mut slots) = (vec![None; count], vec![SuperblockSlot::First; count]);
    let (mut stamps, mut stale) = (vec![StateStamp::default(); count], Vec::new());
    let mut intact = 0;
    for (number, on_drive) in originals {
        let Some(source) = drives.get(number) else { continue };
        let DriveSuperblock { superblock: own, drive, slot, other_is_damaged } = on_drive;
        let numbered = (0..).map(DriveIndex::new).zip(&superblock.drives);
        let Some((index, record)) = numbered.into_iter().find(|(_, record)| record.id == *drive) else {
            continue;
        };
        // The newest state lists no drive as online that missed an acknowledged write (C1): an
        // online drive with the previous state was merely not reached by the last publish.
        let is_usable = match filter {
            DriveFilter::InUse(_) => record.state.is_in_use() || record.state == DriveState::Missing,
            DriveFilter::All => record.state != DriveState::Removed,
        };
        if !is_usable || !superblock.accounts_for(own, *drive) {
            continue;
        }
        let (path, size) = (source.path(), source.open().properties().size);
        if size < record.size {
            findings.shrunk.push(format!("{path} ({size} of {} bytes)", record.size));
        }
        let is_behind = matches!(filter, DriveFilter::InUse(behind) if behind.contains(&index));
        let is_stale = size >= record.size && (own.stamp().is_before(&record.confirmed) || is_behind);
        if is_stale {
            findings.stale.push(path.clone());
            stale.push(StaleDrive { index, stamp: own.stamp(), source: source.clone() });
        }
        if matches!(filter, DriveFilter::InUse(_)) && (is_stale || size < record.size) {
            continue;
        }
        if *other_is_damaged {
            findings.damaged_superblocks.push(path);
        } else {
            intact += 1;
        }
        let position = index.index();
        sources.get_mut(position).into_iter().for_each(|into| *into = Some(source.clone()));
        slots.get_mut(position).into_iter().for_each(|into| *into = *slot);
        stamps.get_mut(position).into_iter().for_each(|into| *into = own.stamp());
    }
    findings.uncertain = intact == 0 && !findings.damaged_superblocks.is_empty();
    Ok(AssembledPool { superblock, sources, slots, stamps, stale, findings })
}

/// Returns the superblock of each drive, with the drive's number in `read`. Of several copies of a
/// drive, the original is selected: the copy with the newest state, or else the copy at the drive's
/// recorded path.
///
/// # Errors
/// `NotAPool` if neither distinguishes the copies.
fn select_originals<'a>(
    superblock: &Superblock,
    read: &'a [(String, SuperblockRead)],
    findings: &mut DriveFindings,
) -> Result<Vec<(usize, &'a DriveSuperblock)>> {
    let mut originals: Vec<(usize, &DriveSuperblock)> = Vec::new();
    for (number, (path, on_drive)) in read.iter().enumerate() {
        let SuperblockRead::Superblock(on_drive) = on_drive else { continue };
        let Some(other) = originals.iter().position(|(_, other)| other.drive == on_drive.drive) else {
            originals.push((number, &**on_drive));
            continue;
        };
        let Some((other_number, other_on_drive)) = originals.get(other).copied() else { continue };
        let other_path = read.get(other_number).map_or("", |(path, _)| path.as_str());
        let record = superblock.drives.iter().find(|record| record.id == on_drive.drive);
        let recorded = record.map_or("", |record| record.path.as_str());
        let (stamp, other_stamp) = (on_drive.superblock.stamp(), other_on_drive.superblock.stamp());
        let is_original = if stamp != other_stamp {
            other_stamp.is_before(&stamp)
        } else if (short_path(path) == recorded) != (short_path(other_path) == recorded) {
            short_path(path) == recorded
        } else {
            let message = format!(
                "{path} and {other_path} hold the same drive of pool '{}': one is a copy of the other. Open the pool \
                 without the copy, with --degraded --drives",
                superblock.name
            );
            return Err(Error::new(ErrorKind::NotAPool, message));
        };
        findings.copies.push(if is_original { other_path } else { path }.to_owned());
        if is_original && let Some(slot) = originals.get_mut(other) {
            *slot = (number, &**on_drive);
        }
    }
    Ok(originals)
}

/// Refuses a state that is older than the stored newest state, or has diverged from it.
fn check_not_older(superblock: &Superblock, known: Option<StateStamp>) -> Result<()> {
    let Some(known) = known.filter(StateStamp::is_set) else { return Ok(()) };
    let (name, now) = (&superblock.name, superblock.stamp());
    let first = superblock.lineage.first().map_or(0, |first| first.epoch);
    let diverged = known.opening.epoch >= first && !superblock.lineage.contains(&known.opening);
    if !now.is_before(&known) && !diverged {
        return Ok(());
    }
    let message = format!(
        "the drives hold an old state of pool '{name}' (opening {}, generation {}): this host has used a newer state (opening {}, \
         generation {}), which is on drives that are not present",
        now.opening.epoch, now.generation, known.opening.epoch, known.generation
    );
    Err(Error::new(ErrorKind::Stale, message))
}

impl AssembledPool {
    /// Refuses a pool with more missing drives than the scheme tolerates.
    ///
    /// # Errors
    /// `NotAPool`, with the missing drives.
    pub(crate) fn check_redundancy(&self) -> Result<()> {
        check_redundancy(&self.superblock, &self.sources, &self.findings)
    }
}

/// See [`AssembledPool::check_redundancy`].
fn check_redundancy(
    superblock: &Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    findings: &DriveFindings,
) -> Result<()> {
    let members = superblock.drives.iter().zip(sources);
    let members: Vec<_> = members.filter(|(record, _)| record.state != DriveState::Removed).collect();
    let present = members.iter().filter(|(_, source)| source.is_some()).count();
    // A returned drive lacks data until it is resynced.
    let missing: Vec<_> =
        members.iter().filter(|(record, source)| source.is_none() || record.state.counts_as_lost()).collect();
    let too_few = usize::from(superblock.scheme.width()).saturating_sub(present);
    if missing.len().max(too_few) <= usize::from(superblock.scheme.parity()) {
        return Ok(());
    }
    let paths: Vec<_> = missing.iter().map(|(record, _)| record.path.as_str()).collect();
    let detail = |drives: &[String], reason: &str| match drives {
        [] => String::new(),
        drives => format!("; {reason}: {}", drives.join(", ")),
    };
    let message = format!(
        "pool '{}' ({}) survives the loss of {} of its {} drives, and {} are missing, failed or incomplete: {}{}{}",
        superblock.name,
        superblock.scheme,
        superblock.scheme.parity(),
        members.len(),
        missing.len(),
        paths.join(", "),
        detail(&findings.stale, "outdated copies"),
        detail(&findings.shrunk, "smaller than when they joined"),
    );
    Err(Error::new(ErrorKind::NotAPool, message))
}

/// Opens the pool on `drives`, given in any order. Runs on the reactor that will own the pool's
/// control.
///
/// # Errors
/// When the drives hold no pool, too many drives are missing, or durable data cannot be read. All
/// resources are released after an error.
pub fn open<'a>(
    drives: &'a [Arc<dyn DriveSource>],
    options: &'a OpenOptions,
) -> LocalBoxFuture<'a, Result<(Pool, OpenReport)>> {
    Box::pin(async move {
        let mut behind = BTreeSet::new();
        loop {
            let mut started = StartedParts::default();
            match open_parts(drives, options, &behind, &mut started).await {
                Ok(OpenOutcome::Opened(pool, report)) => return Ok((pool, report)),
                Ok(OpenOutcome::DrivesBehind(drives)) => {
                    started.dismiss().await;
                    // Terminates, because `behind` grows each time.
                    behind.extend(drives);
                }
                Err(error) => {
                    started.dismiss().await;
                    return Err(error);
                }
            }
        }
    })
}

/// The outcome of an attempt to open a pool.
enum OpenOutcome {
    Opened(Pool, OpenReport),
    /// These drives lack writes that the log lists as complete. The next attempt excludes them.
    DrivesBehind(BTreeSet<DriveIndex>),
}

/// The parts of a pool that are already running on their reactors.
#[derive(Default)]
struct StartedParts {
    candidates: Vec<Handle<Candidate>>,
    shards: Vec<Handle<Shard>>,
    control: Option<(Rc<Control>, Handle<Control>)>,
}

impl StartedParts {
    /// Stops all parts.
    async fn dismiss(self) {
        for candidate in self.candidates {
            let handle = candidate.clone();
            let _ = candidate.call(move |_| async move { handle.unregister() }).await;
        }
        for shard in self.shards {
            let handle = shard.clone();
            let stop = move |shard: Rc<Shard>| async move {
                let _ = shard.stop(false).await;
                handle.unregister();
            };
            let _ = shard.call(stop).await;
        }
        if let Some((control, handle)) = self.control {
            control.stop().await;
            handle.unregister();
        }
    }
}

async fn open_parts(
    drives: &[Arc<dyn DriveSource>],
    options: &OpenOptions,
    behind: &BTreeSet<DriveIndex>,
    started: &mut StartedParts,
) -> Result<OpenOutcome> {
    let AssembledPool { mut superblock, sources, slots, stamps, stale, findings } =
        assemble(drives, behind).await?;
    if let Some(store) = options.state_store.as_ref().filter(|_| !options.accept_stale) {
        check_not_older(&superblock, store.newest(superblock.pool))?;
    }
    let sources: Vec<_> = sources.into_iter().map(|source| source.map(latched)).collect();
    let mut report = OpenReport {
        clean: superblock.clean,
        stale: findings.stale,
        shrunk: findings.shrunk,
        copies: findings.copies,
        damaged_superblocks: findings.damaged_superblocks,
        uncertain: findings.uncertain,
        ..OpenReport::default()
    };
    let events = Arc::new(Events::new(options.now.clone()));
    report.returned = begin_opening(&mut superblock, &sources, &stamps, options.nonce, &events);
    let opening = StateStamp { opening: superblock.epoch(), generation: Generation::new(0) };
    for StaleDrive { index, stamp, .. } in &stale {
        // Until the drive is rebuilt, its state stays older than the confirmed one, across any
        // number of openings.
        let record = superblock.drives.get_mut(index.index());
        record.into_iter().for_each(|record| (record.confirmed, record.left_at) = (opening, *stamp));
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
    let shared = ShardShared { space: space.clone(), repair: repair.clone(), scrub: scrub.clone() };
    let mut zones =
        Zones::new(superblock.drives.iter().map(|drive| (drive.zones, drive.state.accepts_segments())));
    for (index, remote) in (0..superblock.shards.len()).zip(reactors.iter().cycle()) {
        let plan = plan_shard(&superblock, &sources, index, options.tuning, &shared);
        let (candidate, examination) = remote.call(move || examine_locally(plan)).await??;
        started.candidates.push(candidate);
        if !examination.behind.is_empty() {
            return Ok(OpenOutcome::DrivesBehind(examination.behind));
        }
        report.replayed += examination.records;
        report.dropped += examination.dropped;
        report.completed += examination.completed;
        for drive in &examination.failed {
            fail_drive_at_open(&mut superblock, &mut zones, *drive)?;
            events.emit_drive(*drive, EventKind::DriveFailed, "writing the last rows of the log failed");
        }
        apply_examination(&mut superblock, &mut zones, index, examination)?;
    }
    report.missing = superblock
        .drives
        .iter()
        .filter(|drive| drive.state.is_lost())
        .map(|drive| drive.path.clone())
        .collect();

    let reserve = Reserve::of(&superblock);
    let opened = sources.iter().map(|source| source.as_ref().map(|source| source.open())).collect();
    let services = (space, events.clone(), options.state_store.clone());
    let scrubbing = (options.tuning.retire_after, scrub.clone());
    let control = Control::new(superblock.clone(), zones, opened, slots, reserve, services, scrubbing);
    Reactor::current().spawn(control.clone().run()).detach();
    Reactor::current().spawn(Control::trim(Rc::downgrade(&control))).detach();
    let handle = Handle::register(&Reactor::current(), control.clone());
    started.control = Some((control.clone(), handle.clone()));
    control.publish(|_| ()).await?;
    resume_all(&control, &handle, started).await?;
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
    let writer = journal.clone();
    events.set_writer(move || Journal::start_write(&writer));
    journal.call(|journal| async move { journal.write_queued().await }).await?;
    let inner = PoolInner {
        id: superblock.pool,
        name: superblock.name.clone(),
        scheme: superblock.scheme,
        zone_bytes: superblock.zone_bytes,
        atomic_blocks: Geometry::of(&superblock).atomic_blocks(),
        control: handle,
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
    rejoin_stale_drives(&control, stale);
    Ok(OpenOutcome::Opened(pool, report))
}

/// Re-adds outdated drives to the pool in the background, to be rebuilt.
fn rejoin_stale_drives(control: &Rc<Control>, stale: Vec<StaleDrive>) {
    let control = control.clone();
    let rejoin = async move {
        for StaleDrive { source, .. } in stale {
            let path = source.path();
            if let Err(error) = control.return_drive(source).await {
                tracing::warn!(path, %error, "an outdated drive could not be added to the pool again");
            }
        }
    };
    Reactor::current().spawn(rejoin).detach();
}

/// Fails a drive on which the cells that a crash left unwritten could not be completed, as after a
/// write error in an open pool.
fn fail_drive_at_open(superblock: &mut Superblock, zones: &mut Zones, drive: DriveIndex) -> Result<()> {
    let left_at = superblock.stamp();
    if let Some(record) = superblock.drives.get_mut(drive.index()) {
        record.state = DriveState::Failed;
        record.since = Generation::new(1);
        record.left_at = left_at;
    }
    zones.set_online(drive, false);
    if columns_missing(superblock) > usize::from(superblock.scheme.parity()) {
        let message = format!("writes to drive {drive} fail, and the pool does not tolerate its loss");
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    Ok(())
}

/// Records a new opening and the missing and returned drives in the superblock. Returns the paths
/// of the returned drives.
fn begin_opening(
    superblock: &mut Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    stamps: &[StateStamp],
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
    for (((index, record), source), stamp) in numbered.zip(sources).zip(stamps) {
        match source {
            Some(source) => {
                record.confirmed = *stamp;
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
                let text = format!("{}: missing when the pool was opened", record.path);
                events.emit_drive(index, EventKind::DriveLost, &text);
            }
            None => {}
        }
    }
    cancel_draining(superblock, Generation::new(1), events);
    returned
}

/// State shared by the shards of a pool.
pub(crate) struct ShardShared {
    pub(crate) space: Arc<Space>,
    pub(crate) repair: Arc<BackgroundLimiter>,
    pub(crate) scrub: Arc<Scrub>,
}

pub(crate) fn plan_shard(
    superblock: &Superblock,
    sources: &[Option<Arc<dyn DriveSource>>],
    index: usize,
    tuning: Tuning,
    shared: &ShardShared,
) -> ShardPlan {
    let shards = superblock.shards.len() as u64;
    let geometry = Geometry::of(superblock);
    let shard = ShardIndex::new(narrow(index, "C5"));
    let members = superblock.drives.iter().filter(|drive| drive.state != DriveState::Removed);
    let pool_blocks: u64 = members.map(|drive| u64::from(drive.zones) * u64::from(geometry.rows())).sum();
    // Small pools write checkpoints more often, because freed space becomes available only with a
    // checkpoint.
    let checkpoint_blocks = (tuning.checkpoint_bytes / 4096).min(pool_blocks / shards / 8).max(256);
    let map_nodes = (tuning.map_bytes / 4096 / shards).max(64);
    let recent_max = format::recent_segments_max(superblock.shards.len(), superblock.table_width);
    let dirty_nodes = Reserve::of(superblock).dirty_nodes(&geometry, shards, recent_max as u64 / 4);
    ShardPlan {
        identity: Identity { pool: superblock.pool, key: superblock.key, shard },
        geometry,
        record: present(superblock.shards.get(index), "C5").clone(),
        clean: superblock.clean,
        drives: sources.to_vec(),
        tuning,
        map_nodes: to_index(map_nodes),
        dirty_nodes: to_index(dirty_nodes),
        checkpoint_blocks,
        recent_max,
        space: shared.space.clone(),
        repair: shared.repair.clone(),
        scrub: shared.scrub.clone(),
    }
}

async fn examine_locally(plan: ShardPlan) -> Result<(Handle<Candidate>, Examination)> {
    let (candidate, examination) = Candidate::examine(plan, false).await?;
    Ok((Handle::register(&Reactor::current(), candidate), examination))
}

/// Applies a shard's examination to the superblock and the free zones.
pub(crate) fn apply_examination(
    superblock: &mut Superblock,
    zones: &mut Zones,
    index: usize,
    examination: Examination,
) -> Result<()> {
    for (drive, zone) in examination.zones {
        if !zones.occupy(drive, zone) {
            let location = crate::error::ErrorLocation { drive: Some(drive), ..Default::default() };
            let message = format!(
                "zone {zone} belongs to two segments or is beyond the end of its drive: the segment tables are damaged"
            );
            return Err(Error::corrupt(message, location, None));
        }
    }
    if let Some(record) = superblock.shards.get_mut(index) {
        *record = examination.record;
    }
    Ok(())
}

async fn resume_all(
    control: &Rc<Control>,
    handle: &Handle<Control>,
    started: &mut StartedParts,
) -> Result<()> {
    for candidate in started.candidates.clone() {
        let handle = handle.clone();
        let start = move |candidate: Rc<Candidate>| async move {
            candidate.start(Arc::new(handle)).map(|shard| Handle::register(&Reactor::current(), shard))
        };
        let shard = candidate.call(start).await??;
        started.shards.push(shard.clone());
        // Registered before the replay, during which a drive may fail: the shard must learn of all
        // failed drives.
        control.add_shard(shard.clone()).await?;
        let handle = candidate.clone();
        let resume = move |candidate: Rc<Candidate>| async move {
            let Some(shard) = shard.local() else {
                return Err(Error::new(
                    ErrorKind::Closed,
                    "the shard is not on the reactor of its candidate",
                ));
            };
            candidate.resume(&shard).await?;
            handle.unregister();
            Ok(())
        };
        candidate.call(resume).await??;
    }
    Ok(())
}

/// Starts the catalogue and the journal on the reactor of shard 0.
async fn start_catalogue(
    shards: &Arc<[Handle<Shard>]>,
    events: &Arc<Events>,
) -> Result<(Handle<Catalogue>, Handle<Journal>)> {
    let Some(first) = shards.first() else {
        return Err(Error::new(ErrorKind::NotAPool, "a pool without shards"));
    };
    let (shards, events) = (shards.clone(), events.clone());
    let start = move |shard: Rc<Shard>| async move {
        let journal = Journal::load(shard.clone(), events.clone()).await?;
        let catalogue = Catalogue::load(shard, shards, events).await?;
        let reactor = Reactor::current();
        Ok::<_, Error>((Handle::register(&reactor, catalogue), Handle::register(&reactor, journal)))
    };
    first.call(start).await?
}
