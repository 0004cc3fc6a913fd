//! The space gate alone: its transitions, and random histories of events.

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

const ALL: [WriteClass; 5] =
    [WriteClass::User, WriteClass::Trim, WriteClass::Cold, WriteClass::Freeing, WriteClass::Checkpoint];

fn failed() -> Option<Error> {
    Some(Error::new(ErrorKind::NoSpace, "no segment for the checkpoint"))
}

#[test]
fn a_class_waits_for_the_cleaner_then_the_peers_then_is_refused() {
    let mut gate = SpaceGate::default();
    let step = gate.no_free_segment(WriteClass::User, || false);
    assert_eq!(step.decision, SpaceState::WaitForCleaner);
    assert!(step.wake_cleaner && !step.ask_peers && gate.is_urgent());
    gate.cleaning_ended(false);
    assert_eq!(gate.state_of(WriteClass::User), SpaceState::Open, "the verdict of the cleaner retries");
    let step = gate.no_free_segment(WriteClass::User, || false);
    assert_eq!(step.decision, SpaceState::AskOtherShards);
    assert!(step.ask_peers);
    let step = gate.no_free_segment(WriteClass::Trim, || false);
    assert_eq!((step.decision, step.ask_peers), (SpaceState::AskOtherShards, false));
    gate.peers_answered(false);
    assert_eq!(gate.no_free_segment(WriteClass::User, || false).decision, SpaceState::Refuse);
    gate.class_was_refused(WriteClass::User);
    assert!(!gate.is_urgent());
}

#[test]
fn freed_segments_make_all_classes_of_lower_priority_wait_for_the_checkpoint() {
    let mut gate = SpaceGate::default();
    let step = gate.no_free_segment(WriteClass::Trim, || true);
    assert_eq!(step.decision, SpaceState::WaitForCheckpoint);
    assert_eq!(gate.state_of(WriteClass::User), SpaceState::WaitForCheckpoint);
    assert_eq!(gate.state_of(WriteClass::Freeing), SpaceState::Open, "its reserve is not used up");
    gate.checkpoint_ended(failed());
    assert!(!gate.is_waited_for());
    assert_eq!(gate.no_free_segment(WriteClass::Trim, || true).decision, SpaceState::Refuse);
    assert!(gate.space_freed(), "the checkpoint is tried again");
    let step = gate.no_free_segment(WriteClass::Trim, || true);
    assert_eq!(step.decision, SpaceState::WaitForCheckpoint);
}

#[test]
fn moved_data_of_a_compaction_never_waits_for_the_checkpoint() {
    let mut gate = SpaceGate::default();
    gate.needs_checkpoint(WriteClass::Freeing);
    assert_eq!(gate.state_of(WriteClass::Cold), SpaceState::WaitForCheckpoint);
    gate.begin_compaction(1);
    assert_eq!(gate.state_of(WriteClass::Cold), SpaceState::Open);
    assert_eq!(gate.needs_checkpoint(WriteClass::Cold).decision, SpaceState::Refuse);
    gate.end_compaction();
    assert_eq!(gate.needs_checkpoint(WriteClass::Cold).decision, SpaceState::WaitForCheckpoint);
}

/// Attempts that gain nothing, each followed by a checkpoint, until the class is refused.
fn attempts_until_refused(gate: &mut SpaceGate, class: WriteClass) -> Option<u32> {
    let refused = (0..1000).find(|_| {
        let step = gate.no_free_segment(class, || true);
        gate.checkpoint_ended(None);
        step.decision == SpaceState::Refuse
    });
    gate.class_was_refused(class);
    refused
}

