//! The swarm: seeded random runs of a pool. Each seed has its own hardware, settings, mix of
//! operations and faults.
//!
//! Most runs turn off entire kinds of operations and faults (swarm testing, Groce et al., 2012).
//! Rare combinations then occur more often.

mod buffer_watch;
mod deletions;
mod errors;
mod excess_faults;
mod extras;
mod membership;
mod offloads;
mod opening;
mod plan;
mod requests;
mod settings;
mod snapshot_groups;
mod snapshots;
mod split_pool;
mod stats;
mod teardown;
mod use_tracker;
mod volumes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::Reactor;

pub(crate) use self::buffer_watch::BufferWatch;
use self::excess_faults::ExcessFaults;
use self::plan::{OPS, Op, Plan};
pub use self::stats::Stats;
use self::use_tracker::UseTracker;
use crate::model::VolumeModel;
use crate::random::{Random, mix};
use crate::run::{BootEnd, Machine, check_findings};

/// Maximum length of a round that ends with a power cut, as a multiple of the planned operations.
const UNTIL_CUT: u64 = 20;

/// A run of one seed: the machine, the pool on it, and its expected state.
struct SwarmRun {
    plan: Plan,
    machine: Machine,
    random: Random,
    /// Random numbers for decisions that were added later, so that older seeds keep their runs.
    added_random: Random,
    /// The logical clock of the models.
    clock: Cell<u64>,
    volumes: RefCell<BTreeMap<String, VolumeModel>>,
    /// Volumes with an interrupted creation or deletion. They may exist or not.
    uncertain: RefCell<BTreeSet<String>>,
    /// The expected content of the snapshots, which never changes.
    snapshots: RefCell<BTreeMap<String, VolumeModel>>,
    /// Operations on snapshots that have begun and are not acknowledged, by the name of the volume
    /// or snapshot.
    pending_ops: RefCell<BTreeMap<String, snapshots::PendingOp>>,
    /// Groups of snapshots that are not acknowledged: all of a group exist or none.
    pending_groups: RefCell<Vec<Vec<String>>>,
    /// Volumes with an interrupted rollback, and their content after it.
    rolled_back: RefCell<BTreeMap<String, VolumeModel>>,
    /// Drives that may misbehave or be lost; never more at a time than the scheme tolerates.
    victims: RefCell<Vec<usize>>,
    /// Former victims that are removed from the pool.
    removed_drives: RefCell<Vec<usize>>,
    /// A drive is being added.
    adding: Cell<bool>,
    /// Number of drives that are joining or returning.
    joining: Cell<u32>,
    /// The acknowledged and the requested settings of each volume.
    settings: RefCell<BTreeMap<String, settings::VolumeSettings>>,
    /// Number of drive operations of this round's work after which the power is cut.
    cut_at_work: Cell<Option<u64>>,
    uses: UseTracker,
    /// Faults beyond the scheme's tolerance.
    excess: Cell<ExcessFaults>,
    /// Random numbers for the operations of [`plan::Extras`].
    extras_random: Random,
    /// Random numbers for compare-and-write and copies.
    offload_random: Random,
    /// Random numbers for snapshots of several volumes.
    group_random: Random,
    /// The last opening was closed cleanly.
    closed: Cell<bool>,
    /// The drives have not lost power since, so they hold everything that they acknowledged.
    drives_kept_writes: Cell<bool>,
    /// A spare belongs to the pool, or did.
    spare_joined: Cell<bool>,
    /// The file system under a drive was full at some time of this opening.
    host_was_full: Cell<bool>,
    /// Buffers of completed reads.
    buffers: BufferWatch,
    names: Cell<u32>,
    stats: Cell<Stats>,
    failure: RefCell<Option<String>>,
    verbose: bool,
}

/// The set of operations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationSet {
    /// The original operations only. Old regression seeds keep their runs with this set.
    Basic,
    /// The original operations and the extra ones. Later regression seeds keep their runs with this
    /// set.
    Extended,
    /// Also compare-and-write and copies. The regression seeds after those keep their runs with
    /// this set.
    Offloads,
    /// All operations.
    All,
}

