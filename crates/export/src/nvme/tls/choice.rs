//! The choice of the key for a host.
//!
//! Always true: the key that is chosen belongs to the host and the subsystem that the host names,
//! and the host has proven that it knows this key.

use super::client_hello::ClientHello;
use super::derive::PskHash;
use super::identity::PskIdentity;
use super::key::NvmeTlsKey;
use crate::transport::{TlsKey, TlsKeyHash};

/// The names that the key of a TLS connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct TlsPeer {
    pub(in crate::nvme) host: String,
    pub(in crate::nvme) subsystem: String,
}

/// The reason why no key is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum KeyRefusal {
    /// The first message is malformed.
    Malformed,
    /// The host offers no key.
    NoOffer,
    /// No export has a key for a name that the host offers.
    Unknown,
    /// The host does not know the key that it names.
    Wrong,
}

impl KeyRefusal {
    /// The alert that reports it. Source: RFC 8446, 6.2.
    pub(in crate::nvme) fn alert(self) -> u8 {
        match self {
            Self::Malformed => 50,
            Self::NoOffer => 40,
            Self::Unknown => 115,
            Self::Wrong => 51,
        }
    }

    /// The reason, for logs.
    pub(in crate::nvme) fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "the first TLS message is malformed",
            Self::NoOffer => "the host uses TLS without a pre-shared key",
            Self::Unknown => "no export has a TLS key for the names that the host uses",
            Self::Wrong => "the host does not know the TLS key of the export",
        }
    }
}

/// Chooses the key of the first valid offer in a client's first message. `find` returns the key
/// for a subsystem and a host.
pub(in crate::nvme) fn choose_key(
    hello: &[u8],
    find: impl Fn(&str, &str) -> Option<NvmeTlsKey>,
) -> Result<(TlsKey, TlsPeer), KeyRefusal> {
    let hello = ClientHello::decode(hello).ok_or(KeyRefusal::Malformed)?;
    if hello.offers.is_empty() {
        return Err(KeyRefusal::NoOffer);
    }
    let mut refusal = KeyRefusal::Unknown;
    for offer in &hello.offers {
        let Some(identity) = PskIdentity::decode(offer.identity) else { continue };
        let Some(key) = find(identity.subsystem, identity.host) else { continue };
        let keys = key.derive(&identity);
        if keys.is_empty() {
            // A key of another kind, or another digest.
            continue;
        }
        let is_proven = |key: &Vec<u8>| identity.hash.is_proven(key, hello.partial, offer.binder);
        let known = keys.into_iter().find(is_proven);
        let Some(secret) = known else {
            refusal = KeyRefusal::Wrong;
            continue;
        };
        let hash = match identity.hash {
            PskHash::Sha256 => TlsKeyHash::Sha256,
            PskHash::Sha384 => TlsKeyHash::Sha384,
        };
        let peer = TlsPeer { host: identity.host.to_owned(), subsystem: identity.subsystem.to_owned() };
        return Ok((TlsKey { identity: offer.identity.to_vec(), secret, hash }, peer));
    }
    Err(refusal)
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
