//! The swarm: seeded random lives of a pool, every seed with its own hardware, settings, mix of operations and faults.
//!
//! Whole kinds of operations and faults are switched off in most runs (swarm testing, Groce et al., 2012): rare
//! combinations come up because the common ones do not drown them.

mod members;
mod snapshots;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, Pool, RepairLimits, Tuning, VolumeInfo};
use reactor::{Buffer, Reactor};

use crate::disk::Faults;
use crate::model::{VolumeModel, content};
use crate::random::{Random, mix};
use crate::run::{Ended, Machine, Setup, judge};
use crate::stretch::{Stretch, Stretched};

/// What a run did, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations on volumes.
    pub operations: u64,
    /// Operations of drives.
    pub drive_operations: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Drives lost.
    pub lost_drives: u64,
    /// Records replayed by recoveries.
    pub replayed: u64,
    /// Cells completed by recoveries.
    pub completed: u64,
    /// Writes refused for want of space.
    pub no_space: u64,
    /// Blocks that the cleaner moved.
    pub moved: u64,
    /// Lost drives of which everything was written elsewhere.
    pub rebuilt: u64,
    /// Drives that joined.
    pub added: u64,
    /// Drives that came back.
    pub returned: u64,
}

impl Stats {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.drive_operations += other.drive_operations;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.lost_drives += other.lost_drives;
        self.replayed += other.replayed;
        self.completed += other.completed;
        self.no_space += other.no_space;
        self.moved += other.moved;
        self.rebuilt += other.rebuilt;
        self.added += other.added;
        self.returned += other.returned;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Write,
    Read,
    Flush,
    Zero,
    Discard,
    Extents,
    Checkpoint,
    Create,
    Delete,
    Resize,
    LoseDrive,
    AddDrive,
    ReturnDrive,
    Evacuate,
    Keep,
    Repair,
    LimitRepair,
    Rest,
    Snapshot,
    ReadSnapshot,
    DeleteSnapshot,
    Clone,
    RollBack,
}

const OPS: [(Op, u32); 23] = [
    (Op::Write, 40),
    (Op::Read, 20),
    (Op::Flush, 8),
    (Op::Zero, 6),
    (Op::Discard, 6),
    (Op::Extents, 3),
    (Op::Checkpoint, 2),
    (Op::Create, 2),
    (Op::Delete, 2),
    (Op::Resize, 2),
    (Op::LoseDrive, 1),
    (Op::AddDrive, 1),
    (Op::ReturnDrive, 1),
    (Op::Evacuate, 1),
    (Op::Keep, 1),
    (Op::Repair, 1),
    (Op::LimitRepair, 1),
    (Op::Rest, 2),
    (Op::Snapshot, 2),
    (Op::ReadSnapshot, 2),
    (Op::DeleteSnapshot, 2),
    (Op::Clone, 1),
    (Op::RollBack, 1),
];

/// A seed's plan.
struct Plan {
    setup: Setup,
    weights: Vec<u32>,
    /// Drives that may misbehave or be lost to begin with.
    victims: Vec<usize>,
    faults: Faults,
    rounds: u64,
    operations: u64,
    workers: u64,
    /// Bytes of a volume at most.
    volume_bytes: u64,
    write_bytes: u64,
    stretch: Stretch,
}

