//! Identities and secrets of a cluster.
//!
//! Always true: a secret is stored before it is used, so that a repeated step uses the same one;
//! secrets appear in no message.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::workspace::Workspace;

/// File of the secrets.
const FILE: &str = "secrets.json";

/// Identity and secret of an OSD.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OsdIdentity {
    pub(crate) uuid: String,
    pub(crate) secret: String,
}

/// The secrets of a cluster.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Secrets {
    pub(crate) fsid: String,
    pub(crate) monitor: String,
    pub(crate) admin: String,
    /// OSDs, by `HOST:DRIVE`.
    pub(crate) osds: BTreeMap<String, OsdIdentity>,
}

impl Secrets {
    /// Loads the secrets, or creates them.
    ///
    /// # Errors
    /// `Io`; when the system has no random numbers.
    pub(crate) fn load_or_create(workspace: &Workspace) -> Result<Self> {
        if let Some(secrets) = workspace.load(FILE)? {
            return Ok(secrets);
        }
        let secrets =
            Self { fsid: uuid()?, monitor: cephx_key()?, admin: cephx_key()?, osds: BTreeMap::new() };
        workspace.save(FILE, &secrets)?;
        Ok(secrets)
    }

    /// Loads the secrets.
    ///
    /// # Errors
    /// `NotFound` if there are none; `Io`.
    pub(crate) fn load(workspace: &Workspace) -> Result<Self> {
        workspace.load(FILE)?.ok_or_else(|| {
            let message = format!("cluster '{}' has no secrets yet", workspace.name());
            Error::new(ErrorKind::NotFound, message).hint("'gabion cluster discover' creates them")
        })
    }

    /// Returns the identities of the OSDs.
    pub(crate) fn uuids(&self) -> BTreeSet<String> {
        self.osds.values().map(|osd| osd.uuid.clone()).collect()
    }

    /// Creates the missing identities of OSDs, and stores all.
    ///
    /// # Errors
    /// As [`Secrets::load_or_create`].
    pub(crate) fn add_osds(
        &mut self,
        workspace: &Workspace,
        drives: impl Iterator<Item = String>,
    ) -> Result<()> {
        for drive in drives {
            if let Entry::Vacant(entry) = self.osds.entry(drive) {
                entry.insert(OsdIdentity { uuid: uuid()?, secret: cephx_key()? });
            }
        }
        workspace.save(FILE, self)
    }

    /// Forgets the identity of an OSD that was removed.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove_osd(&mut self, workspace: &Workspace, drive: &str) -> Result<()> {
        self.osds.remove(drive);
        workspace.save(FILE, self)
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let failed = |error| Error::new(ErrorKind::Io, format!("the system has no random numbers: {error}"));
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Returns a random UUID of version 4.
pub(crate) fn uuid() -> Result<String> {
    let [a, b, c, d, e, f, g, h, rest @ ..] = random::<16>()?;
    let (g, h_tail) = (g & 0x0f | 0x40, h);
    let [i, j, tail @ ..] = rest;
    let i = i & 0x3f | 0x80;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(format!(
        "{}-{}-{}-{}-{}",
        hex(&[a, b, c, d]),
        hex(&[e, f]),
        hex(&[g, h_tail]),
        hex(&[i, j]),
        hex(&tail)
    ))
}

/// Returns a random key in the encoding of cephx: type 1 (AES), creation time, length 16, key; in
/// Base64.
fn cephx_key() -> Result<String> {
    let mut bytes = vec![1, 0];
    // The creation time is informative only.
    bytes.extend([0; 8]);
    bytes.extend([16, 0]);
    bytes.extend(random::<16>()?);
    Ok(base64(&bytes))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let index = (bits >> (18 - 6 * position)) as usize & 63;
            let digit = DIGITS.get(index).copied().unwrap_or(b'=');
            text.push(if position <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_digits_of_rfc_4648() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn identities_are_valid_and_differ() {
        let first = uuid().unwrap();
        assert_eq!(first.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&first[14..15], "4", "{first}");
        assert_ne!(first, uuid().unwrap());
        let key = cephx_key().unwrap();
        assert_eq!(key.len(), 40);
        assert!(key.starts_with("AQAAAAAAAAAAABAA"), "a header as ceph-authtool writes it");
    }
}
