//! Hosts that violate the protocol, stall, or never read.

use std::io::Write;
use std::time::Duration;

use export::nvme::NvmeLimits;
use proptest::prelude::*;
use reactor::Backend;

use crate::initiator::{HOST, PLAIN, Pdu, Queue, Sqe, Wire, u16_of, u32_of};
use crate::target::{SUBSYSTEM, Target, on_each_backend};

/// A host with two connections that behaves well, before and after.
struct Bystander {
    _admin: Queue,
    queue: Queue,
}

impl Bystander {
    fn new(target: &Target) -> Self {
        let admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let queue = admin.io(SUBSYSTEM, 1);
        let mut bystander = Self { _admin: admin, queue };
        bystander.look();
        bystander
    }

    fn look(&mut self) {
        assert_eq!(self.queue.write(4096, &[0xbb; 4096]), 0);
        assert_eq!(self.queue.read(4096, 8).unwrap(), [0xbb; 4096]);
    }
}

/// Runs a host on each backend, and checks that the target terminates its connection with this
/// status and information.
fn terminated_with(status: u16, information: u32, act: impl Fn(&Target) -> (Queue, Vec<Queue>)) {
    on_each_backend(|target| {
        let mut bystander = Bystander::new(target);
        let (mut queue, _others) = act(target);
        let pdu = queue.receive();
        assert_eq!(pdu.header[0], 3, "{:?}", pdu.header);
        assert_eq!((u16_of(&pdu.header, 8), u32_of(&pdu.header, 10)), (status, information));
        assert_eq!(queue.read_to_end(), 0);
        bystander.look();
    });
}

fn io_queue(target: &Target, wire: Wire) -> (Queue, Vec<Queue>) {
    let admin = Queue::admin(target.address, SUBSYSTEM, wire);
    (admin.io(SUBSYSTEM, 1), vec![admin])
}

/// Sends a write of 32 KiB and returns the target's request for its data.
fn requested(queue: &mut Queue) -> Pdu {
    queue.submit(Sqe::new(1, 1).blocks(0, 64), &[1; 32 << 10], 0);
    let request = queue.receive();
    assert_eq!((request.header[0], u32_of(&request.header, 16)), (9, 32 << 10));
    request
}

