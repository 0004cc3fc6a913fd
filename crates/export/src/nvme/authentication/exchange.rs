//! One authentication transaction: the messages of a host and the answers to them.
//!
//! Always true: an exchange succeeds only after a right response to a challenge that it has drawn;
//! after a failure it cannot succeed. Must not know connections.

use ring::hmac::{self, HMAC_SHA256, HMAC_SHA384, HMAC_SHA512};

use super::secret::DhChapKeys;
use crate::nvme::wire::{AuthenticationFailure, ControllerMessage, HostMessage};

/// The identifier of the group without a Diffie-Hellman exchange.
const NULL_GROUP: u8 = 0;

/// A hash function of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExchangeHash {
    number: u8,
    bytes: usize,
}

impl ExchangeHash {
    /// The functions, best first.
    const ALL: [Self; 3] =
        [Self { number: 3, bytes: 64 }, Self { number: 2, bytes: 48 }, Self { number: 1, bytes: 32 }];

    fn algorithm(self) -> hmac::Algorithm {
        match self.number {
            1 => HMAC_SHA256,
            2 => HMAC_SHA384,
            _ => HMAC_SHA512,
        }
    }
}

/// The next message.
#[derive(Debug)]
enum ExchangeStep {
    /// The host proposes hash functions.
    Negotiate,
    /// The host fetches the challenge.
    Challenge(ExchangeHash),
    /// The host responds to the challenge.
    Reply {
        hash: ExchangeHash,
        sequence: u32,
        challenge: Vec<u8>,
    },
    /// The host fetches the result, and the response to its own challenge.
    Success {
        hash: ExchangeHash,
        response: Option<Vec<u8>>,
    },
    /// The host confirms that the response was right.
    Confirm,
    /// The host fetches the explanation of the failure.
    Failure(AuthenticationFailure),
    Ended(bool),
}

/// One authentication of a host.
pub(in crate::nvme) struct AuthenticationExchange<'a> {
    keys: &'a DhChapKeys,
    host: &'a str,
    subsystem: &'a str,
    transaction: u16,
    step: ExchangeStep,
}

impl<'a> AuthenticationExchange<'a> {
    pub(in crate::nvme) fn new(keys: &'a DhChapKeys, host: &'a str, subsystem: &'a str) -> Self {
        Self { keys, host, subsystem, transaction: 0, step: ExchangeStep::Negotiate }
    }

    /// The result, once there is one.
    pub(in crate::nvme) fn result(&self) -> Option<bool> {
        match self.step {
            ExchangeStep::Ended(result) => Some(result),
            _ => None,
        }
    }

    /// Takes a message of the host. The host learns of a failure with its next message.
    pub(in crate::nvme) fn receive(&mut self, bytes: &[u8]) {
        let step = std::mem::replace(&mut self.step, ExchangeStep::Ended(false));
        self.step = match self.next_step(step, bytes) {
            Ok(step) => step,
            Err(failure) => ExchangeStep::Failure(failure),
        };
    }

    fn next_step(&mut self, step: ExchangeStep, bytes: &[u8]) -> Result<ExchangeStep, AuthenticationFailure> {
        let (transaction, message) = HostMessage::decode(bytes)?;
        if !matches!(step, ExchangeStep::Negotiate) && transaction != self.transaction {
            return Err(AuthenticationFailure::Payload);
        }
        match (step, message) {
            (ExchangeStep::Negotiate, HostMessage::Negotiate { hashes, groups, secure_channel }) => {
                self.transaction = transaction;
                choose_hash(&hashes, &groups, secure_channel).map(ExchangeStep::Challenge)
            }
            (
                ExchangeStep::Reply { hash, sequence, challenge },
                HostMessage::Reply { response, challenge: own, sequence: own_sequence },
            ) => {
                let message = self.message(&challenge, sequence, b"HostHost", [self.host, self.subsystem]);
                let key = hmac::Key::new(hash.algorithm(), &self.keys.host);
                // Compares in constant time.
                hmac::verify(&key, &message, &response).map_err(|_| AuthenticationFailure::Failed)?;
                let response = own.map(|own| self.respond(hash, &own, own_sequence)).transpose()?;
                Ok(ExchangeStep::Success { hash, response })
            }
            (ExchangeStep::Confirm, HostMessage::Confirm) => Ok(ExchangeStep::Ended(true)),
            (_, HostMessage::Failure) => Ok(ExchangeStep::Ended(false)),
            // Also after a failure: the host did not fetch the explanation.
            _ => Err(AuthenticationFailure::Message),
        }
    }

