//! One run: drives, a pool on them, and its life from crash to crash.

use std::cell::{Cell, RefCell};
use std::future::Future as _;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use engine::{CheckReport, CreateOptions, DriveSource, FindingKind, OpenOptions, OpenReport, Pool, Tuning};
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
    /// Whether each forgets at a power cut.
    pub volatile: Vec<bool>,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Shards.
    pub shards: u16,
    /// Engine settings.
    pub tuning: Tuning,
    /// Nanoseconds that a drive operation takes, at least and at most.
    pub latency: (u64, u64),
}

impl Setup {
    /// Five small drives in 4+1, one shard.
    pub fn small(scheme: &str, drives: usize) -> Self {
        Self {
            scheme: scheme.into(),
            drives: vec![16 << 20; drives],
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
    /// The drives.
    pub disks: Vec<Rc<Disk>>,
    setup: Setup,
    random: Random,
    openings: Cell<u64>,
    /// Drives that are left out of the next openings.
    pub absent: RefCell<Vec<bool>>,
}

impl Machine {
    /// New, empty drives.
    pub fn new(setup: &Setup, seed: u64) -> Self {
        let world = World::new();
        let fuse = Rc::new(Fuse::default());
        let disks = setup.drives.iter().zip(&setup.volatile).enumerate().map(|(index, (size, volatile))| {
            let options = DiskOptions { size: *size, volatile_cache: *volatile, latency: setup.latency };
            let seed = mix(seed ^ (index as u64 + 1));
            Disk::new(format!("drive{index}"), options, world.clone(), fuse.clone(), seed)
        });
        let disks: Vec<_> = disks.collect();
        let absent = RefCell::new(vec![false; disks.len()]);
        Self {
            world,
            fuse,
            disks,
            setup: setup.clone(),
            random: Random::new(mix(seed ^ 0xABCD)),
            openings: Cell::new(0),
            absent,
        }
    }

    fn sources(&self) -> Vec<Arc<dyn DriveSource>> {
        let present = self.disks.iter().zip(self.absent.borrow().clone()).filter(|(_, absent)| !absent);
        present.map(|(disk, _)| disk.source()).collect()
    }

    /// Boots the machine, runs `work` and, at its end or a power cut, drops everything that ran.
    pub fn boot<T>(&self, work: impl AsyncFnOnce() -> T) -> Ended<T> {
        self.world.restart();
        let reactor = Reactor::new(self.world.clone(), self.world.clone());
        let ended = reactor.run(async {
            let mut work = pin!(work());
            std::future::poll_fn(|context| {
                let polled = if self.world.is_halted() { Poll::Pending } else { work.as_mut().poll(context) };
                // The power is off: whatever the program says, nobody hears it.
                if self.world.is_halted() {
                    return Poll::Ready(Ended::Cut);
                }
                self.world.on_halt(context.waker().clone());
                polled.map(Ended::Done)
            })
            .await
        });
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
            now: 0,
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
        let options = OpenOptions { tuning: self.setup.tuning, reactors: Vec::new(), nonce };
        engine::open(&self.sources(), &options).await
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
