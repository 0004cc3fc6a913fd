//! Map nodes that are only in memory: the copy of each on the drives is lost.
//!
//! The nodes stay in memory until checkpoints have stored them elsewhere. Always true: they do not
//! use up the checkpoint reserve, because nodes that are stored elsewhere seldom free a segment
//! (S4). Only the last checkpoint of an opening stores as many as it can: without it, the nodes and
//! the blocks below them would be lost.
//!
//! Must not know: how a lost copy is found.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use format::Address;

use super::Shard;
use crate::error::Result;
use crate::map::MissingNode;

/// The nodes, each with the address of its lost copy.
#[derive(Default)]
pub(super) struct UnsavedNodes {
    nodes: RefCell<HashMap<MissingNode, Address>>,
    /// Number of nodes in the last warning.
    reported: Cell<usize>,
}

impl UnsavedNodes {
    /// Keeps a node in memory if the map has its copy at `address`.
    ///
    /// # Errors
    /// When the node is not in memory and cannot be read: it is lost.
    pub(super) async fn keep(&self, shard: &Shard, node: MissingNode, address: Address) -> Result<()> {
        let is_kept = shard.walk(|map| map.hold_if_stored_at(node, address)).await?;
        if is_kept && self.nodes.borrow_mut().insert(node, address).is_some() {
            // It was kept before.
            shard.ledger.map.borrow_mut().release(node);
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.borrow().is_empty()
    }

    pub(super) fn count(&self) -> u64 {
        self.nodes.borrow().len() as u64
    }

    /// Makes the next checkpoints store the nodes elsewhere, as far as there is space. Waits for a
    /// checkpoint if the next one could not store another node.
    pub(super) async fn store(&self, shard: &Shard) {
        while !self.is_empty() && !shard.has_ended() {
            if shard.log.pacer.space.only_checkpoint_reserve_left() {
                return self.report(shard);
            }
            if shard.ledger.map.borrow().is_over_budget()
                && shard.checkpointer.wait_for_map(shard).await.is_err()
            {
                return self.report(shard);
            }
            self.rewrite_one(shard);
            shard.log.checkpoints.request();
        }
        self.reported.set(self.nodes.borrow().len());
    }

    /// Makes the last checkpoint store as many nodes as it can.
    pub(super) fn store_at_last(&self, shard: &Shard) {
        while !self.is_empty() && !shard.ledger.map.borrow().is_over_budget() {
            self.rewrite_one(shard);
        }
        if !self.is_empty() {
            let count = self.nodes.borrow().len();
            tracing::error!(shard = %shard.identity.shard, count, "map nodes are lost: their copies are damaged, and there is no space to store them again; the next scrub lists the blocks below them");
        }
    }

    /// Makes the next checkpoint store a node, unless it has another place by now.
    fn rewrite_one(&self, shard: &Shard) {
        let next = self.nodes.borrow().iter().next().map(|(node, address)| (*node, *address));
        let Some((node, address)) = next else { return };
        self.nodes.borrow_mut().remove(&node);
        let mut map = shard.ledger.map.borrow_mut();
        let rewritten = map.rewrite_node(node, address);
        assert!(rewritten.is_ok(), "M2: the held node {node:?} is not in memory");
        map.release(node);
    }

    /// Logs how many nodes wait for space, if it is another number than the last time.
    fn report(&self, shard: &Shard) {
        let count = self.nodes.borrow().len();
        if self.reported.replace(count) != count {
            tracing::warn!(shard = %shard.identity.shard, count, "map nodes are only in memory: their copies are damaged, and the pool is full; delete data or add a drive before the daemon ends");
        }
    }
}
