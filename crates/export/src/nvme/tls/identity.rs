//! The identity of a pre-shared key, by which a host names it.

use super::derive::PskHash;
use crate::nvme::wire::is_name;

/// The identity of a key: `NVMe0R01 <host> <subsystem>`, or `NVMe1R01 <host> <subsystem> <digest>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PskIdentity<'a> {
    /// The whole text.
    pub(super) text: &'a str,
    pub(super) hash: PskHash,
    pub(super) host: &'a str,
    pub(super) subsystem: &'a str,
    /// The digest of the key, in version 1.
    pub(super) digest: Option<&'a str>,
}

impl<'a> PskIdentity<'a> {
    /// Decodes the identity of a key that was configured. `None` if it has another form, as those
    /// of keys that an authentication has generated.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let rest = text.strip_prefix("NVMe")?;
        let (version, rest) = rest.split_at_checked(1)?;
        let (kind, rest) = rest.split_at_checked(1)?;
        let (number, rest) = rest.split_at_checked(2)?;
        let hash = PskHash::numbered(number)?;
        let mut names = rest.strip_prefix(' ')?.split(' ');
        let (host, subsystem, digest) = (names.next()?, names.next()?, names.next());
        let is_form = match version {
            "0" => digest.is_none(),
            "1" => digest.is_some_and(|digest| !digest.is_empty()),
            _ => false,
        };
        let is_whole = names.next().is_none();
        let is_valid = kind == "R" && is_form && is_whole && is_name(host) && is_name(subsystem);
        is_valid.then_some(Self { text, hash, host, subsystem, digest })
    }
}
