//! Front ends that say what none may: each is cut off, whoever comes next is served, and no other device notices.

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

use super::back_end::{BackEnd, Options, PATIENCE};
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

/// Every feature and protocol feature that a front end may have.
const FEATURES: u64 = 1 << 30 | 1 << 32 | 1 << 29 | 1 << 28;
const PROTOCOL_FEATURES: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15;

/// A message: what it is, its numbers, and how many descriptors of the memory file come with it.
#[derive(Clone, Debug)]
struct Message {
    request: u32,
    flags: u32,
    words: Vec<u64>,
    files: usize,
}

fn message(request: u32, words: &[u64]) -> Message {
    Message { request, flags: 1, words: words.to_vec(), files: 0 }
}

impl Message {
    fn with_files(self, files: usize) -> Self {
        Self { files, ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let size = self.words.len() as u32 * 8;
        let head = [self.request, self.flags, size].into_iter().flat_map(u32::to_le_bytes);
        head.chain(self.words.iter().copied().flat_map(u64::to_le_bytes)).collect()
    }

    /// False if the other end is gone.
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

/// A state word: two halves.
fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Words of a memory table with one region.
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

/// What a good front end says first.
fn greeting() -> Vec<Message> {
    vec![
        message(SET_PROTOCOL_FEATURES, &[PROTOCOL_FEATURES]),
        message(SET_FEATURES, &[FEATURES]),
        message(SET_MEM_TABLE, &table(GUEST, LEN, USER, 0)).with_files(1),
    ]
}

/// What a good front end says of its first queue, up to the start of it.
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

/// What no front end may say after a greeting.
fn misdeeds() -> Vec<(&'static str, Vec<Message>)> {
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
            "a region behind its file",
            vec![message(SET_MEM_TABLE, &table(GUEST, LEN, USER, 1 << 62)).with_files(1)],
        ),
        (
            "a region that wraps around",
            vec![message(SET_MEM_TABLE, &table(u64::MAX - 4096, LEN, USER, 0)).with_files(1)],
        ),
        (
            "a table longer than it says",
            vec![message(SET_MEM_TABLE, &[halves(7, 0), GUEST, LEN, USER, 0]).with_files(1)],
        ),
        ("a region twice", vec![message(ADD_MEM_REG, &region(GUEST, LEN)).with_files(1)]),
        (
            "more regions than there may be",
            (1..=64)
                .map(|index| message(ADD_MEM_REG, &region(GUEST + index * LEN, LEN)).with_files(1))
                .collect(),
        ),
        ("the end of a region that is none", vec![message(REM_MEM_REG, &region(GUEST + LEN, LEN))]),
        ("a queue of no entries", vec![message(SET_VRING_NUM, &[halves(0, 0)])]),
        ("a queue of an odd size", vec![message(SET_VRING_NUM, &[halves(0, 100)])]),
        ("a queue without end", vec![message(SET_VRING_NUM, &[halves(0, 1 << 20)])]),
        ("a queue that is none", vec![message(SET_VRING_NUM, &[halves(4, 64)])]),
        ("a base that is none", vec![message(SET_VRING_BASE, &[halves(0, 1 << 16)])]),
        ("a start without addresses", vec![message(SET_VRING_NUM, &[halves(0, 64)]), start()]),
        ("a start without a size", replaced(0, message(SET_VRING_BASE, &[halves(0, 0)]))),
        ("descriptors outside of memory", addresses(USER + LEN - 512, USER + 4096, USER + 2048)),
        ("descriptors nowhere", addresses(u64::MAX - 15, USER + 4096, USER + 2048)),
        ("descriptors that lie across", addresses(USER + 8, USER + 4096, USER + 2048)),
        ("a used ring outside of memory", addresses(USER, USER + LEN, USER + 2048)),
        ("an available ring that lies across", addresses(USER, USER + 4096, USER + 2049)),
        ("a start of a queue that is none", vec![message(SET_VRING_KICK, &[9]).with_files(1)]),
        ("a start without a file", queue_and(vec![message(SET_VRING_KICK, &[0])])),
        ("another size while it runs", queue_and(vec![start(), message(SET_VRING_NUM, &[halves(0, 32)])])),
        (
            "another place while it runs",
            queue_and(vec![
                start(),
                message(SET_VRING_ADDR, &vring_addr(0, USER + 65536, USER + 4096, USER + 2048)),
            ]),
        ),
        (
            "other features while it runs",
            queue_and(vec![start(), message(SET_FEATURES, &[FEATURES & !(1 << 29)])]),
        ),
        (
            "the memory taken from under a queue",
            queue_and(vec![start(), message(REM_MEM_REG, &table(0, GUEST, LEN, USER))]),
        ),
        ("the state of a queue that is none", vec![message(GET_VRING_BASE, &[halves(1000, 0)])]),
        ("a queue half enabled", vec![message(SET_VRING_ENABLE, &[halves(0, 2)])]),
        ("configuration behind its end", vec![message(GET_CONFIG, &[halves(200, 100), 0, 0])]),
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
        ("a log behind its file", vec![message(SET_LOG_BASE, &[LEN, LEN]).with_files(1)]),
        ("a log without a file", vec![message(SET_LOG_BASE, &[LEN, 0])]),
        ("a channel without one", vec![message(SET_BACKEND_REQ_FD, &[])]),
        ("a channel with more", vec![message(SET_BACKEND_REQ_FD, &[5]).with_files(1)]),
        ("a file where none belongs", vec![message(SET_FEATURES, &[FEATURES]).with_files(1)]),
    ]
}

