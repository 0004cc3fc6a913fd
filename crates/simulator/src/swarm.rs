//! The swarm: seeded random lives of a pool, every seed with its own hardware, settings, mix of operations and faults.
//!
//! Whole kinds of operations and faults are switched off in most runs (swarm testing, Groce et al., 2012): rare
//! combinations come up because the common ones do not drown them.

mod members;
mod plan;
mod requests;
mod settings;
mod snapshots;
mod volumes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, Pool};
use reactor::{Buffer, Reactor};

use self::plan::{OPS, Op, Plan};
use crate::model::VolumeModel;
use crate::random::{Random, mix};
use crate::run::{Ended, Machine, judge};
use crate::stretch::Stretched;

/// How many times the planned operations there are at most until the power is cut.
const UNTIL_CUT: u64 = 20;

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
    /// Openings that ended with drives that err too often.
    pub failing: u64,
    /// Scrubs that came to their end, and what they found damaged.
    pub scrubs: u64,
    /// See above.
    pub damaged: u64,
    /// Scrubs that began by themselves, because it was time.
    pub scheduled: u64,
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
        self.failing += other.failing;
        self.scrubs += other.scrubs;
        self.damaged += other.damaged;
        self.scheduled += other.scheduled;
    }
}

/// The life of one pool.
struct Life {
    plan: Plan,
    machine: Machine,
    random: Random,
    /// Decides what came to be decided later, so that seeds keep what they had.
    later: Random,
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
    /// What volumes were set to, as far as that is certain, and what else it may be.
    settings: RefCell<BTreeMap<String, settings::Settings>>,
    /// After how many drive operations of this round's work the power is cut.
    cut_at_work: Cell<Option<u64>>,
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
    let later = Random::new(mix(seed ^ 0x5EED));
    let plan = plan::plan(&random, &later);
    if verbose {
        println!("{:?}\nweights {:?} victims {:?} {:?}", plan.setup, plan.weights, plan.victims, plan.faults);
    }
    let machine = Machine::new(&plan.setup, mix(seed));
    if plan.apart > 0 {
        machine.world.set_apart(plan.apart, mix(seed ^ 0xFA12));
    }
    let victims = plan.victims.clone();
    let life = Rc::new(Life {
        plan,
        machine,
        random,
        later,
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
        settings: RefCell::default(),
        cut_at_work: Cell::new(None),
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
            let operations = self.random.between(1, most);
            if self.plan.cut_at_work {
                self.cut_at_work.set(Some(operations));
            } else {
                self.machine.cut_after(operations);
            }
        }
        let life = self.clone();
        let ended = self.machine.boot(async move || {
            let pool = life.clone().open_and_verify().await?;
            life.clone().work(&pool).await;
            life.failed()?;
            if let Ok(status) = pool.status().await {
                let moved: u64 = status.shards.iter().map(|shard| shard.log.moved_blocks).sum();
                let failing = status.drives.iter().filter(|drive| drive.failing).count() as u64;
                life.count(|stats| {
                    stats.moved += moved;
                    stats.failing += failing;
                });
                if status.failure.is_none() && status.shards.iter().any(|shard| shard.checkpoints_refused > 0)
                {
                    return Err("S4: nothing was left for a checkpoint".into());
                }
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
        self.look_at_settings(&pool).await?;
        self.schedule_scrubs(&pool).await;
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

    /// Several workers do what the seed says.
    async fn work(self: Rc<Self>, pool: &Pool) {
        let mut operations = self.plan.operations;
        if let Some(cut) = self.cut_at_work.take() {
            self.machine.cut_after(cut);
            operations *= UNTIL_CUT;
        }
        let left = Rc::new(Cell::new(operations));
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
        if self.plan.days_pass > 0 && self.later.once_in(self.plan.days_pass) {
            self.let_days_pass(pool).await;
        }
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
            Op::Scrub => return self.scrub(pool).await,
            Op::Delete => return self.delete(pool).await,
            Op::Resize => return self.resize(pool).await,
            Op::Limit => return self.limit(pool).await,
            Op::KeepRoom => return self.keep_room(pool).await,
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
            Op::Write => self.write(pool, &name, &volume).await,
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
                if rounds > 100_000 {
                    let space = pool.status().await.map_err(|error| format!("status: {error:?}"))?.space;
                    return Err(format!("deleted volumes are never gone: {space:?}"));
                }
                Reactor::current().sleep(Duration::from_millis(1)).await;
            }
            pool.repair_settled().await.map_err(|error| format!("repair: {error:?}"))?;
            for _ in 0..2 {
                pool.checkpoint().await.map_err(|error| format!("checkpoint: {error:?}"))?;
            }
            let taken = taken(&pool).await?;
            pool.close().await.map_err(|error| format!("close: {error:?}"))?;
            Ok(taken)
        });
        let taken = match ended {
            Ended::Done(result) => result?,
            Ended::Cut => return Err("the end ran into a power cut".into()),
        };
        self.machine.kill();
        let report = self.machine.check().map_err(|error| format!("check: {error:?}"))?;
        judge(&report, &self.victims.borrow())?;
        if report.data_blocks > 0 || report.volumes > 0 {
            return Err(format!("everything was deleted, and {} blocks are left", report.data_blocks));
        }
        // Per shard: the open segments of each class and the spare, and those that hold the last two checkpoints. What else is in use
        // holds what lives without volumes: the event log, nodes of the map, tables.
        let shards = u64::from(self.plan.setup.shards);
        self.say(|| {
            let (empty, all) = (report.empty_segments, report.segments);
            format!("left with {shards} shards: {all} segments, {empty} of them empty; zones of {taken}")
        });
        if report.empty_segments > shards * 10 {
            let (empty, all) = (report.empty_segments, report.segments);
            return Err(format!(
                "everything was deleted, and {empty} of {all} segments are in use and empty"
            ));
        }
        // Before the pool was closed there may have been as many empty ones; but no zones that columns have left.
        if taken > report.segments + shards * 10 {
            let all = report.segments;
            return Err(format!(
                "everything was deleted, and zones of {taken} segments are taken, for {all}"
            ));
        }
        Ok(())
    }
}

/// How many segments the zones that are taken would make.
async fn taken(pool: &Pool) -> Result<u64, String> {
    let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
    Ok((status.space.zones - status.space.free_zones).div_ceil(status.scheme.width().into()))
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
