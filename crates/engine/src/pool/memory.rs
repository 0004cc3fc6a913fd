//! The memory of a pool's newest state outside of its drives.
//!
//! Drives that were left out while others were used hold an older state and nothing that says so. A memory beside the pool, such
//! as the daemon's state directory, knows that a newer state exists, and an opening of an older one is refused.

use std::future::Future;
use std::pin::Pin;

use format::PoolId;
pub use format::StateStamp;

/// Keeps the newest state of each pool. Shared by the reactors of a pool.
pub trait StateMemory: Send + Sync {
    /// The state of a pool that was kept last.
    fn newest(&self, pool: PoolId) -> Option<StateStamp>;

    /// Keeps `state` in place of the one before, durably, and ends then. Called after the drives hold the state and before anybody
    /// relies on it: when the pool is opened, whenever the drives in use change, and when it is closed. A failure is the
    /// implementation's to report.
    fn remember(&self, pool: PoolId, state: StateStamp) -> Pin<Box<dyn Future<Output = ()> + '_>>;
}