/// True once the other end has closed the connection. What it said before that is passed over.
fn is_cut_off(stream: &UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match (&mut &*stream).read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            // With messages unread at the other end.
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The device serves whoever comes next.
#[track_caller]
fn is_well(back_end: &BackEnd, why: &str) {
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 2, ..Manner::default() });
    assert_eq!(front.run_on(0, &Io::write(1, &[1; 512])).status, OK, "after {why}");
    assert_eq!(front.run_on(1, &Io::read(1, 512)).data, [1; 512], "after {why}");
}

#[test]
fn who_says_what_none_may_is_cut_off() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let file = memory();
    for (misdeed, messages) in misdeeds() {
        let stream = connect(&back_end.path());
        for message in greeting().iter().chain(&messages) {
            message.send(&stream, &file);
        }
        assert!(is_cut_off(&stream), "{misdeed}");
        is_well(&back_end, misdeed);
    }
}

#[test]
fn bytes_that_are_no_messages_are_not_listened_to() {
    let back_end = BackEnd::start(&Options::default());
    let endless = [2u32, 1, u32::MAX].map(u32::to_le_bytes).concat();
    for bytes in [vec![0xA5; 4096], endless, b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let stream = connect(&back_end.path());
        assert!(send(&stream, &bytes, &[]));
        assert!(is_cut_off(&stream));
        is_well(&back_end, "noise");
    }
    // Half a message, and then nothing more: it is in nobody's way once it is gone.
    for bytes in [&[2u8, 0, 0][..], &[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1]] {
        let mut stream = connect(&back_end.path());
        stream.write_all(bytes).unwrap();
        drop(stream);
        is_well(&back_end, "half a message");
    }
}

#[test]
fn who_stops_in_the_middle_of_a_message_does_not_stop_the_server() {
    let back_end = BackEnd::start(&Options::default());
    let mut stream = connect(&back_end.path());
    stream.write_all(&[2, 0, 0, 0, 1]).unwrap();
    back_end.shut_down().recv_timeout(PATIENCE).unwrap();
    assert!(is_cut_off(&stream));
}

#[test]
fn notifications_that_are_none_do_not_keep_a_reactor_busy() {
    let back_end = BackEnd::start(&Options::default());
    // A file is always ready to be read, a pipe whose other end is gone as well.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
    for kick in [empty, OwnedFd::from(reader)] {
        let (stream, guest) = (connect(&back_end.path()), Guest::new(MEMORY));
        let mut queue = Queue::new(&guest, 0, 64, false);
        let user = |address: u64| address - GUEST + USER;
        let driver = &queue.driver;
        let place = vring_addr(0, user(driver.table()), user(driver.used()), user(driver.available()));
        for message in [
            message(SET_FEATURES, &[FEATURES & !(1 << 29)]),
            message(SET_MEM_TABLE, &table(GUEST, MEMORY, USER, 0)).with_files(1),
            message(SET_VRING_NUM, &[halves(0, 64)]),
            message(SET_VRING_ADDR, &place),
            message(SET_VRING_ENABLE, &[halves(0, 1)]),
        ] {
            assert!(message.send(&stream, &guest.file));
        }
        assert!(send(&stream, &message(SET_VRING_KICK, &[0]).bytes(), &[kick.as_fd()]));
        // It is looked at all the same, now and then.
        let (began, used) = (Instant::now(), back_end.processor_time());
        for _ in 0..200 {
            queue.submit(&Io::write(0, &[1; 512]));
            let end = Instant::now() + PATIENCE;
            let answer = loop {
                if let Some(answer) = queue.look() {
                    break answer;
                }
                assert!(Instant::now() < end);
                std::thread::yield_now();
            };
            assert_eq!(answer.status, OK);
        }
        let (used, took) = (back_end.processor_time() - used, began.elapsed());
        assert!(used < took * 7 / 10, "{used:?} of {took:?}");
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
        .prop_map(|(request, flags, words, files)| Message { request, flags, words, files })
}

#[test]
fn any_conversation_ends_well_for_the_others() {
    let back_end = BackEnd::start(&Options { reactors: 2, ..Options::default() });
    let file = memory();
    // One file for all of them: what it holds is whatever the conversations before have made of it.
    let good = greeting().into_iter().chain(queue()).chain([message(SET_VRING_KICK, &[0]).with_files(1)]);
    let good: Vec<Message> = good.collect();
    let mixed = (0..=good.len(), proptest::collection::vec(any_message(), 1..12));
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let talk = |(start, messages): (usize, Vec<Message>)| {
        let stream = connect(&back_end.path());
        for message in good[..start].iter().chain(&messages) {
            if !message.send(&stream, &file) {
                break;
            }
        }
        Ok(())
    };
    runner.run(&mixed, talk).unwrap();
    is_well(&back_end, "300 conversations");
}