/// Sends data for a request.
fn send_part(queue: &mut Queue, request: &Pdu, offset: u32, length: usize, flags: u8) {
    let mut header = request.header[8..12].to_vec();
    header.extend_from_slice(&offset.to_le_bytes());
    header.extend_from_slice(&(length as u32).to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    queue.send_pdu(6, &header, &vec![1; length], flags);
}

#[test]
fn other_protocols_are_refused() {
    terminated_with(2, 0, |target| {
        let mut queue = Queue::open(target.address, PLAIN);
        queue.stream.write_all(&[b'G'; 128]).unwrap();
        (queue, Vec::new())
    });
    terminated_with(6, 8, |target| {
        let mut queue = Queue::open(target.address, PLAIN);
        let mut request = [0; 128];
        (request[2], request[4], request[8]) = (128, 128, 1);
        queue.stream.write_all(&request).unwrap();
        (queue, Vec::new())
    });
}

#[test]
fn invalid_headers_are_refused() {
    for (bytes, field) in [
        ([9, 0, 24, 0, 24, 0, 0, 0], 0),
        ([4, 1, 72, 0, 72, 0, 0, 0], 1),
        ([4, 0, 71, 0, 72, 0, 0, 0], 2),
        ([4, 0, 72, 71, 0, 1, 0, 0], 3),
        ([4, 0, 72, 0, 71, 0, 0, 0], 3),
        ([4, 0, 72, 72, 0xff, 0xff, 0xff, 0x7f], 4),
        ([6, 0, 24, 24, 24, 0, 0, 0], 4),
    ] {
        terminated_with(1, field, |target| {
            let (mut queue, others) = io_queue(target, PLAIN);
            queue.stream.write_all(&bytes).unwrap();
            (queue, others)
        });
    }
    // A second request to open the connection.
    terminated_with(2, 0, |target| {
        let (mut queue, others) = io_queue(target, PLAIN);
        queue.stream.write_all(&[0, 0, 128, 0, 128, 0, 0, 0]).unwrap();
        (queue, others)
    });
}

#[test]
fn wrong_digests_are_found() {
    let wire = Wire { header_digest: true, data_digest: true, ..PLAIN };
    let digest = 0x6a6a_6a6a;
    terminated_with(3, digest, |target| {
        let (mut queue, others) = io_queue(target, wire);
        let mut pdu = vec![4, 1, 72, 0, 76, 0, 0, 0];
        pdu.extend_from_slice(&Sqe::new(0, 1).0);
        pdu.extend_from_slice(&digest.to_le_bytes());
        queue.stream.write_all(&pdu).unwrap();
        (queue, others)
    });
    // A wrong digest of data fails the command alone, which hosts retry.
    on_each_backend(|target| {
        let (mut queue, _others) = io_queue(target, wire);
        let sqe = Sqe::new(1, 1).blocks(0, 1).put(32, &512u32.to_le_bytes()).put(39, &[1]);
        let mut pdu = vec![4, 3, 72, 76, 0, 0, 0, 0];
        pdu[4..8].copy_from_slice(&(76u32 + 512 + 4).to_le_bytes());
        pdu.extend_from_slice(&sqe.0);
        pdu.extend_from_slice(&crate::initiator::crc32c(&pdu).to_le_bytes());
        pdu.extend_from_slice(&[1; 516]);
        queue.stream.write_all(&pdu).unwrap();
        assert_eq!(queue.complete(&[]).status, 0x22);
        assert_eq!(queue.read(0, 1).unwrap(), [0; 512]);
    });
}

#[test]
fn data_that_was_not_requested_is_refused() {
    terminated_with(1, 10, |target| {
        let (mut queue, others) = io_queue(target, PLAIN);
        let nothing = Pdu { header: vec![0; 24], data: Vec::new() };
        send_part(&mut queue, &nothing, 0, 512, 4);
        (queue, others)
    });
    terminated_with(1, 8, |target| {
        let (mut queue, others) = io_queue(target, PLAIN);
        let mut request = requested(&mut queue);
        request.header[8] ^= 1;
        send_part(&mut queue, &request, 0, 32 << 10, 4);
        (queue, others)
    });
    for (offset, length, flags, status) in
        [(0, 33 << 10, 4, 4), (1 << 20, 512, 4, 4), (512, 512, 0, 2), (0, 512, 4, 2), (0, 32 << 10, 0, 2)]
    {
        terminated_with(status, 0, |target| {
            let (mut queue, others) = io_queue(target, PLAIN);
            let request = requested(&mut queue);
            send_part(&mut queue, &request, offset, length, flags);
            (queue, others)
        });
    }
}

#[test]
fn commands_with_wrong_descriptors_are_refused() {
    on_each_backend(|target| {
        let (mut queue, _others) = io_queue(target, PLAIN);
        let write = || Sqe::new(1, 1).blocks(0, 1).put(32, &512u32.to_le_bytes());
        for (sqe, data, status) in [
            // Data in the capsule of another length, at an offset, of a read, or without a
            // descriptor.
            (write().put(39, &[1]), vec![1; 1024], 0x0f),
            (write().put(39, &[1]).put(24, &[4]), vec![1; 512], 0x16),
            (Sqe::new(2, 1).blocks(0, 1).put(32, &512u32.to_le_bytes()).put(39, &[1]), vec![1; 512], 0x0f),
            (write(), vec![1; 512], 0x0f),
            (write().put(39, &[1]), Vec::new(), 0x0f),
            (write().put(39, &[0x40]), Vec::new(), 0x11),
            (write().put(32, &(2u32 << 20).to_le_bytes()), Vec::new(), 0x02),
            (write().put(32, &[0; 4]), Vec::new(), 0x0f),
        ] {
            queue.send_pdu(4, &sqe.0, &data, 0);
            assert_eq!(queue.complete(&[]).status, status, "{:?}", sqe.0);
        }
        assert_eq!(queue.read(0, 1).unwrap(), [0; 512]);
    });
}

#[test]
fn more_commands_than_entries_end_the_connection() {
    on_each_backend(|target| {
        let mut bystander = Bystander::new(target);
        let (mut queue, _others) = io_queue(target, PLAIN);
        for _ in 0..129 {
            // Data that is never sent.
            queue.submit(Sqe::new(1, 1).blocks(0, 2048), &[0; 1 << 20], 0);
        }
        while queue.read_to_end() > 0 {}
        bystander.look();
    });
}

#[test]
fn floods_of_event_requests_and_aborts_are_bounded() {
    on_each_backend(|target| {
        let mut admin = Queue::admin(target.address, SUBSYSTEM, PLAIN);
        let requests: Vec<u16> = (0..4).map(|_| admin.submit(Sqe::new(0x0c, 0), &[], 0)).collect();
        for _ in 0..1000 {
            assert_eq!(admin.run(Sqe::new(0x0c, 0)).status, 0x105);
            assert_eq!(admin.run(Sqe::new(8, 0).word(10, 0x7fff << 16)).result, 1);
        }
        let abort = admin.submit(Sqe::new(8, 0).word(10, u32::from(requests[1]) << 16), &[], 0);
        let done = [admin.complete(&[]), admin.complete(&[])];
        let of = |id: u16| done.iter().find(|done| done.id == id).unwrap();
        assert_eq!((of(requests[1]).status, of(abort).status, of(abort).result), (0x07, 0, 0));
    });
}

#[test]
fn hosts_that_stall_are_disconnected() {
    let limits = NvmeLimits { stalled: Duration::from_millis(100), ..NvmeLimits::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, limits.clone(), &[]);
        let mut bystander = Bystander::new(&target);
        // Within a header, and before the data that was requested.
        let (mut queue, _others) = io_queue(&target, PLAIN);
        queue.stream.write_all(&[4, 0, 72]).unwrap();
        assert_eq!(queue.read_to_end(), 0);
        let (mut queue, _others) = io_queue(&target, PLAIN);
        requested(&mut queue);
        assert_eq!(queue.read_to_end(), 0);
        bystander.look();
    }
}

