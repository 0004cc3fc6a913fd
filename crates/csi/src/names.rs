//! Names of volumes and snapshots in a pool, from the names that the cluster suggests.
//!
//! Always true: a suggested name has the same name in the pool at any time, on any node, so that a
//! repeated call finds the object of the first one.

use std::hash::Hasher;

use api::VolumeName;
use siphasher::sip128::{Hasher128, SipHasher24};
use tonic::Status;

/// Longest name in a pool.
const NAME_MAX: usize = 63;
/// Bytes of a replaced name that remain readable.
const READABLE_BYTES: usize = 28;
/// Prefix of the snapshots that the driver needs for a short time.
const TEMPORARY: &str = "csi-tmp-";
/// Snapshot of a blank volume while it is formatted.
pub(crate) const FORMAT_SNAPSHOT: &str = "csi-tmp-format";

/// Prefix of the snapshots of a group: all of a group have the same name.
const GROUP: &str = "csi-group-";

/// Returns the name in a pool for the name that the cluster suggests: the same name if it is valid,
/// else its valid characters and a hash.
pub(crate) fn pool_name_for(suggested: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = suggested.len() <= NAME_MAX
        && suggested.chars().all(is_valid)
        && !suggested.starts_with(['.', '-'])
        && !is_temporary(suggested)
        && !is_of_group(suggested);
    if fits && !suggested.is_empty() {
        return suggested.to_owned();
    }
    let readable: String = suggested.chars().filter(|c| is_valid(*c)).take(READABLE_BYTES).collect();
    format!("n-{readable}{:032x}", hash(suggested))
}

/// Returns the name of the snapshot from which the clone `volume` is made.
pub(crate) fn clone_snapshot(volume: &str) -> String {
    format!("{TEMPORARY}{:032x}", hash(volume))
}

/// Returns true for the snapshots that the driver needs for a short time.
pub(crate) fn is_temporary(snapshot: &str) -> bool {
    snapshot.starts_with(TEMPORARY)
}

/// Returns the name that the snapshots of a group get, without the names of their volumes, for the
/// name that the cluster suggests for the group.
pub(crate) fn group_snapshot(suggested: &str) -> String {
    let name = pool_name_for(suggested);
    if GROUP.len() + name.len() <= NAME_MAX {
        return format!("{GROUP}{name}");
    }
    let readable: String = name.chars().take(READABLE_BYTES - GROUP.len()).collect();
    format!("{GROUP}{readable}{:032x}", hash(suggested))
}

/// Returns true for the names of snapshots of a group.
pub(crate) fn is_of_group(snapshot: &str) -> bool {
    snapshot.starts_with(GROUP)
}

/// A group of snapshots of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupName {
    pub(crate) pool: String,
    /// The name of its snapshots, without the names of their volumes.
    pub(crate) snapshot: String,
}

impl GroupName {
    /// Returns the identifier, which is `POOL@SNAPSHOT`.
    pub(crate) fn id(&self) -> String {
        format!("{}@{}", self.pool, self.snapshot)
    }

    /// Returns the group that a snapshot belongs to.
    pub(crate) fn of(snapshot: &VolumeName) -> Option<Self> {
        let (_, own) = snapshot.snapshot()?;
        is_of_group(own).then(|| Self { pool: snapshot.pool.clone(), snapshot: own.to_owned() })
    }

    /// Returns the group with an identifier.
    ///
    /// # Errors
    /// `NOT_FOUND` for other texts.
    pub(crate) fn parse(id: &str) -> Result<Self, Status> {
        match id.split_once('@') {
            Some((pool, snapshot)) if !pool.is_empty() && is_of_group(snapshot) => {
                Ok(Self { pool: pool.to_owned(), snapshot: snapshot.to_owned() })
            }
            _ => Err(Status::not_found(format!("group_snapshot_id: no group has the id '{id}'"))),
        }
    }
}

/// Returns the volume with an identifier, which is `POOL/VOLUME`.
///
/// # Errors
/// `NOT_FOUND` for other texts.
pub(crate) fn volume(id: &str) -> Result<VolumeName, Status> {
    match id.parse::<VolumeName>() {
        Ok(name) if !name.volume.contains('@') => Ok(name),
        _ => Err(Status::not_found(format!("volume_id: no volume has the id '{id}'"))),
    }
}

/// Returns the snapshot with an identifier, which is `POOL/VOLUME@SNAPSHOT`.
///
/// # Errors
/// `NOT_FOUND` for other texts.
pub(crate) fn snapshot(id: &str) -> Result<VolumeName, Status> {
    match id.parse::<VolumeName>() {
        Ok(name) if name.snapshot().is_some() => Ok(name),
        _ => Err(Status::not_found(format!("snapshot_id: no snapshot has the id '{id}'"))),
    }
}

fn hash(text: &str) -> u128 {
    let mut hasher = SipHasher24::new();
    hasher.write(text.as_bytes());
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_stay_and_others_are_hashed() {
        assert_eq!(pool_name_for("pvc-0815"), "pvc-0815");
        let long = "x".repeat(128);
        let cases = [long.as_str(), "", "ä ö", "-x", ".x", "a/b", "csi-tmp-format"];
        let mut seen = std::collections::HashSet::new();
        for name in cases {
            let mapped = pool_name_for(name);
            assert!(
                mapped.len() <= NAME_MAX && mapped.starts_with("n-") && !is_temporary(&mapped),
                "{mapped}"
            );
            assert_eq!(pool_name_for(name), mapped);
            assert!(seen.insert(mapped));
        }
        assert_eq!(pool_name_for("a b"), format!("n-ab{:032x}", hash("a b")));
        for name in cases {
            let (mapped, group) = (group_snapshot(name), GroupName::parse("p@csi-group-x").unwrap());
            assert!(mapped.len() <= NAME_MAX && is_of_group(&mapped) && mapped != group.snapshot, "{mapped}");
            assert_ne!(pool_name_for(&mapped), mapped, "no other snapshot has a name of a group");
        }
        assert_eq!(group_snapshot("groupsnapshot-1"), "csi-group-groupsnapshot-1");
        assert!(clone_snapshot(&long).len() <= NAME_MAX && is_temporary(&clone_snapshot(&long)));
    }

    #[test]
    fn identifiers_name_pool_and_volume() {
        assert_eq!(volume("fast/a").unwrap().volume, "a");
        assert_eq!(snapshot("fast/a@b").unwrap().volume, "a@b");
        for id in ["", "a", "fast/", "fast/a@b"] {
            assert_eq!(volume(id).unwrap_err().code(), tonic::Code::NotFound, "{id}");
        }
        let member = snapshot("fast/a@csi-group-x").unwrap();
        assert_eq!(GroupName::of(&member), Some(GroupName::parse("fast@csi-group-x").unwrap()));
        assert_eq!(GroupName::of(&member).unwrap().id(), "fast@csi-group-x");
        assert_eq!(GroupName::of(&snapshot("fast/a@x").unwrap()), None);
        for id in ["", "a", "fast@x", "@csi-group-x"] {
            assert_eq!(GroupName::parse(id).unwrap_err().code(), tonic::Code::NotFound, "{id}");
        }
        for id in ["", "a", "fast/a", "fast/@b"] {
            assert_eq!(snapshot(id).unwrap_err().code(), tonic::Code::NotFound, "{id}");
        }
    }
}
