//! Requests to the log, and how they are packed into records. Plain state and pure decisions.

use std::collections::VecDeque;

use format::limits::{BLOCK, HEADER_BLOCKS_MAX, RECORD_ITEMS_MAX};
use format::{Item, MapEntry, Scheme, header_blocks_for};
use reactor::{LocalSender, Span};
use smallvec::SmallVec;

use crate::error::Result;
use crate::invariant::narrow;
use crate::map::{NodeRef, Pins};
use crate::segments::AllocPriority;

/// Maximum payload blocks packed into a record, not counting the blocks that fill up its last row.
pub(super) const GATHER_BLOCKS: u32 = 320;
/// Maximum payload blocks of one request.
pub(crate) const REQUEST_BLOCKS_MAX: u32 = 256;

/// The effect of a stored request on the map.
pub(crate) enum Effect {
    /// The items change these leaves, which are pinned.
    Leaves(Pins),
    /// The entries in the leaves of one layer move to those of another; both are pinned.
    Merge {
        /// Leaves of the layer that is merged.
        from: Pins,
        /// Leaves of the target layer, at least one for each leaf in `from`.
        into: Pins,
    },
    /// The payload blocks are these map nodes of a checkpoint.
    Nodes(Vec<NodeRef>),
    /// The items change no map node: table blocks, dropped layers.
    Nothing,
}

/// A request to commit items and their payload.
pub(crate) struct Request {
    /// The items that the record will list.
    pub(crate) items: SmallVec<[Item; 1]>,
    /// The payload; each span is whole blocks.
    pub(crate) data: SmallVec<[Span; 1]>,
    /// The effect on the map.
    pub(crate) effect: Effect,
    /// Receives the result. The entries are those of the payload blocks, for table blocks only.
    pub(crate) reply: Option<LocalSender<Result<Vec<MapEntry>>>>,
}

/// The class of a write: it selects the queue, the allocation priority and the segment class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteClass {
    /// New data of clients.
    User,
    /// Trims, zeros and healed blocks.
    Trim,
    /// Data that the cleaner moves.
    Cold,
    /// Deleted volumes, and the catalogue.
    Freeing,
    /// Map nodes and tables of a checkpoint.
    Checkpoint,
}

/// A value for each write class.
#[derive(Clone, Copy, Default)]
pub(super) struct PerClass<T>([T; 5]);

impl<T> PerClass<T> {
    pub(super) fn of(&self, write_class: WriteClass) -> &T {
        let [user, trim, cold, freeing, checkpoint] = &self.0;
        match write_class {
            WriteClass::User => user,
            WriteClass::Trim => trim,
            WriteClass::Cold => cold,
            WriteClass::Freeing => freeing,
            WriteClass::Checkpoint => checkpoint,
        }
    }

    pub(super) fn of_mut(&mut self, write_class: WriteClass) -> &mut T {
        let [user, trim, cold, freeing, checkpoint] = &mut self.0;
        match write_class {
            WriteClass::User => user,
            WriteClass::Trim => trim,
            WriteClass::Cold => cold,
            WriteClass::Freeing => freeing,
            WriteClass::Checkpoint => checkpoint,
        }
    }

    /// Iterates over all values; the order is the same for every value.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Iterates over all values, which can be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Iterates over all values.
    pub(super) fn into_iter(self) -> impl Iterator<Item = T> {
        self.0.into_iter()
    }
}

impl WriteClass {
    /// Returns the allocation priority of the class.
    pub(super) fn priority(self) -> AllocPriority {
        match self {
            Self::Checkpoint => AllocPriority::Checkpoint,
            Self::Freeing | Self::Cold => AllocPriority::Freeing,
            Self::Trim => AllocPriority::Trimming,
            Self::User => AllocPriority::User,
        }
    }
}

impl Request {
    /// Returns the number of payload blocks.
    pub(super) fn payload(&self) -> u32 {
        self.items.iter().map(Item::payload).sum()
    }

    fn items_bytes(&self) -> usize {
        self.items.iter().map(Item::encoded_bytes).sum()
    }

    /// Splits the first `blocks` blocks off a large plain write. They need no reply of their own:
    /// records are applied in order, so the rest answers for both.
    fn split_front(&mut self, blocks: u32, atomic: u32) -> Option<Request> {
        let (Effect::Leaves(_), [Item::Write { layer, block, count }]) =
            (&self.effect, self.items.as_mut_slice())
        else {
            return None;
        };
        if u32::from(*count) <= atomic.max(blocks) || blocks == 0 {
            return None;
        }
        let taken = u16::try_from(blocks).ok()?;
        assert!(taken < *count, "R3: both parts of a split write have blocks");
        let front = Item::Write { layer: *layer, block: *block, count: taken };
        *block = block.plus(u64::from(taken));
        *count -= taken;
        let mut data = SmallVec::new();
        let mut left = blocks as usize * BLOCK;
        while left > 0 {
            let Some(first) = self.data.first_mut() else { panic!("R3: a write lacks {left} bytes of data") };
            let length = left.min(first.len());
            data.push(first.slice(0..length));
            if length == first.len() {
                self.data.remove(0);
            } else {
                *first = first.slice(length..first.len());
            }
            left -= length;
        }
        // The leaves are those of the rest: see `Batch::shared_pins`.
        let effect = Effect::Leaves(Pins::new());
        Some(Request { items: SmallVec::from_elem(front, 1), data, effect, reply: None })
    }
}

/// The requests of one record.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    /// Leaves that a split-off front part changes: those of its rest, pinned once more for the
    /// batch, because the rest may be refused while the front is being written.
    pub(super) shared_pins: Pins,
    pub(super) payload: u32,
    pub(super) header_blocks: u32,
    items: usize,
    items_bytes: usize,
}