fn plan(random: &Random) -> Plan {
    let scheme = *random.choose(&["4+1", "1+1", "1+2", "2+2", "4+2", "3+0", "2+1", "4+1", "4+1", "3+3"]);
    let (data, parity) = scheme.split_once('+').unwrap_or(("1", "1"));
    let parity: usize = parity.parse().unwrap_or(0);
    let width = data.parse::<usize>().unwrap_or(1) + parity;
    let drives = width + usize::try_from(random.below(3)).unwrap_or(0);
    // Not smaller than segments may be.
    let least = if data == "1" { 128 << 10 } else { 64 << 10 };
    let zone_bytes = (*random.choose(&[64 << 10, 128 << 10, 256 << 10])).max(least);
    let zones = random.between(40, 160);
    let sizes = (0..drives).map(|_| (4 << 20) + zone_bytes * (zones + random.below(8)));
    let all_volatile = random.below(3);
    let volatile = (0..drives).map(|_| match all_volatile {
        0 => true,
        1 => false,
        _ => random.once_in(2),
    });
    let sizes: Vec<u64> = sizes.collect();
    let spares = (0..random.below(3)).map(|_| (4 << 20) + zone_bytes * random.between(8, 2 * zones));
    let setup = Setup {
        scheme: scheme.into(),
        drives: sizes,
        spares: spares.collect(),
        volatile: volatile.collect(),
        zone_bytes,
        shards: u16::try_from(random.between(1, 3)).unwrap_or(1),
        tuning: Tuning {
            map_bytes: *random.choose(&[0, 1 << 20, 64 << 20]),
            records_in_flight: usize::try_from(random.between(1, 8)).unwrap_or(1),
            checkpoint_bytes: *random.choose(&[1 << 20, 4 << 20, 64 << 20]),
            repair: RepairLimits { paused: random.once_in(8), bytes_per_second: repair_rate(random) },
        },
        latency: *random.choose(&[(20_000, 100_000), (1_000, 1_000_000), (5_000, 5_000)]),
    };
    // Most kinds of operations stay, some are switched off; one may dominate.
    let weights = OPS.iter().map(|(op, weight)| {
        let off = !matches!(op, Op::Write | Op::Read) && random.once_in(3);
        if off {
            0
        } else if random.once_in(8) {
            weight * 10
        } else {
            *weight
        }
    });
    let rarely = |often: u64| if random.once_in(3) { often } else { 0 };
    let faults = Faults {
        lose_write: rarely(200),
        misdirect_write: rarely(300),
        rot: rarely(300),
        read_error: rarely(300),
        stall: rarely(100),
    };
    let mut victims: Vec<usize> = (0..drives).collect();
    while victims.len() > parity {
        let at = usize::try_from(random.below(victims.len() as u64)).unwrap_or(0);
        victims.remove(at);
    }
    Plan {
        weights: weights.collect(),
        setup,
        victims,
        faults,
        rounds: random.between(2, 6),
        operations: random.between(20, 250),
        workers: *random.choose(&[1, 2, 4, 16]),
        volume_bytes: *random.choose(&[256 << 10, 2 << 20, 12 << 20]),
        write_bytes: *random.choose(&[16 << 10, 128 << 10, 1 << 20]),
        stretch: Stretch(*random.choose(&[1, 1, 64])),
    }
}

fn repair_rate(random: &Random) -> u64 {
    *random.choose(&[0, 0, 1 << 20, 64 << 20])
}

/// The life of one pool.
struct Life {
    plan: Plan,
    machine: Machine,
    random: Random,
    /// One logical clock for the model.
    clock: Cell<u64>,
    volumes: RefCell<BTreeMap<String, VolumeModel>>,
    /// Volumes that were being created or deleted: they may exist or not.
    uncertain: RefCell<BTreeSet<String>>,
    /// The snapshots, which never change.
    snapshots: RefCell<BTreeMap<String, VolumeModel>>,
    /// What was being done to snapshots, or with them.
    undecided: RefCell<BTreeMap<String, snapshots::Undecided>>,
    /// Volumes that a crash may have found rolled back to this, or not.
    rolled_back: RefCell<BTreeMap<String, VolumeModel>>,
    /// Drives that may misbehave or be lost; never more at a time than the scheme bears.
    victims: RefCell<Vec<usize>>,
    /// Those that were, and do not belong to the pool any more.
    gone: RefCell<Vec<usize>>,
    /// Somebody is adding a drive.
    adding: Cell<bool>,
    /// Drives that are joining or coming back.
    joining: Cell<u32>,
    /// How many work on each volume.
    users: RefCell<BTreeMap<String, u32>>,
    names: Cell<u32>,
    stats: Cell<Stats>,
    failure: RefCell<Option<String>>,
    verbose: bool,
}

/// Runs one seed.
///
/// # Errors
/// What went wrong, for people.
pub fn run_seed(seed: u64, verbose: bool) -> Result<Stats, String> {
    let random = Random::new(seed);
    let plan = plan(&random);
    if verbose {
        println!("{:?}\nweights {:?} victims {:?} {:?}", plan.setup, plan.weights, plan.victims, plan.faults);
    }
    let machine = Machine::new(&plan.setup, mix(seed));
    let victims = plan.victims.clone();
    let life = Rc::new(Life {
        plan,
        machine,
        random,
        clock: Cell::new(1),
        volumes: RefCell::default(),
        victims: RefCell::new(victims),
        gone: RefCell::default(),
        adding: Cell::new(false),
        joining: Cell::new(0),
        uncertain: RefCell::default(),
        snapshots: RefCell::default(),
        undecided: RefCell::default(),
        rolled_back: RefCell::default(),
        users: RefCell::default(),
        names: Cell::new(0),
        stats: Cell::default(),
        failure: RefCell::new(None),
        verbose,
    });
    life.clone().live()?;
    let mut stats = life.stats.get();
    stats.drive_operations = life.machine.fuse.operations.get();
    Ok(stats)
}

