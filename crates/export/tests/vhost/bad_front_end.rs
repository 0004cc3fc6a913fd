//! Front ends that violate the protocol: each is disconnected, and the next one is served.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::back_end::{BackEnd, Options, TIMEOUT};
use super::front_end::*;
use super::testing::{GUEST, Guest, USER};

const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// All features and protocol features that a front end may accept.
const FEATURES: u64 = 1 << 30 | 1 << 32 | 1 << 29 | 1 << 28;
const PROTOCOL_FEATURES: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15;

/// A message: its request number, flags, payload, and the number of attached descriptors of the
/// memory file.
#[derive(Clone, Debug)]
struct Message {
    request: u32,
    flags: u32,
    payload: Vec<u64>,
    files: usize,
}

fn message(request: u32, payload: &[u64]) -> Message {
    Message { request, flags: 1, payload: payload.to_vec(), files: 0 }
}

impl Message {
    fn with_files(self, files: usize) -> Self {
        Self { files, ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let size = self.payload.len() as u32 * 8;
        let head = [self.request, self.flags, size].into_iter().flat_map(u32::to_le_bytes);
        head.chain(self.payload.iter().copied().flat_map(u64::to_le_bytes)).collect()
    }

    /// Sends the message. False if the peer has closed the connection.
    fn send(&self, stream: &UnixStream, file: &File) -> bool {
        send(stream, &self.bytes(), &vec![file.as_fd(); self.files])
    }
}

fn send(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(files)));
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    sent.is_ok_and(|sent| sent == bytes.len())
}

/// Returns a payload word of two 32-bit halves.
fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Returns the payload of a memory table with one region.
fn table(guest: u64, size: u64, user: u64, offset: u64) -> [u64; 5] {
    [halves(1, 0), guest, size, user, offset]
}

fn vring_addr(queue: u32, descriptors: u64, used: u64, available: u64) -> [u64; 5] {
    [halves(queue, 0), descriptors, used, available, 0]
}

const LEN: u64 = 1 << 20;

fn memory() -> File {
    let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(LEN).unwrap();
    file
}

/// Returns the first messages of a valid session.
fn greeting() -> Vec<Message> {
    vec![
        message(SET_PROTOCOL_FEATURES, &[PROTOCOL_FEATURES]),
        message(SET_FEATURES, &[FEATURES]),
        message(SET_MEM_TABLE, &table(GUEST, LEN, USER, 0)).with_files(1),
    ]
}

/// Returns the valid configuration of the first queue, without its start.
fn queue() -> Vec<Message> {
    vec![
        message(SET_VRING_NUM, &[halves(0, 64)]),
        message(SET_VRING_BASE, &[halves(0, 0)]),
        message(SET_VRING_ADDR, &vring_addr(0, USER, USER + 4096, USER + 2048)),
    ]
}

fn region(guest: u64, size: u64) -> [u64; 5] {
    [0, guest, size, guest, 0]
}

