//! One run: drives, a pool on them, and its life from crash to crash.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use engine::{
    CheckReport, CreateOptions, DriveSource, FindingKind, FoundOnDrive, Member, OpenOptions, OpenReport,
    Pool, PoolOnDrive, StateMemory, StateStamp, Tuning,
};
use format::PoolId;
use reactor::Reactor;

use crate::disk::{Disk, DiskOptions, Fuse};
use crate::random::{Random, mix};
use crate::world::World;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Scheme, as k+m.
    pub scheme: String,
    /// Sizes of the drives, in bytes.
    pub drives: Vec<u64>,
    /// Sizes of drives that lie ready and belong to no pool yet.
    pub spares: Vec<u64>,
    /// Bytes of a sector of each, in turns.
    pub sectors: Vec<u32>,
    /// Whether each forgets at a power cut; spares do.
    pub volatile: Vec<bool>,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Shards.
    pub shards: u16,
    /// Engine settings.
    pub tuning: Tuning,
    /// Nanoseconds that a drive operation takes, at least and at most.
    pub latency: (u64, u64),
    /// Bytes that a drive reads and writes a second; 0 for any number.
    pub bytes_per_second: u64,
}

impl Setup {
    /// Five small drives in 4+1, one shard.
    pub fn small(scheme: &str, drives: usize) -> Self {
        Self {
            scheme: scheme.into(),
            drives: vec![16 << 20; drives],
            spares: Vec::new(),
            sectors: vec![512],
            volatile: vec![true; drives],
            zone_bytes: 128 << 10,
            shards: 1,
            tuning: Tuning {
                map_bytes: 1 << 20,
                records_in_flight: 4,
                checkpoint_bytes: 4 << 20,
                ..Tuning::default()
            },
            latency: (20_000, 100_000),
            bytes_per_second: 0,
        }
    }
}

/// How a piece of a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// By itself.
    Done(T),
    /// By a power cut.
    Cut,
}

/// The hardware of a run.
pub struct Machine {
    /// Time.
    pub world: Rc<World>,
    /// Counts drive operations and cuts the power.
    pub fuse: Rc<Fuse>,
    /// The drives, then the spares.
    pub disks: Vec<Rc<Disk>>,
    setup: Setup,
    random: Random,
    openings: Cell<u64>,
    /// Engine settings of the next openings.
    tuning: Cell<Tuning>,
    /// Drives that are left out of the next openings.
    pub absent: RefCell<Vec<bool>>,
    /// The newest state that the pool told of, kept beside its drives.
    pub memory: Arc<Memory>,
    /// The next openings take an older state than that.
    pub accepts_stale: Cell<bool>,
}

/// Keeps the newest state of the pool beside the drives; openings are held to it only where a test asks for that.
#[derive(Default)]
pub struct Memory {
    newest: Mutex<Option<StateStamp>>,
    is_asked: AtomicBool,
}

impl Memory {
    /// From now on openings must not find an older state.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }
}

impl StateMemory for Memory {
    fn newest(&self, _: PoolId) -> Option<StateStamp> {
        let newest = *self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.filter(|_| self.is_asked.load(Ordering::Relaxed))
    }

    fn remember(&self, _: PoolId, state: StateStamp) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        })
    }
}

impl Machine {
    /// New, empty drives.
    pub fn new(setup: &Setup, seed: u64) -> Self {
        let world = World::new();
        let fuse = Rc::new(Fuse::default());
        let volatile = setup.volatile.iter().copied().chain(std::iter::repeat(true));
        let sectors = setup.sectors.iter().copied().cycle();
        let all = setup.drives.iter().chain(&setup.spares).zip(volatile).zip(sectors);
        let disks = all.enumerate().map(|(index, ((size, volatile_cache), sector))| {
            let Setup { latency, bytes_per_second, .. } = *setup;
            let size = *size;
            let options = DiskOptions { size, sector, volatile_cache, latency, bytes_per_second };
            let seed = mix(seed ^ (index as u64 + 1));
            Disk::new(format!("drive{index}"), options, world.clone(), fuse.clone(), seed)
        });
        let disks: Vec<_> = disks.collect();
        let absent = (0..disks.len()).map(|index| index >= setup.drives.len()).collect();
        let absent = RefCell::new(absent);
        Self {
            world,
            fuse,
            disks,
            setup: setup.clone(),
            random: Random::new(mix(seed ^ 0xABCD)),
            openings: Cell::new(0),
            tuning: Cell::new(setup.tuning),
            absent,
            memory: Arc::default(),
            accepts_stale: Cell::new(false),
        }
    }

    /// The pool's scheme.
    pub fn scheme(&self) -> &str {
        &self.setup.scheme
    }

    /// Has the pool opened with these settings from now on.
    pub fn set_tuning(&self, tuning: Tuning) {
        self.tuning.set(tuning);
    }

    /// How the pool is opened.
    pub fn tuning(&self) -> Tuning {
        self.tuning.get()
    }

    /// The drives that are there, as the engine takes them.
    pub fn sources(&self) -> Vec<Arc<dyn DriveSource>> {
        let present = self.disks.iter().zip(self.absent.borrow().clone()).filter(|(_, absent)| !absent);
        present.map(|(disk, _)| disk.source()).collect()
    }

