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

/// Returns the name in a pool for the name that the cluster suggests: the same name if it is valid,
/// else its valid characters and a hash.
pub(crate) fn pool_name_for(suggested: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = suggested.len() <= NAME_MAX
        && suggested.chars().all(is_valid)
        && !suggested.starts_with(['.', '-'])
        && !is_temporary(suggested);
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
        assert!(clone_snapshot(&long).len() <= NAME_MAX && is_temporary(&clone_snapshot(&long)));
    }

    #[test]
    fn identifiers_name_pool_and_volume() {
        assert_eq!(volume("fast/a").unwrap().volume, "a");
        assert_eq!(snapshot("fast/a@b").unwrap().volume, "a@b");
        for id in ["", "a", "fast/", "fast/a@b"] {
            assert_eq!(volume(id).unwrap_err().code(), tonic::Code::NotFound, "{id}");
        }
        for id in ["", "a", "fast/a", "fast/@b"] {
            assert_eq!(snapshot(id).unwrap_err().code(), tonic::Code::NotFound, "{id}");
        }
    }
}
