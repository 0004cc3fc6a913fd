//! One authentication transaction: the messages of a host and the answers to them.
//!
//! Always true: an exchange succeeds only after a right response to a challenge that it has drawn;
//! after a failure it cannot succeed. Must not know connections.

use ring::digest::{self, SHA256, SHA384, SHA512};
use ring::hmac::{self, HMAC_SHA256, HMAC_SHA384, HMAC_SHA512};

use super::group::{DhGroup, DhKeyPair};
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

    /// The key of the exchange, from the secret of its group.
    fn digest(self, secret: &[u8]) -> Vec<u8> {
        let function = match self.number {
            1 => &SHA256,
            2 => &SHA384,
            _ => &SHA512,
        };
        digest::digest(function, secret).as_ref().to_vec()
    }
}

/// A computation with numbers of thousands of bits, which an exchange waits for.
pub(in crate::nvme) enum DhTask {
    /// The key pair of a group.
    Generate(DhGroup),
    /// The secret of a key pair and the value of the host.
    Derive(DhKeyPair, Vec<u8>),
}

/// The result of a [`DhTask`].
pub(in crate::nvme) enum DhResult {
    /// A key pair; none if the system has no random numbers.
    Generated(Option<DhKeyPair>),
    /// A secret; none if the value of the host is invalid.
    Derived(Option<Vec<u8>>),
}

impl DhTask {
    /// Computes the result, which takes milliseconds.
    pub(in crate::nvme) fn run(self) -> DhResult {
        match self {
            Self::Generate(group) => DhResult::Generated(group.generate()),
            Self::Derive(pair, value) => DhResult::Derived(pair.shared_secret(&value)),
        }
    }
}

/// A challenge that was sent, and the response to it.
struct ChallengeState {
    hash: ExchangeHash,
    sequence: u32,
    challenge: Vec<u8>,
}

/// The content of a reply.
struct ReplyState {
    response: Vec<u8>,
    /// The challenge of the host and its number.
    own: Option<Vec<u8>>,
    own_sequence: u32,
}

