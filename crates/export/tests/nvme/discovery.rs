//! The discovery service: its addresses, its log, and the events for changes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use export::nvme::{NvmeConfig, NvmeDiscovery, NvmeFrontend, NvmeLimits};
use export::{ExportErrorKind, ExportName, Frontend, MemorySource, StopMode};
use reactor::Backend;

use crate::initiator::{Completion, DISCOVERY, HOST, PLAIN, Queue, Sqe, u16_of, u32_of};
use crate::support::{ReactorThread, TIMEOUT};
use crate::target::{SUBSYSTEM, Target, any, block_on, config, frontend_config, on_each_backend};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";

/// An entry of the log: type of the subsystem, name and address.
type Entry = (u8, String, String);

/// The generation and the entries of the discovery log.
fn log(admin: &mut Queue) -> (u32, Vec<Entry>) {
    let header = admin.fetch(page(16, 0), 16).unwrap();
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    };
    let entry = |number: u32| {
        let entry = admin.fetch(page(1024, (number + 1) * 1024), 1024).unwrap();
        assert_eq!((entry[0], entry[1]), (3, 1), "TCP, IPv4");
        assert_eq!(entry[3], 4, "no secure channel, and flow control can be disabled");
        assert_eq!(u16_of(&entry, 6), 0xffff, "any controller");
        assert_eq!(u16_of(&entry, 10), if entry[2] == 3 { 2 } else { 0 }, "persistent connections");
        let address = format!("{}:{}", text(&entry[512..]), text(&entry[32..64]).trim());
        (entry[2], text(&entry[256..]), address)
    };
    (u32_of(&header, 0), (0..u32_of(&header, 8)).map(entry).collect())
}

fn page(length: u32, offset: u32) -> Sqe {
    Sqe::new(2, 0).word(10, 0x70 | (length / 4 - 1) << 16).word(12, offset)
}

/// A part of the log that does not acknowledge its event.
fn retaining(length: u32) -> Sqe {
    Sqe::new(2, 0).word(10, 0x70 | 1 << 15 | (length / 4 - 1) << 16)
}

fn enable_events(admin: &mut Queue) {
    assert_eq!(admin.run(Sqe::new(9, 0).word(10, 0x0b).word(11, 1 << 31)).status, 0);
}

fn request_event(admin: &mut Queue) -> u16 {
    admin.submit(Sqe::new(0x0c, 0), &[], 0)
}

/// True for the event that reports a change of the log.
fn is_change(done: &Completion, request: u16) -> bool {
    (done.id, done.status, done.result) == (request, 0, 2 | 0xf0 << 8 | 0x70 << 16)
}

/// A keep alive command is answered, and no event arrives before its answer.
fn has_no_event(admin: &mut Queue) {
    assert_eq!(admin.run(Sqe::new(0x18, 0)).status, 0);
}

fn disk_at(address: SocketAddr) -> Entry {
    (2, SUBSYSTEM.to_owned(), address.to_string())
}

fn itself_at(address: SocketAddr) -> Entry {
    (3, DISCOVERY.to_owned(), address.to_string())
}

/// An address that no process uses now.
fn free_address() -> SocketAddr {
    TcpListener::bind(any()).unwrap().local_addr().unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_log_lists_the_subsystems_of_a_host() {
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[HOST]);
    let mut admin = Queue::admin(target.address, DISCOVERY, PLAIN);
    let controller = admin.fetch(Sqe::new(6, 0).word(10, 1), 4096).unwrap();
    assert_eq!(controller[111], 2, "a discovery controller");
    assert_eq!(u32_of(&controller, 92), 1 << 31, "events");
    assert!(u16_of(&controller, 320) > 0, "keep alive");
    let (generation, entries) = log(&mut admin);
    assert_eq!(entries, [itself_at(target.address), disk_at(target.address)]);
    let mut other = Queue::admin_of(OTHER, target.address, DISCOVERY, PLAIN);
    assert_eq!(log(&mut other).1, [itself_at(target.address)]);
    // A second address of the subsystem, for all hosts.
    let second = target.add_with(2, &config(any(), 2, &[])).unwrap();
    let uri = second.listeners()[0].clone();
    let address: SocketAddr =
        uri.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap().parse().unwrap();
    let (later, entries) = log(&mut admin);
    assert!(later > generation);
    let mut expected = [disk_at(target.address), disk_at(address)];
    expected.sort();
    let mut disks = entries[1..].to_vec();
    disks.sort();
    assert_eq!(disks, expected);
    assert_eq!(log(&mut other).1[1..], [disk_at(address)]);
    block_on(second.stop(StopMode::Orderly)).unwrap();
}

