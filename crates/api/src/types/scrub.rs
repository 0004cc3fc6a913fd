//! Scrubbing: all data of a pool is read and verified, and damaged blocks are rewritten.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubResult {
    /// Time of its start.
    pub started: u64,
    /// Time of its end; absent while it runs.
    pub finished: Option<u64>,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged blocks, live or not, parity included, that the other columns reconstructed.
    pub damaged: u64,
    /// Rows with a block that could not be reconstructed: more columns were damaged than the scheme
    /// tolerates.
    pub lost: u64,
}

/// State of scrubbing in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// The scrub in progress.
    pub current: Option<ScrubResult>,
    /// The last complete scrub.
    pub last: Option<ScrubResult>,
    /// Bytes still to be read.
    pub remaining: u64,
    /// Share of all bytes that is read.
    pub percent: u64,
    /// Current speed.
    pub bytes_per_second: u64,
    /// Estimated time to its end at the current speed.
    pub seconds_left: Option<u64>,
    /// Parts of segments with damage that was found and is not rewritten yet.
    pub unrepaired: u64,
    /// True if it is paused.
    pub paused: bool,
    /// Limit of its speed in bytes per second; 0 for no limit.
    pub rate_limit: u64,
    /// Interval between the starts of two scrubs in seconds; 0 for scrubs on request only.
    pub every: u64,
}

/// Changes to scrubbing. Pause and limit apply until the pool is closed; the interval is stored in
/// the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeScrub {
    /// Pause or resume; unchanged if absent.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Limit in bytes per second, 0 for no limit; unchanged if absent. Under load the scrub yields
    /// to client I/O, but keeps at least 25 % of drive time within this limit.
    #[serde(default)]
    pub rate_limit: Option<u64>,
    /// Interval between the starts of two scrubs in seconds, 0 for scrubs on request only;
    /// unchanged if absent.
    #[serde(default)]
    pub every: Option<u64>,
}
