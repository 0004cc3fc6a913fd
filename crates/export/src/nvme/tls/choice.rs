//! The choice of the key for a host.
//!
//! Always true: the key that is chosen belongs to the host and the subsystem that the host names,
//! the host has proven that it knows this key, and supports the cipher suite and the key exchange
//! of its use.

use std::fmt;

use super::client_hello::{ClientHello, OfferedPsk};
use super::derive::PskHash;
use super::identity::PskIdentity;
use super::key::NvmeTlsKey;
use crate::transport::{TlsKey, TlsKeyHash};

/// The names that a key is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct TlsNames {
    pub(in crate::nvme) host: String,
    pub(in crate::nvme) subsystem: String,
}

impl fmt::Display for TlsNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} and subsystem {}", self.host, self.subsystem)
    }
}

/// A host that has proven that it knows a key.
#[derive(Clone, Debug)]
pub(in crate::nvme) struct TlsPeer {
    pub(in crate::nvme) names: TlsNames,
    /// The key of the export.
    pub(in crate::nvme) key: NvmeTlsKey,
}

/// The reason why no key is accepted, for logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::nvme) enum KeyRefusal {
    #[error("the first TLS message is malformed")]
    Malformed,
    /// The host offers no key.
    #[error("the host uses TLS without a pre-shared key")]
    NoOffer,
    /// The identities of the keys do not have the form of NVMe/TCP.
    #[error("the name of the host's TLS key has an unknown form")]
    Foreign,
    #[error("no export has a TLS key for {0}")]
    Unknown(TlsNames),
    /// The identity names another hash function, or another digest.
    #[error("the TLS key for {0} differs from that of the export, in its length or in its digest")]
    Other(TlsNames),
    /// The host does not know the key that it names.
    #[error("the TLS key for {0} differs from that of the export")]
    Wrong(TlsNames),
    /// The host lacks the cipher suite of the key.
    #[error("the TLS key for {names} requires {suite}, which the host does not support")]
    Suite { names: TlsNames, suite: &'static str },
    /// The host does not list the ways in which it uses the key.
    #[error("the host does not report how it uses the TLS key for {0} (psk_key_exchange_modes)")]
    NoModes(TlsNames),
    #[error("the TLS key for {0} requires psk_dhe_ke, which the host does not support")]
    NoExchange(TlsNames),
}

impl KeyRefusal {
    /// The alert that reports it. Source: RFC 8446, 6.2.
    pub(in crate::nvme) fn alert(&self) -> u8 {
        match self {
            Self::Malformed => 50,
            Self::NoOffer | Self::Suite { .. } | Self::NoExchange(_) => 40,
            Self::Foreign | Self::Unknown(_) | Self::Other(_) => 115,
            Self::Wrong(_) => 51,
            Self::NoModes(_) => 109,
        }
    }
}

/// Chooses the key of the first valid offer in a client's first message. `find` returns the key
/// for a subsystem and a host. If no offer is valid, reports the refusal of the last one that is
/// for an export with a key, or else of the last one.
pub(in crate::nvme) fn choose_key(
    hello: &[u8],
    find: impl Fn(&str, &str) -> Option<NvmeTlsKey>,
) -> Result<(TlsKey, TlsPeer), KeyRefusal> {
    let hello = ClientHello::decode(hello).ok_or(KeyRefusal::Malformed)?;
    let mut refusal = KeyRefusal::NoOffer;
    for offer in &hello.offers {
        let refused = match choose_offer(&hello, offer, &find) {
            Ok(chosen) => return Ok(chosen),
            Err(refused) => refused,
        };
        let is_of_export = |refusal: &KeyRefusal| {
            !matches!(refusal, KeyRefusal::NoOffer | KeyRefusal::Foreign | KeyRefusal::Unknown(_))
        };
        if is_of_export(&refused) || !is_of_export(&refusal) {
            refusal = refused;
        }
    }
    Err(refusal)
}

/// The key of an offer.
fn choose_offer(
    hello: &ClientHello<'_>,
    offer: &OfferedPsk<'_>,
    find: impl Fn(&str, &str) -> Option<NvmeTlsKey>,
) -> Result<(TlsKey, TlsPeer), KeyRefusal> {
    let identity = PskIdentity::decode(offer.identity).ok_or(KeyRefusal::Foreign)?;
    let names = TlsNames { host: identity.host.to_owned(), subsystem: identity.subsystem.to_owned() };
    let Some(key) = find(identity.subsystem, identity.host) else { return Err(KeyRefusal::Unknown(names)) };
    let keys = key.derive(&identity);
    if keys.is_empty() {
        return Err(KeyRefusal::Other(names));
    }
    let is_proven = |key: &Vec<u8>| identity.hash.is_proven(key, hello.partial, offer.binder);
    let Some(secret) = keys.into_iter().find(is_proven) else { return Err(KeyRefusal::Wrong(names)) };
    let hash = match identity.hash {
        PskHash::Sha256 => TlsKeyHash::Sha256,
        PskHash::Sha384 => TlsKeyHash::Sha384,
    };
    if !hello.has_suite(hash.suite_number()) {
        return Err(KeyRefusal::Suite { names, suite: hash.suite() });
    }
    if !hello.has_modes() {
        return Err(KeyRefusal::NoModes(names));
    }
    if !hello.has_exchange() {
        return Err(KeyRefusal::NoExchange(names));
    }
    Ok((TlsKey { identity: offer.identity.to_vec(), secret, hash }, TlsPeer { names, key }))
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
