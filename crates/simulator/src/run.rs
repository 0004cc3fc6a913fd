//! One run: the drives, the pool on them, and the pool's history from crash to crash.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use engine::{
    CheckReport, CreateOptions, DriveContents, DriveSource, FindingKind, MemberDrive, OpenOptions,
    OpenReport, Pool, PoolLabel, PoolStateStore, RememberFuture, StateStamp, Tuning,
};
use format::PoolId;
use reactor::Reactor;

use crate::disk::{Disk, DiskOptions, FaultTrigger};
use crate::events::EventQueue;
use crate::random::{Random, mix};

/// The hardware and pool settings of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Scheme, as k+m.
    pub scheme: String,
    /// Sizes of the pool's drives, in bytes.
    pub drives: Vec<u64>,
    /// Sizes of the spare drives, in bytes. Spares belong to no pool at first.
    pub spares: Vec<u64>,
    /// Sector sizes in bytes, assigned to the drives in rotation.
    pub sectors: Vec<u32>,
    /// For each drive, true if it has a volatile cache. Spares always have one.
    pub volatile: Vec<bool>,
    /// Zone size in bytes.
    pub zone_bytes: u64,
    /// Number of shards.
    pub shards: u16,
    /// Engine settings.
    pub tuning: Tuning,
    /// Minimum and maximum latency of a drive operation, in nanoseconds.
    pub latency: (u64, u64),
    /// Bandwidth of a drive in bytes per second; 0 means unlimited.
    pub bytes_per_second: u64,
}

impl Setup {
    /// A machine of `drives` drives of 16 MiB with volatile caches, and a pool with one shard.
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

/// The end of a boot.
#[derive(Debug, PartialEq, Eq)]
pub enum BootEnd<T> {
    /// The work ran to its end.
    Completed(T),
    /// The power was cut.
    PowerCut,
}

/// The hardware of a run.
pub struct Machine {
    /// Simulated time.
    pub events: Rc<EventQueue>,
    /// Counts drive operations and triggers power cuts, write errors and refused reservations.
    pub trigger: Rc<FaultTrigger>,
    /// The pool's drives, then the spares.
    pub disks: Vec<Rc<Disk>>,
    setup: Setup,
    random: Random,
    openings: Cell<u64>,
    /// Engine settings of the next openings.
    tuning: Cell<Tuning>,
    /// Marks the drives that the next openings do not get.
    pub absent: RefCell<Vec<bool>>,
    /// The newest pool state, stored outside the drives.
    pub state_store: Arc<StateStore>,
    /// True if the next openings accept a state older than the stored one.
    pub accept_stale: Cell<bool>,
}

/// Stores the newest pool state outside the drives. Openings compare with it only after
/// [`StateStore::enforce`].
#[derive(Default)]
pub struct StateStore {
    newest: Mutex<Option<StateStamp>>,
    enforced: AtomicBool,
    failing: AtomicBool,
}

impl StateStore {
    /// Refuses older states at all later openings.
    pub fn enforce(&self) {
        self.enforced.store(true, Ordering::Relaxed);
    }

    fn copy(&self) -> Self {
        Self {
            newest: Mutex::new(*self.newest.lock().unwrap_or_else(PoisonError::into_inner)),
            enforced: self.enforced.load(Ordering::Relaxed).into(),
            failing: self.failing.load(Ordering::Relaxed).into(),
        }
    }

    /// Makes all attempts to store a state fail, or work again.
    pub fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }
}

impl PoolStateStore for StateStore {
    fn newest(&self, _: PoolId) -> Option<StateStamp> {
        let newest = *self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.filter(|_| self.enforced.load(Ordering::Relaxed))
    }

    fn remember(&self, _: PoolId, state: StateStamp) -> RememberFuture<'_> {
        Box::pin(async move {
            if self.failing.load(Ordering::Relaxed) {
                return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
            }
            *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
            Ok(())
        })
    }
}