/// Returns the protocol violations after a valid greeting, by name.
fn violations() -> Vec<(&'static str, Vec<Message>)> {
    let start = || message(SET_VRING_KICK, &[0]).with_files(1);
    let queue_and = |more: Vec<Message>| [queue(), more].concat();
    let replaced = |at: usize, with: Message| {
        let mut messages = queue();
        messages[at] = with;
        messages.push(start());
        messages
    };
    let addresses = |descriptors, used, available| {
        replaced(2, message(SET_VRING_ADDR, &vring_addr(0, descriptors, used, available)))
    };
    vec![
        ("an unknown request", vec![message(77, &[])]),
        ("a request that is a reply", vec![Message { flags: 5, ..message(SET_FEATURES, &[FEATURES]) }]),
        ("another version", vec![Message { flags: 2, ..message(SET_FEATURES, &[FEATURES]) }]),
        ("features that were not offered", vec![message(SET_FEATURES, &[FEATURES | 1 << 34])]),
        ("a memory table without files", vec![message(SET_MEM_TABLE, &table(GUEST, LEN, USER, 0))]),
        (
            "a region longer than its file",
            vec![message(SET_MEM_TABLE, &table(GUEST, LEN + 1, USER, 0)).with_files(1)],
        ),
        (
            "a region beyond the end of its file",
            vec![message(SET_MEM_TABLE, &table(GUEST, LEN, USER, 1 << 62)).with_files(1)],
        ),
        (
            "a region that wraps around",
            vec![message(SET_MEM_TABLE, &table(u64::MAX - 4096, LEN, USER, 0)).with_files(1)],
        ),
        (
            "a table with fewer regions than its count",
            vec![message(SET_MEM_TABLE, &[halves(7, 0), GUEST, LEN, USER, 0]).with_files(1)],
        ),
        ("a region twice", vec![message(ADD_MEM_REG, &region(GUEST, LEN)).with_files(1)]),
        (
            "more regions than are allowed",
            (1..=64)
                .map(|index| message(ADD_MEM_REG, &region(GUEST + index * LEN, LEN)).with_files(1))
                .collect(),
        ),
        ("removal of an unknown region", vec![message(REM_MEM_REG, &region(GUEST + LEN, LEN))]),
        ("a queue of no entries", vec![message(SET_VRING_NUM, &[halves(0, 0)])]),
        ("a queue size that is no power of two", vec![message(SET_VRING_NUM, &[halves(0, 100)])]),
        ("a queue size beyond the limit", vec![message(SET_VRING_NUM, &[halves(0, 1 << 20)])]),
        ("an unknown queue", vec![message(SET_VRING_NUM, &[halves(4, 64)])]),
        ("an invalid base", vec![message(SET_VRING_BASE, &[halves(0, 1 << 16)])]),
        ("a start without addresses", vec![message(SET_VRING_NUM, &[halves(0, 64)]), start()]),
        ("a start without a size", replaced(0, message(SET_VRING_BASE, &[halves(0, 0)]))),
        ("descriptors outside of memory", addresses(USER + LEN - 512, USER + 4096, USER + 2048)),
        ("descriptors at the end of the address space", addresses(u64::MAX - 15, USER + 4096, USER + 2048)),
        ("misaligned descriptors", addresses(USER + 8, USER + 4096, USER + 2048)),
        ("a used ring outside of memory", addresses(USER, USER + LEN, USER + 2048)),
        ("a misaligned available ring", addresses(USER, USER + 4096, USER + 2049)),
        ("a start of an unknown queue", vec![message(SET_VRING_KICK, &[9]).with_files(1)]),
        ("a start without a file", queue_and(vec![message(SET_VRING_KICK, &[0])])),
        ("a new size of a running queue", queue_and(vec![start(), message(SET_VRING_NUM, &[halves(0, 32)])])),
        (
            "new addresses of a running queue",
            queue_and(vec![
                start(),
                message(SET_VRING_ADDR, &vring_addr(0, USER + 65536, USER + 4096, USER + 2048)),
            ]),
        ),
        (
            "new features with a running queue",
            queue_and(vec![start(), message(SET_FEATURES, &[FEATURES & !(1 << 29)])]),
        ),
        (
            "removal of the memory of a running queue",
            queue_and(vec![start(), message(REM_MEM_REG, &table(0, GUEST, LEN, USER))]),
        ),
        ("a stop of an unknown queue", vec![message(GET_VRING_BASE, &[halves(1000, 0)])]),
        ("an invalid enable value", vec![message(SET_VRING_ENABLE, &[halves(0, 2)])]),
        ("a read beyond the end of the configuration", vec![message(GET_CONFIG, &[halves(200, 100), 0, 0])]),
        ("an inflight region of no queues", vec![message(GET_INFLIGHT_FD, &[0, 0, 64 << 16])]),
        (
            "an inflight region longer than its file",
            vec![message(SET_INFLIGHT_FD, &[LEN, LEN - 64, 4 | 64 << 16]).with_files(1)],
        ),
        (
            "an inflight region for shorter queues",
            [vec![message(SET_INFLIGHT_FD, &[LEN, 0, 4 | 32 << 16]).with_files(1)], queue_and(vec![start()])]
                .concat(),
        ),
        ("a log beyond the end of its file", vec![message(SET_LOG_BASE, &[LEN, LEN]).with_files(1)]),
        ("a log without a file", vec![message(SET_LOG_BASE, &[LEN, 0])]),
        ("a channel without a file", vec![message(SET_BACKEND_REQ_FD, &[])]),
        ("a channel with a payload", vec![message(SET_BACKEND_REQ_FD, &[5]).with_files(1)]),
        ("an unexpected file", vec![message(SET_FEATURES, &[FEATURES]).with_files(1)]),
    ]
}

/// Waits until the peer has closed the connection, and discards the bytes it sent before. False if
/// it has not in time.
fn is_disconnected(stream: &UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match (&mut &*stream).read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            // The peer had unread messages.
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Asserts that the device serves the next front end.
#[track_caller]
fn assert_serves_next(back_end: &BackEnd, why: &str) {
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    assert_eq!(front.run_on(0, &Io::write(1, &[1; 512])).status, OK, "after {why}");
    assert_eq!(front.run_on(1, &Io::read(1, 512)).data, [1; 512], "after {why}");
}

#[test]
fn protocol_violations_end_the_connection() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let file = memory();
    for (violation, messages) in violations() {
        let stream = connect(&back_end.path());
        for message in greeting().iter().chain(&messages) {
            message.send(&stream, &file);
        }
        assert!(is_disconnected(&stream), "{violation}");
        assert_serves_next(&back_end, violation);
    }
}

