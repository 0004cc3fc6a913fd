//! Reservations, their events, and asymmetric access.

use std::sync::Arc;

use export::nvme::NvmeLimits;
use reactor::Backend;

use crate::initiator::{HOST, PLAIN, Queue, Sqe, host_id, u16_of, u32_of};
use crate::store::Store;
use crate::support::block_on;
use crate::target::{SUBSYSTEM, Target, on_each_backend};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";
const CONFLICT: u16 = 0x83;
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE: u8 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 3;
const EXCLUSIVE_ALL: u8 = 6;

/// A host with an admin queue and an I/O queue.
struct Host {
    admin: Queue,
    queue: Queue,
}

impl Host {
    fn new(target: &Target, name: &'static str) -> Self {
        let admin = Queue::admin_of(name, target.address, SUBSYSTEM, PLAIN);
        let queue = admin.io(SUBSYSTEM, 1);
        Self { admin, queue }
    }

    fn change(&mut self, opcode: u8, flags: u32, keys: [u64; 2]) -> u16 {
        let keys = keys.map(u64::to_le_bytes).concat();
        let keys = if opcode == 0x15 { &keys[..8] } else { &keys };
        self.queue.send(Sqe::new(opcode, 1).word(10, flags), keys)
    }

    /// Registers a key. `persistence`: 0 for no change, 2 to end it, 3 to begin it.
    fn register(&mut self, key: u64, persistence: u32) -> u16 {
        self.change(0x0d, persistence << 30, [0, key])
    }

    fn acquire(&mut self, key: u64, kind: u8) -> u16 {
        self.change(0x11, u32::from(kind) << 8, [key, 0])
    }

    fn preempt(&mut self, action: u32, key: u64, victim: u64, kind: u8) -> u16 {
        self.change(0x11, action | u32::from(kind) << 8, [key, victim])
    }

    fn release(&mut self, key: u64, kind: u8) -> u16 {
        self.change(0x15, u32::from(kind) << 8, [key, 0])
    }

    fn clear(&mut self, key: u64) -> u16 {
        self.change(0x15, 1, [key, 0])
    }

    fn report(&mut self) -> Vec<u8> {
        let report = Sqe::new(0x0e, 1).word(10, 1024 / 4 - 1).word(11, 1);
        self.queue.fetch(report, 1024).unwrap()
    }

    /// The type of the reservation, and whether each registrant is a holder, with its key.
    fn state(&mut self) -> (u8, Vec<(u8, u64)>) {
        let data = self.report();
        let entries = data[64..].chunks(64).take(usize::from(u16_of(&data, 5)));
        let key = |entry: &[u8]| u64::from_le_bytes(entry[8..16].try_into().unwrap());
        (data[4], entries.map(|entry| (entry[2], key(entry))).collect())
    }

    /// Tries a read and a write. Returns which of them reservations admit.
    fn access(&mut self) -> (bool, bool) {
        let read = self.queue.read(0, 1).map_or_else(|status| status, |_| 0);
        let write = self.queue.write(0, &[1; 512]);
        assert!([0, CONFLICT].contains(&read) && [0, CONFLICT].contains(&write), "{read:#x} {write:#x}");
        (read == 0, write == 0)
    }

    /// The oldest event of the log: its type, and the number of further ones.
    fn notice(&mut self) -> (u8, u8) {
        let page = Sqe::new(2, u32::MAX).word(10, 0x80 | 15 << 16);
        let data = self.admin.fetch(page, 64).unwrap();
        assert_eq!(u32_of(&data, 12), u32::from(data[8] != 0));
        (data[8], data[9])
    }
}

fn pair(target: &Target) -> (Host, Host) {
    (Host::new(target, HOST), Host::new(target, OTHER))
}

