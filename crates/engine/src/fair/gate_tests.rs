//! A gate before drives that take a while for each operation and do a few at once, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use reactor::{Clock, Driver, Instant, WakeHandle};

use super::*;

/// A clock that jumps to what is waited for.
#[derive(Default)]
struct Jumping(Cell<u64>);

struct JumpingClock(Rc<Jumping>);

impl Clock for JumpingClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.0.get())
    }
}

struct JumpingDriver(Rc<Jumping>);

struct Nobody;

impl WakeHandle for Nobody {
    fn wake(&self) {}
}

impl Driver for JumpingDriver {
    fn poll(&self) -> bool {
        false
    }

    fn sleep(&self, until: Option<Instant>) {
        let until = until.expect("somebody waits for a moment");
        self.0.0.set(self.0.0.get().max(until.as_nanos()));
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        Arc::new(Nobody)
    }
}

/// Drives that do so many operations at once, each in 100 us; the others queue.
struct Drives {
    free_at: RefCell<Vec<u64>>,
}

const SERVICE: u64 = 100_000;

impl Drives {
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
    gate: Rc<Gate>,
    /// Another one before the same drives.
    other: Rc<Gate>,
    drives: Rc<Drives>,
    /// End of the load.
    end: u64,
}

impl Load {
    /// One operation after the other; gives how long each took.
    async fn run(self: Rc<Self>, volume: VolumeId) -> Vec<u64> {
        let mut times = Vec::new();
        while now() < self.end {
            let start = now();
            self.other.notice(volume);
            let _turn = match self.gate.enter(volume, 1) {
                Some(turn) => turn,
                None => self.gate.wait(volume, 1).await,
            };
            self.drives.serve().await;
            times.push(now() - start);
        }
        times
    }
}

const QUIET_ONE: VolumeId = VolumeId::new(1);
const BUSY_ONE: VolumeId = VolumeId::new(2);

/// Times of a volume's operations one at a time, and the number of those of others at these depths, on drives that do `channels` at once.
fn beside(
    channels: usize,
    weights: &[(VolumeId, u16)],
    others: &[(VolumeId, usize)],
) -> (Vec<u64>, Vec<usize>) {
    let jumping = Rc::new(Jumping::default());
    let clock = || Rc::new(JumpingClock(jumping.clone()));
    let reactor = Reactor::new(Rc::new(JumpingDriver(jumping.clone())), clock());
    let result = reactor.run(async {
        let [gate, other] = Gate::pair([2, 2], 200);
        weights.iter().for_each(|(volume, weight)| gate.set_weight(*volume, *weight));
        let load = |end| {
            let drives = Rc::new(Drives { free_at: RefCell::new(vec![0; channels]) });
            Rc::new(Load { gate: gate.clone(), other: other.clone(), drives, end })
        };
        // By itself for a while: what it takes is learnt.
        load(100_000_000).run(QUIET_ONE).await;
        let load = load(3_000_000_000);
        let reactor = Reactor::current();
        let quiet = reactor.spawn(load.clone().run(QUIET_ONE));
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
        assert_eq!(gate.under_way.get(), 0);
        (quiet.await, counts)
    });
    reactor.shut_down();
    result
}

/// Which of two volumes was alone before, one operation at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    Busy,
    Quiet,
}

/// Times of a volume's operations one at a time through a gate of their own, beside another one's at depth 256 through the other; and
/// how many of those there were, before the first volume ended and after.
fn beside_through_another(channels: usize, knows: Knows) -> (Vec<u64>, usize, usize) {
    let jumping = Rc::new(Jumping::default());
    let clock = || Rc::new(JumpingClock(jumping.clone()));
    let reactor = Reactor::new(Rc::new(JumpingDriver(jumping.clone())), clock());
    let result = reactor.run(async {
        let [writes, reads] = Gate::pair([2, 2], 200);
        let drives = Rc::new(Drives { free_at: RefCell::new(vec![0; channels]) });
        let load = |gate: &Rc<Gate>, other: &Rc<Gate>, end| {
            Rc::new(Load { gate: gate.clone(), other: other.clone(), drives: drives.clone(), end })
        };
        // One of the gates learns what it takes by itself; the other cannot feel that anything takes long.
        match knows {
            Knows::Busy => load(&reads, &writes, 50_000_000).run(BUSY_ONE).await,
            Knows::Quiet => load(&writes, &reads, 50_000_000).run(QUIET_ONE).await,
        };
        let reactor = Reactor::current();
        let quiet = reactor.spawn(load(&writes, &reads, 2_000_000_000).run(QUIET_ONE));
        let both = load(&reads, &writes, 2_000_000_000);
        let busy: Vec<_> = (0..256).map(|_| reactor.spawn(both.clone().run(BUSY_ONE))).collect();
        let mut beside = 0;
        for task in busy {
            beside += task.await.len();
        }
        let quiet = quiet.await;
        let alone = load(&reads, &writes, 4_000_000_000);
        let busy: Vec<_> = (0..256).map(|_| reactor.spawn(alone.clone().run(BUSY_ONE))).collect();
        let mut after = 0;
        for task in busy {
            after += task.await.len();
        }
        assert_eq!((reads.under_way.get(), writes.under_way.get()), (0, 0));
        assert_eq!((reads.alone.get(), reads.flows.borrow().len()), (Some(BUSY_ONE), 0));
        // What it takes by itself was not learnt from what was queued.
        if knows == Knows::Busy {
            assert!(reads.depth.by_itself(1) <= 1.2 * SERVICE as f32, "{}", reads.depth.by_itself(1));
        }
        (quiet, beside, after)
    });
    reactor.shut_down();
    result
}

