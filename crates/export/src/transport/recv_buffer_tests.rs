//! Bytes are returned as they were sent, however they arrive.

use std::rc::Rc;

use proptest::prelude::*;

use super::super::testing::on_each_backend;
use super::*;
use crate::select::{Either, select};

/// A message or payload.
#[derive(Clone, Copy, Debug)]
enum TestMessage {
    Header,
    Payload(usize),
    Skipped(usize),
    Bytes(usize),
}

impl TestMessage {
    fn len(self) -> usize {
        match self {
            Self::Header => 28,
            Self::Payload(length) | Self::Skipped(length) | Self::Bytes(length) => length,
        }
    }
}

fn message() -> impl Strategy<Value = TestMessage> {
    let length = || prop_oneof![1..600usize, 4000..5000usize, 30_000..40_000usize, 100_000..300_000usize];
    prop_oneof![
        4 => Just(TestMessage::Header),
        3 => length().prop_map(TestMessage::Payload),
        1 => length().prop_map(TestMessage::Skipped),
        1 => (1..10_000usize).prop_map(TestMessage::Bytes),
    ]
}

/// A pattern of bytes that depends on the position.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

async fn take(recv: &mut RecvBuffer, message: TestMessage) -> Result<Option<Vec<u8>>, RecvError> {
    Ok(Some(match message {
        TestMessage::Header => recv.header::<28>().await?.to_vec(),
        TestMessage::Payload(length) => recv.payload(length).await?.data.peek(<[u8]>::to_vec),
        TestMessage::Bytes(length) => recv.bytes(length).await?,
        TestMessage::Skipped(length) => {
            recv.skip(length as u64).await?;
            return Ok(None);
        }
    }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn messages_are_returned_as_they_were_sent(
        messages in prop::collection::vec(message(), 1..60),
        splits in prop::collection::vec(1..200_000usize, 1..20),
    ) {
        let total: usize = messages.iter().map(|message| message.len()).sum();
        on_each_backend(async |client, server| {
            let (splits, messages) = (splits.clone(), messages.clone());
            let sender = Reactor::current().spawn(async move {
                let all = Buffer::copy_of(&pattern(0, total)).span();
                let mut at = 0;
                for split in splits.iter().cycle() {
                    let next = (at + split).min(total);
                    client.write_all(&[all.slice(at..next)]).await.unwrap();
                    if next == total {
                        break;
                    }
                    at = next;
                }
            });
            let mut recv = RecvBuffer::new(Rc::new(server));
            let mut at = 0;
            // Payload is held, as that of writes in flight: it must not be overwritten.
            let mut kept = Vec::new();
            for message in messages {
                let expected = pattern(at, message.len());
                if let TestMessage::Payload(length) = message {
                    kept.push((recv.payload(length).await.unwrap(), expected));
                } else if let Some(bytes) = take(&mut recv, message).await.unwrap() {
                    assert!(bytes == expected, "{message:?} at {at}");
                }
                at += message.len();
            }
            for (payload, expected) in kept {
                assert!(payload.data.peek(|bytes| bytes == expected));
            }
            sender.await;
            assert_eq!(recv.header::<28>().await, Err(RecvError::Closed));
        });
    }
}

#[test]
fn a_close_within_a_message_differs_from_one_between_messages() {
    for (sent, message) in [
        (27, TestMessage::Header),
        (0, TestMessage::Payload(10)),
        (9, TestMessage::Payload(10)),
        (50_000, TestMessage::Payload(100_000)),
        (9, TestMessage::Skipped(10)),
        (9, TestMessage::Bytes(10)),
    ] {
        on_each_backend(async |client, server| {
            client.write_all(&[Buffer::new(sent).span()]).await.unwrap();
            drop(client);
            let mut recv = RecvBuffer::new(Rc::new(server));
            assert_eq!(take(&mut recv, message).await, Err(RecvError::Truncated), "{message:?}");
        });
    }
}

#[test]
fn a_cancelled_receive_can_be_resumed() {
    on_each_backend(async |client, server| {
        let mut recv = RecvBuffer::new(Rc::new(server));
        for _ in 0..3 {
            let yielded = Reactor::current().yield_now();
            assert!(matches!(select(yielded, recv.header::<28>()).await, Either::Left(())));
        }
        client.write_all(&[Buffer::copy_of(&pattern(0, 28)).span()]).await.unwrap();
        assert_eq!(recv.header::<28>().await.unwrap().as_slice(), pattern(0, 28));
    });
}

#[test]
fn a_watchdog_sees_whether_a_message_has_begun() {
    on_each_backend(async |client, server| {
        let mut recv = RecvBuffer::new(Rc::new(server));
        let progress = recv.progress().clone();
        let within = || progress.within.get();
        assert!(!within());
        client.write_all(&[Buffer::new(20).span()]).await.unwrap();
        {
            let mut header = std::pin::pin!(recv.header::<28>());
            while !within() {
                let yielded = Reactor::current().yield_now();
                assert!(matches!(select(yielded, header.as_mut()).await, Either::Left(())));
            }
            client.write_all(&[Buffer::new(8).span()]).await.unwrap();
            header.await.unwrap();
        }
        assert!(!within());
    });
}

#[test]
fn receive_sizes_adapt_to_received_sizes() {
    let mut ask = CHUNK_MIN;
    for _ in 0..20 {
        ask = adapted_size(ask, ask, ask);
    }
    assert_eq!(ask, CHUNK_MAX);
    assert_eq!(adapted_size(ask, ask / 2, ask), ask);
    for _ in 0..20 {
        ask = adapted_size(ask, 28, ask);
    }
    assert_eq!(ask, CHUNK_MIN);
}
