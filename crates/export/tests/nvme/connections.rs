//! Connecting, disconnecting and the limits of hosts.

use std::time::Duration;

use export::nvme::NvmeLimits;
use export::{ExportConfig, ExportErrorKind, ExportName, Frontend, NetworkConfig, StopMode};
use reactor::Backend;

use crate::initiator::{DISCOVERY, HOST, PLAIN, Queue, Sqe, u32_of};
use crate::target::{SUBSYSTEM, Target, block_on, config, on_each_backend};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";

#[test]
fn invalid_connects_are_refused_with_the_field() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        for (subsystem, host, id, controller, expected) in [
            ("nqn.2014-08.org.example:other", HOST, 0, 0xffff, (0x182, 1 << 16 | 256)),
            ("fast/vm01", HOST, 0, 0xffff, (0x182, 1 << 16 | 256)),
            (SUBSYSTEM, "", 0, 0xffff, (0x182, 1 << 16 | 512)),
            (SUBSYSTEM, HOST, 0, 1, (0x182, 1 << 16 | 16)),
            (SUBSYSTEM, HOST, 1, 0xffff, (0x182, 1 << 16 | 16)),
            (SUBSYSTEM, OTHER, 1, admin.controller, (0x182, 1 << 16 | 16)),
            (SUBSYSTEM, HOST, 200, admin.controller, (0x182, 42)),
        ] {
            let mut queue = Queue::negotiated(target.address, PLAIN);
            let done = queue.connect(subsystem, host, id, controller, 0);
            assert_eq!((done.status, done.result), expected, "{subsystem} {host} {id} {controller}");
            assert_eq!(queue.read_to_end(), 0);
        }
        // An id that is in use.
        let _first = admin.io(SUBSYSTEM, 1);
        let mut second = Queue::negotiated(target.address, PLAIN);
        assert_eq!(second.connect(SUBSYSTEM, HOST, 1, admin.controller, 0).result, 42);
    });
}

#[test]
fn only_allowed_hosts_connect_and_see_their_namespaces() {
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[HOST]);
    let mut queue = Queue::negotiated(target.address, PLAIN);
    let done = queue.connect(SUBSYSTEM, OTHER, 0, 0xffff, 0);
    assert_eq!((done.status, done.result), (0x184, 1 << 16 | 512));
    // A namespace of the same subsystem for another host.
    let _second = target.add(2, &[OTHER]);
    let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
    let list = admin.fetch(Sqe::new(6, 0).word(10, 2), 4096).unwrap();
    assert_eq!((u32_of(&list, 0), u32_of(&list, 4)), (1, 0));
    let mut queue = admin.io(SUBSYSTEM, 1);
    assert_eq!(queue.send(Sqe::new(1, 2).blocks(0, 1), &[1; 512]), 0x0b);
    assert_eq!(queue.write(0, &[1; 512]), 0);
}

#[test]
fn a_reset_and_the_end_of_the_admin_queue_close_the_other_queues() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        assert_eq!(queue.write(0, &[1; 512]), 0);
        admin.set_configuration(0);
        assert_eq!(queue.read_to_end(), 0);
        assert_eq!(admin.property(0x1c, false) & 1, 0);
        let mut early = Queue::negotiated(target.address, PLAIN);
        assert_eq!(early.connect(SUBSYSTEM, HOST, 1, admin.controller, 0).status, 0x0c);
        admin.enable();
        let mut queue = admin.io(SUBSYSTEM, 1);
        assert_eq!(queue.read(0, 1).unwrap(), [1; 512]);
        // A shutdown is acknowledged.
        admin.set_configuration(6 << 16 | 4 << 20 | 1 | 1 << 14);
        assert_eq!(admin.property(0x1c, false) >> 2 & 3, 2);
        drop(admin);
        assert_eq!(queue.read_to_end(), 0);
    });
}

#[test]
fn a_disconnect_command_ends_one_queue() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let (mut first, mut second) = (admin.io(SUBSYSTEM, 1), admin.io(SUBSYSTEM, 2));
        assert_eq!(first.run(Sqe::new(0x7f, 8)).status, 0);
        assert_eq!(first.read_to_end(), 0);
        assert_eq!(second.write(0, &[1; 512]), 0);
        assert_eq!(admin.io(SUBSYSTEM, 1).read(0, 1).unwrap(), [1; 512]);
    });
}

#[test]
fn silent_hosts_are_disconnected_and_busy_ones_are_not() {
    on_each_backend(|target| {
        let mut silent = Queue::negotiated(target.address, PLAIN);
        assert_eq!(silent.connect(SUBSYSTEM, HOST, 0, 0xffff, 50).status, 0);
        let mut busy = Queue::negotiated(target.address, PLAIN);
        assert_eq!(busy.connect(SUBSYSTEM, HOST, 0, 0xffff, 60_000).status, 0);
        assert_eq!(silent.read_to_end(), 0);
        assert_eq!(busy.run(Sqe::new(0x18, 0)).status, 0);
    });
}

/// Waits for 50 ms, in which the target must not close the connection.
fn stays_open(queue: &Queue) {
    queue.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = queue.stream.peek(&mut [0]).expect_err("the connection was closed");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    queue.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
}

