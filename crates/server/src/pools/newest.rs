//! The newest state of each pool, kept in the daemon's state directory: an automatic opening takes no older one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use engine::{PoolStateStore, StateStamp};
use format::{Generation, PoolId, PoolOpening};
use futures_channel::oneshot;

use crate::state::{Remembered, RememberedState, State};

/// See the module.
pub(super) struct NewestStates(pub(super) Arc<State>);

impl PoolStateStore for NewestStates {
    fn newest(&self, pool: PoolId) -> Option<StateStamp> {
        let RememberedState { epoch, nonce, generation } = *self.0.get().newest.get(&pool.to_string())?;
        Some(StateStamp { opening: PoolOpening { epoch, nonce }, generation: Generation::new(generation) })
    }

    fn remember(&self, pool: PoolId, stamp: StateStamp) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let state = self.0.clone();
        let (sender, written) = oneshot::channel();
        let write = move || {
            let PoolOpening { epoch, nonce } = stamp.opening;
            let newest = RememberedState { epoch, nonce, generation: stamp.generation.get() };
            let change = |state: &mut Remembered| {
                state.newest.insert(pool.to_string(), newest);
            };
            if let Err(error) = state.update(change) {
                tracing::error!(%pool, %error, "the newest state of the pool is not remembered: older drives would be opened");
            }
            // Nobody waits when the pool is gone.
            let _ = sender.send(());
        };
        // A reactor must not wait for the disk that holds the state directory.
        if let Err(error) = std::thread::Builder::new().name("pool-state".into()).spawn(write) {
            tracing::error!(%pool, %error, "cannot start a thread: the newest state of the pool is not remembered");
        }
        Box::pin(async move {
            let _ = written.await;
        })
    }
}
