//! A store of each pool's newest state outside of its drives.
//!
//! Drives that were absent while others were used hold an older state, which they alone cannot
//! reveal. A store outside of the pool, such as the daemon's state directory, records the newest
//! state, so that opening an older one is refused.

use std::future::Future;
use std::pin::Pin;

use format::{PoolId, StateStamp};

/// The result of [`PoolStateStore::remember`].
pub type RememberFuture<'a> = Pin<Box<dyn Future<Output = std::io::Result<()>> + 'a>>;

/// Stores the newest state of each pool. Shared by the reactors of a pool.
pub trait PoolStateStore: Send + Sync {
    /// Returns the stored state of a pool.
    fn newest(&self, pool: PoolId) -> Option<StateStamp>;

    /// Stores `state` durably in place of the previous one. Called after the drives hold the state
    /// and before the state takes effect: at open, whenever the set of drives in use changes, and
    /// at close; after a failure, for each state that the pool publishes, until it succeeds.
    ///
    /// # Errors
    /// If the state was not stored.
    fn remember(&self, pool: PoolId, state: StateStamp) -> RememberFuture<'_>;
}
