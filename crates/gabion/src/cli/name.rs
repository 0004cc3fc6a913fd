//! Names of volumes as they are given: `pool/volume`.

use std::fmt;
use std::str::FromStr;

/// A volume of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeName {
    pub(crate) pool: String,
    pub(crate) volume: String,
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((pool, volume)) if !pool.is_empty() && !volume.is_empty() => {
                Ok(Self { pool: pool.to_owned(), volume: volume.to_owned() })
            }
            _ => Err("write POOL/VOLUME, for example fast/vm01".into()),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}
