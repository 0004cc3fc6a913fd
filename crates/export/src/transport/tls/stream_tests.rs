//! Sessions between two ends, over real sockets.

use std::future::Future;
use std::pin::pin;

use reactor::Reactor;

use super::super::session::TlsKeyHash;
use super::*;
use crate::select::{Either, select};
use crate::transport::Link;
use crate::transport::testing::on_each_backend;

fn key(hash: TlsKeyHash, byte: u8) -> TlsKey {
    let length = if hash == TlsKeyHash::Sha256 { 32 } else { 48 };
    TlsKey { identity: b"a name".to_vec(), secret: vec![byte; length], hash }
}

/// Runs `test` on each backend and with each hash function, with both ends of a session.
fn on_each_session<F: Future<Output = ()>>(test: impl Fn(Rc<TlsStream>, Rc<TlsStream>) -> F) {
    for hash in [TlsKeyHash::Sha256, TlsKeyHash::Sha384] {
        on_each_backend(|client, server| {
            let test = &test;
            async move {
                let client = TlsStream::connect(Rc::new(client), &key(hash, 1));
                let server = TlsStream::accept(Rc::new(server), &key(hash, 1), &[]).unwrap();
                let (ours, theirs) = both(client.negotiate(), server.negotiate()).await;
                ours.unwrap();
                theirs.unwrap();
                test(client, server).await;
            }
        });
    }
}

/// Waits for both futures.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    match select(a.as_mut(), b.as_mut()).await {
        Either::Left(first) => (first, b.await),
        Either::Right(second) => (a.await, second),
    }
}

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: usize) -> Span {
    let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251 + seed) as u8).collect();
    Buffer::copy_of(&bytes).span()
}

fn bytes(span: &Span) -> Vec<u8> {
    span.peek(<[u8]>::to_vec)
}

async fn read(stream: &TlsStream, into: &Span) -> Result<usize, IoError> {
    poll_fn(|context| stream.poll_read(context, into)).await
}

#[test]
fn data_of_any_size_arrives() {
    on_each_session(|client, server| async move {
        let lengths =
            [1, 5, RECORD_MAX - 1, RECORD_MAX, RECORD_MAX + 1, 100, 3 * SEND_MAX + 17, 0, 2 * SEND_MAX];
        let spans: Vec<_> = lengths.iter().zip(0..).map(|(length, seed)| pattern(*length, seed)).collect();
        let into: Vec<_> = lengths.iter().map(|length| Buffer::new(*length).span()).collect();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (sent, received) = both(from.write_all(&spans), to.read_exact(&into)).await;
            sent.unwrap();
            received.unwrap();
            for (sent, received) in spans.iter().zip(&into) {
                assert_eq!(bytes(sent), bytes(received));
                received.zero();
            }
        }
    });
}

#[test]
fn both_directions_are_used_at_once_while_keys_change() {
    on_each_session(|client, server| async move {
        for round in 0..4 {
            let data = [pattern(700_000, round), pattern(700_001, round)];
            let into = [Buffer::new(700_000).span(), Buffer::new(700_001).span()];
            if round % 2 == 0 {
                client.update_keys();
            } else {
                server.update_keys();
            }
            let upward = both(client.write_all(&data[..1]), server.read_exact(&into[..1]));
            let downward = both(server.write_all(&data[1..]), client.read_exact(&into[1..]));
            let (upward, downward) = both(upward, downward).await;
            let results = [upward.0, upward.1, downward.0, downward.1];
            assert_eq!(results, [Ok(()); 4], "{:?} {:?}", client.failure(), server.failure());
            assert_eq!((bytes(&into[0]), bytes(&into[1])), (bytes(&data[0]), bytes(&data[1])));
        }
    });
}