/// Somebody who works on a volume.
struct User<'a> {
    life: &'a Life,
    name: String,
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut users = self.life.users.borrow_mut();
        if let Some(count) = users.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.name);
            }
        }
    }
}

impl Life {
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    fn count(&self, change: impl FnOnce(&mut Stats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("[{}] {}", self.machine.fuse.operations.get(), what());
        }
    }

    fn live(self: Rc<Self>) -> Result<(), String> {
        match self.machine.boot(async || self.machine.create().await) {
            Ended::Done(Ok(())) => {}
            Ended::Done(Err(error)) => return Err(format!("create: {error:?}")),
            Ended::Cut => return Err("create ran into a power cut".into()),
        }
        for victim in &self.plan.victims {
            if let Some(disk) = self.machine.disks.get(*victim) {
                disk.set_faults(self.plan.faults);
            }
        }
        for round in 0..self.plan.rounds {
            self.say(|| format!("round {round}"));
            self.clone().round(round + 1 == self.plan.rounds)?;
            self.check()?;
        }
        self.clone().end()
    }

    /// Opens, verifies, works, and ends one way or another.
    fn round(self: Rc<Self>, last: bool) -> Result<(), String> {
        // Whoever was at it when the last round ended is no more.
        self.adding.set(false);
        self.joining.set(0);
        let cut = !last && !self.random.once_in(4);
        if cut {
            let most = *self.random.choose(&[50, 500, 5000]);
            self.machine.cut_after(self.random.between(1, most));
        }
        let life = self.clone();
        let ended = self.machine.boot(async move || {
            let pool = life.clone().open_and_verify().await?;
            life.clone().work(&pool).await;
            life.failed()?;
            if let Ok(status) = pool.status().await {
                let moved: u64 = status.shards.iter().map(|shard| shard.log.moved_blocks).sum();
                life.count(|stats| stats.moved += moved);
            }
            if last || life.random.once_in(2) {
                let failed = life.pool_failed(&pool).await;
                let closed = pool.close().await;
                life.say(|| format!("closed: {closed:?}"));
                if let Err(error) = closed
                    && !failed
                    && error.kind() != ErrorKind::NoSpace
                    && error.kind() != ErrorKind::PoolFailed
                {
                    return Err(format!("close: {error:?}"));
                }
            }
            Ok(())
        });
        self.failed()?;
        match ended {
            Ended::Done(result) => {
                self.say(|| "killed".into());
                self.count(|stats| stats.kills += 1);
                self.machine.kill();
                result
            }
            Ended::Cut => {
                self.say(|| "power cut".into());
                self.count(|stats| stats.power_cuts += 1);
                self.machine.cut_power();
                Ok(())
            }
        }
    }

    async fn pool_failed(&self, pool: &Pool) -> bool {
        pool.status().await.is_ok_and(|status| status.failure.is_some())
    }

