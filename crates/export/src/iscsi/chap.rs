//! CHAP: the authentication of initiators, and of the target to them (RFC 1994, RFC 7143).
//!
//! Always true: a challenge is used once; an initiator cannot have the target answer its own
//! challenge. Must not know messages.

use md5::{Digest, Md5};
use ring::digest::SHA256;

use super::wire::{LoginStatus, TextPairs, TextWriter};

/// The least bytes of a secret: 96 bits, as RFC 7143 requires.
pub const CHAP_SECRET_MIN: usize = 12;
/// The most bytes of a challenge or a response.
const VALUE_MAX: usize = 1024;
/// Bytes of a challenge.
const CHALLENGE: usize = 32;

/// The credentials of an initiator, and of the target towards it.
#[derive(Clone, PartialEq, Eq)]
pub struct ChapAccount {
    /// The user name of the initiator.
    pub user: String,
    /// The secret of the initiator.
    pub secret: String,
    /// The user name and the secret by which the target authenticates itself, if it is asked to.
    pub target: Option<(String, String)>,
}

impl std::fmt::Debug for ChapAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChapAccount({})", self.user)
    }
}

/// A hash function of CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChapHash {
    Md5,
    Sha256,
}

impl ChapHash {
    /// The first supported one of an initiator's list.
    fn choose(list: &str) -> Option<Self> {
        list.split(',').find_map(|number| match number.trim() {
            "5" => Some(Self::Md5),
            "7" => Some(Self::Sha256),
            _ => None,
        })
    }

    fn number(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
        }
    }

    fn response(self, id: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        let message = [&[id], secret.as_bytes(), challenge].concat();
        match self {
            Self::Md5 => Md5::digest(&message).to_vec(),
            Self::Sha256 => ring::digest::digest(&SHA256, &message).as_ref().to_vec(),
        }
    }
}

/// The progress of an authentication.
#[derive(Debug, Default)]
pub(super) enum ChapStep {
    /// The initiator has not chosen CHAP yet.
    #[default]
    Begin,
    /// The initiator has chosen CHAP.
    Chosen,
    /// The initiator was sent a challenge.
    Challenged(Challenge),
}

/// A challenge that the initiator was sent.
#[derive(Debug)]
pub(super) struct Challenge {
    hash: ChapHash,
    id: u8,
    value: [u8; CHALLENGE],
}

/// Takes the next step. Returns the account once the initiator is authenticated.
///
/// # Errors
/// The status of the refused login.
pub(super) fn take_step(
    step: &mut ChapStep,
    request: &TextPairs,
    answer: &mut TextWriter,
    accounts: &[ChapAccount],
) -> Result<Option<ChapAccount>, LoginStatus> {
    match step {
        ChapStep::Begin => Ok(None),
        ChapStep::Chosen => {
            let Some(list) = request.get("CHAP_A") else { return Ok(None) };
            let hash = ChapHash::choose(list).ok_or(LoginStatus::AUTHENTICATION)?;
            let mut value = [0; CHALLENGE];
            let mut id = [0];
            getrandom::fill(&mut value).map_err(|_| LoginStatus::OUT_OF_RESOURCES)?;
            getrandom::fill(&mut id).map_err(|_| LoginStatus::OUT_OF_RESOURCES)?;
            let [id] = id;
            answer.add("CHAP_A", hash.number());
            answer.add("CHAP_I", &id.to_string());
            answer.add("CHAP_C", &to_hex(&value));
            *step = ChapStep::Challenged(Challenge { hash, id, value });
            Ok(None)
        }
        ChapStep::Challenged(challenge) => {
            let account = verify(challenge, request, accounts).ok_or(LoginStatus::AUTHENTICATION)?;
            answer_challenge(challenge, request, answer, &account)?;
            Ok(Some(account))
        }
    }
}

fn verify(challenge: &Challenge, request: &TextPairs, accounts: &[ChapAccount]) -> Option<ChapAccount> {
    let (user, response) = (request.get("CHAP_N")?, from_text(request.get("CHAP_R")?)?);
    accounts.iter().find(|account| account.user == user && is_right(challenge, account, &response)).cloned()
}

fn is_right(challenge: &Challenge, account: &ChapAccount, response: &[u8]) -> bool {
    let expected = challenge.hash.response(challenge.id, &account.secret, &challenge.value);
    let differences = expected.iter().zip(response).fold(0, |sum, (one, other)| sum | (one ^ other));
    // Without a shortcut: the time must not depend on the place of a difference.
    expected.len() == response.len() && differences == 0
}

/// Answers the challenge of an initiator that asks the target to authenticate itself.
fn answer_challenge(
    own: &Challenge,
    request: &TextPairs,
    answer: &mut TextWriter,
    account: &ChapAccount,
) -> Result<(), LoginStatus> {
    let (id, challenge) = match (request.get("CHAP_I"), request.get("CHAP_C")) {
        (None, None) => return Ok(()),
        (Some(id), Some(challenge)) => (id.parse::<u8>().ok(), from_text(challenge)),
        _ => return Err(LoginStatus::INITIATOR_ERROR),
    };
    let (Some(id), Some(challenge)) = (id, challenge) else { return Err(LoginStatus::INITIATOR_ERROR) };
    let (user, secret) = account.target.as_ref().ok_or(LoginStatus::AUTHENTICATION)?;
    if challenge == own.value {
        return Err(LoginStatus::AUTHENTICATION);
    }
    answer.add("CHAP_N", user);
    answer.add("CHAP_R", &to_hex(&own.hash.response(id, secret, &challenge)));
    Ok(())
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Decodes a binary value: hexadecimal after `0x`, or base64 after `0b`.
fn from_text(text: &str) -> Option<Vec<u8>> {
    if text.len() > 2 * VALUE_MAX + 2 {
        return None;
    }
    let (prefix, digits) = text.split_at_checked(2)?;
    match prefix {
        "0x" | "0X" => from_hex(digits),
        "0b" | "0B" => from_base64(digits),
        _ => None,
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: char| digit.to_digit(16).map(|value| value as u8);
    let values: Vec<u8> = digits.chars().map(digit).collect::<Option<_>>()?;
    // A leading zero may be missing.
    let padded = if values.len().is_multiple_of(2) { values } else { [vec![0], values].concat() };
    let byte = |pair: &[u8]| pair.iter().fold(0, |byte: u8, digit| byte << 4 | digit);
    Some(padded.chunks(2).map(byte).collect())
}

fn from_base64(digits: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for digit in digits.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|letter| *letter == digit)?;
        bits = (bits << 6 | value as u32) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "chap_tests.rs"]
mod tests;
