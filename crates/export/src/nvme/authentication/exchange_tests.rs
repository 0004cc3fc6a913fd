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

/// The type, the identifier and the explanation of the answer to a first message.
fn explanation(first: &[u8]) -> (u8, u8, u8) {
    let keys = keys();
    let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
    exchange.receive(first);
    assert_eq!(exchange.result(), None);
    let answer = exchange.send();
    (answer[0], answer[1], answer[7])
}

#[test]
fn the_failure_of_a_negotiation_is_explained() {
    let (kind, identifier, _) = explanation(&negotiation(&[1, 2, 3], &[0, 1]));
    assert_eq!((kind, identifier), (1, 1), "a challenge");
    assert_eq!(explanation(&negotiation(&[4], &[0])), (0, 0xf0, 4));
    assert_eq!(explanation(&negotiation(&[1], &[1, 2, 3])), (0, 0xf0, 5));
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
    ) {
        let keys = keys();
        let mut exchange = AuthenticationExchange::new(&keys, "nqn.host", "nqn.subsystem");
        exchange.receive(&negotiation(&[1, 2, 3], &[0]));
        exchange.send();
        for step in steps {
            match step {
                None => drop(exchange.send()),
                Some((kind, rest)) => exchange.receive(&[&kind[..], &[0, 0, 9, 0], &rest].concat()),
            }
            prop_assert_ne!(exchange.result(), Some(true));
        }
    }
}