#[test]
fn an_idle_host_stays_connected_by_keep_alive_or_by_traffic() {
    on_each_backend(|target| {
        let mut admin = Queue::negotiated(target.address, PLAIN);
        assert_eq!(admin.connect(SUBSYSTEM, HOST, 0, 0xffff, 400).status, 0);
        admin.enable();
        let mut queue = admin.io(SUBSYSTEM, 1);
        // Three times the keep alive time, and more.
        for _ in 0..30 {
            stays_open(&admin);
            assert_eq!(admin.run(Sqe::new(0x18, 0)).status, 0);
        }
        for _ in 0..30 {
            stays_open(&admin);
            assert_eq!(queue.read(0, 1).unwrap(), [0; 512]);
        }
        // A silent host loses all its queues.
        assert_eq!(admin.read_to_end(), 0);
        assert_eq!(queue.read_to_end(), 0);
    });
}

#[test]
fn a_removed_export_ends_its_controllers_and_can_return() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        assert_eq!(queue.write(0, &[7; 512]), 0);
        assert_eq!(target.running.status().connections, 1);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        assert_eq!(queue.read_to_end(), 0);
        block_on(target.running.stop(StopMode::Orderly)).unwrap();
        let name = ExportName::new("fast/vm01");
        let again = config(target.address, 1, &[]);
        let running = block_on(target.frontend.start(&name, &again, target.source.clone())).unwrap();
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        assert_eq!(admin.io(SUBSYSTEM, 1).read(0, 1).unwrap(), [7; 512]);
        block_on(running.stop(StopMode::Orderly)).unwrap();
    });
}

#[test]
fn options_are_checked() {
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[]);
    let name = ExportName::new("fast/vm02");
    let check = |network: NetworkConfig| {
        let config = ExportConfig { network, ..ExportConfig::default() };
        target.frontend.check(&name, &config).map_err(|error| (error.kind(), error.to_string()))
    };
    let valid = config(target.address, 2, &[HOST]).network;
    check(valid.clone()).unwrap();
    for (network, text) in [
        (NetworkConfig { target: Some("disk".into()), ..valid.clone() }, "NVMe qualified name"),
        (NetworkConfig { target: Some(DISCOVERY.into()), ..valid.clone() }, "discovery"),
        (NetworkConfig { hosts: vec!["host".into()], ..valid.clone() }, "NVMe qualified name"),
        (NetworkConfig { unit: Some(0), ..valid.clone() }, "namespace id"),
        (NetworkConfig { listen: Vec::new(), ..valid.clone() }, "no address"),
    ] {
        let (kind, message) = check(network).unwrap_err();
        assert!(kind == ExportErrorKind::Invalid && message.contains(text), "{message}");
    }
    // The namespace of the running export.
    let taken = config(target.address, 1, &[]);
    let error = block_on(target.frontend.start(&name, &taken, target.source.clone())).err().unwrap();
    assert_eq!(error.kind(), ExportErrorKind::Exists);
    // The name of a subsystem is derived from the volume.
    let complete = target.frontend.complete(ExportConfig::default(), &target.source);
    assert!(complete.network.target.unwrap().starts_with("nqn.2014-08.org.nvmexpress:uuid:6d656d6f-7279-80"));
    assert_eq!(complete.network.unit, Some(1));
}

#[test]
fn a_thousand_connections_are_served() {
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[]);
    let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
    // Half-open ones, of each kind.
    let half_open: Vec<Queue> = (0..1000)
        .map(|number| match number % 2 {
            0 => Queue::open(target.address, PLAIN),
            _ => Queue::negotiated(target.address, PLAIN),
        })
        .collect();
    let mut queue = admin.io(SUBSYSTEM, 1);
    assert_eq!(queue.write(0, &[1; 4096]), 0);
    assert_eq!(queue.read(0, 8).unwrap(), [1; 4096]);
    drop(half_open);
    assert_eq!(queue.read(0, 8).unwrap(), [1; 4096]);
}

#[test]
fn a_thousand_queues_are_served() {
    let target = Target::start(Backend::Auto, NvmeLimits::default(), &[]);
    let mut queues = Vec::new();
    let admins: Vec<Queue> = (0..10).map(|_| Queue::admin(target.address, SUBSYSTEM, PLAIN)).collect();
    for admin in &admins {
        queues.extend((1..=100).map(|id| admin.io(SUBSYSTEM, id)));
    }
    for (number, queue) in queues.iter_mut().enumerate() {
        assert_eq!(queue.write(number as u64, &[number as u8; 512]), 0);
    }
    for (number, queue) in queues.iter_mut().enumerate().rev() {
        assert_eq!(queue.read(number as u64, 1).unwrap(), [number as u8; 512]);
    }
    assert_eq!(target.running.status().connections, 10);
}

#[test]
fn a_connection_that_is_not_opened_is_closed() {
    let limits = NvmeLimits { handshake: Duration::from_millis(50), ..NvmeLimits::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, limits.clone(), &[]);
        assert_eq!(Queue::open(target.address, PLAIN).read_to_end(), 0);
        assert_eq!(Queue::negotiated(target.address, PLAIN).read_to_end(), 0);
    }
}