#[test]
fn other_commands_are_refused() {
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[]);
    let mut admin = Queue::admin(target.address, DISCOVERY, PLAIN);
    assert_eq!(admin.fetch(Sqe::new(6, 1).word(10, 0), 4096), Err(0x02));
    assert_eq!(admin.run(Sqe::new(8, 0)).status, 0x01);
    assert_eq!(admin.fetch(Sqe::new(2, 0).word(10, 2 | 127 << 16), 512), Err(0x109));
    let mut queue = Queue::negotiated(target.address, PLAIN);
    let done = queue.connect(DISCOVERY, HOST, 1, admin.controller, 0);
    assert_eq!((done.status, done.result), (0x182, 42));
    assert_eq!(log(&mut admin).1.len(), 2);
}

#[test]
fn changes_are_reported_once_until_the_log_was_read() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, DISCOVERY, PLAIN);
        let (before, _) = log(&mut admin);
        enable_events(&mut admin);
        let request = request_event(&mut admin);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        assert!(is_change(&admin.complete(&[]), request));
        let (after, entries) = log(&mut admin);
        assert!(after > before && entries.len() == 1, "{entries:?}");
        let request = request_event(&mut admin);
        let second = target.add(1, &[]);
        assert!(is_change(&admin.complete(&[]), request));
        // Not reported again before the log was read, unless the event is retained.
        let request = request_event(&mut admin);
        block_on(second.stop(StopMode::Orderly)).unwrap();
        has_no_event(&mut admin);
        admin.fetch(retaining(16), 16).unwrap();
        let third = target.add(1, &[]);
        has_no_event(&mut admin);
        assert_eq!(log(&mut admin).1.len(), 2);
        block_on(third.stop(StopMode::Orderly)).unwrap();
        assert!(is_change(&admin.complete(&[]), request));
    });
}

#[test]
fn a_change_before_events_are_enabled_is_reported() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, DISCOVERY, PLAIN);
        log(&mut admin);
        let request = request_event(&mut admin);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        has_no_event(&mut admin);
        let enable = admin.submit(Sqe::new(9, 0).word(10, 0x0b).word(11, 1 << 31), &[], 0);
        let done = [admin.complete(&[]), admin.complete(&[])];
        assert!(done.iter().any(|done| done.id == enable && done.status == 0), "{done:?}");
        assert!(done.iter().any(|done| is_change(done, request)), "{done:?}");
    });
}

#[test]
fn a_host_learns_of_changes_of_its_own_log_only() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, DISCOVERY, PLAIN);
        let mut other = Queue::admin_of(OTHER, target.address, DISCOVERY, PLAIN);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        let _own = target.add(1, &[HOST]);
        for admin in [&mut admin, &mut other] {
            log(admin);
            enable_events(admin);
            request_event(admin);
            has_no_event(admin);
        }
        // Another host's namespace.
        let second = target.add(2, &[OTHER]);
        assert_eq!(other.complete(&[]).result >> 8 & 0xff, 0xf0);
        has_no_event(&mut admin);
        assert_eq!(log(&mut other).1.len(), 2);
        // A further namespace at the same address.
        request_event(&mut other);
        let _third = target.add(3, &[OTHER, HOST]);
        has_no_event(&mut other);
        block_on(second.stop(StopMode::Orderly)).unwrap();
        has_no_event(&mut other);
        has_no_event(&mut admin);
    });
}

#[test]
fn persistent_connections_are_kept_and_idle_ones_are_not() {
    let limits = NvmeLimits { discovery_idle: Duration::from_millis(200), ..NvmeLimits::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, limits.clone(), &[]);
        let mut kept = Queue::negotiated(target.address, PLAIN);
        assert_eq!(kept.connect(DISCOVERY, HOST, 0, 0xffff, 60_000).status, 0);
        // Commands restart the time of a host without a keep alive time.
        let mut idle = Queue::admin(target.address, DISCOVERY, PLAIN);
        let end = Instant::now() + Duration::from_millis(600);
        while Instant::now() < end {
            assert_eq!(log(&mut idle).1.len(), 2);
        }
        assert_eq!(idle.read_to_end(), 0);
        kept.enable();
        assert_eq!(log(&mut kept).1.len(), 2);
        // An I/O controller without a keep alive time stays.
        let mut disk = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut silent = Queue::negotiated(target.address, PLAIN);
        assert_eq!(silent.connect(DISCOVERY, HOST, 0, 0xffff, 50).status, 0);
        assert_eq!(silent.read_to_end(), 0);
        assert_eq!(disk.run(Sqe::new(0x18, 0)).status, 0);
    }
}

