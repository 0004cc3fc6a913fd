//! Cleaning for other shards: free zones belong to all shards, but garbage belongs to one.
//!
//! A shard cleans when its own clients write. An idle shard may hold garbage while another one
//! finds nothing to clean; that one asks the other shards before it refuses a write.

use std::rc::Rc;

use super::Shard;

impl Shard {
    /// Cleans as if a request of this shard waited for space, and frees the gain with a checkpoint.
    /// Returns false if nothing was gained.
    pub(crate) async fn clean_for_others(self: &Rc<Self>) -> bool {
        let ended = || self.stopping.get() || self.log.failure().is_some();
        if ended() {
            return false;
        }
        self.log.pacer.start_helping();
        if !self.log.pacer.wait_for_help(ended).await {
            return false;
        }
        // The shard's own task makes the checkpoint, so that none is in progress here once the
        // shard has stopped.
        let (made, ended_before) = (self.checkpointer.completed(), self.checkpointer.ended());
        self.log.checkpoints.request();
        let is_over = || self.checkpointer.ended() != ended_before || ended();
        self.checkpointer.until(is_over).await;
        self.checkpointer.completed() != made
    }
}
