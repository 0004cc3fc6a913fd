//! Self-healing: blocks that their own drive no longer returns are rewritten elsewhere, one at a
//! time, in the background. Nothing is ever rewritten in place.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use format::limits::BLOCK;
use format::{Item, LayerBlock, LayerId, MapEntry, Mapping};
use reactor::{Buffer, Notify};
use smallvec::SmallVec;

use super::Shard;
use super::background::{BackgroundJob, StepOutcome};
use crate::error::Result;
use crate::log::{Effect, Request, WriteClass};
use crate::row_reader::{BlockRun, ReadOutcome};

/// Maximum number of queued blocks; further ones are found again when they are read again.
const QUEUE_MAX: usize = 1024;

/// The queue of blocks to heal.
#[derive(Default)]
pub(super) struct Healer {
    queue: RefCell<VecDeque<(LayerId, u64, MapEntry)>>,
    work: Notify,
}

impl BackgroundJob for Healer {
    async fn wait_for_work(&self, _: &Shard) {
        self.work.notified().await;
    }

    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome {
        let next = self.queue.borrow_mut().pop_front();
        let Some((layer, block, entry)) = next else { return StepOutcome::Idle };
        if let Err(error) = self.heal(shard, layer, block, entry).await {
            tracing::warn!(%layer, block, %error, "damaged block not moved");
        }
        StepOutcome::More
    }
}

impl Healer {
    /// Wakes the healing task.
    pub(super) fn wake(&self) {
        self.work.notify();
    }

    /// Queues a block that may be damaged in place: it is checked, and moved if it is.
    pub(super) fn queue(&self, layer: LayerId, block: u64, entry: MapEntry) {
        let mut queue = self.queue.borrow_mut();
        let is_queued = queue.iter().any(|(_, _, queued)| *queued == entry);
        if queue.len() < QUEUE_MAX && !is_queued {
            queue.push_back((layer, block, entry));
            self.work.notify();
        }
    }

    /// Moves one block, unless it has been overwritten meanwhile.
    async fn heal(&self, shard: &Shard, layer: LayerId, block: u64, entry: MapEntry) -> Result<()> {
        let (layer, found) =
            shard.walk_chain((layer, block, 1), |map| map.lookup_one_through(layer, block)).await?;
        if found != entry {
            return Ok(());
        }
        let Mapping::Block { address: from, crc } = entry.mapping() else { return Ok(()) };
        let data = Buffer::new(BLOCK);
        let read = {
            let _pin = shard.rows.pin(from.segment());
            shard.rows.read_run(BlockRun { address: from, count: 1 }, &[crc], &data.span()).await
        };
        if read? == ReadOutcome::Direct || shard.check_stopping().is_err() {
            return Ok(());
        }
        // The leaf exists as long as the entry does; a layer that is being dropped is skipped.
        let pins = shard.prepare_unmap(layer, block, 1).await?;
        if pins.is_empty() || shard.dropping_layers.borrow().contains(&layer) {
            shard.unpin(&pins);
            return Ok(());
        }
        let request = Request {
            items: SmallVec::from_elem(
                Item::Move { layer, block: LayerBlock::new(block), count: 1, from },
                1,
            ),
            data: SmallVec::from_elem(data.span(), 1),
            effect: Effect::Leaves(pins),
            reply: None,
        };
        shard.log.commit(WriteClass::Trim, request).await?;
        tracing::debug!(%layer, block, %from, "damaged block moved");
        Ok(())
    }
}
