//! A queue over a volume in memory: order, results, invalid guests, a daemon that dies.

use std::io::Read;
use std::os::fd::AsFd;

use reactor::{Clock, ParkDriver, SystemClock};
use rustix::event::EventfdFlags;

use super::super::inflight::{InflightRegion, new_region, region_bytes};
use super::super::memory::RegionLayout;
use super::super::testing::{Driver, GUEST, Guest, USER, header};
use super::*;
use crate::{MemoryVolume, VolumeErrorKind};

const LEN: u64 = 4 << 20;
const SIZE: u16 = 16;
const HEADERS: u64 = GUEST + 8 * 4096;
const STATUSES: u64 = GUEST + 9 * 4096;
const DATA: u64 = GUEST + 16 * 4096;

struct QueueFixture {
    driver: Driver,
    volume: MemoryVolume,
    reactor: Reactor,
    region: InflightRegion,
    call: OwnedFd,
    err: OwnedFd,
}

fn event() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// Returns how often an event was raised since the last call.
#[allow(clippy::host_endian_bytes, reason = "the kernel writes a number of this machine")]
fn raised(event: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(event, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(_) => 0,
    }
}

fn memory(guest: &Guest) -> GuestMemory {
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap()
}

impl QueueFixture {
    fn new() -> Self {
        let guest = Guest::new(LEN);
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let file = new_region(region_bytes(1, SIZE).unwrap()).unwrap();
        Self {
            driver: Driver::new(&guest, GUEST, SIZE),
            volume: MemoryVolume::new(1 << 20, 512),
            reactor: Reactor::new(ParkDriver::new(clock.clone()), clock),
            region: InflightRegion::new(file.as_fd(), 0, 1, SIZE).unwrap(),
            call: event(),
            err: event(),
        }
    }

    fn addresses(&self) -> RingAddresses {
        let user = |guest| guest - GUEST + USER;
        RingAddresses {
            descriptors: user(self.driver.table()),
            available: user(self.driver.available()),
            used: user(self.driver.used()),
            log: None,
        }
    }

    /// Returns the queue of a daemon that has just started.
    fn queue(&self, log: Option<Arc<DirtyLog>>) -> Rc<VirtQueue<MemoryVolume>> {
        self.queue_of(log, None)
    }

    /// Returns the same queue, with a front end that can be cut off.
    fn queue_of(
        &self,
        log: Option<Arc<DirtyLog>>,
        front_end: Option<Arc<UnixStream>>,
    ) -> Rc<VirtQueue<MemoryVolume>> {
        let start = QueueSetup {
            index: 0,
            addresses: RingAddresses { log: log.as_ref().map(|_| self.driver.used()), ..self.addresses() },
            size: SIZE,
            next: 0,
            event_index: true,
            enabled: true,
            memory: memory(&self.driver.guest),
            inflight: Some(self.region.queue(0, SIZE).unwrap()),
            log,
            call: Some(Arc::new(self.call.try_clone().unwrap())),
            err: Some(Arc::new(self.err.try_clone().unwrap())),
            options: DeviceOptions { write_through: false, id: [b'x'; 20] },
            front_end,
            name: "test".into(),
        };
        let volume = self.volume.clone();
        self.on(|_| VirtQueue::new(start, volume).unwrap())
    }

    /// Runs something on the reactor, and then lets its tasks run.
    fn on<T>(&self, work: impl FnOnce(&Reactor) -> T) -> T {
        self.reactor.run(async {
            let result = work(&self.reactor);
            for _ in 0..8 {
                self.reactor.yield_now().await;
            }
            result
        })
    }

    fn process(&self, queue: &Rc<VirtQueue<MemoryVolume>>) -> bool {
        self.on(|_| queue.process(&Dispatcher::new(VirtQueue::execute_request)))
    }

    /// Makes a request of 512 bytes available. Its chain takes three descriptors from `head` on.
    fn request(&mut self, head: u16, kind: u32, sector: u64) {
        let slot = u64::from(head);
        self.driver.guest.write(HEADERS + slot * 16, &header(kind, sector));
        self.driver.guest.write(STATUSES + slot, &[0xEE]);
        let parts = [
            (HEADERS + slot * 16, 16, false),
            (DATA + slot * 512, 512, kind == 0),
            (STATUSES + slot, 1, true),
        ];
        self.driver.chain(head, &parts);
        self.driver.add(head);
    }

    fn status(&self, head: u16) -> u8 {
        self.driver.guest.read(STATUSES + u64::from(head), 1)[0]
    }
}

