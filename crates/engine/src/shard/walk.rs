//! Walks over the map: a walk returns the node that it misses, which is read, and the walk is
//! retried.

use std::collections::VecDeque;

use format::limits::BLOCK;
use format::{LayerId, MapEntry, Mapping};
use reactor::Buffer;

use super::Shard;
use crate::error::{Error, ErrorLocation, Result};
use crate::ledger::Ledger;
use crate::map::{ChainPins, Map, MissingNode, Pins};
use crate::row_reader::{BlockRun, RowReader};

/// Maximum number of nodes that a walk holds: the paths to both ends of a request. Longer walks pin
/// the leaves that they have reached, or begin at the next one.
const HELD_MAX: usize = 16;

impl Shard {
    /// Runs `walk` over the map, and reads missing nodes, until it completes.
    pub(super) async fn walk<T>(
        &self,
        walk: impl FnMut(&mut Map) -> std::result::Result<T, MissingNode>,
    ) -> Result<T> {
        walk_map(&self.ledger, &self.rows, walk).await
    }

    /// Runs `look`, which looks up blocks of a layer in it and in those below it. It completes for
    /// any number of blocks: the nodes read for it stay in memory until then.
    pub(super) async fn walk_chain<T>(
        &self,
        (layer, block, count): (LayerId, u64, usize),
        mut look: impl FnMut(&mut Map) -> std::result::Result<T, MissingNode>,
    ) -> Result<T> {
        if let Ok(found) = look(&mut self.ledger.map.borrow_mut()) {
            return Ok(found);
        }
        let mut pins = ChainPins::default();
        let mut held = HeldNodes::new(&self.ledger);
        let found = loop {
            let looked = {
                let dropping_layers = self.dropping_layers.borrow();
                let mut map = self.ledger.map.borrow_mut();
                let empty = |layer| dropping_layers.contains(&layer);
                map.pin_through(layer, block, count, empty, &mut pins).and_then(|()| look(&mut map))
            };
            match looked {
                Ok(found) => break Ok(found),
                Err(load) => {
                    if let Err(error) = held.load(&self.rows, load).await {
                        break Err(error);
                    }
                }
            }
        };
        pins.iter().for_each(|pins| self.unpin(pins));
        found
    }

    /// Releases pins of leaves, and wakes tasks that wait to drop the layer.
    pub(super) fn unpin(&self, pins: &Pins) {
        self.ledger.unpin(pins);
        self.unpinned.wake_all();
    }

    /// Returns the first block from `from` on, below `end`, that has a leaf in a layer or in one
    /// below it.
    pub(super) async fn next_leaf_through(&self, layer: LayerId, from: u64, end: u64) -> Result<Option<u64>> {
        loop {
            let changes = self.ledger.map.borrow().tree_version();
            let mut first = None;
            let mut next = Some(layer);
            while let Some(at) = next
                && first != Some(from)
            {
                let before = first.unwrap_or(end);
                first = self.walk(|map| map.next_leaf(at, from, before)).await?.or(first);
                next = self.ledger.map.borrow().parent(at);
            }
            // A leaf may have moved from an unsearched layer to one already searched.
            if self.ledger.map.borrow().tree_version() == changes {
                return Ok(first);
            }
        }
    }
}

/// Runs `walk` over the map, and reads the nodes that it misses, until it completes.
pub(super) async fn walk_map<T>(
    ledger: &Ledger,
    rows: &RowReader,
    mut walk: impl FnMut(&mut Map) -> std::result::Result<T, MissingNode>,
) -> Result<T> {
    let mut held = HeldNodes::new(ledger);
    loop {
        let walked = walk(&mut ledger.map.borrow_mut());
        match walked {
            Ok(found) => return Ok(found),
            Err(load) => held.load(rows, load).await?,
        }
    }
}

/// Pins the leaves that cover a range, and creates missing ones.
pub(super) async fn pin_leaves(
    ledger: &Ledger,
    rows: &RowReader,
    layer: LayerId,
    block: u64,
    count: u64,
) -> Result<Pins> {
    let mut pins = Pins::new();
    let walked = walk_map(ledger, rows, |map| map.prepare_write(layer, block, count, &mut pins)).await;
    if let Err(error) = walked {
        ledger.unpin(&pins);
        return Err(error);
    }
    Ok(pins)
}

/// The nodes that one walk has loaded last. They stay in memory until the walk ends: in a map
/// without evictable nodes, as during checkpoints that fail, several walks would otherwise evict
/// each other's nodes forever.
struct HeldNodes<'a> {
    ledger: &'a Ledger,
    nodes: VecDeque<MissingNode>,
}

impl<'a> HeldNodes<'a> {
    fn new(ledger: &'a Ledger) -> Self {
        Self { ledger, nodes: VecDeque::new() }
    }

    /// Loads a node and holds it.
    async fn load(&mut self, rows: &RowReader, load: MissingNode) -> Result<()> {
        {
            let mut map = self.ledger.map.borrow_mut();
            map.hold(load);
            self.nodes.push_back(load);
            if self.nodes.len() > HELD_MAX
                && let Some(first) = self.nodes.pop_front()
            {
                map.release(first);
            }
        }
        load_node(self.ledger, rows, load).await
    }
}

impl Drop for HeldNodes<'_> {
    fn drop(&mut self) {
        if !self.nodes.is_empty() {
            let mut map = self.ledger.map.borrow_mut();
            self.nodes.drain(..).for_each(|node| map.release(node));
        }
    }
}

/// Reads a node into the map, or waits for a read of it that is in progress.
pub(super) async fn load_node(ledger: &Ledger, rows: &RowReader, load: MissingNode) -> Result<()> {
    let begun = ledger.map.borrow_mut().begin_load(load);
    let entry = match begun {
        None => return Ok(()),
        Some(Err(waiting)) => {
            let mut first = true;
            waiting.until(|| (!std::mem::take(&mut first)).then_some(())).await;
            return Ok(());
        }
        Some(Ok(entry)) => entry,
    };
    let read = read_entry(rows, entry).await;
    let entries = match &read {
        Ok(block) => format::decode_entries(block.as_slice()).map_err(|error| {
            let place = ErrorLocation { address: entry.address(), ..Default::default() };
            Error::corrupt("a map node is damaged", place, Some(error))
        }),
        Err(error) => Err(error.clone()),
    };
    let (entries, result) = match entries {
        Ok(entries) => (Some(entries), Ok(())),
        Err(error) => (None, Err(error)),
    };
    ledger.map.borrow_mut().end_load(load, entry, entries);
    result
}

/// Reads and verifies the block that an entry points to.
pub(super) async fn read_entry(rows: &RowReader, entry: MapEntry) -> Result<Buffer> {
    let Mapping::Block { address, crc } = entry.mapping() else {
        return Err(Error::corrupt("a pointer to metadata is not a block", ErrorLocation::default(), None));
    };
    if !rows.segments.borrow().contains(address.segment()) {
        let place = ErrorLocation { address: Some(address), ..ErrorLocation::default() };
        return Err(Error::corrupt("a pointer refers to an unknown segment", place, None));
    }
    let buffer = Buffer::new(BLOCK);
    let _pin = rows.pin(address.segment());
    rows.read_run(BlockRun { address, count: 1 }, &[crc], &buffer.span()).await.map(|_| buffer)
}