#[test]
fn a_dropped_wait_loses_nothing() {
    on_each_session(|client, server| async move {
        let into = Buffer::new(1000).span();
        // No data has arrived: the wait is dropped, and its receive continues.
        let wait = select(read(&server, &into), Reactor::current().yield_now()).await;
        assert!(matches!(wait, Either::Right(())));
        client.write_all(&[pattern(1000, 3)]).await.unwrap();
        server.read_exact(std::slice::from_ref(&into)).await.unwrap();
        assert_eq!(bytes(&into), bytes(&pattern(1000, 3)));
        // More data than the socket holds, of which a part is in flight.
        let large = [pattern(8 << 20, 4)];
        let wait = select(client.write_all(&large), Reactor::current().yield_now()).await;
        assert!(matches!(wait, Either::Right(())));
        let last = [pattern(10, 5)];
        let end = async {
            client.write_all(&last).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let collect = async {
            let (mut all, part) = (Vec::new(), Buffer::new(64 << 10).span());
            while let count @ 1.. = read(&server, &part).await.unwrap() {
                all.extend(bytes(&part.slice(0..count)));
            }
            all
        };
        let ((), all) = both(end, collect).await;
        // Whole records arrived, and the last bytes after them.
        let (before, after) = all.split_at(all.len() - 10);
        assert!(
            before.len() >= SEND_MAX && before.len() < 8 << 20 && before == &bytes(&large[0])[..before.len()]
        );
        assert_eq!(after, bytes(&last[0]));
    });
}

#[test]
fn the_end_of_a_session_is_the_end_of_its_stream() {
    on_each_session(|client, server| async move {
        client.write_all(&[pattern(10, 1)]).await.unwrap();
        client.shutdown().await.unwrap();
        let into = Buffer::new(100).span();
        assert_eq!(read(&server, &into).await.unwrap(), 10);
        for _ in 0..2 {
            assert_eq!(read(&server, &into).await.unwrap(), 0);
        }
        // The other direction is still open.
        server.write_all(&[pattern(20, 2)]).await.unwrap();
        assert_eq!(read(&client, &into).await.unwrap(), 20);
        // An end of the connection without one of the session.
        server.stream().shutdown().unwrap();
        assert_eq!(read(&client, &into).await.unwrap(), 0);
        assert!(client.failure().is_none());
    });
}

#[test]
fn invalid_records_end_a_session() {
    on_each_session(|client, server| async move {
        client.write_all(&[pattern(10, 1)]).await.unwrap();
        // A record whose tag is wrong, behind a valid one.
        let forged = [&[23, 3, 3, 0, 40][..], &[0; 40]].concat();
        client.stream().write_all(&[Buffer::copy_of(&forged).span()]).await.unwrap();
        let into = Buffer::new(100).span();
        assert_eq!(read(&server, &into).await.unwrap(), 10);
        for _ in 0..2 {
            read(&server, &into).await.unwrap_err();
        }
        assert!(server.failure().is_some());
        // The peer receives one record, of an alert, and no data.
        server.shutdown().await.unwrap();
        assert_eq!(client.stream().read(&into).await.unwrap(), ALERT_RECORD.len() + 19);
        assert_eq!(bytes(&into.slice(0..ALERT_RECORD.len())), ALERT_RECORD);
        assert_eq!(client.stream().read(&into).await.unwrap(), 0);
    });
}

/// The header of an encrypted record of an alert: 2 bytes, their type and a tag.
const ALERT_RECORD: [u8; 5] = [23, 3, 3, 0, 19];

#[test]
fn the_memory_of_transfers_is_limited() {
    assert_eq!(Buffer::new(SEND_MAX + (4 << 10) + 22 * 9).span().allocation().1, OUTPUT_MAX);
    on_each_session(|client, server| async move {
        let data = [pattern(8 << 20, 1), pattern(8 << 20, 2)];
        let into = [Buffer::new(8 << 20).span(), Buffer::new(8 << 20).span()];
        let largest = Cell::new(0);
        let observe = async {
            loop {
                largest.set(client.transfer_bytes().max(server.transfer_bytes()).max(largest.get()));
                Reactor::current().yield_now().await;
            }
        };
        let upward = both(client.write_all(&data[..1]), server.read_exact(&into[..1]));
        let downward = both(server.write_all(&data[1..]), client.read_exact(&into[1..]));
        let transfers = async {
            let (upward, downward) = both(upward, downward).await;
            assert_eq!([upward.0, upward.1, downward.0, downward.1], [Ok(()); 4]);
        };
        match select(transfers, observe).await {
            Either::Left(()) => {}
            Either::Right(never) => never,
        }
        let limit = TlsStream::BYTES - TlsSession::BYTES;
        assert!((OUTPUT_MAX..=limit).contains(&largest.get()), "{} of {limit} bytes", largest.get());
    });
}

#[test]
fn a_read_yields_after_each_receive() {
    on_each_session(|client, server| async move {
        // One record, which takes three receives.
        client.write_all(&[pattern(RECORD_MAX, 1)]).await.unwrap();
        let (into, mut polls) = (Buffer::new(RECORD_MAX).span(), 0);
        let read = poll_fn(|context| {
            polls += 1;
            server.poll_read(context, &into)
        });
        assert_eq!(read.await, Ok(RECORD_MAX));
        assert!(polls > 3, "{polls} polls");
    });
}

#[test]
fn a_read_is_done_when_its_bytes_have_arrived() {
    on_each_session(|client, server| async move {
        let (link, into) = (Link::Tls(server), Buffer::new(60).span());
        let read = link.read(&into);
        assert!(!read.is_done());
        client.write_all(&[pattern(100, 1)]).await.unwrap();
        for _ in 0..1_000_000 {
            if read.is_done() {
                break;
            }
            Reactor::current().yield_now().await;
        }
        assert!(read.is_done());
        assert_eq!(read.await, Ok(60));
        // The rest of the record was decrypted.
        let read = link.read(&into);
        assert!(read.is_done());
        assert_eq!(read.await, Ok(40));
    });
}

#[test]
fn a_flood_within_a_handshake_ends_it() {
    on_each_backend(async |client, server| {
        let secret = key(TlsKeyHash::Sha256, 1);
        let mut session = TlsSession::client(&secret).unwrap();
        assert!(!session.negotiate().unwrap());
        let hello = bytes(&session.take_output().unwrap());
        let server = TlsStream::accept(Rc::new(server), &secret, &hello).unwrap();
        // Records that change the cipher, which have no effect.
        let flood = Buffer::copy_of(&[20, 3, 3, 0, 1, 1].repeat(4 << 10)).span();
        let sent = Cell::new(0);
        let send = async {
            while sent.get() < 8 << 20 {
                client.write_all(std::slice::from_ref(&flood)).await.unwrap();
                sent.set(sent.get() + flood.len());
            }
        };
        let Either::Right(result) = select(send, server.negotiate()).await else {
            panic!("the handshake continues after {} bytes", sent.get())
        };
        assert_eq!(result.unwrap_err().kind(), IoErrorKind::Other);
        assert_eq!(server.failure(), Some(TlsError("the handshake is too long")));
    });
}

#[test]
fn another_key_is_refused() {
    on_each_backend(async |client, server| {
        let client = TlsStream::connect(Rc::new(client), &key(TlsKeyHash::Sha256, 1));
        let server = TlsStream::accept(Rc::new(server), &key(TlsKeyHash::Sha256, 2), &[]).unwrap();
        let (ours, theirs) = both(client.negotiate(), server.negotiate()).await;
        ours.unwrap_err();
        theirs.unwrap_err();
        assert!(client.failure().is_some() && server.failure().is_some());
    });
}

#[test]
fn hostile_handshakes_end() {
    for first in
        [&[22, 3, 1, 0, 4, 1, 0, 0, 0][..], &[22, 3, 1, 0xff, 0xff], &[0x80; 100], &[21, 3, 3, 0, 2, 2, 40]]
    {
        on_each_backend(async |client, server| {
            let server = TlsStream::accept(Rc::new(server), &key(TlsKeyHash::Sha256, 2), first).unwrap();
            client.shutdown().unwrap();
            server.negotiate().await.unwrap_err();
        });
    }
}
