//! The swarm: seeded random runs of a pool. Each seed has its own hardware, settings, mix of
//! operations and faults.
//!
//! Most runs turn off entire kinds of operations and faults (swarm testing, Groce et al., 2012).
//! Rare combinations then occur more often.

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

/// Maximum length of a round that ends with a power cut, as a multiple of the planned operations.
const UNTIL_CUT: u64 = 20;

/// A run of one seed: the machine, the pool on it, and its expected state.
struct Life {
    plan: Plan,
    machine: Machine,
    random: Random,
    /// Random numbers for decisions that were added later, so that older seeds keep their runs.
    later: Random,
    /// The logical clock of the models.
    clock: Cell<u64>,
    volumes: RefCell<BTreeMap<String, VolumeModel>>,
    /// Volumes whose creation or deletion was interrupted. They may exist or not.
    uncertain: RefCell<BTreeSet<String>>,
    /// The expected content of the snapshots, which never changes.
    snapshots: RefCell<BTreeMap<String, VolumeModel>>,
    /// Operations on snapshots that have begun and are not acknowledged, by the name of the volume
    /// or snapshot.
    undecided: RefCell<BTreeMap<String, snapshots::Undecided>>,
    /// Volumes with an interrupted rollback, and their content after it.
    rolled_back: RefCell<BTreeMap<String, VolumeModel>>,
    /// Drives that may misbehave or be lost; never more at a time than the scheme tolerates.
    victims: RefCell<Vec<usize>>,
    /// Former victims that are removed from the pool.
    gone: RefCell<Vec<usize>>,
    /// A drive is being added.
    adding: Cell<bool>,
    /// Number of drives that are joining or returning.
    joining: Cell<u32>,
    /// The acknowledged and the requested settings of each volume.
    settings: RefCell<BTreeMap<String, settings::Settings>>,
    /// Number of drive operations of this round's work after which the power is cut.
    cut_at_work: Cell<Option<u64>>,
    users: Users,
    /// Faults beyond the scheme's tolerance.
    excess: Cell<Excess>,
    /// Random numbers for the operations of [`plan::Extras`].
    extra: Random,
    /// The last opening was closed cleanly.
    closed: Cell<bool>,
    /// The drives have not lost power since, so they hold everything that they acknowledged.
    drives_kept_all: Cell<bool>,
    /// A spare belongs to the pool, or did.
    took_spare: Cell<bool>,
    /// The file system under a drive was full at some time of this opening.
    host_was_full: Cell<bool>,
    /// Buffers of completed reads.
    answered: AnsweredReads,
    names: Cell<u32>,
    stats: Cell<Stats>,
    failure: RefCell<Option<String>>,
    verbose: bool,
}

/// The set of operations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// The original operations only. Old regression seeds keep their runs with this set.
    Basic,
    /// All operations.
    All,
}

/// Runs one seed.
///
/// # Errors
/// Describes the failure.
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
            Ended::Cut => return Err("the power was cut during create".into()),
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

    /// Opens the pool, verifies it, runs operations, and ends with a close, a kill or a power cut.
    fn round(self: Rc<Self>, last: bool) -> Result<(), String> {
        // The tasks of the last round have ended.
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

    /// Opens the pool once, verifies it, runs operations and perhaps closes it.
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
                return Err("S4: a checkpoint was refused for lack of space".into());
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

    /// Runs the operations of the round in several workers.
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

    /// Prunes the models. A snapshot with undecided content still needs the history of its volume.
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
                // Long enough for the engine's idle work.
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
            // Another worker is deleting the volume.
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

    /// Runs the verifier between rounds, and plugs victims in or leaves them out.
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
                // A drive that was dead or pulled returns with its old content.
                disk.plug_in();
            }
            if let Some(place) = absent.get_mut(*victim) {
                *place = self.random.once_in(4);
            }
        }
        Ok(())
    }
}
