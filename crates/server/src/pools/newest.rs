//! The newest state of each pool, kept in the daemon's state directory, so that a pool is not
//! opened automatically in an older state.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use engine::{PoolStateStore, StateStamp};
use format::{Generation, PoolId, PoolOpening};
use futures_channel::oneshot;

use crate::state::{PersistentState, StampRecord, State};

/// The store of the newest pool states.
pub(super) struct NewestStates(pub(super) Arc<State>);

impl PoolStateStore for NewestStates {
    fn newest(&self, pool: PoolId) -> Option<StateStamp> {
        let StampRecord { epoch, nonce, generation } = *self.0.get().newest.get(&pool.to_string())?;
        Some(StateStamp { opening: PoolOpening { epoch, nonce }, generation: Generation::new(generation) })
    }

    fn remember(&self, pool: PoolId, stamp: StateStamp) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let state = self.0.clone();
        let (sender, written) = oneshot::channel();
        let write = move || {
            let PoolOpening { epoch, nonce } = stamp.opening;
            let newest = StampRecord { epoch, nonce, generation: stamp.generation.get() };
            let change = |state: &mut PersistentState| {
                state.newest.insert(pool.to_string(), newest);
            };
            if let Err(error) = state.update(change) {
                tracing::error!(%pool, %error, "cannot record the newest state of the pool; stale drives may go undetected");
            }
            // An error means that the pool is gone.
            let _ = sender.send(());
        };
        // A thread of its own, because a reactor must not wait for the disk of the state directory.
        if let Err(error) = std::thread::Builder::new().name("pool-state".into()).spawn(write) {
            tracing::error!(%pool, %error, "cannot start a thread to record the newest state of the pool");
        }
        Box::pin(async move {
            let _ = written.await;
        })
    }
}
