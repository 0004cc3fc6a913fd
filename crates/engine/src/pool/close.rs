//! Closing a pool in order: everything in a last checkpoint, and the superblocks say so.

use std::rc::Rc;

use format::EventKind;

use super::{Journal, Pool};
use crate::control::Control;
use crate::error::Result;
use crate::shard::Shard;

impl Pool {
    /// Closes the pool: ends its tasks, with a last checkpoint, and marks it clean. Operations still running are
    /// answered first; later ones fail as closed.
    ///
    /// # Errors
    /// When the last checkpoint or superblock cannot be written. The pool is closed all the same, and the next opening
    /// replays what it must.
    pub async fn close(self) -> Result<()> {
        let mut result = Ok(());
        let closed = |journal: Rc<Journal>| async move { journal.stop().await };
        let _ = self.emit_event(EventKind::Closed, 0, "").await;
        let _ = self.inner.journal.call(closed).await;
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
            result = self.inner.control.call(clean).await.map_err(Into::into).and_then(|published| published);
        }
        self.dismiss().await;
        result
    }

    /// Forgets the pool's parts on their reactors.
    async fn dismiss(&self) {
        let catalogue = self.inner.catalogue.clone();
        let _ = self.inner.catalogue.call(move |_| async move { catalogue.unregister() }).await;
        let journal = self.inner.journal.clone();
        let _ = self.inner.journal.call(move |_| async move { journal.unregister() }).await;
        for shard in self.inner.shards.iter() {
            let home = shard.clone();
            let _ = shard.call(move |_| async move { home.unregister() }).await;
        }
        let control = self.inner.control.clone();
        let dismiss = move |inner: Rc<Control>| async move {
            inner.stop().await;
            control.unregister();
        };
        let _ = self.inner.control.call(dismiss).await;
    }
}