/// Reads of one volume and writes of another pass different gates, and wait for the same drives.
#[test]
fn a_volume_alone_at_its_gate_leaves_room_for_those_at_the_other() {
    for (channels, knows) in
        [1, 8, 64].into_iter().flat_map(|channels| [(channels, Knows::Busy), (channels, Knows::Quiet)])
    {
        let (quiet, beside, after) = beside_through_another(channels, knows);
        let p99 = percentile(quiet, 99);
        assert!(p99 <= 3 * SERVICE, "{channels} at once, {knows:?}: {} us", p99 / 1000);
        let possible = channels * usize::try_from(1_950_000_000 / SERVICE).unwrap();
        assert!(beside * 100 >= possible * if channels == 1 { 40 } else { 75 }, "{beside} of {possible}");
        assert!(after * 100 >= possible * 99, "{after} of {possible}");
    }
}

fn percentile(mut times: Vec<u64>, share: usize) -> u64 {
    times.sort_unstable();
    times[times.len() * share / 100]
}

#[test]
fn a_busy_volume_leaves_another_its_latency_and_takes_what_is_left() {
    for channels in [1, 8, 64] {
        let (quiet, others) = beside(channels, &[], &[(BUSY_ONE, 256)]);
        let p99 = percentile(quiet.clone(), 99);
        assert!(p99 <= 3 * SERVICE, "{channels} at once: {} us", p99 / 1000);
        // Nearly all that the drives can do is done.
        let done = quiet.len() + others[0];
        let possible = channels * usize::try_from(2_900_000_000 / SERVICE).unwrap();
        assert!(done * 100 >= possible * 85, "{channels} at once: {done} of {possible}");
    }
}

#[test]
fn without_a_gate_it_would_wait_behind_everything() {
    let (quiet, _) = beside(8, &[], &[(BUSY_ONE, 2)]);
    assert!(percentile(quiet, 50) <= SERVICE, "hardly anything is under way");
}

#[test]
fn volumes_get_what_their_weights_say() {
    let (light, heavy) = (VolumeId::new(3), VolumeId::new(4));
    let (_, counts) = beside(8, &[(heavy, 300)], &[(light, 128), (heavy, 128)]);
    let ratio = counts[1] * 100 / counts[0];
    assert!((200..=320).contains(&ratio), "{counts:?}");
    let (_, counts) = beside(8, &[], &[(light, 256), (heavy, 64)]);
    let ratio = counts[1] * 100 / counts[0];
    assert!((85..=115).contains(&ratio), "{counts:?}");
}