    /// Boots the machine, runs `work` and, at its end or a power cut, drops everything that ran.
    pub fn boot<T>(&self, work: impl AsyncFnOnce() -> T) -> Ended<T> {
        self.world.restart();
        let reactor = Reactor::new(self.world.clone(), self.world.clone());
        // Dropped after the reactor has stopped: a power cut finds I/O in flight.
        let mut work = Box::pin(work());
        let ended = reactor.run(std::future::poll_fn(|context| {
            let polled = if self.world.is_halted() { Poll::Pending } else { work.as_mut().poll(context) };
            // The power is off: whatever the program says, nobody hears it.
            if self.world.is_halted() {
                return Poll::Ready(Ended::Cut);
            }
            self.world.on_halt(context.waker().clone());
            polled.map(Ended::Done)
        }));
        drop(work);
        reactor.shut_down();
        ended
    }

    /// What the power cut leaves on the drives.
    pub fn cut_power(&self) {
        self.fuse.cut_at.set(None);
        self.disks.iter().for_each(|disk| disk.cut_power());
    }

    /// The process dies, the drives live on.
    pub fn kill(&self) {
        self.fuse.cut_at.set(None);
        self.disks.iter().for_each(|disk| disk.settle());
    }

    /// Lets the power fail `operations` drive operations from now.
    pub fn cut_after(&self, operations: u64) {
        self.fuse.cut_at.set(Some(self.fuse.operations.get() + operations));
    }

    /// Lets one write or flush fail, `stores` of them from now.
    pub fn fail_after(&self, stores: u64) {
        self.fuse.fail_at.set(Some(self.fuse.stores.get() + stores));
    }

    /// Refuses every reservation of space from the one on that is `reservations` of them from now.
    pub fn refuse_from(&self, reservations: u64) {
        self.fuse.refuse_from.set(Some(self.fuse.reservations.get() + reservations));
    }

    /// Makes the pool. Call it within [`Machine::boot`].
    ///
    /// # Errors
    /// The engine's.
    pub async fn create(&self) -> engine::Result<()> {
        let mut entropy = [0; 32];
        self.random.fill(&mut entropy);
        let scheme = self.setup.scheme.parse();
        let Ok(scheme) = scheme else { panic!("'{}' is no scheme", self.setup.scheme) };
        let options = CreateOptions {
            name: "simulated".into(),
            scheme,
            shards: self.setup.shards,
            zone_bytes: Some(self.setup.zone_bytes),
            now: self.world.wall_clock()(),
            entropy,
        };
        engine::create(&self.sources(), &options).await.map(|_| ())
    }

    /// Opens the pool. Call it within [`Machine::boot`].
    ///
    /// # Errors
    /// The engine's.
    pub async fn open(&self) -> engine::Result<(Pool, OpenReport)> {
        self.openings.set(self.openings.get() + 1);
        let nonce = mix(self.openings.get() ^ self.random.bits());
        let now = self.world.wall_clock();
        let memory: Arc<dyn StateMemory> = self.memory.clone();
        let options = OpenOptions {
            tuning: self.tuning.get(),
            reactors: Vec::new(),
            nonce,
            now,
            memory: Some(memory),
            accept_stale: self.accepts_stale.get(),
        };
        engine::open(&self.sources(), &options).await
    }

    /// Takes a spare into the pool; gives its number there.
    ///
    /// # Errors
    /// The engine's.
    pub fn add(&self, pool: &Pool, spare: usize) -> impl Future<Output = engine::Result<u16>> + use<> {
        let mut id = [0; 16];
        self.random.fill(&mut id);
        if let Some(absent) = self.absent.borrow_mut().get_mut(spare) {
            *absent = false;
        }
        let Some(disk) = self.disks.get(spare) else { panic!("there is no drive {spare}") };
        let (pool, source) = (pool.clone(), disk.source());
        async move { pool.add_drive(source, id).await }
    }

    /// A drive that was lost is plugged in again.
    ///
    /// # Errors
    /// The engine's.
    pub fn bring_back(&self, pool: &Pool, index: usize) -> impl Future<Output = engine::Result<u16>> + use<> {
        let Some(disk) = self.disks.get(index) else { panic!("there is no drive {index}") };
        let (pool, source) = (pool.clone(), disk.source());
        async move { pool.return_drive(source).await }
    }

    /// The drives of the pool as the newest superblock on those that are there says, by number.
    pub fn members(&self) -> Vec<Member> {
        let look = async || {
            let mut newest: Option<PoolOnDrive> = None;
            for source in self.sources() {
                let FoundOnDrive::Pool(found) = engine::identify(&*source).await else { continue };
                if newest.as_ref().is_none_or(|newest| newest.written < found.written) {
                    newest = Some(*found);
                }
            }
            newest.map_or_else(Vec::new, |newest| newest.members)
        };
        match self.boot(look) {
            Ended::Done(members) => members,
            Ended::Cut => panic!("a look at the drives ran into a power cut"),
        }
    }

    /// Verifies the closed pool.
    ///
    /// # Errors
    /// The engine's.
    pub fn check(&self) -> engine::Result<CheckReport> {
        match self.boot(async || engine::check(&self.sources()).await) {
            Ended::Done(report) => report,
            Ended::Cut => panic!("the verifier ran into a power cut"),
        }
    }
}

/// Looks through a report for what must not be there. Damage is borne on the drives in `victims`.
///
/// # Errors
/// The first finding that must not be.
pub fn judge(report: &CheckReport, victims: &[usize]) -> Result<(), String> {
    for finding in &report.findings {
        // Nobody can tell which cell of a row is wrong when one of them is dead.
        let on_victim =
            finding.drive.map_or(!victims.is_empty(), |drive| victims.contains(&usize::from(drive)));
        if finding.kind != FindingKind::Damaged || !on_victim {
            return Err(format!(
                "check: {:?} on drive {:?}: {}",
                finding.kind, finding.drive, finding.message
            ));
        }
    }
    Ok(())
}
