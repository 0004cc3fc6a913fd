//! Space for other shards: what is free belongs to all of them, what is garbage lies with one.
//!
//! A shard cleans when its own users write. One whose users do nothing may hold garbage while another finds nothing to clean; before that
//! one refuses a write, it asks.

use std::rc::Rc;

use super::Shard;

impl Shard {
    /// Cleans as if somebody here waited for space, and gives back what that gains with a checkpoint. False if it gains nothing.
    pub(crate) async fn clean_for_others(self: &Rc<Self>) -> bool {
        let ended = || self.stopping.get() || self.log.failure().is_some();
        if ended() {
            return false;
        }
        self.log.pacer.start_helping();
        if !self.log.pacer.wait_for_help(ended).await {
            return false;
        }
        // By the shard's own task: nothing is under way here when the shard has stopped.
        let (made, over) = (self.checkpoints.get(), self.checkpoints_ended.get());
        self.log.checkpoint_due.notify();
        let is_over = || self.checkpoints_ended.get() != over || ended();
        self.checkpointed.until(|| is_over().then_some(())).await;
        self.checkpoints.get() != made
    }
}
