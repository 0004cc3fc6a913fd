//! Identities and secrets of a cluster.
//!
//! Always true: a secret is stored before it is used, so that a repeated step uses the same one;
//! secrets appear in no message.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

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

    /// Returns the secrets of a cluster that another tool deployed.
    pub(crate) fn of_adopted(fsid: &str, admin: &str) -> Self {
        let (fsid, admin) = (fsid.to_owned(), admin.to_owned());
        Self { fsid, monitor: String::new(), admin, osds: BTreeMap::new() }
    }

    /// Stores the secrets.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn save(&self, workspace: &Workspace) -> Result<()> {
        workspace.save(FILE, self)
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
    Ok(uuid::Builder::from_random_bytes(random()?).into_uuid().to_string())
}

/// Returns a random key in the encoding of cephx: type 1 (AES), creation time, length 16, key; in
/// Base64.
fn cephx_key() -> Result<String> {
    let mut bytes = vec![1, 0];
    // The creation time is informative only.
    bytes.extend([0; 8]);
    bytes.extend([16, 0]);
    bytes.extend(random::<16>()?);
    Ok(base64_simd::STANDARD.encode_to_string(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

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
