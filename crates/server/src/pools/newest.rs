//! The newest state of each pool, kept in the daemon's state directory, so that a pool is not
//! opened automatically in an older state.

use std::io;
use std::sync::Arc;

use engine::{PoolStateStore, RememberFuture, StateStamp};
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

    fn remember(&self, pool: PoolId, stamp: StateStamp) -> RememberFuture<'_> {
        let state = self.0.clone();
        let (sender, written) = oneshot::channel();
        let write = move || {
            let PoolOpening { epoch, nonce } = stamp.opening;
            let newest = StampRecord { epoch, nonce, generation: stamp.generation.get() };
            let change = |state: &mut PersistentState| {
                state.newest.insert(pool.to_string(), newest);
            };
            // An error of the channel means that the pool is gone.
            let _ = sender.send(state.update(change).map_err(|error| io::Error::other(error.to_string())));
        };
        // A thread of its own, because a reactor must not wait for the disk of the state directory.
        let spawned = std::thread::Builder::new().name("pool-state".into()).spawn(write);
        Box::pin(async move {
            spawned?;
            written.await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes it has ended")))
        })
    }
}