/// The next message or computation.
enum ExchangeStep {
    /// The host proposes hash functions and groups.
    Negotiate,
    /// The key pair of the challenge is computed.
    Generate(ExchangeHash, DhGroup),
    /// The host fetches the challenge.
    Challenge(ExchangeHash, Option<DhKeyPair>),
    /// The host responds to the challenge.
    Reply(ChallengeState, Option<DhKeyPair>),
    /// The secret of a group is computed. The task was taken if there is none.
    Derive(ChallengeState, ReplyState, Option<(DhKeyPair, Vec<u8>)>),
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
                let hash = choose_hash(&hashes, secure_channel)?;
                Ok(match choose_group(&groups)? {
                    Some(group) => ExchangeStep::Generate(hash, group),
                    None => ExchangeStep::Challenge(hash, None),
                })
            }
            (
                ExchangeStep::Reply(sent, pair),
                HostMessage::Reply { response, challenge: own, sequence: own_sequence, value },
            ) => {
                let reply = ReplyState { response, own, own_sequence };
                match (pair, value) {
                    (None, None) => self.verify(&sent, &reply, None),
                    (Some(pair), Some(value)) => Ok(ExchangeStep::Derive(sent, reply, Some((pair, value)))),
                    _ => Err(AuthenticationFailure::Payload),
                }
            }
            (ExchangeStep::Confirm, HostMessage::Confirm) => Ok(ExchangeStep::Ended(true)),
            (_, HostMessage::Failure) => Ok(ExchangeStep::Ended(false)),
            // Also after a failure: the host did not fetch the explanation.
            _ => Err(AuthenticationFailure::Message),
        }
    }

    /// Verifies the response of the host. `secret`: that of the group.
    fn verify(
        &self,
        sent: &ChallengeState,
        reply: &ReplyState,
        secret: Option<&[u8]>,
    ) -> Result<ExchangeStep, AuthenticationFailure> {
        let hash = sent.hash;
        let key = secret.map(|secret| hash.digest(secret));
        let challenge = augmented(hash, &sent.challenge, key.as_deref());
        let message = self.message(&challenge, sent.sequence, b"HostHost", [self.host, self.subsystem]);
        // Compares in constant time.
        hmac::verify(&hmac::Key::new(hash.algorithm(), &self.keys.host), &message, &reply.response)
            .map_err(|_| AuthenticationFailure::Failed)?;
        let own = reply.own.as_ref().map(|own| augmented(hash, own, key.as_deref()));
        let response = own.map(|own| self.respond(hash, &own, reply.own_sequence)).transpose()?;
        Ok(ExchangeStep::Success { hash, response })
    }

    /// Takes the computation that the exchange waits for, if it does. Its result goes to
    /// [`Self::resume`].
    pub(in crate::nvme) fn task(&mut self) -> Option<DhTask> {
        match &mut self.step {
            ExchangeStep::Generate(_, group) => Some(DhTask::Generate(*group)),
            ExchangeStep::Derive(_, _, task) => task.take().map(|(pair, value)| DhTask::Derive(pair, value)),
            _ => None,
        }
    }

    /// Continues with the result of a computation; none if it could not be computed.
    pub(in crate::nvme) fn resume(&mut self, result: Option<DhResult>) {
        let step = std::mem::replace(&mut self.step, ExchangeStep::Ended(false));
        let next = match (step, result) {
            (ExchangeStep::Generate(hash, _), Some(DhResult::Generated(Some(pair)))) => {
                Ok(ExchangeStep::Challenge(hash, Some(pair)))
            }
            (ExchangeStep::Derive(sent, reply, _), Some(DhResult::Derived(Some(secret)))) => {
                self.verify(&sent, &reply, Some(&secret))
            }
            (ExchangeStep::Derive(..), Some(DhResult::Derived(None))) => Err(AuthenticationFailure::Payload),
            _ => Err(AuthenticationFailure::Failed),
        };
        self.step = next.unwrap_or_else(ExchangeStep::Failure);
    }

    /// The message that the host fetches.
    pub(in crate::nvme) fn send(&mut self) -> Vec<u8> {
        let step = std::mem::replace(&mut self.step, ExchangeStep::Ended(false));
        let (message, next) = match step {
            ExchangeStep::Challenge(hash, pair) => match draw(hash.bytes) {
                Some((challenge, sequence)) => {
                    let group = pair.as_ref().map_or(NULL_GROUP, |pair| pair.group().number);
                    let value = pair.as_ref().map_or(&[][..], |pair| &pair.value);
                    let message = ControllerMessage::Challenge {
                        hash: hash.number,
                        group,
                        sequence,
                        challenge: &challenge,
                        value,
                    };
                    let message = message.encode(self.transaction);
                    (message, ExchangeStep::Reply(ChallengeState { hash, sequence, challenge }, pair))
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

fn choose_hash(hashes: &[u8], secure_channel: u8) -> Result<ExchangeHash, AuthenticationFailure> {
    if secure_channel != 0 {
        return Err(AuthenticationFailure::SecureChannel);
    }
    let hash = ExchangeHash::ALL.into_iter().find(|hash| hashes.contains(&hash.number));
    hash.ok_or(AuthenticationFailure::Hash)
}

/// Chooses a group; none for the one without an exchange, which is the last choice.
fn choose_group(groups: &[u8]) -> Result<Option<DhGroup>, AuthenticationFailure> {
    let group = DhGroup::ALL.into_iter().find(|group| groups.contains(&group.number));
    match group {
        None if !groups.contains(&NULL_GROUP) => Err(AuthenticationFailure::Group),
        group => Ok(group),
    }
}

/// The challenge that a response is computed for: combined with the key of the exchange, if there
/// is one.
fn augmented(hash: ExchangeHash, challenge: &[u8], key: Option<&[u8]>) -> Vec<u8> {
    match key {
        Some(key) => hmac::sign(&hmac::Key::new(hash.algorithm(), key), challenge).as_ref().to_vec(),
        None => challenge.to_vec(),
    }
}

/// Draws a challenge and a sequence number, which is not 0.
fn draw(bytes: usize) -> Option<(Vec<u8>, u32)> {
    let (mut challenge, mut sequence) = (vec![0; bytes], [0; 4]);
    getrandom::fill(&mut challenge).and_then(|()| getrandom::fill(&mut sequence)).ok()?;
    Some((challenge, u32::from_le_bytes(sequence).max(1)))
}