#[test]
fn a_host_that_does_not_read_affects_itself_only() {
    let limits =
        NvmeLimits { stalled: Duration::from_millis(200), payload_bytes: 4 << 20, ..NvmeLimits::default() };
    for backend in [Backend::Uring, Backend::Threads] {
        let target = Target::start(backend, limits.clone(), &[]);
        let mut bystander = Bystander::new(&target);
        let (mut queue, _others) = io_queue(&target, PLAIN);
        for _ in 0..120 {
            let read = Sqe::new(2, 1).blocks(0, 2048).put(32, &(1u32 << 20).to_le_bytes());
            queue.submit(read, &[], 0);
        }
        bystander.look();
        // The target closes the connection although not all replies were read.
        let mut probe = [0];
        while queue.stream.peek(&mut probe).is_ok_and(|count| count == 0) {}
        bystander.look();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random bytes after each step of the protocol: the target survives, and serves others.
    #[test]
    fn garbage_ends_its_connection_at_most(
        bytes in prop::collection::vec(any::<u8>(), 1..400), step in 0..4u8, kind in 0..10u8,
    ) {
        thread_local! {
            static TARGET: Target = Target::start(Backend::Auto, NvmeLimits::default(), &[]);
        }
        TARGET.with(|target| {
            let mut bystander = Bystander::new(target);
            let mut admin = None;
            let mut queue = match step {
                0 => Queue::open(target.address, PLAIN),
                1 => Queue::negotiated(target.address, PLAIN),
                2 => {
                    let mut queue = Queue::negotiated(target.address, PLAIN);
                    queue.connect(SUBSYSTEM, HOST, 0, 0xffff, 0);
                    queue
                }
                _ => {
                    let (queue, others) = io_queue(target, PLAIN);
                    admin = Some(others);
                    queue
                }
            };
            // Garbage, or a PDU of garbage with a valid header.
            if kind < 5 || step == 0 {
                let _ = queue.stream.write_all(&bytes);
            } else {
                let mut header = bytes.clone();
                header.resize(64, kind);
                header[31] = [0x5a, 0x01, bytes[0]][usize::from(kind % 3)];
                queue.send_pdu(4, &header, if kind > 7 { &bytes } else { &[] }, 0);
            }
            let _ = queue.stream.shutdown(std::net::Shutdown::Write);
            queue.read_to_end();
            drop(admin);
            bystander.look();
        });
    }
}