impl Machine {
    /// Creates a machine with empty drives.
    pub fn new(setup: &Setup, seed: u64) -> Self {
        let events = EventQueue::new();
        let trigger = Rc::new(FaultTrigger::default());
        let volatile = setup.volatile.iter().copied().chain(std::iter::repeat(true));
        let sectors = setup.sectors.iter().copied().cycle();
        let all = setup.drives.iter().chain(&setup.spares).zip(volatile).zip(sectors);
        let disks = all.enumerate().map(|(index, ((size, volatile_cache), sector))| {
            let Setup { latency, bytes_per_second, .. } = *setup;
            let size = *size;
            let options = DiskOptions { size, sector, volatile_cache, latency, bytes_per_second };
            let seed = mix(seed ^ (index as u64 + 1));
            Disk::new(format!("drive{index}"), options, events.clone(), trigger.clone(), seed)
        });
        let disks: Vec<_> = disks.collect();
        let absent = (0..disks.len()).map(|index| index >= setup.drives.len()).collect();
        let absent = RefCell::new(absent);
        Self {
            events,
            trigger,
            disks,
            setup: setup.clone(),
            random: Random::new(mix(seed ^ 0xABCD)),
            openings: Cell::new(0),
            tuning: Cell::new(setup.tuning),
            absent,
            state_store: Arc::default(),
            accept_stale: Cell::new(false),
        }
    }

    /// Creates a machine with the same drives, settings and time. Its randomness is that of the
    /// seed. No process may run.
    pub(crate) fn copy(&self, seed: u64) -> Self {
        let events = EventQueue::at_time_of(&self.events);
        let trigger = Rc::new(FaultTrigger::default());
        let disks = self
            .disks
            .iter()
            .zip(1..)
            .map(|(disk, number)| disk.copy(events.clone(), trigger.clone(), mix(seed ^ number)));
        let disks = disks.collect();
        Self {
            events,
            trigger,
            disks,
            setup: self.setup.clone(),
            random: Random::new(mix(seed ^ 0xABCD)),
            openings: self.openings.clone(),
            tuning: self.tuning.clone(),
            absent: self.absent.clone(),
            state_store: Arc::new(self.state_store.copy()),
            accept_stale: self.accept_stale.clone(),
        }
    }

    /// The pool's scheme.
    pub fn scheme(&self) -> &str {
        &self.setup.scheme
    }

    /// Sets the engine settings of later openings.
    pub fn set_tuning(&self, tuning: Tuning) {
        self.tuning.set(tuning);
    }

    /// Returns the engine settings of the next opening.
    pub fn tuning(&self) -> Tuning {
        self.tuning.get()
    }

    /// Returns the present drives as the engine takes them.
    pub fn sources(&self) -> Vec<Arc<dyn DriveSource>> {
        let present = self.disks.iter().zip(self.absent.borrow().clone()).filter(|(_, absent)| !absent);
        present.map(|(disk, _)| disk.source()).collect()
    }

    /// Boots the machine, runs `work` and, at its end or at a power cut, drops all tasks.
    pub fn boot<T>(&self, work: impl AsyncFnOnce() -> T) -> BootEnd<T> {
        self.events.restart();
        let reactor = Reactor::new(self.events.clone(), self.events.clone());
        // Dropped after the reactor has stopped: a power cut finds I/O in flight.
        let mut work = Box::pin(work());
        let ended = reactor.run(std::future::poll_fn(|context| {
            let polled = if self.events.is_halted() { Poll::Pending } else { work.as_mut().poll(context) };
            // The power is off: the result of the work is discarded.
            if self.events.is_halted() {
                return Poll::Ready(BootEnd::PowerCut);
            }
            self.events.set_halt_waker(context.waker().clone());
            polled.map(BootEnd::Completed)
        }));
        drop(work);
        reactor.shut_down();
        ended
    }

    /// Applies a power cut to all drives.
    pub fn cut_power(&self) {
        self.trigger.cut_at.set(None);
        self.disks.iter().for_each(|disk| disk.cut_power());
    }

    /// Kills the process. The drives keep their power.
    pub fn kill_process(&self) {
        self.trigger.cut_at.set(None);
        self.disks.iter().for_each(|disk| disk.kill_process());
    }

    /// Cuts the power `operations` drive operations from now.
    pub fn cut_after(&self, operations: u64) {
        self.trigger.cut_at.set(Some(self.trigger.operations.get() + operations));
    }