#[test]
fn written_data_is_read_back() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    assert!(!setup.process(&queue));
    setup.driver.guest.write(DATA, &[7; 512]);
    setup.request(0, 1, 3);
    assert!(setup.process(&queue));
    assert_eq!(setup.driver.ended(), [(0, 1)]);
    assert_eq!(setup.status(0), 0);
    setup.request(3, 0, 3);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(3, 513)]);
    assert_eq!(setup.driver.guest.read(DATA + 3 * 512, 512), [7; 512]);
    assert!(!setup.process(&queue));
}

#[test]
fn requests_are_completed_in_any_order() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    raised(&setup.call);
    setup.volume.faults().hold_reads();
    setup.request(0, 0, 0);
    setup.process(&queue);
    setup.request(3, 1, 0);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(3, 1)]);
    queue.stop();
    assert!(!queue.has_stopped(), "stopped with a read in flight");
    setup.request(6, 1, 0);
    setup.on(|_| setup.volume.faults().release_reads());
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(0, 513)], "a request was taken after the stop");
    assert!(queue.has_stopped());
    assert_eq!(queue.next(), 2);
}

#[test]
fn failed_requests_get_an_error_status() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.volume.faults().fail_next_read(VolumeErrorKind::Io);
    setup.request(0, 0, 0);
    setup.request(3, 0, 2048);
    setup.request(6, 99, 0);
    setup.request(9, 0, 0);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(0, 1), (3, 1), (6, 1), (9, 513)]);
    assert_eq!([0, 3, 6, 9].map(|head| setup.status(head)), [1, 1, 2, 0]);
}

#[test]
fn an_invalid_chain_fails_only_its_own_request() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    // Data outside of the guest's memory. A status can be written.
    let bad = [(HEADERS, 16, false), (GUEST + LEN, 512, true), (STATUSES, 1, true)];
    setup.driver.guest.write(HEADERS, &header(0, 0));
    setup.driver.chain(0, &bad);
    setup.driver.add(0);
    // A loop without space for a status.
    setup.driver.chain(5, &[(HEADERS, 16, false), (HEADERS, 16, false)]);
    let looped = super::super::testing::Descriptor { address: HEADERS, len: 16, flags: 1, next: 5 };
    setup.driver.set(6, looped);
    setup.driver.add(5);
    setup.request(9, 0, 0);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(0, 1), (5, 0), (9, 513)]);
    assert_eq!((setup.status(0), setup.status(9)), (1, 0));
    assert_eq!(setup.volume.counters().reads, 1, "an invalid request was begun");
    assert_eq!(raised(&setup.err), 0);
}

#[test]
fn a_broken_queue_is_not_accessed() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.request(0, 0, 0);
    setup.driver.add(SIZE);
    setup.request(3, 0, 0);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(0, 513)]);
    assert_eq!(raised(&setup.err), 1);
    assert!(!setup.process(&queue));
    assert!(queue.arm(), "a broken queue needs no polling");
    queue.stop();
    assert!(queue.has_stopped());
}

#[test]
fn the_guest_is_interrupted_on_request() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    assert_eq!(raised(&setup.call), 1, "no interrupt at the start");
    setup.driver.want_interrupt(1);
    setup.request(0, 0, 0);
    setup.process(&queue);
    assert_eq!(raised(&setup.call), 0);
    setup.request(3, 0, 0);
    setup.request(6, 0, 0);
    setup.process(&queue);
    assert_eq!(raised(&setup.call), 1);
}

#[test]
fn a_disabled_queue_waits() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.on(|_| queue.set_enabled(false));
    setup.request(0, 0, 0);
    assert!(!setup.process(&queue));
    setup.on(|_| queue.set_enabled(true));
    assert!(setup.process(&queue));
    assert_eq!(setup.driver.ended(), [(0, 513)]);
}

#[test]
fn the_next_daemon_executes_incomplete_requests() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.driver.guest.write(DATA + 6 * 512, &[9; 512]);
    setup.volume.faults().hold_writes();
    setup.request(6, 1, 7);
    setup.process(&queue);
    setup.request(0, 0, 0);
    setup.process(&queue);
    setup.request(3, 1, 7);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(0, 513)]);
    // The daemon dies. Another one starts with the same memory, without the old one's tasks.
    setup.reactor.shut_down();
    drop(queue);
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    setup.reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    setup.volume = MemoryVolume::new(1 << 20, 512);
    setup.driver.guest.write(DATA + 3 * 512, &[3; 512]);
    let queue = setup.queue(None);
    setup.request(9, 0, 7);
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(6, 1), (3, 1), (9, 513)], "not in the order in which they were made");
    assert_eq!(setup.driver.guest.read(DATA + 9 * 512, 512), [3; 512]);
    assert_eq!(setup.volume.counters().writes, 2);
    assert!(!setup.process(&queue));
    queue.stop();
    assert_eq!(queue.next(), 4);
}

