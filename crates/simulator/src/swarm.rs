//! The swarm: seeded random lives of a pool, every seed with its own hardware, settings, mix of operations and faults.
//!
//! Whole kinds of operations and faults are switched off in most runs (swarm testing, Groce et al., 2012): rare
//! combinations come up because the common ones do not drown them.

mod answered;
mod deletions;
mod end;
mod errors;
mod excess;
mod extras;
mod halves;
mod members;
mod opening;
mod plan;
mod requests;
mod settings;
mod snapshots;
mod stats;
mod users;
mod volumes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::Reactor;

pub(crate) use self::answered::AnsweredReads;
use self::excess::Excess;
use self::plan::{OPS, Op, Plan};
pub use self::stats::Stats;
use self::users::Users;
use crate::model::VolumeModel;
use crate::random::{Random, mix};
use crate::run::{Ended, Machine, judge};
use crate::stretch::Stretched;

/// How many times the planned operations there are at most until the power is cut.
const UNTIL_CUT: u64 = 20;

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
    users: Users,
    /// What more than the scheme bears has happened to drives.
    excess: Cell<Excess>,
    /// Decides what [`plan::Extras`] adds.
    extra: Random,
    /// The last opening was closed in order.
    closed: Cell<bool>,
    /// Everything that the drives acknowledged is there: they did not lose power since.
    drives_kept_all: Cell<bool>,
    /// A spare belongs to the pool, or has.
    took_spare: Cell<bool>,
    /// The file system under a drive was full at some time of this opening.
    host_was_full: Cell<bool>,
    /// Memory that readers have back.
    answered: AnsweredReads,
    names: Cell<u32>,
    stats: Cell<Stats>,
    failure: RefCell<Option<String>>,
    verbose: bool,
}

/// Which operations runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// Those that there have been for long: seeds of then keep their runs.
    Basic,
    /// All of them.
    All,
}

/// Runs one seed.
///
/// # Errors
/// What went wrong, for people.
pub fn run_seed(seed: u64, operations: Operations, verbose: bool) -> Result<Stats, String> {
    let random = Random::new(seed);
    let later = Random::new(mix(seed ^ 0x5EED));
    let extra = Random::new(mix(seed ^ 0xE87A));
    let mut plan = plan::plan(&random, &later);
    if operations == Operations::All {
        plan::add_extras(&mut plan, &Random::new(mix(seed ^ 0x91A7)));
    }
    if verbose {
        println!("{plan:?}");
    }
    let machine = Machine::new(&plan.setup, mix(seed));
    if plan.call_delay > 0 {
        machine.world.set_apart(plan.call_delay, mix(seed ^ 0xFA12));
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
        users: Users::default(),
        excess: Cell::default(),
        extra,
        closed: Cell::new(false),
        drives_kept_all: Cell::new(false),
        took_spare: Cell::new(false),
        host_was_full: Cell::new(false),
        answered: AnsweredReads::default(),
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
        if self.plan.extras.as_ref().is_some_and(|extras| extras.remembers) {
            self.machine.memory.ask();
        }
        for victim in &self.plan.victims {
            if let Some(disk) = self.machine.disks.get(*victim) {
                disk.set_faults(self.plan.faults);
            }
        }
        for round in 0..self.plan.rounds {
            self.say(|| format!("round {round}"));
            self.clone().round(round + 1 == self.plan.rounds)?;
            match self.excess.get() {
                Excess::Damaged => return self.after_damage(),
                Excess::Lost => self.bring_all_back(),
                Excess::Nothing => {}
            }
            self.check()?;
        }
        self.clone().end()?;
        self.use_halves_apart()
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
        self.closed.set(false);
        let life = self.clone();
        let ended = self.machine.boot(async move || {
            life.clone().serve(last).await?;
            if life.closed.get() && life.opens_again() {
                life.closed.set(false);
                life.serve(last).await?;
            }
            Ok(())
        });
        self.failed()?;
        match ended {
            Ended::Done(result) => {
                self.say(|| "killed".into());
                self.count(|stats| stats.kills += 1);
                self.machine.kill();
                self.drives_kept_all.set(true);
                result
            }
            Ended::Cut => {
                self.say(|| "power cut".into());
                self.count(|stats| stats.power_cuts += 1);
                self.machine.cut_power();
                self.drives_kept_all.set(self.closed.get());
                Ok(())
            }
        }
    }

    /// One opening of the pool.
    async fn serve(self: Rc<Self>, last: bool) -> Result<(), String> {
        self.host_was_full.set(self.has_full_host());
        let pool = self.clone().open_and_verify().await?;
        self.clone().work(&pool).await;
        self.failed()?;
        self.answered.check()?;
        if let Ok(status) = pool.status().await {
            let moved: u64 = status.shards.iter().map(|shard| shard.log.moved_blocks).sum();
            let failing = status.drives.iter().filter(|drive| drive.failing).count() as u64;
            self.count(|stats| {
                stats.moved += moved;
                stats.failing += failing;
            });
            let refused = status.shards.iter().any(|shard| shard.checkpoints_refused > 0);
            if refused && status.failure.is_none() && !self.host_was_full.get() {
                return Err("S4: nothing was left for a checkpoint".into());
            }
        }
        if last || self.random.once_in(2) {
            let closed = pool.close().await;
            self.say(|| format!("closed: {closed:?}"));
            self.closed.set(closed.is_ok());
            self.drives_kept_all.set(closed.is_ok());
            self.tolerate("close", closed, self.where_host_is_full());
            self.answered.check()?;
        }
        self.failed()
    }

    fn failed(&self) -> Result<(), String> {
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    fn fail(&self, message: String) {
        self.failure.borrow_mut().get_or_insert(message);
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
        self.forget_what_nobody_sees();
    }

    /// Keeps models small. A snapshot whose content is undecided is compared with the history of its volume.
    fn forget_what_nobody_sees(&self) {
        let undecided = self.undecided.borrow();
        let of = |name: &str| name.split_once('@').map(|(volume, _)| volume.to_owned());
        let needed: Vec<String> = undecided.keys().filter_map(|name| of(name)).collect();
        let mut volumes = self.volumes.borrow_mut();
        volumes.iter_mut().filter(|(name, _)| !needed.contains(*name)).for_each(|(_, model)| model.prune());
    }

    async fn operate(self: &Rc<Self>, pool: &Pool) {
        if let Some(extra) = self.next_extra() {
            return self.operate_extra(extra, pool).await;
        }
        if self.plan.days_pass > 0 && self.later.once_in(self.plan.days_pass) {
            self.let_days_pass(pool).await;
        }
        let at = self.random.weighted(&self.plan.weights);
        let op = OPS.get(at).map_or(Op::Read, |(op, _)| *op);
        if !self.excess.get().allows(op) {
            return;
        }
        match op {
            Op::Create => return self.create(pool).await,
            Op::Checkpoint => {
                let result = pool.checkpoint().await;
                return self.tolerate("checkpoint", result, self.where_host_is_full());
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
        let _user = self.users.begin(&name);
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

    /// Between rounds: the verifier looks on, victims come and go.
    fn check(&self) -> Result<(), String> {
        self.failed()?;
        self.machine.disks.iter().for_each(|disk| disk.set_host_full(false));
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
}
