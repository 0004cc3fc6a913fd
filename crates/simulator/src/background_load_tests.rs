//! Background work next to client I/O, on drives with limited bandwidth: client latency hardly
//! rises, and the work completes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use engine::{AttachedVolume, Pool, RepairState, Tuning};
use format::DriveState;
use reactor::{Buffer, Clock as _, Reactor};

use crate::repair_tests::{BLOCK, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{Machine, Setup};

const BLOCKS: u64 = 8192;

/// Drives of 500 MB/s, and enough data that the background work takes some time.
fn setup() -> Setup {
    Setup {
        drives: vec![96 << 20; 5],
        zone_bytes: 2 << 20,
        latency: (40_000, 60_000),
        bytes_per_second: 500_000_000,
        tuning: Tuning { map_bytes: 16 << 20, ..Tuning::default() },
        ..Setup::small("2+1", 5)
    }
}

/// Four tasks that read random blocks until stopped, and the latency of each read in microseconds.
struct Readers {
    stop: Rc<Cell<bool>>,
    latencies: Rc<RefCell<Vec<u64>>>,
    tasks: Vec<reactor::Task<()>>,
}

impl Readers {
    fn start(volume: &Rc<AttachedVolume>) -> Self {
        let (stop, latencies) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
        let tasks = (0..4u64).map(|reader| {
            let (volume, stop, latencies) = (volume.clone(), stop.clone(), latencies.clone());
            Reactor::current().spawn(async move {
                let (reactor, buffer) = (Reactor::current(), Buffer::new(4096));
                let mut number = reader;
                while !stop.get() {
                    number = (number * 2_862_933 + 3_037_001) % BLOCKS;
                    let begun = reactor.now();
                    volume.read(number * BLOCK, &buffer.span()).await.unwrap();
                    let micros = reactor.now().since(begun).as_micros();
                    latencies.borrow_mut().push(u64::try_from(micros).unwrap());
                }
            })
        });
        Self { tasks: tasks.collect(), stop, latencies }
    }

    /// Stops the readers and returns the 99th percentile of the latencies, in microseconds.
    async fn end(self) -> u64 {
        self.stop.set(true);
        for task in self.tasks {
            task.await;
        }
        let mut latencies = self.latencies.take();
        latencies.sort_unstable();
        assert!(latencies.len() > 1000, "{}", latencies.len());
        latencies[latencies.len() * 99 / 100]
    }
}

/// Measures client reads alone and during `work`, as p99 in microseconds, and the duration of
/// `work` alone and with client reads.
async fn measure(
    machine: &Rc<Machine>,
    pool: &Pool,
    work: impl AsyncFn(bool),
) -> ((u64, u64), (Duration, Duration)) {
    let volume = Rc::new(fill(pool, "v", BLOCKS, 1).await);
    let timed = async |used| {
        let begun = machine.events.now();
        work(used).await;
        machine.events.now().since(begun)
    };
    let alone = timed(false).await;
    let readers = Readers::start(&volume);
    Reactor::current().sleep(Duration::from_secs(1)).await;
    let quiet = readers.end().await;
    let readers = Readers::start(&volume);
    let together = timed(true).await;
    ((quiet, readers.end().await), (alone, together))
}

#[test]
fn a_rebuild_hardly_raises_client_latency_and_completes() {
    let machine = machine(&setup(), 1);
    with_pool(&machine, async |pool| {
        let reported = Cell::new(None);
        let work = async |used| {
            let drive = u16::from(used);
            pool.fail_drive(drive).await.unwrap();
            let status = wait_for_repair(pool).await;
            reported.set(status.client_latency);
            let found = (state(&status, drive.into()), status.repair.state);
            assert_eq!(found, (DriveState::Removed, RepairState::Complete));
        };
        let (latency, time) = measure(&machine, pool, work).await;
        // The reported client latency matches the measured one.
        let reported = reported.get().unwrap();
        let (p99, most) = (reported.p99.as_micros() as u64, latency.1 + latency.1 / 4);
        assert!(
            p99 >= latency.1 - latency.1 / 4 && p99 <= most && reported.p50 < reported.p99,
            "{reported:?}, {latency:?}"
        );
        assert!(latency.1 <= latency.0 * 4, "{latency:?}");
        assert!(time.1 < time.0 * 16, "{time:?}");
    });
}

#[test]
fn a_scrub_hardly_raises_client_latency_and_completes() {
    let machine = machine(&setup(), 2);
    with_pool(&machine, async |pool| {
        let work = async |_| {
            assert!(pool.start_scrub().await.unwrap());
            pool.scrub_settled().await.unwrap();
        };
        let (latency, time) = measure(&machine, pool, work).await;
        assert!(latency.1 <= latency.0 * 4, "{latency:?}");
        assert!(time.1 < time.0 * 16, "{time:?}");
    });
}