#[test]
fn incomplete_requests_are_executed_before_the_queue_stops() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.volume.faults().hold_writes();
    setup.request(0, 1, 7);
    setup.process(&queue);
    setup.reactor.shut_down();
    drop(queue);
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    setup.reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    setup.volume = MemoryVolume::new(1 << 20, 512);
    let queue = setup.queue(None);
    queue.stop();
    assert!(!queue.has_stopped(), "stopped with a request of the earlier daemon");
    setup.request(3, 1, 8);
    setup.process(&queue);
    assert!(queue.has_stopped());
    assert_eq!(setup.driver.ended(), [(0, 1)]);
    assert_eq!(queue.next(), 1);
}

#[test]
fn changed_memory_is_logged_before_completion() {
    let mut setup = QueueFixture::new();
    let log_file = Guest::new(4096);
    let log = Arc::new(DirtyLog::new(log_file.file.as_fd(), 0, 4096).unwrap());
    // The log starts at guest address 0: bit 0x40000 is the guest's first page, beyond these 4096
    // bytes.
    let queue = setup.queue(Some(log));
    setup.request(0, 0, 0);
    setup.process(&queue);
    assert_eq!(log_file.read(GUEST, 4096), vec![0; 4096]);
    let whole = Guest::new(64 << 10);
    let log = Arc::new(DirtyLog::new(whole.file.as_fd(), 0, 64 << 10).unwrap());
    let addresses = RingAddresses { log: Some(setup.driver.used()), ..setup.addresses() };
    setup.on(|_| queue.set_log(Some(log), addresses));
    setup.volume.faults().fail_next_read(VolumeErrorKind::Io);
    setup.request(8, 0, 0);
    setup.request(3, 1, 0);
    setup.process(&queue);
    let page = |address: u64| address / 4096;
    let marked = |address: u64| whole.read(GUEST + page(address) / 8, 1)[0] & 1 << (page(address) % 8) != 0;
    assert!(marked(DATA + 8 * 512), "a failed read may have changed the page");
    assert!(marked(STATUSES) && marked(setup.driver.used()));
    assert!(!marked(HEADERS) && !marked(DATA));
}

#[test]
fn requests_in_flight_keep_their_memory_table() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.volume.faults().hold_reads();
    setup.request(0, 0, 0);
    setup.process(&queue);
    let less = GuestMemory::empty();
    assert!(queue.set_memory(&less).is_err(), "the rings must stay mapped");
    setup.on(|_| queue.set_memory(&memory(&setup.driver.guest)).unwrap());
    setup.on(|_| setup.volume.faults().release_reads());
    setup.process(&queue);
    assert_eq!(setup.driver.ended(), [(0, 513)]);
}

#[test]
fn a_queue_with_removed_memory_completes_no_request() {
    for pages_left in [0, 8, 9, 16] {
        let mut setup = QueueFixture::new();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let queue = setup.queue_of(None, Some(Arc::new(ours)));
        // One request is in flight, and one arrives when the memory is gone: rings, headers,
        // statuses and data, or data only.
        setup.volume.faults().hold_reads();
        setup.request(0, 0, 0);
        setup.process(&queue);
        setup.request(3, 0, 0);
        setup.driver.guest.file.set_len(pages_left * 4096).unwrap();
        setup.on(|_| setup.volume.faults().release_reads());
        setup.process(&queue);
        assert!(!setup.process(&queue), "{pages_left}");
        assert_eq!(raised(&setup.err), 1, "{pages_left}");
        let mut end = [0];
        assert_eq!(theirs.read(&mut end).unwrap(), 0, "the front end was not cut off");
        // Requests without a reply are still marked as in flight, for the next connection.
        let incomplete = setup.region.queue(0, SIZE).unwrap().resume(0).incomplete;
        assert!(incomplete.contains(&0), "{pages_left}: {incomplete:?}");
        if pages_left > 8 {
            setup.driver.guest.file.set_len(LEN).unwrap();
            assert_eq!(setup.driver.ended(), [], "{pages_left}");
        }
        queue.stop();
        assert!(queue.has_stopped(), "{pages_left}");
    }
}

#[test]
fn a_write_of_removed_memory_is_not_acknowledged() {
    let mut setup = QueueFixture::new();
    let queue = setup.queue(None);
    setup.driver.guest.write(DATA, &[7; 512]);
    setup.request(0, 1, 3);
    setup.driver.guest.file.set_len(16 * 4096).unwrap();
    setup.process(&queue);
    setup.driver.guest.file.set_len(LEN).unwrap();
    assert_eq!(setup.driver.ended(), []);
    assert_eq!(setup.status(0), 0xEE);
    queue.stop();
    assert!(queue.has_stopped());
}