#[test]
fn types_restrict_other_hosts() {
    on_each_backend(|target| {
        let (mut first, mut other) = pair(target);
        for (kind, stranger, registrant) in [
            (WRITE_EXCLUSIVE, (true, false), (true, false)),
            (EXCLUSIVE, (false, false), (false, false)),
            (WRITE_EXCLUSIVE_REGISTRANTS, (true, false), (true, true)),
            (4, (false, false), (true, true)),
            (5, (true, false), (true, true)),
            (EXCLUSIVE_ALL, (false, false), (true, true)),
        ] {
            assert_eq!(first.acquire(0, kind), CONFLICT, "not registered");
            assert_eq!(first.register(1, 0), 0);
            assert_eq!(first.acquire(2, kind), CONFLICT, "a wrong key");
            assert_eq!(first.acquire(1, kind), 0);
            assert_eq!((first.access(), other.access()), ((true, true), stranger), "type {kind}");
            // Commands without data, copies, and the write of a fused pair.
            let flush = other.queue.run(Sqe::new(0, 1)).status;
            let zero = other.queue.run(Sqe::new(8, 1).blocks(0, 1)).status;
            let all = other.queue.run(Sqe::new(0, u32::MAX)).status;
            let verify = other.queue.run(Sqe::new(0x0c, 1).blocks(0, 1)).status;
            let of = |is_admitted: bool| if is_admitted { 0 } else { CONFLICT };
            assert_eq!(
                [flush, zero, all, verify],
                [of(stranger.1), of(stranger.1), of(stranger.1), of(stranger.0)]
            );
            let fused = |opcode: u8, part: u8| Sqe::new(opcode, 1).blocks(0, 1).put(1, &[part]);
            other.queue.submit(fused(5, 0x41), &[1; 512], 8192);
            other.queue.submit(fused(1, 0x42), &[1; 512], 8192);
            let statuses = [other.queue.complete(&[]).status, other.queue.complete(&[]).status];
            assert_eq!(statuses.contains(&CONFLICT), !stranger.1, "{statuses:x?}");
            assert_eq!(other.register(2, 0), 0);
            assert_eq!(other.access(), registrant, "type {kind}");
            assert_eq!(other.state(), (kind, vec![(1, 1), (u8::from(kind > 4), 2)]));
            assert_eq!(first.clear(1), 0);
            assert_eq!(other.state(), (0, vec![]));
            assert_eq!(other.access(), (true, true));
        }
    });
}

#[test]
fn registrations_are_made_replaced_and_ended() {
    on_each_backend(|target| {
        let (mut first, _other) = pair(target);
        assert_eq!(first.register(0, 0), 0x02);
        assert_eq!(first.register(1, 0), 0);
        assert_eq!(first.register(1, 0), 0, "the same key again");
        assert_eq!(first.register(2, 0), CONFLICT);
        assert_eq!(first.register(3, 1), 0x02, "a reserved value");
        assert_eq!(first.change(0x0d, 2, [9, 3]), CONFLICT, "a wrong key");
        assert_eq!(first.change(0x0d, 2, [1, 3]), 0);
        assert_eq!(first.change(0x0d, 2 | 8, [0, 4]), 0, "the existing key is ignored");
        let report = first.report();
        assert_eq!((u16_of(&report, 64), &report[80..96]), (first.admin.controller, &host_id(HOST)[..]));
        assert_eq!(first.state().1, [(0, 4)]);
        assert_eq!(first.change(0x0d, 1, [3, 0]), CONFLICT);
        assert_eq!(first.change(0x0d, 1, [4, 0]), 0);
        assert_eq!(first.change(0x0d, 1, [4, 0]), CONFLICT, "not registered any more");
        // Unknown actions and types, and data that is too short.
        assert_eq!(first.register(1, 0), 0);
        for (opcode, flags) in [(0x0d, 3), (0x11, 1 << 8 | 3), (0x11, 7 << 8), (0x11, 0), (0x15, 2)] {
            assert_eq!(first.change(opcode, flags, [1, 1]), 0x02, "{opcode:#x} {flags:#x}");
        }
        assert_eq!(first.queue.send(Sqe::new(0x0d, 1), &[0; 8]), 0x0f);
        assert_eq!(first.queue.run(Sqe::new(0x11, 1)).status, 0x0f);
        assert_eq!(first.queue.send(Sqe::new(0x0d, 9), &[0; 16]), 0x0b);
        // The short structure has no place for the identifier.
        assert_eq!(first.queue.fetch(Sqe::new(0x0e, 1).word(10, 15), 64), Err(0x18));
        assert_eq!(first.queue.fetch(Sqe::new(0x0e, 1).word(10, 15).word(11, 1), 128), Err(0x0f));
        let namespace = first.admin.fetch(Sqe::new(6, 1).word(10, 0), 4096).unwrap();
        assert_eq!(namespace[31], 0xff);
    });
}

#[test]
fn events_are_reported_to_the_affected_hosts() {
    on_each_backend(|target| {
        let (mut first, mut other) = pair(target);
        assert_eq!((first.register(1, 0), other.register(2, 0)), (0, 0));
        assert_eq!(other.notice(), (0, 0));
        let request = other.admin.submit(Sqe::new(0x0c, 0), &[], 0);
        assert_eq!(first.acquire(1, WRITE_EXCLUSIVE_REGISTRANTS), 0);
        assert_eq!(first.release(1, EXCLUSIVE), 0x02, "another type");
        assert_eq!(first.release(1, WRITE_EXCLUSIVE_REGISTRANTS), 0);
        let event = other.admin.complete(&[]);
        assert_eq!((event.id, event.status, event.result), (request, 0, 6 | 0x80 << 16));
        // Further events wait for the page to be read.
        assert_eq!((first.acquire(1, EXCLUSIVE), first.preempt(1, 1, 2, EXCLUSIVE)), (0, 0));
        assert_eq!(other.notice(), (2, 1));
        let request = other.admin.submit(Sqe::new(0x0c, 0), &[], 0);
        assert_eq!(other.admin.complete(&[]).id, request);
        assert_eq!(other.notice(), (1, 0));
        assert_eq!(other.notice(), (0, 0));
        assert_eq!(first.state(), (EXCLUSIVE, vec![(1, 1)]));
        // Events that the host does not want.
        assert_eq!(other.register(2, 0), 0);
        let mask = Sqe::new(9, 1).word(10, 0x82).word(11, 1 << 3);
        assert_eq!(other.admin.run(mask).status, 0);
        assert_eq!(other.admin.run(Sqe::new(0x0a, 1).word(10, 0x82)).result, 1 << 3);
        assert_eq!(first.clear(1), 0);
        assert_eq!(other.notice(), (0, 0));
    });
}

