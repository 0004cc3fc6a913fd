//! The records in flight alone: their order, and what is durable.

use std::collections::VecDeque;

use format::{Item, LayerId, Row, Scheme};
use proptest::prelude::*;
use smallvec::SmallVec;

use super::*;
use crate::log::request::{Effect, Request};

fn record(sequence: Sequence) -> Rc<PendingRecord> {
    let scheme: Scheme = "4+1".parse().unwrap();
    let request = Request {
        items: SmallVec::from_elem(Item::DropLayer { layer: LayerId::new(20) }, 1),
        data: SmallVec::new(),
        effect: Effect::Nothing,
        reply: None,
    };
    let mut queue: VecDeque<_> = [request].into();
    let batch = Batch::gather(&mut queue, scheme, 4, 1, false);
    let layout = RecordLayout::new(scheme, Row::new(0), batch.blocks());
    PendingRecord::new(sequence, (SegmentId::new(1), layout), Vec::new(), batch, WriteClass::User)
}

proptest! {
    /// Records written in any order are applied in the order of their sequences.
    #[test]
    fn records_are_applied_in_order(order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle()) {
        let mut records = RecordsInFlight::new(Sequence::new(40));
        let all: Vec<_> = order.iter().map(|_| {
            let next = record(records.next());
            records.push(next.clone());
            next
        }).collect();
        let mut applied = Vec::new();
        for written in &order {
            records.mark_written(&all[*written]);
            let waits: u64 = records.write_waits().iter().map(|(_, requests)| requests).sum();
            prop_assert_eq!(waits, records.len() as u64);
            while let Some(next) = records.pop_written() {
                records.set_applied(&next);
                applied.push(next.sequence.get());
            }
        }
        prop_assert_eq!(applied, (41..53).collect::<Vec<u64>>());
        prop_assert_eq!((records.len(), records.applied().get(), records.durable().get()), (0, 52, 40));
    }
}

#[test]
#[should_panic(expected = "L1: sequences have no gaps")]
fn a_gap_in_the_sequences_is_a_bug() {
    RecordsInFlight::new(Sequence::new(40)).push(record(Sequence::new(42)));
}

#[test]
#[should_panic(expected = "L4: only applied records are durable")]
fn a_record_in_flight_is_not_durable() {
    let mut records = RecordsInFlight::new(Sequence::new(40));
    records.push(record(Sequence::new(41)));
    records.set_durable(Sequence::new(41));
}

#[test]
#[should_panic(expected = "L2: a record is applied before it is written")]
fn an_unwritten_record_is_not_applied() {
    let mut records = RecordsInFlight::new(Sequence::new(40));
    let next = record(Sequence::new(41));
    records.push(next.clone());
    records.set_applied(&next);
}
