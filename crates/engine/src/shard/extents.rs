//! The allocated extents of a run of a shard's blocks.

/// The reply of a shard to a query about a run of blocks.
pub(crate) struct ShardExtents {
    /// Lengths in blocks of alternating extents; true for data.
    pub(crate) extents: Vec<(u64, bool)>,
    /// The first block after the run, within the bound of the query, that may hold data.
    pub(crate) next: Option<u64>,
}
