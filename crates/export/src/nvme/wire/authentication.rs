//! Messages of DH-HMAC-CHAP: the data of authentication send and receive commands.

use super::bytes::{FieldWriter, u8_at, u16_at, u32_at};

/// Bytes of the descriptor of a protocol.
const DESCRIPTOR: usize = 64;
/// Identifiers of hash functions and groups that a descriptor has room for.
const IDENTIFIERS: usize = 30;
/// Bytes of a message before its descriptors or values.
const NEGOTIATION: usize = 8;
const VALUES: usize = 16;
/// A length that no value of a Diffie-Hellman exchange has: the longest one is of 8192 bits.
const VALUE_LONG: usize = 1025;

/// The identifier of DH-HMAC-CHAP.
const DH_CHAP: u8 = 1;

/// The kinds of messages: type and identifier.
mod message {
    pub(super) const NEGOTIATE: [u8; 2] = [0, 0];
    pub(super) const CHALLENGE: [u8; 2] = [1, 1];
    pub(super) const REPLY: [u8; 2] = [1, 2];
    pub(super) const SUCCESS: [u8; 2] = [1, 3];
    pub(super) const CONFIRM: [u8; 2] = [1, 4];
    pub(super) const FAILURE: [u8; 2] = [0, 0xf0];
    pub(super) const HOST_FAILURE: [u8; 2] = [0, 0xf1];
}

/// The explanation of a failed authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::nvme) enum AuthenticationFailure {
    /// A response is wrong.
    Failed = 1,
    /// The host supports no common protocol.
    Protocol = 2,
    /// The host asks for a secure channel, which is not supported.
    SecureChannel = 3,
    /// The host supports no common hash function.
    Hash = 4,
    /// The host supports no common group.
    Group = 5,
    /// The content of a message is invalid.
    Payload = 6,
    /// A message is out of order.
    Message = 7,
}

/// A message of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum HostMessage {
    Negotiate {
        hashes: Vec<u8>,
        groups: Vec<u8>,
        secure_channel: u8,
    },
    Reply {
        response: Vec<u8>,
        challenge: Option<Vec<u8>>,
        sequence: u32,
        /// The value of a Diffie-Hellman exchange.
        value: Option<Vec<u8>>,
    },
    Confirm,
    Failure,
}

impl HostMessage {
    /// Decodes the transaction and the message.
    pub(in crate::nvme) fn decode(bytes: &[u8]) -> Result<(u16, Self), AuthenticationFailure> {
        use AuthenticationFailure::{Message, Payload};
        let Some([kind @ .., _, _, _, _]) = bytes.first_chunk::<6>() else { return Err(Payload) };
        let needs = |length| if bytes.len() < length { Err(Payload) } else { Ok(()) };
        let transaction = u16_at(bytes, 4);
        let message = match *kind {
            message::NEGOTIATE => negotiation(bytes)?,
            message::REPLY => {
                needs(VALUES)?;
                reply(bytes)?
            }
            message::CONFIRM => Self::Confirm,
            message::HOST_FAILURE => Self::Failure,
            _ => return Err(Message),
        };
        Ok((transaction, message))
    }
}

fn negotiation(bytes: &[u8]) -> Result<HostMessage, AuthenticationFailure> {
    if bytes.len() < NEGOTIATION {
        return Err(AuthenticationFailure::Payload);
    }
    let (secure_channel, count) = (u8_at(bytes, 6), usize::from(u8_at(bytes, 7)));
    let descriptors = bytes.get(NEGOTIATION..NEGOTIATION + count * DESCRIPTOR);
    let descriptors = descriptors.ok_or(AuthenticationFailure::Payload)?;
    let own = descriptors.chunks_exact(DESCRIPTOR).find(|descriptor| u8_at(descriptor, 0) == DH_CHAP);
    let own = own.ok_or(AuthenticationFailure::Protocol)?;
    let list = |count: u8, at: usize| {
        let list = own.get(at..at + usize::from(count)).filter(|list| list.len() <= IDENTIFIERS);
        list.map(<[u8]>::to_vec).ok_or(AuthenticationFailure::Payload)
    };
    let (hashes, groups) = (list(u8_at(own, 2), 4)?, list(u8_at(own, 3), 4 + IDENTIFIERS)?);
    Ok(HostMessage::Negotiate { hashes, groups, secure_channel })
}

fn reply(bytes: &[u8]) -> Result<HostMessage, AuthenticationFailure> {
    let (length, has_challenge, value_length) =
        (usize::from(u8_at(bytes, 6)), u8_at(bytes, 8) & 1 == 1, usize::from(u16_at(bytes, 10)));
    let part = |at: usize, length: usize| {
        let part = bytes.get(at..at + length).map(<[u8]>::to_vec);
        part.ok_or(AuthenticationFailure::Payload)
    };
    let response = part(VALUES, length)?;
    let challenge = if has_challenge { Some(part(VALUES + length, length)?) } else { None };
    // After the place of the challenge, even if there is none. The NULL group has no value.
    let value = match value_length {
        0 => None,
        VALUE_LONG.. => return Err(AuthenticationFailure::Payload),
        _ => Some(part(VALUES + 2 * length, value_length)?),
    };
    Ok(HostMessage::Reply { response, challenge, sequence: u32_at(bytes, 12), value })
}

/// A message of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum ControllerMessage<'a> {
    Challenge {
        hash: u8,
        group: u8,
        sequence: u32,
        challenge: &'a [u8],
        /// The value of a Diffie-Hellman exchange; empty for none.
        value: &'a [u8],
    },
    /// With the response to a challenge of the host.
    Success {
        hash_bytes: usize,
        response: Option<&'a [u8]>,
    },
    Failure(AuthenticationFailure),
}

impl ControllerMessage<'_> {
    pub(in crate::nvme) fn encode(&self, transaction: u16) -> Vec<u8> {
        match self {
            Self::Challenge { hash, group, sequence, challenge, value } => {
                let mut message = FieldWriter::new(VALUES + challenge.len() + value.len());
                message.put(0, message::CHALLENGE).u16(4, transaction).u8(6, challenge.len() as u8);
                message.u8(8, *hash).u8(9, *group).u16(10, value.len() as u16).u32(12, *sequence);
                message.put(VALUES, challenge).put(VALUES + challenge.len(), value);
                message.finish()
            }
            Self::Success { hash_bytes, response } => {
                let mut message = FieldWriter::new(VALUES + response.map_or(0, <[u8]>::len));
                message.put(0, message::SUCCESS).u16(4, transaction).u8(6, *hash_bytes as u8);
                if let Some(response) = response {
                    message.u8(8, 1).put(VALUES, response);
                }
                message.finish()
            }
            Self::Failure(explanation) => {
                /// The only reason code: the authentication failed.
                const FAILED: u8 = 1;
                let mut message = FieldWriter::new(8);
                message.put(0, message::FAILURE).u16(4, transaction).u8(6, FAILED);
                message.u8(7, *explanation as u8);
                message.finish()
            }
        }
    }
}