    fn failed(&self) -> Result<(), String> {
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    fn fail(&self, message: String) {
        self.failure.borrow_mut().get_or_insert(message);
    }

    /// Opens the pool and compares all of it with the model.
    async fn open_and_verify(self: Rc<Self>) -> Result<Pool, String> {
        let (pool, report) = self.machine.open().await.map_err(|error| format!("open: {error:?}"))?;
        self.say(|| format!("opened: {report:?}"));
        self.count(|stats| {
            stats.replayed += report.replayed as u64;
            stats.completed += report.completed;
            stats.returned += report.returned.len() as u64;
        });
        self.reconcile_snapshots(&pool).await?;
        self.reconcile(&pool).await?;
        let names: Vec<String> = self.volumes.borrow().keys().cloned().collect();
        for name in names {
            let volume = pool.open_volume(&name).await.map_err(|error| format!("open {name}: {error:?}"))?;
            let volume = Stretched::new(volume.attach(), self.plan.stretch);
            let bytes = read_all(&volume).await.map_err(|error| format!("read {name}: {error:?}"))?;
            let mut volumes = self.volumes.borrow_mut();
            let Some(model) = volumes.get_mut(&name) else { continue };
            let adopted = model.adopt_after_crash(&bytes);
            match self.rolled_back.borrow_mut().remove(&name) {
                Some(mut other) if adopted.is_err() => {
                    let adopted = other.adopt_after_crash(&bytes);
                    adopted.map_err(|error| format!("volume {name}, rolled back or not: {error}"))?;
                    *model = other;
                }
                _ => adopted.map_err(|error| format!("volume {name}: {error}"))?,
            }
        }
        Ok(pool)
    }

    /// Brings the list of volumes in line with what was being created, deleted or resized when the last round ended.
    async fn reconcile(&self, pool: &Pool) -> Result<(), String> {
        let inside = |info: VolumeInfo| VolumeInfo { size: self.plan.stretch.inside(info.size), ..info };
        let found = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
        let found: Vec<VolumeInfo> = found.into_iter().filter(|info| !info.snapshot).map(inside).collect();
        let uncertain = std::mem::take(&mut *self.uncertain.borrow_mut());
        let mut volumes = self.volumes.borrow_mut();
        for name in &uncertain {
            let info = found.iter().find(|info| info.name == *name);
            match info {
                Some(info) if !info.deleting => {
                    let model = volumes
                        .entry(name.clone())
                        .or_insert_with(|| VolumeModel::new(info.size, info.sector));
                    if model.size() != info.size {
                        match self.rolled_back.borrow_mut().remove(name) {
                            Some(other) => *model = other,
                            None => model.resize(info.size),
                        }
                    }
                }
                _ => {
                    volumes.remove(name);
                }
            }
        }
        for (name, model) in volumes.iter() {
            match found.iter().find(|info| info.name == *name) {
                Some(info) if info.size == model.size() && !info.deleting => {}
                other => return Err(format!("volume {name} of {} bytes is {other:?}", model.size())),
            }
        }
        for info in &found {
            if !info.deleting && !volumes.contains_key(&info.name) {
                return Err(format!("volume {} should not exist", info.name));
            }
        }
        Ok(())
    }

    /// Several workers do what the seed says.
    async fn work(self: Rc<Self>, pool: &Pool) {
        let left = Rc::new(Cell::new(self.plan.operations));
        let mut workers = Vec::new();
        for _ in 0..self.plan.workers {
            let (life, pool, left) = (self.clone(), pool.clone(), left.clone());
            workers.push(Reactor::current().spawn(async move {
                while left.get() > 0 && life.failure.borrow().is_none() {
                    left.set(left.get() - 1);
                    life.count(|stats| stats.operations += 1);
                    life.operate(&pool).await;
                }
            }));
        }
        for worker in workers {
            worker.await;
        }
        self.volumes.borrow_mut().values_mut().for_each(VolumeModel::prune);
    }

    async fn operate(&self, pool: &Pool) {
        let at = self.random.weighted(&self.plan.weights);
        let op = OPS.get(at).map_or(Op::Read, |(op, _)| *op);
        match op {
            Op::Create => return self.create(pool).await,
            Op::Checkpoint => {
                let result = pool.checkpoint().await;
                return self.tolerate("checkpoint", result.map(|_| ()));
            }
            Op::LoseDrive => return self.lose_drive(pool).await,
            Op::AddDrive => return self.add_drive(pool).await,
            Op::ReturnDrive => return self.return_drive(pool).await,
            Op::Evacuate => return self.evacuate(pool).await,
            Op::Keep => return self.keep(pool).await,
            Op::Repair => return self.repair(pool).await,
            Op::LimitRepair => return self.limit_repair(pool).await,
            Op::Delete => return self.delete(pool).await,
            Op::Resize => return self.resize(pool).await,
            Op::Snapshot => return self.snapshot(pool).await,
            Op::ReadSnapshot => return self.look_at_snapshot(pool).await,
            Op::DeleteSnapshot => return self.delete_snapshot(pool).await,
            Op::Clone => return self.clone_snapshot(pool).await,
            Op::RollBack => return self.roll_back(pool).await,
            Op::Rest => {
                // Long enough for what the engine does when nobody wants anything from it.
                return Reactor::current().sleep(Duration::from_secs(self.random.between(1, 20))).await;
            }
            _ => {}
        }
        let names: Vec<String> = {
            let (volumes, uncertain) = (self.volumes.borrow(), self.uncertain.borrow());
            volumes.keys().filter(|name| !uncertain.contains(*name)).cloned().collect()
        };
        if names.is_empty() {
            return self.create(pool).await;
        }
        let name = self.random.choose(&names).clone();
        let _user = self.use_volume(&name);
        let volume = match pool.open_volume(&name).await {
            Ok(volume) => Stretched::new(volume.attach(), self.plan.stretch),
            // Somebody is deleting it just now.
            Err(_) if self.uncertain.borrow().contains(&name) => return,
            Err(_) if !self.volumes.borrow().contains_key(&name) => return,
            Err(error) => return self.fail(format!("open {name}: {error:?}")),
        };
        match op {
            Op::Write => self.write(&name, &volume).await,
            Op::Zero => self.zero(&name, &volume, true).await,
            Op::Discard => self.zero(&name, &volume, false).await,
            Op::Flush => self.flush(&name, &volume).await,
            Op::Extents => self.extents(&name, &volume).await,
            _ => self.read(&name, &volume).await,
        }
    }

    /// Errors that a run may meet; anything else ends it.
    fn tolerate(&self, what: &str, result: engine::Result<()>) {
        let Err(error) = result else { return };
        match error.kind() {
            ErrorKind::NoSpace => self.count(|stats| stats.no_space += 1),
            ErrorKind::PoolFailed | ErrorKind::Closed | ErrorKind::Busy => {}
            _ => self.fail(format!("{what}: {error:?}")),
        }
    }

    async fn create(&self, pool: &Pool) {
        if self.volumes.borrow().len() >= 4 {
            return;
        }
        let sector = *self.random.choose(&[512u32, 4096]);
        let size = self.random.between(1, self.plan.volume_bytes / u64::from(sector)) * u64::from(sector);
        let name = format!("v{}", self.names.get());
        self.names.set(self.names.get() + 1);
        self.uncertain.borrow_mut().insert(name.clone());
        let result = pool.create_volume(&name, self.plan.stretch.outside(size), sector, 0).await;
        self.say(|| format!("create {name} {size} {sector}: {result:?}"));
        if result.is_ok() {
            self.volumes.borrow_mut().insert(name.clone(), VolumeModel::new(size, sector));
            self.uncertain.borrow_mut().remove(&name);
        }
        self.tolerate("create", result);
    }

    async fn delete(&self, pool: &Pool) {
        let Some(name) = self.claim() else { return };
        if self.has_snapshots(&name) {
            self.uncertain.borrow_mut().remove(&name);
            return;
        }
        let result = pool.delete_volume(&name).await;
        self.say(|| format!("delete {name}: {result:?}"));
        match &result {
            Ok(()) => {
                self.volumes.borrow_mut().remove(&name);
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                self.uncertain.borrow_mut().remove(&name);
            }
            Err(_) => {}
        }
        self.tolerate("delete", result);
    }

    async fn resize(&self, pool: &Pool) {
        let Some(name) = self.claim() else { return };
        let Ok(volume) = pool.open_volume(&name).await else { return };
        let old = self.plan.stretch.inside(volume.size());
        let sector = u64::from(volume.sector());
        let busy = self.volumes.borrow().get(&name).is_none_or(|model| model.size() != old);
        drop(volume);
        if busy {
            return;
        }
        let size = self.random.between(1, self.plan.volume_bytes / sector) * sector;
        // Only volumes that nobody works on: deleting tells.
        let result = pool.resize_volume(&name, self.plan.stretch.outside(size), true).await;
        self.say(|| format!("resize {name} from {old} to {size}: {result:?}"));
        if result.is_ok() {
            if let Some(model) = self.volumes.borrow_mut().get_mut(&name) {
                model.resize(size);
            }
            self.uncertain.borrow_mut().remove(&name);
        }
        self.tolerate("resize", result);
    }

    /// A volume that nobody works on, marked so that nobody begins to.
    fn claim(&self) -> Option<String> {
        let (volumes, mut uncertain) = (self.volumes.borrow(), self.uncertain.borrow_mut());
        let idle: Vec<&String> = volumes
            .iter()
            .filter(|(name, _)| !uncertain.contains(*name) && !self.users.borrow().contains_key(*name))
            .map(|(name, _)| name)
            .collect();
        if idle.is_empty() {
            return None;
        }
        let name = (*self.random.choose(&idle)).clone();
        uncertain.insert(name.clone());
        Some(name)
    }

    /// Notes that somebody works on a volume.
    fn use_volume(&self, name: &str) -> User<'_> {
        *self.users.borrow_mut().entry(name.to_owned()).or_default() += 1;
        User { life: self, name: name.to_owned() }
    }

