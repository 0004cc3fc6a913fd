//! Replies are sent whole and in order, small ones ahead of bulk ones.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use reactor::Reactor;

use super::super::budget::Budget;
use super::super::testing::on_each_backend;
use super::*;
use crate::reserve::Reserve;
use crate::select::{Either, select};

fn head(cookie: u64) -> ReplyHead {
    ReplyHead::new(&[cookie.to_le_bytes(), (!cookie).to_le_bytes()].concat())
}

fn reply(cookie: u64, payload: Option<&[u8]>) -> QueuedReply {
    let reply = QueuedReply::part(head(cookie));
    match payload {
        Some(payload) => reply.with(Buffer::copy_of(payload).span()),
        None => reply,
    }
}

fn small(replies: impl IntoIterator<Item = QueuedReply>) -> Queues {
    Queues { small: replies.into_iter().collect(), bulk: VecDeque::new() }
}

fn budget(requests: usize, payload_bytes: usize) -> Rc<Budget> {
    Budget::new(requests, payload_bytes, &Reserve::new(1 << 30))
}

fn bytes(spans: &[Span]) -> Vec<u8> {
    spans.iter().flat_map(|span| span.peek(<[u8]>::to_vec)).collect()
}

fn expected(cookie: u64, payload: &[u8]) -> Vec<u8> {
    [head(cookie).as_bytes(), payload].concat()
}

#[test]
fn replies_without_payload_are_one_run() {
    let mut queues = small((0..10).map(|cookie| reply(cookie, None)));
    let mut batch = Batch::default();
    assert!(batch.fill(&mut queues) && queues.is_empty());
    assert_eq!(batch.spans.len(), 1);
    assert_eq!(bytes(&batch.spans), (0..10).flat_map(|cookie| expected(cookie, b"")).collect::<Vec<_>>());
    batch.clear();
    assert!(!batch.fill(&mut queues));
}

#[test]
fn payload_follows_its_head() {
    let mut queues = small([reply(0, None), reply(1, Some(b"one")), reply(2, Some(b"two")), reply(3, None)]);
    let mut batch = Batch::default();
    assert!(batch.fill(&mut queues));
    assert_eq!(batch.spans.len(), 5);
    let parts = [expected(0, b""), expected(1, b"one"), expected(2, b"two"), expected(3, b"")];
    assert_eq!(bytes(&batch.spans), parts.concat());
}

#[test]
fn batches_are_limited() {
    let large = vec![7; BYTES_MAX / 2];
    let mut batch = Batch::default();
    let mut queues = small((0..5).map(|cookie| reply(cookie, Some(&large))));
    assert!(batch.fill(&mut queues));
    assert_eq!(queues.small.len(), 3);
    std::mem::swap(&mut queues.small, &mut queues.bulk);
    batch.clear();
    assert!(batch.fill(&mut queues));
    assert_eq!(queues.bulk.len(), 1);
    let mut queues = small((0..1000).map(|cookie| reply(cookie, Some(b"x"))));
    batch.clear();
    assert!(batch.fill(&mut queues));
    assert_eq!((queues.small.len(), batch.spans.len()), (1000 - REPLIES_MAX, 2 * REPLIES_MAX));
}

#[test]
fn neither_queue_starves_the_other() {
    let large = vec![7; 2 * BYTES_MAX];
    let mut queues = small((0..1000).map(|cookie| reply(cookie, None)));
    queues.bulk.extend((0..3).map(|cookie| reply(cookie, Some(&large))));
    let mut batch = Batch::default();
    for sent in 1..=3 {
        batch.clear();
        assert!(batch.fill(&mut queues));
        assert_eq!(queues.small.len(), 1000 - sent * (REPLIES_MAX - 1));
        assert_eq!(queues.bulk.len(), 3 - sent);
    }
}

#[test]
fn queued_replies_are_sent_and_their_charges_released() {
    on_each_backend(async |client, server| {
        let (send_queue, budget) = (SendQueue::default(), budget(100, 100));
        let push = async {
            for cookie in 0..10 {
                let charge = budget.charge_request(1).await;
                send_queue.push(QueuedReply { charge: Some(charge), ..reply(cookie, Some(b"data")) });
                if cookie % 3 == 0 {
                    Reactor::current().yield_now().await;
                }
            }
            budget.idle().await;
        };
        assert!(matches!(select(push, send_queue.send_all(&server)).await, Either::Left(())));
        assert!(!send_queue.progress().within.get());
        let received = Buffer::new(10 * 20).span();
        client.read_exact(std::slice::from_ref(&received)).await.unwrap();
        let sent: Vec<u8> = (0..10).flat_map(|cookie| expected(cookie, b"data")).collect();
        assert_eq!(bytes(&[received]), sent);
    });
}

#[test]
fn a_closed_queue_discards_replies() {
    let (send_queue, budget) = (SendQueue::default(), budget(1, 0));
    let charge = || match pin!(budget.charge_request(0)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(charge) => Some(charge),
        Poll::Pending => None,
    };
    send_queue.push(QueuedReply { charge: charge(), ..reply(1, None) });
    assert!(charge().is_none());
    send_queue.close();
    send_queue.push(QueuedReply { charge: Some(charge().unwrap()), ..reply(2, None) });
    assert!(charge().is_some());
}

#[test]
fn the_parts_of_a_message_are_sent_together() {
    let mut queues = small((0..REPLIES_MAX as u64 - 2).map(|cookie| reply(cookie, None)));
    queues.small.push_back(reply(1000, Some(b"first")).continued());
    queues.small.push_back(reply(1001, Some(b"second")).continued());
    queues.small.push_back(reply(1002, None));
    queues.small.push_back(reply(1003, None));
    queues.bulk.push_back(reply(2000, Some(b"bulk")));
    let mut batch = Batch::default();
    assert!(batch.fill(&mut queues));
    assert_eq!((queues.small.len(), queues.bulk.len()), (1, 1));
    let sent = bytes(&batch.spans);
    let end = [expected(1000, b"first"), expected(1001, b"second"), expected(1002, b"")].concat();
    assert!(sent.ends_with(&end));
}