#[test]
fn one_that_no_longer_waits_holds_nobody_up() {
    let jumping = Rc::new(Jumping::default());
    let reactor =
        Reactor::new(Rc::new(JumpingDriver(jumping.clone())), Rc::new(JumpingClock(jumping.clone())));
    reactor.run(async {
        let [gate, _] = Gate::pair([1, 1], 200);
        gate.depth.set(1.0);
        let first = gate.enter(BUSY_ONE, 1).unwrap();
        let second = gate.enter(QUIET_ONE, 1).unwrap();
        assert!(gate.enter(BUSY_ONE, 1).is_none() && gate.enter(QUIET_ONE, 1).is_none());
        let given_up = gate.clone();
        let given_up = Reactor::current().spawn(async move {
            let wait = given_up.wait(BUSY_ONE, 1);
            let mut wait = std::pin::pin!(wait);
            std::future::poll_fn(|context| {
                assert!(wait.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        });
        given_up.await;
        drop((first, second));
        assert_eq!(gate.under_way.get(), 0);
        assert!(gate.enter(QUIET_ONE, 1).is_some());
    });
    reactor.shut_down();
}

/// Writes end together, and whoever waited for them begins the next ones together.
#[test]
fn the_first_of_a_burst_says_nothing_of_one_by_itself() {
    let jumping = Rc::new(Jumping::default());
    let reactor =
        Reactor::new(Rc::new(JumpingDriver(jumping.clone())), Rc::new(JumpingClock(jumping.clone())));
    reactor.run(async {
        let [gate, _] = Gate::pair([1, 1], 200);
        let burst = async |operations: usize, nanos: u64| {
            let turns: Vec<_> = (0..operations).map(|_| gate.enter(BUSY_ONE, 1).unwrap()).collect();
            Reactor::current().sleep(Duration::from_nanos(nanos)).await;
            drop(turns);
        };
        for _ in 0..100 {
            burst(15, 10 * SERVICE).await;
        }
        assert_eq!(gate.depth.by_itself(1).to_bits(), 0.0_f32.to_bits());
        for _ in 0..100 {
            burst(1, SERVICE).await;
        }
        assert_eq!(gate.depth.by_itself(1).to_bits(), (SERVICE as f32).to_bits());
    });
    reactor.shut_down();
}

/// The depth that comes of volumes of these weights which all ask for much, so many operations at a time, and what each of them did.
fn all_ask_for_much(volumes: &[(u16, usize)]) -> (f32, Vec<usize>) {
    let jumping = Rc::new(Jumping::default());
    let clock = || Rc::new(JumpingClock(jumping.clone()));
    let reactor = Reactor::new(Rc::new(JumpingDriver(jumping.clone())), clock());
    let result = reactor.run(async {
        let [gate, other] = Gate::pair([8, 8], 200);
        let drives = Rc::new(Drives { free_at: RefCell::new(vec![0; 4]) });
        let load =
            |end| Rc::new(Load { gate: gate.clone(), other: other.clone(), drives: drives.clone(), end });
        load(100_000_000).run(QUIET_ONE).await;
        let load = load(3_000_000_000);
        let spawn = |(number, (weight, depth)): (u32, &(u16, usize))| {
            let volume = VolumeId::new(BUSY_ONE.get() + number);
            gate.set_weight(volume, *weight);
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
        (gate.depth.units(), counts)
    });
    reactor.shut_down();
    result
}

/// Where all ask for the same nobody is kept from the drives' queues: they would only wait elsewhere.
#[test]
fn volumes_that_all_ask_for_as_much_are_let_in() {
    let (depth, _) = all_ask_for_much(&[(100, 64); 4]);
    assert!(depth >= 250.0, "{depth}");
}

#[test]
fn volumes_that_all_ask_for_much_get_what_their_weights_say() {
    for (volumes, expected) in
        [([(100, 128), (300, 128)], 300), ([(100, 256), (100, 64)], 100), ([(200, 256), (100, 128)], 50)]
    {
        let (depth, counts) = all_ask_for_much(&volumes);
        let ratio = counts[1] * 100 / counts[0];
        assert!((expected * 85..=expected * 115).contains(&(ratio * 100)), "{counts:?} at {depth}");
    }
}

/// What ends together comes again together: that nothing of a volume is under way then does not mean that it asks for little.
#[test]
fn volumes_that_come_in_bursts_ask_for_much() {
    let jumping = Rc::new(Jumping::default());
    let reactor =
        Reactor::new(Rc::new(JumpingDriver(jumping.clone())), Rc::new(JumpingClock(jumping.clone())));
    reactor.run(async {
        let [gate, _] = Gate::pair([8, 8], 200);
        for _ in 0..100 {
            let turn = gate.enter(QUIET_ONE, 1).unwrap();
            Reactor::current().sleep(Duration::from_nanos(SERVICE)).await;
            drop(turn);
        }
        let burst = async |gate: Rc<Gate>, volume| {
            while now() < 2_000_000_000 {
                let turn = match gate.enter(volume, 1) {
                    Some(turn) => turn,
                    None => gate.wait(volume, 1).await,
                };
                let left = 4 * SERVICE - now() % (4 * SERVICE);
                Reactor::current().sleep(Duration::from_nanos(left)).await;
                drop(turn);
            }
        };
        let tasks: Vec<_> = (0..64_u32)
            .map(|task| Reactor::current().spawn(burst(gate.clone(), VolumeId::new(1 + task % 4))))
            .collect();
        for task in tasks {
            task.await;
        }
        assert!(gate.depth.units() >= 64.0, "{}", gate.depth.units());
    });
    reactor.shut_down();
}