    /// Fails one write or flush, `stores` of them from now.
    pub fn fail_after(&self, stores: u64) {
        self.trigger.fail_at.set(Some(self.trigger.stores.get() + stores));
    }

    /// Refuses all reservations of space, starting `reservations` of them from now.
    pub fn refuse_from(&self, reservations: u64) {
        self.trigger.refuse_from.set(Some(self.trigger.reservations.get() + reservations));
    }

    /// Creates the pool. Must be called within [`Machine::boot`].
    ///
    /// # Errors
    /// Returns the engine's error.
    pub async fn create(&self) -> engine::Result<()> {
        let mut entropy = [0; 32];
        self.random.fill(&mut entropy);
        let scheme = self.setup.scheme.parse();
        let Ok(scheme) = scheme else { panic!("'{}' is not a scheme", self.setup.scheme) };
        let options = CreateOptions {
            name: "simulated".into(),
            scheme,
            shards: self.setup.shards,
            zone_bytes: Some(self.setup.zone_bytes),
            now: self.events.wall_clock()(),
            entropy,
        };
        engine::create(&self.sources(), &options).await.map(|_| ())
    }

    /// Opens the pool. Must be called within [`Machine::boot`].
    ///
    /// # Errors
    /// Returns the engine's error.
    pub async fn open(&self) -> engine::Result<(Pool, OpenReport)> {
        self.openings.set(self.openings.get() + 1);
        let nonce = mix(self.openings.get() ^ self.random.bits());
        let now = self.events.wall_clock();
        let memory: Arc<dyn PoolStateStore> = self.state_store.clone();
        let options = OpenOptions {
            tuning: self.tuning.get(),
            reactors: Vec::new(),
            nonce,
            now,
            state_store: Some(memory),
            accept_stale: self.accept_stale.get(),
        };
        engine::open(&self.sources(), &options).await
    }

    /// Adds a spare to the pool and returns its index there.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub fn add_drive(&self, pool: &Pool, spare: usize) -> impl Future<Output = engine::Result<u16>> + use<> {
        let mut id = [0; 16];
        self.random.fill(&mut id);
        if let Some(absent) = self.absent.borrow_mut().get_mut(spare) {
            *absent = false;
        }
        let Some(disk) = self.disks.get(spare) else { panic!("there is no drive {spare}") };
        let (pool, source) = (pool.clone(), disk.source());
        async move { pool.add_drive(source, id).await }
    }

    /// Plugs a lost drive in again and returns it to the pool.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub fn return_drive(
        &self,
        pool: &Pool,
        index: usize,
    ) -> impl Future<Output = engine::Result<u16>> + use<> {
        let Some(disk) = self.disks.get(index) else { panic!("there is no drive {index}") };
        let (pool, source) = (pool.clone(), disk.source());
        async move { pool.return_drive(source).await }
    }

    /// Returns the pool's members by index, from the newest superblock on the present drives.
    pub fn members(&self) -> Vec<MemberDrive> {
        let newest = self.labels().into_iter().max_by_key(|label| label.written);
        newest.map_or_else(Vec::new, |newest| newest.members)
    }

    /// Returns the superblocks on the present drives.
    pub fn labels(&self) -> Vec<PoolLabel> {
        let read_superblocks = async || {
            let mut labels = Vec::new();
            for source in self.sources() {
                if let DriveContents::Pool(found) = engine::identify(&*source).await {
                    labels.push(*found);
                }
            }
            labels
        };
        match self.boot(read_superblocks) {
            BootEnd::Completed(labels) => labels,
            BootEnd::PowerCut => panic!("the power was cut while superblocks were read"),
        }
    }

    /// Verifies the closed pool.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub fn check(&self) -> engine::Result<CheckReport> {
        match self.boot(async || engine::check(&self.sources()).await) {
            BootEnd::Completed(report) => report,
            BootEnd::PowerCut => panic!("the power was cut during verification"),
        }
    }
}

/// Checks a verifier report. Damage on the drives in `victims` is allowed.
///
/// # Errors
/// Returns the first finding that is not allowed.
pub fn check_findings(report: &CheckReport, victims: &[usize]) -> Result<(), String> {
    for finding in &report.findings {
        // With a dead drive, the verifier cannot determine which cell of a row is wrong.
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