/// Runs one seed.
///
/// # Errors
/// Describes the failure.
pub fn run_seed(seed: u64, operations: OperationSet, verbose: bool) -> Result<Stats, String> {
    let random = Random::new(seed);
    let added_random = Random::new(mix(seed ^ 0x5EED));
    let extras_random = Random::new(mix(seed ^ 0xE87A));
    let mut plan = plan::plan(&random, &added_random);
    if operations != OperationSet::Basic {
        plan::add_extras(&mut plan, &Random::new(mix(seed ^ 0x91A7)));
    }
    let offload_random = Random::new(mix(seed ^ 0xA70C));
    if matches!(operations, OperationSet::Offloads | OperationSet::All) {
        plan.offload_once_in = *offload_random.choose(&[0, 5, 20]);
    }
    let group_random = Random::new(mix(seed ^ 0x6A0B));
    if operations == OperationSet::All {
        plan.group_once_in = *group_random.choose(&[0, 20, 60]);
    }
    if verbose {
        println!("{plan:?}");
    }
    let machine = Machine::new(&plan.setup, mix(seed));
    if plan.call_delay > 0 {
        machine.events.set_message_delay(plan.call_delay, mix(seed ^ 0xFA12));
    }
    let victims = plan.victims.clone();
    let run = Rc::new(SwarmRun {
        plan,
        machine,
        random,
        added_random,
        clock: Cell::new(1),
        volumes: RefCell::default(),
        victims: RefCell::new(victims),
        removed_drives: RefCell::default(),
        adding: Cell::new(false),
        joining: Cell::new(0),
        uncertain: RefCell::default(),
        snapshots: RefCell::default(),
        pending_ops: RefCell::default(),
        pending_groups: RefCell::default(),
        rolled_back: RefCell::default(),
        settings: RefCell::default(),
        cut_at_work: Cell::new(None),
        uses: UseTracker::default(),
        excess: Cell::default(),
        extras_random,
        offload_random,
        group_random,
        closed: Cell::new(false),
        drives_kept_writes: Cell::new(false),
        spare_joined: Cell::new(false),
        host_was_full: Cell::new(false),
        buffers: BufferWatch::default(),
        names: Cell::new(0),
        stats: Cell::default(),
        failure: RefCell::new(None),
        verbose,
    });
    run.clone().execute()?;
    let mut stats = run.stats.get();
    stats.drive_operations = run.machine.trigger.operations.get();
    Ok(stats)
}