    /// A range of whole sectors: mostly short, sometimes aligned to blocks.
    fn range(&self, volume: &Stretched, most: u64) -> (u64, u64) {
        let sector = u64::from(volume.sector());
        let unit = if self.random.once_in(2) { 4096u64.min(volume.size()) } else { sector };
        let most = if self.random.once_in(3) { most } else { 4 * unit };
        let length =
            (self.random.between(1, (most / unit).max(1)) * unit).min(volume.size() / sector * sector);
        let offset = self.random.below((volume.size() - length) / unit + 1) * unit;
        let length = length / sector * sector;
        (offset / sector * sector, length.max(sector).min(volume.size() - offset / sector * sector))
    }

    async fn write(&self, name: &str, volume: &Stretched) {
        let (offset, length) = self.range(volume, self.plan.write_bytes);
        let sector = volume.sector();
        let (first, count) = (offset / u64::from(sector), length / u64::from(sector));
        let start = self.tick();
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        (first..first + count).for_each(|cell| bytes.extend(content(start, cell, sector)));
        let data = Buffer::copy_of(&bytes);
        let atomic = self.is_atomic(offset, length);
        let token = match self.volumes.borrow_mut().get_mut(name) {
            Some(model) => model.begin_write(start, first, count, start, atomic),
            None => return,
        };
        let result = volume.write(offset, &data.span()).await;
        self.say(|| format!("write {name} {offset}+{length} value {start}: {result:?}"));
        let end = self.tick();
        if let Some(model) = self.volumes.borrow_mut().get_mut(name) {
            model.end_write(token, end, result.is_ok());
        }
        self.tolerate("write", result);
    }

