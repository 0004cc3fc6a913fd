//! The messages of an authentication, against a host with right and with wrong secrets.

use proptest::prelude::*;

use super::exchange::AuthenticationExchange;
use super::secret::DhChapKeys;

fn keys() -> DhChapKeys {
    DhChapKeys { host: vec![1; 32], controller: None }
}

fn negotiation(hashes: &[u8], groups: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 72];
    (bytes[4], bytes[7], bytes[8]) = (9, 1, 1);
    (bytes[10], bytes[11]) = (hashes.len() as u8, groups.len() as u8);
    bytes[12..12 + hashes.len()].copy_from_slice(hashes);
    bytes[42..42 + groups.len()].copy_from_slice(groups);
    bytes
}

/// Runs the computations that an exchange waits for.
fn compute(exchange: &mut AuthenticationExchange<'_>) {
    while let Some(task) = exchange.task() {
        exchange.resume(Some(task.run()));
    }
}

/// The type, the identifier and the explanation of the answer to a first message.
fn explanation(first: &[u8]) -> (u8, u8, u8) {
    let keys = keys();
    let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
    exchange.receive(first);
    compute(&mut exchange);
    assert_eq!(exchange.result(), None);
    let answer = exchange.send();
    (answer[0], answer[1], answer[7])
}

#[test]
fn the_failure_of_a_negotiation_is_explained() {
    let (kind, identifier, _) = explanation(&negotiation(&[1, 2, 3], &[0, 1]));
    assert_eq!((kind, identifier), (1, 1), "a challenge");
    assert_eq!(explanation(&negotiation(&[4], &[0])), (0, 0xf0, 4));
    assert_eq!(explanation(&negotiation(&[1], &[6, 0x10])), (0, 0xf0, 5));
    assert_eq!(explanation(&negotiation(&[], &[])), (0, 0xf0, 4));
    let mut other_protocol = negotiation(&[1], &[0]);
    other_protocol[8] = 2;
    assert_eq!(explanation(&other_protocol), (0, 0xf0, 2));
    let mut secure_channel = negotiation(&[1], &[0]);
    secure_channel[6] = 1;
    assert_eq!(explanation(&secure_channel), (0, 0xf0, 3));
    let mut truncated = negotiation(&[1], &[0]);
    truncated[7] = 2;
    assert_eq!(explanation(&truncated), (0, 0xf0, 6));
    assert_eq!(explanation(&[1, 4, 0, 0, 9, 0]), (0, 0xf0, 7));
    assert_eq!(explanation(&[]), (0, 0xf0, 6));
}

#[test]
fn the_best_group_of_a_host_is_chosen() {
    let challenge = |groups: &[u8]| {
        let keys = keys();
        let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
        exchange.receive(&negotiation(&[1], groups));
        compute(&mut exchange);
        let challenge = exchange.send();
        (challenge[9], usize::from(challenge[10]) | usize::from(challenge[11]) << 8, challenge.len() - 48)
    };
    for (groups, number, length) in [
        (&[0, 1, 2, 3, 4, 5][..], 2, 384),
        (&[5, 4, 3, 1, 0], 3, 512),
        (&[5, 4], 4, 768),
        (&[0, 5, 1], 5, 1024),
        (&[0, 1], 1, 256),
        (&[9, 0], 0, 0),
    ] {
        assert_eq!(challenge(groups), (number, length, length), "{groups:?}");
    }
}

#[test]
fn a_computation_that_fails_ends_the_exchange() {
    let keys = keys();
    let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
    exchange.receive(&negotiation(&[1], &[1]));
    assert!(exchange.task().is_some());
    exchange.resume(None);
    let answer = exchange.send();
    assert_eq!((answer[1], answer[7], exchange.result()), (0xf0, 1, Some(false)));
}

#[test]
fn values_of_a_group_are_required_and_checked() {
    // With and without a value, and with invalid ones.
    for (groups, value, expected) in [
        (&[0][..], vec![2; 256], 6),
        (&[1], Vec::new(), 6),
        (&[1], vec![2; 255], 6),
        (&[1], vec![0; 256], 6),
        (&[1], vec![0xff; 256], 6),
        (&[1], vec![2; 1025], 6),
        // A valid one, and a wrong response.
        (&[1], vec![2; 256], 1),
    ] {
        let keys = keys();
        let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
        exchange.receive(&negotiation(&[1], groups));
        compute(&mut exchange);
        exchange.send();
        let mut reply = vec![1, 2, 0, 0, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        reply[10..12].copy_from_slice(&(value.len() as u16).to_le_bytes());
        reply.extend([0; 64]);
        reply.extend(&value);
        exchange.receive(&reply);
        compute(&mut exchange);
        let answer = exchange.send();
        assert_eq!((answer[1], answer[7]), (0xf0, expected), "{groups:?} {}", value.len());
    }
}

#[test]
fn challenges_differ() {
    let challenge = || {
        let keys = keys();
        let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
        exchange.receive(&negotiation(&[1], &[0]));
        exchange.send()[16..].to_vec()
    };
    assert_eq!(challenge().len(), 32);
    assert_ne!(challenge(), challenge());
}

proptest! {
    /// No sequence of messages authenticates a host without its key.
    #[test]
    fn random_messages_do_not_succeed(
        steps in prop::collection::vec(
            prop::option::of((prop::sample::select(vec![
                vec![0, 0], vec![1, 2], vec![1, 4], vec![0, 0xf1], vec![1, 3],
            ]), prop::collection::vec(any::<u8>(), 0..160))),
            0..12,
        ),
        group in 0..2u8,
    ) {
        let keys = keys();
        let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
        exchange.receive(&negotiation(&[1, 2, 3], &[group]));
        compute(&mut exchange);
        exchange.send();
        for step in steps {
            match step {
                None => drop(exchange.send()),
                Some((kind, rest)) => exchange.receive(&[&kind[..], &[0, 0, 9, 0], &rest].concat()),
            }
            compute(&mut exchange);
            prop_assert_ne!(exchange.result(), Some(true));
        }
    }
}
