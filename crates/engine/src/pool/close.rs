//! Closing a pool: a final checkpoint of every shard, and the clean flag in the superblocks.

use std::rc::Rc;

use format::EventKind;
use futures_util::future::LocalBoxFuture;

use super::{Journal, Pool};
use crate::control::Control;
use crate::error::Result;
use crate::shard::Shard;

impl Pool {
    /// Closes the pool: stops its tasks, writes a final checkpoint and marks the pool clean.
    /// Running operations complete first; later ones fail with `Closed`.
    ///
    /// # Errors
    /// When the final checkpoint or superblock cannot be written. The pool is closed nevertheless,
    /// and the next open replays the log.
    pub fn close(self) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let mut result = Ok(());
            let stop = |journal: Rc<Journal>| async move { journal.stop().await };
            let _ = self.emit_event(EventKind::Closed, 0, "").await;
            let _ = self.inner.journal.call(stop).await;
            for shard in self.inner.shards.iter() {
                let _ = shard.call(|shard: Rc<Shard>| async move { shard.begin_stop() }).await;
            }
            let _ = self.inner.catalogue.call(|catalogue| async move { catalogue.stop().await }).await;
            for shard in self.inner.shards.iter() {
                let stopped = shard.call(|shard: Rc<Shard>| async move { shard.stop(true).await }).await;
                result = result.and(stopped.map_err(Into::into).and_then(|stopped| stopped));
            }
            if result.is_ok() {
                let clean = |control: Rc<Control>| async move {
                    control.publish(|superblock| superblock.clean = true).await
                };
                result =
                    self.inner.control.call(clean).await.map_err(Into::into).and_then(|published| published);
            }
            self.dismiss().await;
            result
        })
    }

    /// Drops the pool's parts on their reactors.
    async fn dismiss(&self) {
        let catalogue = self.inner.catalogue.clone();
        let _ = self.inner.catalogue.call(move |_| async move { catalogue.unregister() }).await;
        let journal = self.inner.journal.clone();
        let _ = self.inner.journal.call(move |_| async move { journal.unregister() }).await;
        for shard in self.inner.shards.iter() {
            let handle = shard.clone();
            let _ = shard.call(move |_| async move { handle.unregister() }).await;
        }
        let control = self.inner.control.clone();
        let dismiss = move |inner: Rc<Control>| async move {
            inner.stop().await;
            control.unregister();
        };
        let _ = self.inner.control.call(dismiss).await;
    }
}
