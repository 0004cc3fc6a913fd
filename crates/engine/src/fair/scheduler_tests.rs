//! A scheduler in front of simulated drives with a fixed service time and parallelism, in simulated
//! time.

use std::sync::Arc;
use std::time::Duration;

use reactor::{Clock, Driver, Instant, WakeHandle};

use super::*;

/// A clock that advances to the next timer.
#[derive(Default)]
struct SimTime(Cell<u64>);

struct SimClock(Rc<SimTime>);

impl Clock for SimClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.0.get())
    }
}

struct SimDriver(Rc<SimTime>);

struct NoopWaker;

impl WakeHandle for NoopWaker {
    fn wake(&self) {}
}

impl Driver for SimDriver {
    fn poll(&self) -> bool {
        false
    }

    fn sleep(&self, until: Option<Instant>) {
        let until = until.expect("a timer is set");
        self.0.0.set(self.0.0.get().max(until.as_nanos()));
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        Arc::new(NoopWaker)
    }
}

/// Drives that serve one operation per entry at a time, each in 100 us; the others queue.
struct SimDrives {
    free_at: RefCell<Vec<u64>>,
}

const SERVICE: u64 = 100_000;

impl SimDrives {
    async fn serve(&self) {
        let now = now();
        let wait = {
            let mut free_at = self.free_at.borrow_mut();
            let next = free_at.iter_mut().min().unwrap();
            *next = (*next).max(now) + SERVICE;
            *next - now
        };
        Reactor::current().sleep(Duration::from_nanos(wait)).await;
    }
}

struct Load {
    scheduler: Rc<FairScheduler>,
    /// The other scheduler in front of the same drives.
    other: Rc<FairScheduler>,
    drives: Rc<SimDrives>,
    /// Simulated time at which the load ends.
    end: u64,
}

impl Load {
    /// Runs one operation after another; returns their latencies.
    async fn run(self: Rc<Self>, volume: VolumeId) -> Vec<u64> {
        let mut times = Vec::new();
        while now() < self.end {
            let start = now();
            self.other.note_active(volume);
            let _permit = match self.scheduler.try_acquire(volume, 1) {
                Some(permit) => permit,
                None => self.scheduler.acquire(volume, 1).await,
            };
            self.drives.serve().await;
            times.push(now() - start);
        }
        times
    }
}

const LIGHT: VolumeId = VolumeId::new(1);
const HEAVY: VolumeId = VolumeId::new(2);

/// Runs a volume at queue depth 1 next to others at the given depths, on drives that serve
/// `channels` operations at a time. Returns the first volume's latencies and the operation counts
/// of the others.
fn run_contended(
    channels: usize,
    weights: &[(VolumeId, u16)],
    others: &[(VolumeId, usize)],
) -> (Vec<u64>, Vec<usize>) {
    let time = Rc::new(SimTime::default());
    let clock = || Rc::new(SimClock(time.clone()));
    let reactor = Reactor::new(Rc::new(SimDriver(time.clone())), clock());
    let result = reactor.run(async {
        let [scheduler, other] = FairScheduler::pair([2, 2], 200);
        weights.iter().for_each(|(volume, weight)| scheduler.set_weight(*volume, *weight));
        let load = |end| {
            let drives = Rc::new(SimDrives { free_at: RefCell::new(vec![0; channels]) });
            Rc::new(Load { scheduler: scheduler.clone(), other: other.clone(), drives, end })
        };
        // Alone for a while, for the baseline.
        load(100_000_000).run(LIGHT).await;
        let load = load(3_000_000_000);
        let reactor = Reactor::current();
        let light = reactor.spawn(load.clone().run(LIGHT));
        let mut counts = Vec::new();
        let tasks: Vec<_> = others
            .iter()
            .map(|(volume, depth)| {
                (0..*depth).map(|_| reactor.spawn(load.clone().run(*volume))).collect::<Vec<_>>()
            })
            .collect();
        for tasks in tasks {
            let mut count = 0;
            for task in tasks {
                count += task.await.len();
            }
            counts.push(count);
        }
        assert_eq!(scheduler.in_flight.get(), 0);
        (light.await, counts)
    });
    reactor.shut_down();
    result
}

/// The volume that ran alone before, at queue depth 1, and so has a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Baselined {
    Heavy,
    Light,
}