#[test]
fn the_port_of_discovery_is_open_while_there_are_exports() {
    for backend in [Backend::Uring, Backend::Threads] {
        let discovery = free_address();
        let target = Target::with_discovery(backend, NvmeDiscovery::Port(discovery.port()));
        let mut admin = Queue::admin(discovery, DISCOVERY, PLAIN);
        assert_eq!(log(&mut admin).1, [itself_at(discovery), disk_at(target.address)]);
        // It serves nothing else.
        let done = Queue::negotiated(discovery, PLAIN).connect(SUBSYSTEM, HOST, 0, 0xffff, 0);
        assert_eq!(done.status, 0x182);
        // The first of two exports ends.
        let second = target.add(2, &[]);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        let mut admin = Queue::admin(discovery, DISCOVERY, PLAIN);
        assert_eq!(log(&mut admin).1.len(), 2);
        enable_events(&mut admin);
        let request = request_event(&mut admin);
        block_on(second.stop(StopMode::Orderly)).unwrap();
        until("the port is closed", || TcpStream::connect(discovery).is_err());
        // An earlier connection is still served.
        assert!(is_change(&admin.complete(&[]), request));
        assert_eq!(log(&mut admin).1, [itself_at(discovery)]);
        let _third = target.add(1, &[]);
        assert_eq!(log(&mut Queue::admin(discovery, DISCOVERY, PLAIN)).1.len(), 2);
    }
}

#[test]
fn a_port_in_use_does_not_hinder_exports_and_is_retried() {
    for backend in [Backend::Uring, Backend::Threads] {
        let holder = TcpListener::bind(any()).unwrap();
        let discovery = holder.local_addr().unwrap();
        let target = Target::with_discovery(backend, NvmeDiscovery::Port(discovery.port()));
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        assert_eq!(admin.run(Sqe::new(0x18, 0)).status, 0);
        drop(holder);
        until("the port is open", || TcpStream::connect(discovery).is_ok());
        assert_eq!(log(&mut Queue::admin(discovery, DISCOVERY, PLAIN)).1.len(), 2);
    }
}

#[test]
fn configured_addresses_are_open_from_the_start() {
    for backend in [Backend::Uring, Backend::Threads] {
        let thread = ReactorThread::start(backend);
        let discovery = free_address();
        let of_all = NvmeConfig {
            discovery: NvmeDiscovery::Addresses(vec![discovery]),
            ..frontend_config(NvmeLimits::default(), None)
        };
        let frontend =
            block_on(NvmeFrontend::<MemorySource>::start(of_all.clone(), &thread.context())).unwrap();
        let mut admin = Queue::admin(discovery, DISCOVERY, PLAIN);
        assert_eq!(log(&mut admin).1, [itself_at(discovery)]);
        // A second server at the same address.
        let error = block_on(NvmeFrontend::<MemorySource>::start(of_all, &thread.context())).err().unwrap();
        assert_eq!(error.kind(), ExportErrorKind::Busy, "{error}");
        assert!(format!("{error:?}").contains("nvme.discovery"), "{error:?}");
        block_on(frontend.shut_down());
        until("the address is closed", || TcpStream::connect(discovery).is_err());
    }
}

#[test]
fn exports_that_wait_for_an_address_share_it() {
    on_each_backend(|target| {
        let holder = TcpListener::bind(any()).unwrap();
        let address = holder.local_addr().unwrap();
        let sources = [target.memory(), target.memory()];
        let configs = [2, 3].map(|unit| config(address, unit, &[]));
        let names = ["fast/vm2", "fast/vm3"].map(ExportName::new);
        let start = |at: usize| target.frontend.start(&names[at], &configs[at], sources[at].clone());
        let mut starts = [start(0), start(1)];
        for start in &mut starts {
            assert!(start.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        // Both have tried to listen.
        target.settle();
        drop(holder);
        let started = starts.map(|start| block_on(start).map(drop));
        assert!(started.iter().all(Result::is_ok), "{started:?}");
    });
}