#[test]
fn bytes_that_are_no_messages_end_the_connection() {
    let back_end = BackEnd::start(&Options::default());
    let endless = [2u32, 1, u32::MAX].map(u32::to_le_bytes).concat();
    for bytes in [vec![0xA5; 4096], endless, b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let stream = connect(&back_end.path());
        assert!(send(&stream, &bytes, &[]));
        assert!(is_disconnected(&stream));
        assert_serves_next(&back_end, "noise");
    }
    // A front end that disconnects within a message.
    for bytes in [&[2u8, 0, 0][..], &[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1]] {
        let mut stream = connect(&back_end.path());
        stream.write_all(bytes).unwrap();
        drop(stream);
        assert_serves_next(&back_end, "half a message");
    }
}

#[test]
fn an_incomplete_message_does_not_delay_the_shutdown() {
    let back_end = BackEnd::start(&Options::default());
    let mut stream = connect(&back_end.path());
    stream.write_all(&[2, 0, 0, 0, 1]).unwrap();
    back_end.shut_down().recv_timeout(TIMEOUT).unwrap();
    assert!(is_disconnected(&stream));
}

#[test]
fn kick_descriptors_that_are_always_ready_do_not_keep_a_reactor_busy() {
    let back_end = BackEnd::start(&Options::default());
    // A file is always readable, and so is a pipe without a writer.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
    for kick in [empty, OwnedFd::from(reader)] {
        let (stream, guest) = (connect(&back_end.path()), Guest::new(MEMORY));
        let mut queue = Queue::new(&guest, 0, 64, false);
        let user = |address: u64| address - GUEST + USER;
        let driver = &queue.driver;
        let addresses = vring_addr(0, user(driver.table()), user(driver.used()), user(driver.available()));
        for message in [
            message(SET_FEATURES, &[FEATURES & !(1 << 29)]),
            message(SET_MEM_TABLE, &table(GUEST, MEMORY, USER, 0)).with_files(1),
            message(SET_VRING_NUM, &[halves(0, 64)]),
            message(SET_VRING_ADDR, &addresses),
            message(SET_VRING_ENABLE, &[halves(0, 1)]),
        ] {
            assert!(message.send(&stream, &guest.file));
        }
        assert!(send(&stream, &message(SET_VRING_KICK, &[0]).bytes(), &[kick.as_fd()]));
        // The queue is still polled, at intervals.
        let (start, used) = (Instant::now(), back_end.processor_time());
        for _ in 0..200 {
            queue.submit(&Io::write(0, &[1; 512]));
            let end = Instant::now() + TIMEOUT;
            let request = loop {
                if let Some(request) = queue.poll_used() {
                    break request;
                }
                assert!(Instant::now() < end);
                std::thread::yield_now();
            };
            assert_eq!(request.status, OK);
        }
        let (used, elapsed) = (back_end.processor_time() - used, start.elapsed());
        assert!(used < elapsed * 7 / 10, "{used:?} of {elapsed:?}");
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let word = prop_oneof![
        Just(0),
        Just(GUEST),
        Just(USER),
        Just(LEN),
        Just(FEATURES),
        Just(PROTOCOL_FEATURES),
        0..4096u64,
        (0..8u32, 0..128u32).prop_map(|(low, high)| halves(low, high)),
        any::<u64>(),
    ];
    let flags = prop_oneof![20 => Just(1u32), 5 => Just(9u32), 1 => any::<u32>()];
    (0..48u32, flags, proptest::collection::vec(word, 0..7), 0..3usize)
        .prop_map(|(request, flags, payload, files)| Message { request, flags, payload, files })
}

#[test]
fn arbitrary_messages_do_not_affect_later_front_ends() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let file = memory();
    // All sessions share one file, with the contents that earlier sessions left in it.
    let good = greeting().into_iter().chain(queue()).chain([message(SET_VRING_KICK, &[0]).with_files(1)]);
    let good: Vec<Message> = good.collect();
    let mixed = (0..=good.len(), proptest::collection::vec(any_message(), 1..12));
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let send_all = |(start, messages): (usize, Vec<Message>)| {
        let stream = connect(&back_end.path());
        for message in good[..start].iter().chain(&messages) {
            if !message.send(&stream, &file) {
                break;
            }
        }
        Ok(())
    };
    runner.run(&mixed, send_all).unwrap();
    assert_serves_next(&back_end, "300 sessions");
}
