//! The stable identity of a volume or snapshot.

use std::fmt;

use format::VolumeId;
use format::limits::VOLUMES_MAX;

/// The identity of a volume or snapshot, unique over the life of its pool as long as the clock of
/// the host is not set back. It does not change when the volume is resized, snapshotted or rolled
/// back.
///
/// The upper 48 bits are the time of creation in seconds since 1970, the lower 16 bits are the
/// number of the volume in the catalogue. The number of a deleted volume is given to another volume
/// only after all other numbers, or by a later opening of the pool; the time tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeUid(u64);

const _: () = assert!(VOLUMES_MAX <= 1 << 16);

impl VolumeUid {
    /// Returns the identity of volume `id`, created at `created`, in seconds since 1970.
    pub(crate) fn new(created: u64, id: VolumeId) -> Self {
        Self(created << 16 | u64::from(id.get()))
    }

    /// Returns the identity as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for VolumeUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