impl SwarmRun {
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    fn count(&self, change: impl FnOnce(&mut Stats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    fn trace(&self, message: impl FnOnce() -> String) {
        if self.verbose {
            println!("[{}] {}", self.machine.trigger.operations.get(), message());
        }
    }

    fn execute(self: Rc<Self>) -> Result<(), String> {
        match self.machine.boot(async || self.machine.create().await) {
            BootEnd::Completed(Ok(())) => {}
            BootEnd::Completed(Err(error)) => return Err(format!("create: {error:?}")),
            BootEnd::PowerCut => return Err("the power was cut during create".into()),
        }
        if self.plan.extras.as_ref().is_some_and(|extras| extras.remembers) {
            self.machine.state_store.enforce();
        }
        for victim in &self.plan.victims {
            if let Some(disk) = self.machine.disks.get(*victim) {
                disk.set_faults(self.plan.faults);
            }
        }
        for round in 0..self.plan.rounds {
            self.trace(|| format!("round {round}"));
            self.clone().round(round + 1 == self.plan.rounds)?;
            match self.excess.get() {
                ExcessFaults::Damaged => return self.after_damage(),
                ExcessFaults::Lost => self.return_all_drives(),
                ExcessFaults::None => {}
            }
            self.check()?;
        }
        self.clone().delete_everything()?;
        self.use_halves_separately()
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
        let run = self.clone();
        let ended = self.machine.boot(async move || {
            run.clone().serve(last).await?;
            if run.closed.get() && run.reopens() {
                run.closed.set(false);
                run.serve(last).await?;
            }
            Ok(())
        });
        self.failed()?;
        match ended {
            BootEnd::Completed(result) => {
                self.trace(|| "killed".into());
                self.count(|stats| stats.kills += 1);
                self.machine.kill_process();
                self.drives_kept_writes.set(true);
                result
            }
            BootEnd::PowerCut => {
                self.trace(|| "power cut".into());
                self.count(|stats| stats.power_cuts += 1);
                self.machine.cut_power();
                self.drives_kept_writes.set(self.closed.get());
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
        self.buffers.check()?;
        if let Ok(status) = pool.status().await {
            let moved: u64 = status.shards.iter().map(|shard| shard.log.moved_blocks).sum();
            let compactions: u64 = status.shards.iter().map(|shard| shard.compactions).sum();
            let failing = status.drives.iter().filter(|drive| drive.failing).count() as u64;
            self.count(|stats| {
                stats.moved += moved;
                stats.compactions += compactions;
                stats.failing += failing;
                stats.unsaved_nodes += status.unsaved_nodes;
            });
            let refused = status.shards.iter().any(|shard| shard.checkpoints_refused > 0);
            if refused && status.failure.is_none() && !self.host_was_full.get() {
                return Err("S4: a checkpoint was refused for lack of space".into());
            }
            if status.shards.iter().any(|shard| shard.compaction_overruns > 0) {
                return Err("S4: a compaction needed more segments than its plan".into());
            }
        }
        if last || self.random.once_in(2) {
            let closed = pool.close().await;
            self.trace(|| format!("closed: {closed:?}"));
            self.closed.set(closed.is_ok());
            self.drives_kept_writes.set(closed.is_ok());
            self.tolerate("close", closed, self.no_space_if_host_full());
            self.buffers.check()?;
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
            let (run, pool, left) = (self.clone(), pool.clone(), left.clone());
            workers.push(Reactor::current().spawn(async move {
                while left.get() > 0 && run.failure.borrow().is_none() {
                    left.set(left.get() - 1);
                    run.count(|stats| stats.operations += 1);
                    run.operate(&pool).await;
                }
            }));
        }
        for worker in workers {
            worker.await;
        }
        self.prune_models();
    }

    /// Prunes the models. A snapshot with undecided content still needs the history of its volume.
    fn prune_models(&self) {
        let pending = self.pending_ops.borrow();
        let of = |name: &str| name.split_once('@').map(|(volume, _)| volume.to_owned());
        let needed: Vec<String> = pending.keys().filter_map(|name| of(name)).collect();
        let mut volumes = self.volumes.borrow_mut();
        volumes.iter_mut().filter(|(name, _)| !needed.contains(*name)).for_each(|(_, model)| model.prune());
    }

    async fn operate(self: &Rc<Self>, pool: &Pool) {
        if let Some(extra) = self.next_extra() {
            return self.operate_extra(extra, pool).await;
        }
        if self.next_is_offload() && self.excess.get() == ExcessFaults::None {
            return self.operate_offload(pool).await;
        }
        if self.next_is_snapshot_group() && self.excess.get() == ExcessFaults::None {
            return self.snapshot_group(pool).await;
        }
        if self.plan.days_pass > 0 && self.added_random.once_in(self.plan.days_pass) {
            self.advance_days(pool).await;
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
                return self.tolerate("checkpoint", result, self.no_space_if_host_full());
            }
            Op::LoseDrive => return self.lose_drive(pool).await,
            Op::AddDrive => return self.add_drive(pool).await,
            Op::ReturnDrive => return self.return_drive(pool).await,
            Op::Evacuate => return self.evacuate(pool).await,
            Op::KeepDrive => return self.keep_drive(pool).await,
            Op::Repair => return self.repair(pool).await,
            Op::LimitRepair => return self.limit_repair(pool).await,
            Op::Scrub => return self.scrub(pool).await,
            Op::Delete => return self.delete(pool).await,
            Op::Resize => return self.resize(pool).await,
            Op::SetQos => return self.set_random_qos(pool).await,
            Op::SetThick => return self.set_thick(pool).await,
            Op::Snapshot => return self.snapshot(pool).await,
            Op::ReadSnapshot => return self.read_random_snapshot(pool).await,
            Op::DeleteSnapshot => return self.delete_snapshot(pool).await,
            Op::Clone => return self.clone_snapshot(pool).await,
            Op::RollBack => return self.roll_back(pool).await,
            Op::Idle => {
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
        let _use = self.uses.begin(&name);
        let Some(volume) = self.attach(pool, &name).await else { return };
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
            check_findings(&report, &self.victims.borrow())?;
        }
        let mut absent = self.machine.absent.borrow_mut();
        for victim in self.victims.borrow().iter().chain(self.removed_drives.borrow().iter()) {
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
