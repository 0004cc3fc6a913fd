//! Bytes come out as they were sent, however they arrive.

use std::rc::Rc;

use proptest::prelude::*;

use super::super::testing::on_each_backend;
use super::*;
use crate::race::{First, race};

/// A message, as the protocol has them.
#[derive(Clone, Copy, Debug)]
enum Message {
    Header,
    Payload(usize),
    Skipped(usize),
    Bytes(usize),
}

impl Message {
    fn len(self) -> usize {
        match self {
            Self::Header => 28,
            Self::Payload(length) | Self::Skipped(length) | Self::Bytes(length) => length,
        }
    }
}

fn message() -> impl Strategy<Value = Message> {
    let length = || prop_oneof![1..600usize, 4000..5000usize, 30_000..40_000usize, 100_000..300_000usize];
    prop_oneof![
        4 => Just(Message::Header),
        3 => length().prop_map(Message::Payload),
        1 => length().prop_map(Message::Skipped),
        1 => (1..10_000usize).prop_map(Message::Bytes),
    ]
}

/// Bytes that differ from place to place.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

async fn take(intake: &mut Intake, message: Message) -> Result<Option<Vec<u8>>, End> {
    Ok(Some(match message {
        Message::Header => intake.header::<28>().await?.to_vec(),
        Message::Payload(length) => intake.payload(length).await?.data.peek(<[u8]>::to_vec),
        Message::Bytes(length) => intake.bytes(length).await?,
        Message::Skipped(length) => {
            intake.skip(length as u64).await?;
            return Ok(None);
        }
    }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn messages_come_out_as_they_were_sent(
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
            let mut intake = Intake::new(Rc::new(server));
            let mut at = 0;
            // Payload is kept, as that of writes in flight is: nothing may be received over it.
            let mut kept = Vec::new();
            for message in messages {
                let expected = pattern(at, message.len());
                if let Message::Payload(length) = message {
                    kept.push((intake.payload(length).await.unwrap(), expected));
                } else if let Some(bytes) = take(&mut intake, message).await.unwrap() {
                    assert!(bytes == expected, "{message:?} at {at}");
                }
                at += message.len();
            }
            for (payload, expected) in kept {
                assert!(payload.data.peek(|bytes| bytes == expected));
            }
            sender.await;
            assert_eq!(intake.header::<28>().await, Err(End::Left));
        });
    }
}

#[test]
fn a_connection_closed_in_a_message_is_told_from_one_closed_between_messages() {
    for (sent, message) in [
        (27, Message::Header),
        (0, Message::Payload(10)),
        (9, Message::Payload(10)),
        (50_000, Message::Payload(100_000)),
        (9, Message::Skipped(10)),
        (9, Message::Bytes(10)),
    ] {
        on_each_backend(async |client, server| {
            client.write_all(&[Buffer::new(sent).span()]).await.unwrap();
            drop(client);
            let mut intake = Intake::new(Rc::new(server));
            assert_eq!(take(&mut intake, message).await, Err(End::Cut), "{message:?}");
        });
    }
}

#[test]
fn a_receive_that_was_given_up_goes_on() {
    on_each_backend(async |client, server| {
        let mut intake = Intake::new(Rc::new(server));
        for _ in 0..3 {
            let yielded = Reactor::current().yield_now();
            assert!(matches!(race(yielded, intake.header::<28>()).await, First::Left(())));
        }
        client.write_all(&[Buffer::copy_of(&pattern(0, 28)).span()]).await.unwrap();
        assert_eq!(intake.header::<28>().await.unwrap().as_slice(), pattern(0, 28));
    });
}

#[test]
fn a_watchdog_sees_whether_a_message_has_begun() {
    on_each_backend(async |client, server| {
        let mut intake = Intake::new(Rc::new(server));
        let movement = intake.movement().clone();
        let within = || movement.within.get();
        assert!(!within());
        client.write_all(&[Buffer::new(20).span()]).await.unwrap();
        {
            let mut header = std::pin::pin!(intake.header::<28>());
            while !within() {
                let yielded = Reactor::current().yield_now();
                assert!(matches!(race(yielded, header.as_mut()).await, First::Left(())));
            }
            client.write_all(&[Buffer::new(8).span()]).await.unwrap();
            header.await.unwrap();
        }
        assert!(!within());
    });
}

#[test]
fn what_is_asked_for_follows_what_comes() {
    let mut ask = STAGE_MIN;
    for _ in 0..20 {
        ask = adapted(ask, ask, ask);
    }
    assert_eq!(ask, STAGE_MAX);
    assert_eq!(adapted(ask, ask / 2, ask), ask);
    for _ in 0..20 {
        ask = adapted(ask, 28, ask);
    }
    assert_eq!(ask, STAGE_MIN);
}
