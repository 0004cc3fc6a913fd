//! Recovery, second half: applies the records behind the checkpoint to the map.

use format::{Item, UnmapMode};

use super::headers::ScannedRecord;
use super::walk::{pin_leaves, walk_map};
use crate::error::Result;
use crate::invariant::part;
use crate::ledger::{Ledger, Payload};
use crate::map::Pins;
use crate::row_reader::RowReader;

/// Applies a record to the map, as the log did before the crash.
///
/// # Errors
/// If a node of the map cannot be read.
pub(super) async fn replay_record(ledger: &Ledger, rows: &RowReader, record: &ScannedRecord) -> Result<()> {
    let place = &record.header.location;
    let header_blocks = u32::from(record.header.header_blocks);
    let mut first = header_blocks;
    for item in &record.header.items {
        let count = item.payload();
        let skip = (first - header_blocks) as usize;
        let crcs = part(&record.header.crcs, skip..skip + count as usize, "R3");
        let payload = Payload { segment: place.segment, layout: record.layout, first, crcs };
        replay_item(ledger, rows, item, &payload).await?;
        first += count;
    }
    let payload = (first - header_blocks) as usize;
    assert_eq!(payload, record.header.crcs.len(), "R3: the items list the whole payload");
    rows.segments.borrow_mut().replayed(place.segment, record.layout.end());
    Ok(())
}

async fn replay_item(ledger: &Ledger, rows: &RowReader, item: &Item, payload: &Payload<'_>) -> Result<()> {
    let count = u64::from(item.payload());
    match *item {
        Item::Write { layer, block, .. } => {
            let pins = pin_leaves(ledger, rows, layer, block.get(), count).await?;
            ledger.write(&pins, block, payload);
            ledger.unpin(&pins);
        }
        Item::Move { layer, block, from, .. } => {
            // A leaf that does not exist holds no block that could have been moved.
            let mut pins = Pins::new();
            walk_map(ledger, rows, |map| map.prepare_unmap(layer, block.get(), count, &mut pins)).await?;
            ledger.relocate(&pins, block, from, payload);
            ledger.unpin(&pins);
        }
        Item::Unmap { layer, block, count, mode } => {
            let mut pins = Pins::new();
            match mode {
                UnmapMode::Absent => {
                    walk_map(ledger, rows, |map| map.prepare_unmap(layer, block.get(), count, &mut pins))
                        .await?;
                }
                // Blocks of the layers below must be hidden everywhere.
                UnmapMode::Zero => {
                    pins = pin_leaves(ledger, rows, layer, block.get(), count).await?;
                }
            }
            ledger.unmap(&pins, block, count, mode);
            ledger.unpin(&pins);
        }
        Item::DropLayer { layer } => ledger.drop_layer(layer),
        Item::Merge { from, into, block, count } => {
            let mut leaves = Pins::new();
            let count = u64::from(count);
            walk_map(ledger, rows, |map| map.prepare_unmap(from, block.get(), count, &mut leaves)).await?;
            let mut targets = Pins::new();
            for leaf in &leaves {
                let start = ledger.map.borrow().leaf_start(*leaf);
                let length = format::NODE_ENTRIES as u64;
                targets.extend(pin_leaves(ledger, rows, into, start, length).await?);
            }
            ledger.merge(&leaves, &targets);
            ledger.unpin(&leaves);
            ledger.unpin(&targets);
        }
        // Only checkpoints refer to these, and those of this one are loaded.
        Item::Node { .. } | Item::Table { .. } => {}
    }
    Ok(())
}