    /// True if the engine promises that such a write is there whole or not at all.
    fn is_atomic(&self, offset: u64, length: u64) -> bool {
        let blocks = (self.plan.setup.zone_bytes / 4096) * self.data_columns() / 4;
        let most = blocks.clamp(1, 64) * 4096;
        let together = if self.plan.stretch.0 == 1 { format::limits::SLICE } else { crate::stretch::GROUP };
        let one_slice = offset / together == (offset + length - 1) / together;
        offset.is_multiple_of(4096) && length.is_multiple_of(4096) && length <= most && one_slice
    }

    fn data_columns(&self) -> u64 {
        self.plan.setup.scheme.split_once('+').and_then(|(data, _)| data.parse().ok()).unwrap_or(1)
    }

    async fn zero(&self, name: &str, volume: &Stretched, all: bool) {
        let (offset, length) = self.range(volume, self.plan.volume_bytes);
        let sector = u64::from(volume.sector());
        let (from, until) = if all {
            (offset, offset + length)
        } else {
            (offset.next_multiple_of(4096), (offset + length) / 4096 * 4096)
        };
        let count = until.saturating_sub(from) / sector;
        let start = self.tick();
        let token = match self.volumes.borrow_mut().get_mut(name) {
            Some(model) => model.begin_write(start, from / sector, count, 0, false),
            None => return,
        };
        let result = if all {
            volume.write_zeroes(offset, length).await
        } else {
            volume.discard(offset, length).await
        };
        self.say(|| format!("zero {name} {offset}+{length} all {all} at {start}: {result:?}"));
        let end = self.tick();
        if let Some(model) = self.volumes.borrow_mut().get_mut(name) {
            model.end_write(token, end, result.is_ok());
        }
        self.tolerate("zero", result);
    }

    async fn flush(&self, name: &str, volume: &Stretched) {
        let start = self.tick();
        let result = volume.flush().await;
        self.say(|| format!("flush {name} at {start}: {result:?}"));
        if result.is_ok()
            && let Some(model) = self.volumes.borrow_mut().get_mut(name)
        {
            model.flushed(start);
        }
        self.tolerate("flush", result);
    }

    async fn read(&self, name: &str, volume: &Stretched) {
        let (offset, length) = self.range(volume, self.plan.write_bytes);
        let start = self.tick();
        let buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
        let result = volume.read(offset, &buffer.span()).await;
        self.say(|| format!("read {name} {offset}+{length} at {start}: {result:?}"));
        let end = self.tick();
        if result.is_ok()
            && let Some(model) = self.volumes.borrow().get(name)
            && let Err(message) =
                model.check_read(offset / u64::from(volume.sector()), buffer.as_slice(), start, end)
        {
            self.fail(format!("read of {name}: {message}"));
        }
        self.tolerate("read", result);
    }