#[test]
fn a_preemption_with_abort_waits_for_the_commands_of_the_preempted() {
    on_each_backend(|target| {
        let (mut first, mut other) = pair(target);
        assert_eq!((first.register(1, 0), other.register(2, 0)), (0, 0));
        assert_eq!(other.acquire(2, EXCLUSIVE), 0);
        block_on(target.source.with(|volume| volume.faults().hold_writes())).unwrap();
        let write = other.queue.submit(Sqe::new(1, 1).blocks(0, 1), &[7; 512], 8192);
        let held = || block_on(target.source.with(|volume| volume.faults().held_writes())).unwrap();
        while held() == 0 {
            std::thread::yield_now();
        }
        let keys = [1u64, 2].map(u64::to_le_bytes).concat();
        let preempt = Sqe::new(0x11, 1).word(10, 2 | u32::from(EXCLUSIVE) << 8);
        let id = first.queue.submit(preempt, &keys, 8192);
        // The preemption takes place, and is not complete.
        while first.state().1 != [(1, 1)] {
            std::thread::yield_now();
        }
        block_on(target.source.with(|volume| volume.faults().release_writes())).unwrap();
        assert_eq!((other.queue.complete(&[]).id, first.queue.complete(&[]).id), (write, id));
        assert_eq!(other.access(), (false, false));
        assert_eq!(first.queue.read(0, 1).unwrap(), [7; 512]);
    });
}

#[test]
fn persistent_reservations_survive_a_restart() {
    for backend in [Backend::Uring, Backend::Threads] {
        let store = Arc::new(Store::default());
        let mut target = Target::with_store(backend, NvmeLimits::default(), &[], Some(store.clone()));
        let (mut first, _other) = pair(&target);
        let persists = Sqe::new(0x0a, 1).word(10, 0x83);
        assert_eq!(first.admin.run(persists.clone()).result, 0);
        assert_eq!((first.register(0xabc, 3), first.acquire(0xabc, EXCLUSIVE)), (0, 0));
        assert_eq!((first.admin.run(persists.clone()).result, first.report()[9]), (1, 1));
        target.restart(store.clone());
        let (mut first, mut other) = pair(&target);
        assert_eq!((first.access(), other.access()), ((true, true), (false, false)));
        assert_eq!(other.state(), (EXCLUSIVE, vec![(1, 0xabc)]));
        // A change that cannot be stored does not take place.
        store.fail(true);
        assert_eq!(first.clear(0xabc), 0x06);
        assert_eq!(other.access(), (false, false));
        store.fail(false);
        // Without persistence, the reservation ends with the process.
        let set = Sqe::new(9, 1).word(10, 0x83);
        assert_eq!(other.admin.run(set.clone()).status, CONFLICT);
        assert_eq!(first.admin.run(set).status, 0);
        target.restart(store);
        let (_first, mut other) = pair(&target);
        assert_eq!((other.access(), other.state()), ((true, true), (0, vec![])));
    }
}

#[test]
fn all_namespaces_belong_to_one_optimized_group() {
    on_each_backend(|target| {
        let _second = target.add(2, &[]);
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let controller = admin.fetch(Sqe::new(6, 0).word(10, 1), 4096).unwrap();
        assert_eq!((controller[76] & 8, controller[343] & 1), (8, 1));
        assert_eq!((u32_of(&controller, 344), u32_of(&controller, 348)), (1, 1));
        assert!(controller[342] > 0 && u32_of(&controller, 540) == u32_of(&controller, 516));
        let namespace = admin.fetch(Sqe::new(6, 2).word(10, 0), 4096).unwrap();
        assert_eq!(u32_of(&namespace, 92), 1);
        let page = |flags: u32| Sqe::new(2, u32::MAX).word(10, 0x0c | flags << 8 | 15 << 16);
        let log = admin.fetch(page(0), 64).unwrap();
        assert_eq!((u16_of(&log, 8), u32_of(&log, 16), u32_of(&log, 20), log[32]), (1, 1, 2, 1));
        assert_eq!((u32_of(&log, 48), u32_of(&log, 52)), (1, 2));
        let groups = admin.fetch(page(1), 64).unwrap();
        assert_eq!((u16_of(&groups, 8), u32_of(&groups, 16), u32_of(&groups, 20), groups[32]), (1, 1, 0, 1));
    });
}
