//! Aborts of commands that wait, and truthful answers for commands that have begun.

use export::nvme::NvmeLimits;
use reactor::Backend;

use crate::initiator::{Completion, PLAIN, Queue, Sqe, u16_of};
use crate::target::{SUBSYSTEM, Target, on_each_backend};

/// The results of an abort.
const ABORTED: u64 = 0;
const NOT_ABORTED: u64 = 1;
/// The status of an aborted command.
const ABORT_REQUESTED: u16 = 0x07;
const LIMIT_EXCEEDED: u16 = 0x103;

fn abort(queue: u16, command: u16) -> Sqe {
    Sqe::new(8, 0).word(10, u32::from(queue) | u32::from(command) << 16)
}

fn submit_read(queue: &mut Queue, first: u64) -> u16 {
    queue.submit(Sqe::new(2, 1).blocks(first, 1).put(32, &512u32.to_le_bytes()), &[], 0)
}

fn submit_write(queue: &mut Queue, first: u64, fill: u8) -> u16 {
    queue.submit(Sqe::new(1, 1).blocks(first, 1), &[fill; 512], 8192)
}

fn queues(target: &Target) -> (Queue, Queue) {
    let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
    let queue = admin.io(SUBSYSTEM, 1);
    (admin, queue)
}

#[test]
fn commands_that_the_volume_defers_are_aborted() {
    on_each_backend(|target| {
        let (mut admin, mut queue) = queues(target);
        assert_eq!(admin.fetch(Sqe::new(6, 0).word(10, 1), 4096).unwrap()[258], 3, "the limit of aborts");
        assert_eq!(queue.write(0, &[1; 1024]), 0);
        target.with(|volume| volume.faults().defer());
        let (read, write) = (submit_read(&mut queue, 0), submit_write(&mut queue, 1, 2));
        let kept = submit_write(&mut queue, 2, 3);
        target.until(|volume| volume.faults().deferred() == 3);
        for command in [read, write] {
            let done = admin.run(abort(1, command));
            assert_eq!((done.status, done.result), (0, ABORTED));
            let aborted = queue.complete(&[]);
            assert_eq!((aborted.id, aborted.status), (command, ABORT_REQUESTED));
            // Its end is final.
            assert_eq!(admin.run(abort(1, command)).result, NOT_ABORTED);
        }
        target.until(|volume| volume.faults().deferred() == 1);
        target.with(|volume| volume.faults().admit());
        let done = queue.complete(&[]);
        assert_eq!((done.id, done.status), (kept, 0));
        assert_eq!(admin.run(abort(1, kept)).result, NOT_ABORTED);
        assert_eq!(queue.read(0, 2).unwrap(), [1; 1024], "the aborted write had no effect");
        assert_eq!(queue.read(2, 1).unwrap(), [3; 512]);
    });
}

#[test]
fn commands_that_have_begun_are_not_aborted() {
    on_each_backend(|target| {
        let (mut admin, mut queue) = queues(target);
        target.with(|volume| {
            volume.faults().defer();
            volume.faults().hold_writes();
        });
        let deferred = submit_write(&mut queue, 0, 5);
        target.until(|volume| volume.faults().deferred() == 1);
        // It begins, and is held within the volume then.
        target.with(|volume| volume.faults().admit());
        target.until(|volume| volume.faults().held_writes() == 1);
        let held = submit_write(&mut queue, 1, 6);
        target.until(|volume| volume.faults().held_writes() == 2);
        for command in [deferred, held] {
            let done = admin.run(abort(1, command));
            assert_eq!((done.status, done.result), (0, NOT_ABORTED));
        }
        target.with(|volume| volume.faults().release_writes());
        let done = [queue.complete(&[]), queue.complete(&[])];
        assert!(done.iter().all(|done| done.status == 0), "{done:?}");
        assert_eq!(queue.read(0, 2).unwrap(), [[5; 512], [6; 512]].concat());
        // Commands and queues that do not exist.
        for unknown in [abort(1, 0x7ffe), abort(2, deferred), abort(0xfffe, deferred), abort(0, 0x7ffe)] {
            assert_eq!(admin.run(unknown).result, NOT_ABORTED);
        }
    });
}

#[test]
fn writes_whose_data_was_not_requested_are_aborted() {
    // Memory for the data of one write at a time.
    let limits = NvmeLimits { window_bytes: 64 << 10, ..NvmeLimits::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, limits.clone(), &[]);
        let (mut admin, mut queue) = queues(&target);
        let data = vec![4; 64 << 10];
        let ids: Vec<u16> = (0..4u64)
            .map(|number| queue.submit(Sqe::new(1, 1).blocks(number * 128, 128), &data, 0))
            .collect();
        let request = queue.receive();
        assert_eq!((request.header[0], u16_of(&request.header, 8)), (9, ids[0]));
        // The first one was requested, the second one is the next, and the others wait.
        assert_eq!(admin.run(abort(1, ids[0])).result, NOT_ABORTED);
        for id in [ids[2], ids[3]] {
            assert_eq!(admin.run(abort(1, id)).result, ABORTED);
            let done = queue.complete(&[]);
            assert_eq!((done.id, done.status), (id, ABORT_REQUESTED));
        }
        queue.send_requested(&request, &data);
        let done: Vec<Completion> = (0..2).map(|_| queue.complete(&data)).collect();
        assert!(done.iter().all(|done| done.status == 0 && ids[..2].contains(&done.id)), "{done:?}");
        assert_eq!(queue.read(128, 128).unwrap(), data);
        assert_eq!(queue.read(256, 128).unwrap(), vec![0; 64 << 10]);
    }
}

#[test]
fn a_flood_of_aborts_is_bounded() {
    on_each_backend(|target| {
        let (mut admin, mut queue) = queues(target);
        target.with(|volume| volume.faults().hold_writes());
        let held = submit_write(&mut queue, 0, 5);
        target.until(|volume| volume.faults().held_writes() == 1);
        let mut refused = 0;
        for _ in 0..100 {
            // All entries of the queue; each abort has an answer.
            let sent: Vec<u16> = (0..31).map(|_| admin.submit(abort(1, held), &[], 0)).collect();
            let mut answered: Vec<u16> = sent
                .iter()
                .map(|_| {
                    let done = admin.complete(&[]);
                    let is_refused = done.status == LIMIT_EXCEEDED;
                    refused += u32::from(is_refused);
                    assert!(is_refused || (done.status, done.result) == (0, NOT_ABORTED), "{done:?}");
                    done.id
                })
                .collect();
            answered.sort_unstable();
            let mut sent = sent;
            sent.sort_unstable();
            assert_eq!(answered, sent);
        }
        assert!(refused > 0, "more aborts than the limit ran at once");
        target.with(|volume| volume.faults().release_writes());
        assert_eq!(queue.complete(&[]).status, 0);
        assert_eq!(admin.run(abort(1, held)).result, NOT_ABORTED);
    });
}

#[test]
fn a_lost_host_leaves_no_abort_behind() {
    on_each_backend(|target| {
        let (mut admin, mut queue) = queues(target);
        target.with(|volume| volume.faults().defer());
        let command = submit_write(&mut queue, 0, 5);
        target.until(|volume| volume.faults().deferred() == 1);
        admin.submit(abort(1, command), &[], 0);
        drop((admin, queue));
        target.until(|volume| volume.faults().deferred() == 0);
        target.with(|volume| volume.faults().admit());
        let (_admin, mut queue) = queues(target);
        assert_eq!(queue.read(0, 1).unwrap(), [0; 512]);
    });
}