    async fn extents(&self, name: &str, volume: &Stretched) {
        let (offset, length) = self.range(volume, self.plan.volume_bytes);
        match volume.extents(offset, length).await {
            Ok(covered) if covered != length => {
                self.fail(format!("extents of {name} {offset}+{length} cover {covered} bytes"));
            }
            Ok(_) => {}
            Err(error) => self.tolerate("extents", Err(error)),
        }
    }

    /// Between rounds: the verifier looks on, victims come and go.
    fn check(&self) -> Result<(), String> {
        self.failed()?;
        if self.random.once_in(3) {
            let report = self.machine.check().map_err(|error| format!("check: {error:?}"))?;
            judge(&report, &self.victims.borrow())?;
        }
        let mut absent = self.machine.absent.borrow_mut();
        for victim in self.victims.borrow().iter().chain(self.gone.borrow().iter()) {
            if let Some(disk) = self.machine.disks.get(*victim)
                && self.random.once_in(4)
            {
                // A drive that was dead or pulled comes back with what it held then.
                disk.plug_in();
            }
            if let Some(place) = absent.get_mut(*victim) {
                *place = self.random.once_in(4);
            }
        }
        Ok(())
    }

    /// Deletes everything and looks for what is left behind.
    fn end(self: Rc<Self>) -> Result<(), String> {
        let life = self.clone();
        let ended = self.machine.boot(async move || {
            let pool = life.clone().open_and_verify().await?;
            let volumes: Vec<String> = life.volumes.borrow().keys().cloned().collect();
            let mut names: Vec<String> = life.snapshots.borrow().keys().cloned().collect();
            names.extend(volumes);
            for name in names {
                match pool.delete_volume(&name).await {
                    Ok(()) => {}
                    Err(error) => return Err(format!("delete {name}: {error:?}")),
                }
            }
            let mut rounds = 0;
            while !pool.volumes().await.map_err(|error| format!("list: {error:?}"))?.is_empty() {
                rounds += 1;
                if rounds > 10_000 {
                    let space = pool.status().await.map_err(|error| format!("status: {error:?}"))?.space;
                    return Err(format!("deleted volumes are never gone: {space:?}"));
                }
                Reactor::current().sleep(Duration::from_millis(1)).await;
            }
            pool.repair_settled().await.map_err(|error| format!("repair: {error:?}"))?;
            for _ in 0..2 {
                pool.checkpoint().await.map_err(|error| format!("checkpoint: {error:?}"))?;
            }
            life.check_zones(&pool).await?;
            pool.close().await.map_err(|error| format!("close: {error:?}"))
        });
        match ended {
            Ended::Done(result) => result?,
            Ended::Cut => return Err("the end ran into a power cut".into()),
        }
        self.machine.kill();
        let report = self.machine.check().map_err(|error| format!("check: {error:?}"))?;
        judge(&report, &self.victims.borrow())?;
        if report.data_blocks > 0 || report.volumes > 0 {
            return Err(format!("everything was deleted, and {} blocks are left", report.data_blocks));
        }
        // Per shard: the open segments of each class and the spare, and those that hold the last two checkpoints.
        let most = u64::from(self.plan.setup.shards) * 12;
        if report.segments > most {
            return Err(format!("everything was deleted, and {} segments are in use", report.segments));
        }
        Ok(())
    }
}

impl Life {
    /// With everything deleted, nearly all zones are free: those that columns have left, too.
    async fn check_zones(&self, pool: &Pool) -> Result<(), String> {
        let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
        let width = u64::from(status.scheme.width());
        // As many segments as the verifier allows afterwards, and those that the last checkpoint let go.
        let most = u64::from(self.plan.setup.shards) * 16 * width;
        let taken = status.space.zones - status.space.free_zones;
        if taken > most {
            return Err(format!("everything was deleted, and {taken} zones are taken: {:?}", status.repair));
        }
        Ok(())
    }
}

async fn read_all(volume: &Stretched) -> engine::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = volume.size();
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(1 << 20);
        let buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
        volume.read(offset, &buffer.span()).await?;
        bytes.extend_from_slice(buffer.as_slice());
        offset += length;
    }
    Ok(bytes)
}