/// Runs a volume at queue depth 1 through one scheduler and another volume at depth 256 through the
/// other. Returns the latencies of the first, and the operation counts of the second while the
/// first runs and after it has ended.
fn run_on_separate_schedulers(channels: usize, baselined: Baselined) -> (Vec<u64>, usize, usize) {
    let time = Rc::new(SimTime::default());
    let clock = || Rc::new(SimClock(time.clone()));
    let reactor = Reactor::new(Rc::new(SimDriver(time.clone())), clock());
    let result = reactor.run(async {
        let [writes, reads] = FairScheduler::pair([2, 2], 200);
        let drives = Rc::new(SimDrives { free_at: RefCell::new(vec![0; channels]) });
        let load = |scheduler: &Rc<FairScheduler>, other: &Rc<FairScheduler>, end| {
            Rc::new(Load { scheduler: scheduler.clone(), other: other.clone(), drives: drives.clone(), end })
        };
        // One of the schedulers has a baseline; the other cannot detect a high latency.
        match baselined {
            Baselined::Heavy => load(&reads, &writes, 50_000_000).run(HEAVY).await,
            Baselined::Light => load(&writes, &reads, 50_000_000).run(LIGHT).await,
        };
        let reactor = Reactor::current();
        let light = reactor.spawn(load(&writes, &reads, 2_000_000_000).run(LIGHT));
        let both = load(&reads, &writes, 2_000_000_000);
        let heavy: Vec<_> = (0..256).map(|_| reactor.spawn(both.clone().run(HEAVY))).collect();
        let mut contended = 0;
        for task in heavy {
            contended += task.await.len();
        }
        let light = light.await;
        let alone = load(&reads, &writes, 4_000_000_000);
        let heavy: Vec<_> = (0..256).map(|_| reactor.spawn(alone.clone().run(HEAVY))).collect();
        let mut after = 0;
        for task in heavy {
            after += task.await.len();
        }
        assert_eq!((reads.in_flight.get(), writes.in_flight.get()), (0, 0));
        assert_eq!((reads.sole.get(), reads.flows.borrow().len()), (Some(HEAVY), 0));
        // The baseline was not learnt from queued operations.
        if baselined == Baselined::Heavy {
            assert!(reads.limiter.baseline(1) <= 1.2 * SERVICE as f32, "{}", reads.limiter.baseline(1));
        }
        (light, contended, after)
    });
    reactor.shut_down();
    result
}

/// Reads of one volume and writes of another pass different schedulers but share the drives.
#[test]
fn the_sole_volume_of_a_scheduler_yields_to_volumes_of_the_other() {
    for (channels, baselined) in [1, 8, 64]
        .into_iter()
        .flat_map(|channels| [(channels, Baselined::Heavy), (channels, Baselined::Light)])
    {
        let (light, contended, after) = run_on_separate_schedulers(channels, baselined);
        let p99 = percentile(light, 99);
        assert!(p99 <= 3 * SERVICE, "{channels} channels, {baselined:?}: {} us", p99 / 1000);
        let possible = channels * usize::try_from(1_950_000_000 / SERVICE).unwrap();
        assert!(
            contended * 100 >= possible * if channels == 1 { 40 } else { 75 },
            "{contended} of {possible}"
        );
        assert!(after * 100 >= possible * 99, "{after} of {possible}");
    }
}

fn percentile(mut times: Vec<u64>, share: usize) -> u64 {
    times.sort_unstable();
    times[times.len() * share / 100]
}

#[test]
fn a_heavy_volume_keeps_the_latency_of_a_light_one_and_uses_the_remaining_throughput() {
    for channels in [1, 8, 64] {
        let (light, others) = run_contended(channels, &[], &[(HEAVY, 256)]);
        let p99 = percentile(light.clone(), 99);
        assert!(p99 <= 3 * SERVICE, "{channels} channels: {} us", p99 / 1000);
        // The drives are close to saturated.
        let done = light.len() + others[0];
        let possible = channels * usize::try_from(2_900_000_000 / SERVICE).unwrap();
        assert!(done * 100 >= possible * 85, "{channels} channels: {done} of {possible}");
    }
}

#[test]
fn a_light_volume_hardly_waits_at_a_low_load() {
    let (light, _) = run_contended(8, &[], &[(HEAVY, 2)]);
    assert!(percentile(light, 50) <= SERVICE, "hardly anything is in flight");
}

#[test]
fn throughput_is_shared_by_weight() {
    let (light, heavy) = (VolumeId::new(3), VolumeId::new(4));
    let (_, counts) = run_contended(8, &[(heavy, 300)], &[(light, 128), (heavy, 128)]);
    let ratio = counts[1] * 100 / counts[0];
    assert!((200..=320).contains(&ratio), "{counts:?}");
    let (_, counts) = run_contended(8, &[], &[(light, 256), (heavy, 64)]);
    let ratio = counts[1] * 100 / counts[0];
    assert!((85..=115).contains(&ratio), "{counts:?}");
}