impl Batch {
    /// Returns the number of header and payload blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.header_blocks + self.payload
    }

    fn header_blocks_with(&self, items_bytes: usize, payload: u32) -> u32 {
        let blocks = header_blocks_for(self.items_bytes + items_bytes, (self.payload + payload) as usize);
        narrow(blocks, "R3")
    }

    /// Returns true if a request can join without exceeding `cells` blocks or a limit of the
    /// format. The header's blocks must be in consecutive rows of the first column, where recovery
    /// reads them.
    fn fits(&self, request: &Request, scheme: Scheme, cells: u32) -> bool {
        let (items_bytes, payload) = (request.items_bytes(), request.payload());
        let header = self.header_blocks_with(items_bytes, payload);
        header as usize <= HEADER_BLOCKS_MAX
            && (header == 1 || header <= scheme.rows_for(header + self.payload + payload))
            && self.items + request.items.len() <= RECORD_ITEMS_MAX
            && header + self.payload + payload <= cells
    }

    fn add(&mut self, request: Request) {
        self.items += request.items.len();
        self.items_bytes += request.items_bytes();
        self.payload += request.payload();
        self.header_blocks = self.header_blocks_with(0, 0);
        assert!(self.items <= RECORD_ITEMS_MAX, "R3: a header holds all items");
        assert!(
            self.header_blocks as usize <= HEADER_BLOCKS_MAX,
            "R3: a header fits the blocks that the format allows"
        );
        self.requests.push(request);
    }

    /// Takes the requests for one record of `scheme` within `rows` rows from `queue`: whole
    /// requests up to [`GATHER_BLOCKS`], then a part of a large one to fill the last row. Empty if
    /// the first request does not fit. Writes of up to `atomic` blocks are never split. If more
    /// requests follow soon (`more_to_come`), requests that would leave cells of the last row
    /// unused stay in the queue.
    pub(super) fn gather(
        queue: &mut VecDeque<Request>,
        scheme: Scheme,
        rows: u32,
        atomic: u32,
        more_to_come: bool,
    ) -> Self {
        let mut batch = Self::default();
        let cells = rows * u32::from(scheme.data());
        while let Some(request) = queue.front() {
            if batch.payload >= GATHER_BLOCKS || !batch.fits(request, scheme, cells) {
                break;
            }
            if !batch.requests.is_empty() && batch.payload + request.payload() > GATHER_BLOCKS {
                break;
            }
            let Some(request) = queue.pop_front() else { break };
            batch.add(request);
        }
        batch.fill_last_row(queue, scheme, cells, atomic);
        if more_to_come && queue.is_empty() {
            batch.trim_to_whole_rows(queue, scheme);
        }
        assert!(batch.blocks() <= cells, "R2: a record fits its segment");
        let payload: u32 = batch.requests.iter().map(Request::payload).sum();
        assert_eq!(payload, batch.payload, "R3: the payload of a record is that of its requests");
        batch
    }

    /// Returns the last requests to the queue, if they are exactly the blocks beyond the last whole
    /// row.
    fn trim_to_whole_rows(&mut self, queue: &mut VecDeque<Request>, scheme: Scheme) {
        let row = u32::from(scheme.data());
        let beyond = self.blocks() % row;
        let (mut count, mut blocks) = (0, 0);
        for request in self.requests.iter().rev().take_while(|request| request.payload() > 0) {
            if blocks >= beyond {
                break;
            }
            blocks += request.payload();
            count += 1;
        }
        let is_all = count == self.requests.len();
        if beyond == 0 || blocks != beyond || is_all || self.blocks() - beyond < 2 * row {
            return;
        }
        let back = self.requests.split_off(self.requests.len() - count);
        self.items -= back.iter().map(|request| request.items.len()).sum::<usize>();
        self.items_bytes -= back.iter().map(Request::items_bytes).sum::<usize>();
        self.payload -= blocks;
        self.header_blocks = self.header_blocks_with(0, 0);
        queue.extend(back);
    }

    /// Fills the last row, or the rest of the segment, with the front part of a large write.
    fn fill_last_row(&mut self, queue: &mut VecDeque<Request>, scheme: Scheme, cells: u32, atomic: u32) {
        let Some(next) = queue.front_mut() else { return };
        let items_bytes = next.items.first().map_or(0, Item::encoded_bytes);
        if self.items + 1 > RECORD_ITEMS_MAX {
            return;
        }
        let room = if self.requests.is_empty() {
            cells.saturating_sub(self.header_blocks_with(items_bytes, cells)).min(GATHER_BLOCKS)
        } else {
            let used = self.header_blocks_with(items_bytes, 0) + self.payload;
            let row = u32::from(scheme.data());
            (used.next_multiple_of(row) - used).min(cells.saturating_sub(used))
        };
        // Not if the header would grow by a block for it.
        if room == 0
            || (!self.requests.is_empty() && self.header_blocks_with(items_bytes, room) != self.header_blocks)
        {
            return;
        }
        if self.requests.is_empty() && room < atomic {
            return;
        }
        if let Effect::Leaves(pins) = &next.effect {
            self.shared_pins.extend_from_slice(pins);
        }
        match next.split_front(room, atomic) {
            Some(front) => self.add(front),
            None => self.shared_pins.clear(),
        }
    }
}

/// Returns true if a record of `blocks` blocks is better mirrored than striped: it would not fill a
/// row, and takes no more blocks on the drives, in fewer writes.
pub(super) fn prefers_mirror(scheme: Scheme, blocks: u32) -> bool {
    if scheme.data() == 1 || blocks > u32::from(scheme.data()) {
        return false;
    }
    let mirrored = blocks * u32::from(scheme.mirror().width());
    let striped = scheme.rows_for(blocks) * u32::from(scheme.width());
    mirrored <= striped
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