#[test]
fn attempts_without_a_record_are_bounded_and_fewer_after_a_refusal() {
    for class in [WriteClass::User, WriteClass::Trim, WriteClass::Freeing] {
        let mut gate = SpaceGate::default();
        assert_eq!(attempts_until_refused(&mut gate, class), Some(ATTEMPTS_MAX));
        for _ in 0..3 {
            let few = if class == WriteClass::Freeing { ATTEMPTS_MAX } else { ROUNDS_AFTER_REFUSAL };
            assert_eq!(attempts_until_refused(&mut gate, class), Some(few));
            assert!(!gate.is_urgent());
        }
        gate.class_was_served(class);
        assert_eq!(attempts_until_refused(&mut gate, class), Some(ATTEMPTS_MAX));
    }
}

#[test]
fn a_refusal_by_the_cleaner_and_the_peers_leaves_the_next_request_all_attempts() {
    let mut gate = SpaceGate::default();
    let mut decisions = Vec::new();
    for answer in [SpaceGate::cleaning_ended, SpaceGate::peers_answered] {
        decisions.push(gate.no_free_segment(WriteClass::User, || false).decision);
        answer(&mut gate, false);
    }
    assert_eq!(decisions, [SpaceState::WaitForCleaner, SpaceState::AskOtherShards]);
    assert_eq!(gate.no_free_segment(WriteClass::User, || false).decision, SpaceState::Refuse);
    gate.class_was_refused(WriteClass::User);
    assert_eq!(attempts_until_refused(&mut gate, WriteClass::User), Some(ATTEMPTS_MAX));
}

#[test]
fn space_that_other_shards_free_ends_no_round() {
    let mut gate = SpaceGate::default();
    assert_eq!(attempts_until_refused(&mut gate, WriteClass::User), Some(ATTEMPTS_MAX));
    for _ in 0..2 * ROUNDS_AFTER_REFUSAL {
        assert_eq!(gate.no_free_segment(WriteClass::User, || false).decision, SpaceState::WaitForCleaner);
        gate.space_freed();
    }
    gate.checkpoint_ended(None);
    assert_eq!(gate.no_free_segment(WriteClass::User, || false).decision, SpaceState::WaitForCleaner);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    NoSegment(usize, bool),
    NeedsCheckpoint(usize),
    Served(usize),
    PeersAnswered(bool),
    CheckpointEnded(bool),
    SpaceFreed,
    CleaningEnded(bool),
    Compacting(u64),
    EndReclaim,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0..ALL.len(), any::<bool>()).prop_map(|(class, freeing)| Event::NoSegment(class, freeing)),
        2 => (0..ALL.len()).prop_map(Event::NeedsCheckpoint),
        2 => (0..ALL.len()).prop_map(Event::Served),
        2 => any::<bool>().prop_map(Event::PeersAnswered),
        2 => any::<bool>().prop_map(Event::CheckpointEnded),
        1 => Just(Event::SpaceFreed),
        3 => any::<bool>().prop_map(Event::CleaningEnded),
        1 => (0u64..4).prop_map(Event::Compacting),
        1 => Just(Event::EndReclaim),
    ];
    proptest::collection::vec(event, 0..200)
}