#[test]
fn a_cancelled_waiter_blocks_no_others() {
    let time = Rc::new(SimTime::default());
    let reactor = Reactor::new(Rc::new(SimDriver(time.clone())), Rc::new(SimClock(time.clone())));
    reactor.run(async {
        let [scheduler, _] = FairScheduler::pair([1, 1], 200);
        scheduler.limiter.set_limit(1.0);
        let first = scheduler.try_acquire(HEAVY, 1).unwrap();
        let second = scheduler.try_acquire(LIGHT, 1).unwrap();
        assert!(scheduler.try_acquire(HEAVY, 1).is_none() && scheduler.try_acquire(LIGHT, 1).is_none());
        let given_up = scheduler.clone();
        let given_up = Reactor::current().spawn(async move {
            let wait = given_up.acquire(HEAVY, 1);
            let mut wait = std::pin::pin!(wait);
            std::future::poll_fn(|context| {
                assert!(wait.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        });
        given_up.await;
        drop((first, second));
        assert_eq!(scheduler.in_flight.get(), 0);
        assert!(scheduler.try_acquire(LIGHT, 1).is_some());
    });
    reactor.shut_down();
}

/// Writes that complete together are followed by writes that start together.
#[test]
fn the_first_operation_of_a_burst_is_not_uncontended() {
    let time = Rc::new(SimTime::default());
    let reactor = Reactor::new(Rc::new(SimDriver(time.clone())), Rc::new(SimClock(time.clone())));
    reactor.run(async {
        let [scheduler, _] = FairScheduler::pair([1, 1], 200);
        let burst = async |operations: usize, nanos: u64| {
            let permits: Vec<_> = (0..operations).map(|_| scheduler.try_acquire(HEAVY, 1).unwrap()).collect();
            Reactor::current().sleep(Duration::from_nanos(nanos)).await;
            drop(permits);
        };
        for _ in 0..100 {
            burst(15, 10 * SERVICE).await;
        }
        assert_eq!(scheduler.limiter.baseline(1).to_bits(), 0.0_f32.to_bits());
        for _ in 0..100 {
            burst(1, SERVICE).await;
        }
        assert_eq!(scheduler.limiter.baseline(1).to_bits(), (SERVICE as f32).to_bits());
    });
    reactor.shut_down();
}

/// Runs volumes of the given weights at the given queue depths. Returns the resulting limit and the
/// operation count of each volume.
fn run_all_heavy(volumes: &[(u16, usize)]) -> (f32, Vec<usize>) {
    let time = Rc::new(SimTime::default());
    let clock = || Rc::new(SimClock(time.clone()));
    let reactor = Reactor::new(Rc::new(SimDriver(time.clone())), clock());
    let result = reactor.run(async {
        let [scheduler, other] = FairScheduler::pair([8, 8], 200);
        let drives = Rc::new(SimDrives { free_at: RefCell::new(vec![0; 4]) });
        let load = |end| {
            Rc::new(Load { scheduler: scheduler.clone(), other: other.clone(), drives: drives.clone(), end })
        };
        load(100_000_000).run(LIGHT).await;
        let load = load(3_000_000_000);
        let spawn = |(number, (weight, depth)): (u32, &(u16, usize))| {
            let volume = VolumeId::new(HEAVY.get() + number);
            scheduler.set_weight(volume, *weight);
            (0..*depth).map(|_| Reactor::current().spawn(load.clone().run(volume))).collect::<Vec<_>>()
        };
        let tasks: Vec<_> = (0..).zip(volumes).map(spawn).collect();
        let mut counts = Vec::new();
        for tasks in tasks {
            let mut count = 0;
            for task in tasks {
                count += task.await.len();
            }
            counts.push(count);
        }
        (scheduler.limiter.limit(), counts)
    });
    reactor.shut_down();
    result
}

/// With equal demand of all volumes a low limit would only move the queue from the drives to the
/// scheduler.
#[test]
fn volumes_of_equal_demand_are_admitted() {
    let (limit, _) = run_all_heavy(&[(100, 64); 4]);
    assert!(limit >= 250.0, "{limit}");
}

#[test]
fn throughput_of_heavy_volumes_is_shared_by_weight() {
    for (volumes, expected) in
        [([(100, 128), (300, 128)], 300), ([(100, 256), (100, 64)], 100), ([(200, 256), (100, 128)], 50)]
    {
        let (limit, counts) = run_all_heavy(&volumes);
        let ratio = counts[1] * 100 / counts[0];
        assert!((expected * 85..=expected * 115).contains(&(ratio * 100)), "{counts:?} at {limit}");
    }
}

/// A burst that completes together starts again together: a volume with nothing in flight between
/// two bursts is still heavy.
#[test]
fn volumes_with_bursts_are_heavy() {
    let time = Rc::new(SimTime::default());
    let reactor = Reactor::new(Rc::new(SimDriver(time.clone())), Rc::new(SimClock(time.clone())));
    reactor.run(async {
        let [scheduler, _] = FairScheduler::pair([8, 8], 200);
        for _ in 0..100 {
            let permit = scheduler.try_acquire(LIGHT, 1).unwrap();
            Reactor::current().sleep(Duration::from_nanos(SERVICE)).await;
            drop(permit);
        }
        let burst = async |scheduler: Rc<FairScheduler>, volume| {
            while now() < 2_000_000_000 {
                let permit = match scheduler.try_acquire(volume, 1) {
                    Some(permit) => permit,
                    None => scheduler.acquire(volume, 1).await,
                };
                let left = 4 * SERVICE - now() % (4 * SERVICE);
                Reactor::current().sleep(Duration::from_nanos(left)).await;
                drop(permit);
            }
        };
        let tasks: Vec<_> = (0..64_u32)
            .map(|task| Reactor::current().spawn(burst(scheduler.clone(), VolumeId::new(1 + task % 4))))
            .collect();
        for task in tasks {
            task.await;
        }
        assert!(scheduler.limiter.limit() >= 64.0, "{}", scheduler.limiter.limit());
    });
    reactor.shut_down();
}