    /// The message that the host fetches.
    pub(in crate::nvme) fn send(&mut self) -> Vec<u8> {
        let step = std::mem::replace(&mut self.step, ExchangeStep::Ended(false));
        let (message, next) = match step {
            ExchangeStep::Challenge(hash) => match draw(hash.bytes) {
                Some((challenge, sequence)) => {
                    let number = hash.number;
                    let message =
                        ControllerMessage::Challenge { hash: number, sequence, challenge: &challenge }
                            .encode(self.transaction);
                    (message, ExchangeStep::Reply { hash, sequence, challenge })
                }
                None => (self.failure(AuthenticationFailure::Failed), ExchangeStep::Ended(false)),
            },
            ExchangeStep::Success { hash, response } => {
                let response = response.as_deref();
                let message = ControllerMessage::Success { hash_bytes: hash.bytes, response };
                let next = if response.is_some() { ExchangeStep::Confirm } else { ExchangeStep::Ended(true) };
                (message.encode(self.transaction), next)
            }
            ExchangeStep::Failure(failure) => (self.failure(failure), ExchangeStep::Ended(false)),
            _ => (self.failure(AuthenticationFailure::Message), ExchangeStep::Ended(false)),
        };
        self.step = next;
        message
    }

    fn failure(&self, failure: AuthenticationFailure) -> Vec<u8> {
        ControllerMessage::Failure(failure).encode(self.transaction)
    }

    /// The response to a challenge of the host.
    fn respond(
        &self,
        hash: ExchangeHash,
        challenge: &[u8],
        sequence: u32,
    ) -> Result<Vec<u8>, AuthenticationFailure> {
        let key = self.keys.controller.as_ref().ok_or(AuthenticationFailure::Failed)?;
        let message = self.message(challenge, sequence, b"Controller", [self.subsystem, self.host]);
        Ok(hmac::sign(&hmac::Key::new(hash.algorithm(), key), &message).as_ref().to_vec())
    }

    /// The bytes that a response authenticates. `names`: that of the responder, and the other one.
    fn message(&self, challenge: &[u8], sequence: u32, role: &[u8], names: [&str; 2]) -> Vec<u8> {
        /// No secure channel is established.
        const NO_CHANNEL: [u8; 1] = [0];
        let [own, other] = names.map(str::as_bytes);
        let transaction = self.transaction.to_le_bytes();
        let parts: [&[u8]; 8] =
            [challenge, &sequence.to_le_bytes(), &transaction, &NO_CHANNEL, role, own, &[0], other];
        parts.concat()
    }
}

fn choose_hash(
    hashes: &[u8],
    groups: &[u8],
    secure_channel: u8,
) -> Result<ExchangeHash, AuthenticationFailure> {
    if secure_channel != 0 {
        return Err(AuthenticationFailure::SecureChannel);
    }
    let hash = ExchangeHash::ALL.into_iter().find(|hash| hashes.contains(&hash.number));
    let hash = hash.ok_or(AuthenticationFailure::Hash)?;
    match groups.contains(&NULL_GROUP) {
        true => Ok(hash),
        false => Err(AuthenticationFailure::Group),
    }
}

/// Draws a challenge and a sequence number, which is not 0.
fn draw(bytes: usize) -> Option<(Vec<u8>, u32)> {
    let (mut challenge, mut sequence) = (vec![0; bytes], [0; 4]);
    getrandom::fill(&mut challenge).and_then(|()| getrandom::fill(&mut sequence)).ok()?;
    Some((challenge, u32::from_le_bytes(sequence).max(1)))
}
