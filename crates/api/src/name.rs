//! Names of volumes and snapshots: `POOL/VOLUME` and `POOL/VOLUME@SNAPSHOT`.

use std::fmt;
use std::str::FromStr;

/// The name of a volume or snapshot with its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName {
    /// Name of the pool.
    pub pool: String,
    /// Name within the pool, `VOLUME` or `VOLUME@SNAPSHOT`.
    pub volume: String,
}

/// Reason why a text is not the name of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write POOL/VOLUME, for example fast/vm01")]
pub struct NameError;

impl VolumeName {
    /// Returns the volume of a snapshot and the snapshot's own name; `None` for a volume.
    pub fn snapshot(&self) -> Option<(VolumeName, &str)> {
        let (volume, snapshot) = self.volume.split_once('@')?;
        let named = !volume.is_empty() && !snapshot.is_empty();
        named.then(|| (Self { pool: self.pool.clone(), volume: volume.to_owned() }, snapshot))
    }

    /// Returns the name of the volume within the pool, without the snapshot.
    pub fn base(&self) -> &str {
        self.volume.split_once('@').map_or(&self.volume, |(volume, _)| volume)
    }
}

impl FromStr for VolumeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            Some((pool, volume)) if !pool.is_empty() && !volume.is_empty() => {
                Ok(Self { pool: pool.to_owned(), volume: volume.to_owned() })
            }
            _ => Err(NameError),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_pool_volume_and_snapshot() {
        let snapshot: VolumeName = "fast/vm01@monday".parse().unwrap();
        let (volume, own) = snapshot.snapshot().unwrap();
        assert_eq!((volume.to_string().as_str(), own, snapshot.base()), ("fast/vm01", "monday", "vm01"));
        assert_eq!(snapshot.to_string(), "fast/vm01@monday");
        assert_eq!("fast/vm01".parse::<VolumeName>().unwrap().snapshot(), None);
        assert_eq!("fast/@monday".parse::<VolumeName>().unwrap().snapshot(), None);
        for invalid in ["", "fast", "fast/", "/vm01"] {
            assert_eq!(invalid.parse::<VolumeName>(), Err(NameError), "{invalid}");
        }
    }
}
