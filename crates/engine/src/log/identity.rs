//! The identity of a shard: part of every record that it writes.

use format::{PoolId, PoolKey, ShardIndex};

/// The identity of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) pool: PoolId,
    pub(crate) key: PoolKey,
    pub(crate) shard: ShardIndex,
}
