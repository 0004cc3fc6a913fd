//! The choice of the next write class, and the count of answered requests.

use format::{Item, LayerBlock, LayerId};
use proptest::prelude::*;
use reactor::{Buffer, local_oneshot};
use smallvec::SmallVec;

use super::*;
use crate::log::request::Effect;

const ALL: [WriteClass; 5] =
    [WriteClass::User, WriteClass::Trim, WriteClass::Cold, WriteClass::Freeing, WriteClass::Checkpoint];

fn write(blocks: u16) -> Request {
    let item = Item::Write { layer: LayerId::new(20), block: LayerBlock::new(0), count: blocks };
    Request {
        items: SmallVec::from_elem(item, 1),
        data: SmallVec::from_elem(Buffer::new(usize::from(blocks) * format::limits::BLOCK).span(), 1),
        effect: Effect::Nothing,
        reply: Some(local_oneshot().0),
    }
}

fn index(class: WriteClass) -> usize {
    ALL.iter().position(|other| *other == class).unwrap()
}

#[test]
fn the_checkpoint_alternates_with_the_others_which_take_turns() {
    let mut turn = ClassTurn::default();
    let mut order = Vec::new();
    for _ in 0..6 {
        let next = turn.next(|class| class != WriteClass::Freeing).unwrap();
        order.push(next);
        turn = turn.after(next);
    }
    use WriteClass::{Checkpoint, Cold, Trim, User};
    assert_eq!(order, [User, Checkpoint, Trim, Checkpoint, Cold, Checkpoint]);
    assert_eq!(turn.next(|_| false), None);
}

proptest! {
    /// With any classes ready at any time, the choice is a ready class, and a class that stays
    /// ready is served within two rounds of the others.
    #[test]
    fn no_ready_class_starves(rounds in proptest::collection::vec(any::<[bool; 5]>(), 0..200)) {
        let mut turn = ClassTurn::default();
        let mut waited = [0; 5];
        for ready in rounds {
            let next = turn.next(|class| ready[index(class)]);
            prop_assert_eq!(next.is_some(), ready.contains(&true));
            let Some(next) = next else { continue };
            prop_assert!(ready[index(next)]);
            turn = turn.after(next);
            for class in ALL {
                let waits = ready[index(class)] && class != next;
                waited[index(class)] = if waits { waited[index(class)] + 1 } else { 0 };
                prop_assert!(waited[index(class)] <= 2 * NON_CHECKPOINT_CLASSES.len());
            }
        }
    }
}

#[test]
fn a_mark_is_settled_when_all_requests_before_it_were_answered() {
    let mut queue = CommitQueue::default();
    let (now, later) = (Sequence::new(5), Sequence::new(7));
    assert!(queue.is_settled(&queue.mark(), now));
    queue.push(WriteClass::User, write(1));
    queue.push(WriteClass::Trim, write(1));
    let mark = queue.mark();
    queue.push(WriteClass::User, write(1));
    queue.count_answered(WriteClass::User, 1);
    assert!(!queue.is_settled(&mark, now));
    // The front part of a refused request may be in a record before the sequence 7.
    assert_eq!(queue.take_refused(WriteClass::Trim, later).len(), 1);
    queue.count_answered(WriteClass::Trim, 1);
    assert!(!queue.is_settled(&mark, now));
    assert!(queue.is_settled(&mark, later));
    assert!(!queue.is_settled(&queue.mark(), later));
}

#[test]
#[should_panic(expected = "answered once")]
fn a_second_answer_is_a_bug() {
    let mut queue = CommitQueue::default();
    queue.push(WriteClass::User, write(1));
    queue.count_answered(WriteClass::User, 2);
}

#[test]
fn a_record_is_full_when_its_class_has_enough_blocks() {
    let mut queue = CommitQueue::default();
    queue.push(WriteClass::User, write(200));
    queue.push(WriteClass::Cold, write(56));
    assert!(!queue.fills_record(WriteClass::User));
    assert_eq!(queue.small_payload(WriteClass::User, 1), Some(200));
    queue.push(WriteClass::User, write(56));
    assert!(queue.fills_record(WriteClass::User) && !queue.fills_record(WriteClass::Cold));
    assert_eq!(queue.small_payload(WriteClass::User, 1), None);
    assert_eq!(queue.next_class(|class| class == WriteClass::User), Some(WriteClass::Cold));
}
