//! Valid and invalid answers of servers.

use std::io::{Cursor, Read, Write};

use super::handshake::{OPTION_REPLY_MAGIC, PARTS_MAX, answer, option};
use super::*;

/// A connection on which a server sends these bytes for any input.
struct Script(Cursor<Vec<u8>>);

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client of a server that sends these bytes, with an export of 1 MiB.
pub(super) fn client(answers: &[u8]) -> Client<BlockingTransport> {
    let transport = BlockingTransport::new(Script(Cursor::new(answers.to_vec())));
    Client { transport, replies: Replies::Structured, size: 1 << 20, flags: 0 }
}

pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    match work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("a transport that blocks is never pending"),
    }
}

/// A part of a structured reply.
fn part(flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = STRUCTURED_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn data(at: u64, bytes: &[u8]) -> Vec<u8> {
    part(0, chunk::OFFSET_DATA, 0, &[&at.to_be_bytes(), bytes].concat())
}

fn hole(at: u64, length: u32) -> Vec<u8> {
    part(0, chunk::OFFSET_HOLE, 0, &[at.to_be_bytes().as_slice(), &length.to_be_bytes()].concat())
}

fn done() -> Vec<u8> {
    part(DONE, chunk::NONE, 0, &[])
}

/// Reads 8 bytes from 100 on.
fn read(parts: &[Vec<u8>]) -> Result<[u8; 8], String> {
    let mut into = [0xEE; 8];
    let read = run(client(&parts.concat()).read(100, &mut into));
    read.map(|()| into).map_err(|error| error.to_string())
}

#[test]
fn parts_of_a_read_come_in_any_order() {
    let expected = Ok([1, 2, 3, 0, 0, 4, 5, 6]);
    let parts = [data(100, &[1, 2, 3]), hole(103, 2), data(105, &[4, 5, 6])];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let parts: Vec<_> = order.into_iter().map(|part| parts[part].clone()).chain([done()]).collect();
        assert_eq!(read(&parts), expected, "{order:?}");
    }
    assert_eq!(
        read(&[part(DONE, chunk::OFFSET_DATA, 0, &[&100u64.to_be_bytes(), &[7; 8][..]].concat())]),
        Ok([7; 8])
    );
}

#[test]
fn every_byte_of_a_read_comes_once() {
    let twice = Err("empty or overlapping data".to_owned());
    assert_eq!(read(&[data(100, &[1; 4]), data(100, &[2; 4]), done()]), twice);
    assert_eq!(read(&[data(100, &[1; 5]), data(104, &[2; 4]), done()]), twice);
    assert_eq!(read(&[data(104, &[1; 4]), data(100, &[2; 5]), done()]), twice);
    assert_eq!(read(&[hole(102, 2), data(101, &[2; 4]), done()]), twice);
    assert_eq!(read(&[hole(100, 0), done()]), twice);
    let missing = Err("a reply without all of its data".to_owned());
    assert_eq!(read(&[data(100, &[1; 7]), done()]), missing);
    assert_eq!(read(&[data(101, &[1; 7]), done()]), missing);
    assert_eq!(read(&[done()]), missing);
    let beyond = Err("data that was not requested".to_owned());
    assert_eq!(read(&[data(100, &[1; 9]), done()]), beyond);
    assert_eq!(read(&[data(99, &[1; 1]), done()]), beyond);
    assert_eq!(read(&[data(u64::MAX, &[1; 1]), done()]), beyond);
}

#[test]
fn replies_are_to_the_request_that_was_sent() {
    let other = part(DONE, chunk::NONE, 7, &[]);
    let refused = "a reply to request 0x7, which was not sent";
    assert_eq!(read(&[data(100, &[1; 8]), other]).unwrap_err(), refused);
    let simple = |cookie: u64, error: u32| {
        [&SIMPLE_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
    };
    assert_eq!(run(client(&simple(7, 0)).flush()).unwrap_err().to_string(), refused);
    run(client(&simple(0, 0)).flush()).unwrap();
    assert_eq!(run(client(&simple(0, 28)).flush()).unwrap_err().server_error(), Some(28));
}

#[test]
fn an_answer_without_end_is_refused() {
    // Extents of 512 KiB each time, and never the last.
    let extents = part(0, chunk::BLOCK_STATUS, 0, &vec![1; 4 + (512 << 10)]);
    let error = run(client(&extents.repeat(3)).extents(0)).unwrap_err();
    assert_eq!(error.to_string(), "answer too long");
    let reply = |length: usize| {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option::STRUCTURED_REPLY.to_be_bytes());
        bytes.extend(answer::META_CONTEXT.to_be_bytes());
        bytes.extend((length as u32).to_be_bytes());
        bytes.resize(bytes.len() + length, 0);
        bytes
    };
    let ask = |answers: Vec<u8>| run(client(&answers).option(option::STRUCTURED_REPLY, &[])).unwrap_err();
    assert_eq!(ask(reply(512 << 10).repeat(3)).to_string(), "answer too long");
    assert_eq!(ask(reply(0).repeat(PARTS_MAX + 1)).to_string(), "answer in too many parts");
}