proptest! {
    /// In any history, the peers are asked once at a time, classes that a checkpoint needs never
    /// wait for one, nothing waits once reclaim has ended, and the log has a reason to refuse.
    #[test]
    fn random_histories_keep_the_promises(events in events()) {
        let mut gate = SpaceGate::default();
        let (mut asked, mut ended, mut attempts) = (false, false, [0u32; 5]);
        let (mut rounds, mut was_refused) = ([0u32; 5], [false; 5]);
        for event in events {
            let exceeds = |class: usize, attempts: &[u32; 5], rounds: &[u32; 5], was_refused: &[bool; 5]| {
                let is_limited = was_refused[class] && matches!(ALL[class], WriteClass::User | WriteClass::Trim);
                attempts[class] > ATTEMPTS_MAX || is_limited && rounds[class] >= ROUNDS_AFTER_REFUSAL
            };
            let ends_round = match event {
                Event::PeersAnswered(_) => asked,
                Event::CheckpointEnded(_) | Event::CleaningEnded(false) => true,
                _ => false,
            };
            if ends_round {
                rounds.iter_mut().zip(&attempts).for_each(|(rounds, attempts)| *rounds += u32::from(*attempts > 0));
            }
            match event {
                Event::NoSegment(class, freeing) => {
                    let before = (gate.cleaner_exhausted, gate.peers, gate.checkpoint_failure.is_some());
                    let step = gate.no_free_segment(ALL[class], || freeing);
                    prop_assert!(!(step.ask_peers && asked), "the peers are asked once at a time");
                    asked |= step.ask_peers;
                    let cleanable = !matches!(ALL[class], WriteClass::Cold | WriteClass::Checkpoint);
                    match step.decision {
                        SpaceState::Open => prop_assert!(false, "a class without space is not open"),
                        wait @ (SpaceState::WaitForCheckpoint
                        | SpaceState::WaitForCleaner
                        | SpaceState::AskOtherShards) => {
                            prop_assert!(!ended);
                            prop_assert_eq!(gate.state_of(ALL[class]), wait);
                            let counted = wait != SpaceState::AskOtherShards || step.wake_cleaner;
                            attempts[class] += u32::from(counted);
                            prop_assert!(!counted || !exceeds(class, &attempts, &rounds, &was_refused));
                            prop_assert!(wait == SpaceState::WaitForCheckpoint || cleanable);
                        }
                        SpaceState::Refuse => {
                            attempts[class] += u32::from(!ended);
                            let exhausted = before.0 && before.1 == PeerSpace::Exhausted;
                            let exceeded = !ended && exceeds(class, &attempts, &rounds, &was_refused);
                            let reason = ended || before.2 || !cleanable || exhausted || exceeded;
                            prop_assert!(reason, "refused without a reason");
                            gate.class_was_refused(ALL[class]);
                            (attempts[class], rounds[class]) = (0, 0);
                            was_refused[class] |= exceeded;
                        }
                    }
                }
                Event::NeedsCheckpoint(class) => {
                    if gate.needs_checkpoint(ALL[class]).decision == SpaceState::Refuse {
                        gate.class_was_refused(ALL[class]);
                        (attempts[class], rounds[class]) = (0, 0);
                    }
                }
                Event::Served(class) => {
                    gate.class_was_served(ALL[class]);
                    (attempts[class], rounds[class], was_refused[class]) = (0, 0, false);
                }
                Event::PeersAnswered(gained) if asked => {
                    asked = false;
                    gate.peers_answered(gained);
                    prop_assert!(!gate.is_waited_for());
                }
                Event::PeersAnswered(_) => {}
                Event::CheckpointEnded(succeeds) => {
                    gate.checkpoint_ended(if succeeds { None } else { failed() });
                    prop_assert!(!gate.is_waited_for());
                }
                Event::SpaceFreed => {
                    gate.space_freed();
                    prop_assert!(!gate.is_waited_for() && gate.checkpoint_failure().is_none());
                }
                Event::CleaningEnded(gained) => gate.cleaning_ended(gained),
                Event::Compacting(_) if gate.is_compacting() => gate.end_compaction(),
                Event::Compacting(segments) => {
                    gate.begin_compaction(segments);
                    let granted = (0..10).filter(|_| gate.take_compaction_segment()).count();
                    prop_assert_eq!(granted as u64, segments);
                }
                Event::EndReclaim => {
                    ended = true;
                    gate.end_reclaim();
                }
            }
            prop_assert_eq!(gate.state_of(WriteClass::Checkpoint), SpaceState::Open);
            prop_assert!(ALL.iter().all(|class| gate.state_of(*class) != SpaceState::Refuse));
            prop_assert!(!gate.is_compacting() || gate.state_of(WriteClass::Cold) == SpaceState::Open);
            prop_assert!(!ended || !gate.is_waited_for());
        }
    }
}
