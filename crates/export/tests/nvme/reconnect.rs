//! Hosts that connect again after a lost connection, whose commands may still be in execution.
//!
//! A write of the lost connection must not take place after the host has repeated it: it would
//! restore old data over later writes.

use std::net::Shutdown;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use export::nvme::NvmeLimits;
use reactor::Backend;

use crate::initiator::{PLAIN, Queue, Sqe};
use crate::target::{SUBSYSTEM, Target, on_each_backend};

/// Time in which an answer that is not held back would arrive.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs a host on a thread. The receiver gets a message when the first step has ended.
fn host<A: Send + 'static, B: Send + 'static>(
    first: impl FnOnce() -> A + Send + 'static,
    second: impl FnOnce(A) -> B + Send + 'static,
) -> (JoinHandle<B>, Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let opened = first();
        sender.send(()).unwrap();
        second(opened)
    });
    (thread, receiver)
}

fn write(first: u64, fill: u8) -> (Sqe, [u8; 512]) {
    (Sqe::new(1, 1).blocks(first, 1), [fill; 512])
}

#[test]
fn a_host_connects_again_after_its_earlier_writes() {
    for is_lost in [false, true] {
        on_each_backend(|target| {
            let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
            let mut first = admin.io(SUBSYSTEM, 1);
            target.with(|volume| volume.faults().hold_writes());
            let (sqe, data) = write(0, 1);
            first.submit(sqe, &data, 8192);
            target.until(|volume| volume.faults().held_writes() == 1);
            if is_lost {
                admin.stream.shutdown(Shutdown::Both).unwrap();
                first.stream.shutdown(Shutdown::Both).unwrap();
            }
            let address = target.address;
            let (thread, connected) = host(
                move || Queue::admin(address, SUBSYSTEM, PLAIN),
                |admin| {
                    let mut queue = admin.io(SUBSYSTEM, 1);
                    assert_eq!(queue.write(0, &[2; 512]), 0);
                    queue.read(0, 1).unwrap()
                },
            );
            assert!(connected.recv_timeout(PAUSE).is_err(), "connected before the write has ended");
            target.with(|volume| volume.faults().release_writes());
            assert_eq!(thread.join().unwrap(), [2; 512]);
        });
    }
}

#[test]
fn commands_that_were_sent_before_a_close_do_not_begin_after_it() {
    // A second write waits until the first one has ended.
    let limits = NvmeLimits { payload_bytes: 512, ..NvmeLimits::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, limits.clone(), &[]);
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut first = admin.io(SUBSYSTEM, 1);
        target.with(|volume| volume.faults().hold_writes());
        for (number, fill) in [(0, 1), (8, 2), (16, 3)] {
            let (sqe, data) = write(number, fill);
            first.submit(sqe, &data, 8192);
        }
        target.until(|volume| volume.faults().held_writes() == 1);
        admin.stream.shutdown(Shutdown::Both).unwrap();
        first.stream.shutdown(Shutdown::Both).unwrap();
        let address = target.address;
        let (thread, connected) =
            host(move || Queue::admin(address, SUBSYSTEM, PLAIN), |admin| (admin.io(SUBSYSTEM, 1), admin));
        assert!(connected.recv_timeout(PAUSE).is_err(), "connected before the write has ended");
        target.with(|volume| volume.faults().release_writes());
        let (mut queue, _admin) = thread.join().unwrap();
        assert_eq!(queue.read(0, 1).unwrap(), [1; 512]);
        assert_eq!(first.read_to_end(), 0);
        for block in [8, 16] {
            assert_eq!(queue.read(block, 1).unwrap(), [0; 512], "a write after the close");
        }
    }
}

#[test]
fn a_controller_is_reset_after_its_writes() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut queue = admin.io(SUBSYSTEM, 1);
        target.with(|volume| volume.faults().hold_writes());
        let (sqe, data) = write(0, 1);
        queue.submit(sqe, &data, 8192);
        target.until(|volume| volume.faults().held_writes() == 1);
        let (thread, reset) = host(
            move || {
                admin.set_configuration(6 << 16 | 4 << 20);
                admin
            },
            |mut admin| {
                admin.enable();
                let mut queue = admin.io(SUBSYSTEM, 1);
                assert_eq!(queue.write(0, &[2; 512]), 0);
                queue.read(0, 1).unwrap()
            },
        );
        assert!(reset.recv_timeout(PAUSE).is_err(), "reset before the write has ended");
        target.with(|volume| volume.faults().release_writes());
        assert_eq!(thread.join().unwrap(), [2; 512]);
    });
}

#[test]
fn other_hosts_do_not_wait() {
    on_each_backend(|target| {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let mut first = admin.io(SUBSYSTEM, 1);
        target.with(|volume| volume.faults().hold_writes());
        let (sqe, data) = write(0, 1);
        first.submit(sqe, &data, 8192);
        target.until(|volume| volume.faults().held_writes() == 1);
        let other = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";
        let other = Queue::admin_of(other, target.address, SUBSYSTEM, PLAIN);
        assert_eq!(other.io(SUBSYSTEM, 1).read(0, 1).unwrap(), [0; 512]);
        target.with(|volume| volume.faults().release_writes());
        assert_eq!(first.complete(&[]).status, 0);
    });
}
