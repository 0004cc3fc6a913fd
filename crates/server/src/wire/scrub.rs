//! Scrubbing: everything that a pool holds is read and compared, and what is damaged is written anew.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a scrub found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubResult {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When it ended; absent before that.
    pub ended: Option<u64>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Blocks, live or not, parity included, that were not what they must be; the others of their rows gave them back.
    pub damaged: u64,
    /// Rows of which a block could not be computed: more was damaged than the scheme bears.
    pub lost: u64,
}

/// How far a pool is with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// The one that is under way.
    pub current: Option<ScrubResult>,
    /// The last one that came to its end.
    pub last: Option<ScrubResult>,
    /// Bytes that are still to be read.
    pub left: u64,
    /// How much of all is read.
    pub percent: u64,
    /// Bytes read a second, lately.
    pub bytes_per_second: u64,
    /// How long the rest takes at that speed.
    pub seconds_left: Option<u64>,
    /// Parts of segments with damage that was found and is not written anew yet.
    pub unhealed: u64,
    /// It is told not to go on.
    pub paused: bool,
    /// Bytes that it may read a second; 0 for as many as the drives give.
    pub limit: u64,
    /// Seconds from the beginning of one to that of the next; 0 for only when asked.
    pub every: u64,
}

/// What is to change about scrubbing. Pausing and the limit hold until the pool is closed; how often is kept in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeScrub {
    /// Whether it does nothing; as it was, if absent.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Bytes that it may read a second, 0 for as many as the drives give; as it was, if absent. While volumes are used it does
    /// as much as users hardly notice, and takes a quarter of the drives' time at least, within what stands here.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
    /// Seconds from the beginning of one to that of the next, 0 for only when asked; as it was, if absent.
    #[serde(default)]
    pub every: Option<u64>,
}
