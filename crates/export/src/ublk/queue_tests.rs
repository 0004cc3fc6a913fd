//! Queues with a simulated kernel: requests from the test, and results that it checks.

use std::collections::VecDeque;

use reactor::{Buffer, Clock, ParkDriver, Span, SystemClock};
use rustix::io::Errno;

use super::super::device::DeviceGone;
use super::super::uapi::{UblkOperation, UblkRequest};
use super::*;
use crate::MemoryVolume;

const DEPTH: u16 = 4;
const BYTES: usize = 64 << 10;

#[derive(Default)]
struct Slot {
    next: VecDeque<Result<UblkRequest, DeviceGone>>,
    results: Vec<i32>,
}

/// The kernel's side.
#[derive(Clone)]
struct SimulatedKernel {
    slots: Rc<RefCell<Vec<Slot>>>,
    changed: Rc<WaitList>,
    memory: Span,
}

impl SimulatedKernel {
    fn new() -> Self {
        let slots = (0..DEPTH).map(|_| Slot::default()).collect();
        let memory = Buffer::zeroed(BYTES * usize::from(DEPTH)).span();
        Self { slots: Rc::new(RefCell::new(slots)), changed: Rc::default(), memory }
    }

    fn ask(&self, tag: u16, operation: UblkOperation, offset: u64, length: u64) {
        self.give(tag, Ok(UblkRequest { operation, durable: false, offset, length }));
    }

    fn give(&self, tag: u16, next: Result<UblkRequest, DeviceGone>) {
        self.slots.borrow_mut()[usize::from(tag)].next.push_back(next);
        self.changed.wake_all();
    }

    fn results(&self, tag: u16) -> Vec<i32> {
        self.slots.borrow()[usize::from(tag)].results.clone()
    }
}

impl RequestChannel for SimulatedKernel {
    fn commit_and_fetch(
        &self,
        tag: u16,
        completion: Option<i32>,
    ) -> impl Future<Output = Result<UblkRequest, DeviceGone>> + use<> {
        let it = self.clone();
        if let Some(completion) = completion {
            it.slots.borrow_mut()[usize::from(tag)].results.push(completion);
        }
        async move { it.changed.until(|| it.slots.borrow_mut()[usize::from(tag)].next.pop_front()).await }
    }

    fn memory(&self, tag: u16) -> Span {
        let start = usize::from(tag) * BYTES;
        self.memory.slice(start..start + BYTES)
    }
}

fn reactor() -> Reactor {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock)
}

async fn settle() {
    for _ in 0..20 {
        Reactor::current().yield_now().await;
    }
}

#[test]
fn requests_are_executed_and_completed() {
    reactor().run(async {
        let (kernel, volume) = (SimulatedKernel::new(), MemoryVolume::new(1 << 20, 512));
        let queue = UblkQueue::start(volume.clone(), kernel.clone(), DEPTH);
        kernel.memory(1).copy_from(0, &[7; 1024]);
        kernel.ask(1, UblkOperation::Write, 4096, 1024);
        settle().await;
        kernel.ask(2, UblkOperation::Read, 4096 + 512, 1024);
        kernel.ask(3, UblkOperation::Flush, 0, 0);
        settle().await;
        let mut read = [1; 1024];
        kernel.memory(2).copy_to(0, &mut read);
        assert_eq!(read, [[7; 512], [0; 512]].concat()[..]);
        kernel.ask(1, UblkOperation::Discard, 4096, 512);
        kernel.ask(1, UblkOperation::WriteZeroes, 4096, 512);
        kernel.ask(1, UblkOperation::Read, 4096, 512);
        settle().await;
        kernel.memory(1).copy_to(0, &mut read[..512]);
        assert_eq!(read[..512], [0; 512]);
        assert_eq!(kernel.results(1), [1024, 0, 0, 512]);
        assert_eq!((kernel.results(2), kernel.results(3)), (vec![1024], vec![0]));
        let done = volume.counters();
        assert_eq!((done.reads, done.writes, done.flushes, done.discards, done.zeroes), (2, 1, 1, 1, 1));
        // A durable write (FUA) is flushed before it is completed.
        kernel.give(
            0,
            Ok(UblkRequest { operation: UblkOperation::Write, durable: true, offset: 0, length: 512 }),
        );
        settle().await;
        assert_eq!((kernel.results(0), volume.counters().flushes), (vec![512], 2));
        drop(queue);
    });
}

#[test]
fn failed_requests_return_an_error_number() {
    reactor().run(async {
        let (kernel, volume) = (SimulatedKernel::new(), MemoryVolume::new(1 << 20, 512));
        let _queue = UblkQueue::start(volume.clone(), kernel.clone(), DEPTH);
        kernel.ask(0, UblkOperation::Other(4), 0, 512);
        kernel.ask(0, UblkOperation::Read, 1 << 20, 512);
        kernel.ask(0, UblkOperation::Write, 0, BYTES as u64 + 512);
        kernel.ask(0, UblkOperation::Write, 0, u64::MAX - 511);
        kernel.ask(0, UblkOperation::Discard, u64::MAX - 511, u64::MAX - 511);
        settle().await;
        volume.set_read_only(true);
        kernel.ask(0, UblkOperation::Write, 0, 512);
        settle().await;
        let expected =
            [Errno::OPNOTSUPP, Errno::INVAL, Errno::INVAL, Errno::INVAL, Errno::INVAL, Errno::ROFS];
        assert_eq!(kernel.results(0), expected.map(|errno| -errno.raw_os_error()));
    });
}

#[test]
fn a_queue_that_is_left_only_completes_begun_requests() {
    reactor().run(async {
        let (kernel, volume) = (SimulatedKernel::new(), MemoryVolume::new(1 << 20, 512));
        let queue = UblkQueue::start(volume.clone(), kernel.clone(), DEPTH);
        volume.faults().hold_writes();
        kernel.ask(0, UblkOperation::Write, 0, 512);
        settle().await;
        let left = Rc::new(Cell::new(false));
        let (leaving, done) = (queue.clone(), left.clone());
        let task = Reactor::current().spawn(async move {
            leaving.leave().await;
            done.set(true);
        });
        kernel.ask(1, UblkOperation::Write, 512, 512);
        settle().await;
        assert!(!left.get() && kernel.results(0).is_empty());
        volume.faults().release_writes();
        task.await;
        assert_eq!((kernel.results(0), kernel.results(1)), (vec![512], vec![]));
        // The next request of that tag stays with the kernel as well.
        kernel.ask(0, UblkOperation::Write, 0, 512);
        settle().await;
        assert_eq!((kernel.results(0), volume.counters().writes), (vec![512], 1));
    });
}

#[test]
fn a_deleted_device_ends_its_queues() {
    reactor().run(async {
        let (kernel, volume) = (SimulatedKernel::new(), MemoryVolume::new(1 << 20, 512));
        let queue = UblkQueue::start(volume, kernel.clone(), DEPTH);
        kernel.ask(0, UblkOperation::Read, 0, 512);
        for tag in 0..DEPTH {
            kernel.give(tag, Err(DeviceGone));
        }
        queue.ended().await;
        assert_eq!(kernel.results(0), [512]);
        queue.leave().await;
    });
}
