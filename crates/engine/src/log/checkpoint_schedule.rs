//! When a shard's next checkpoint is due, and which one a recovery starts from.
//!
//! Owns the request for a checkpoint, the blocks written since the last one began, and the anchor:
//! root and sequence of the newest published checkpoint. Always true: checkpoints are made one at a
//! time (M3) and go forward (S5). Must not know: the map, segments, the way a checkpoint is made.

use std::cell::Cell;

use format::{MapEntry, Sequence};
use reactor::Notify;

/// The schedule of a shard's checkpoints. See the module documentation.
pub(crate) struct CheckpointSchedule {
    anchor: Cell<(MapEntry, Sequence)>,
    due: Notify,
    /// Payload and header blocks written since the last checkpoint began.
    blocks: Cell<u64>,
    /// Number of blocks after which a checkpoint is due.
    blocks_max: u64,
    running: Cell<bool>,
}

impl CheckpointSchedule {
    pub(super) fn new(anchor: (MapEntry, Sequence), blocks_max: u64) -> Self {
        assert!(blocks_max > 0, "S5: a checkpoint is due after some blocks");
        Self {
            anchor: Cell::new(anchor),
            due: Notify::default(),
            blocks: Cell::new(0),
            blocks_max,
            running: Cell::new(false),
        }
    }

    /// Returns root and sequence of the checkpoint that recovery starts from.
    pub(crate) fn anchor(&self) -> (MapEntry, Sequence) {
        self.anchor.get()
    }

    /// Replaces the anchor by a newer checkpoint, whose tables are flushed. The next publish of the
    /// shard's record stores it.
    pub(crate) fn advance(&self, root: MapEntry, sequence: Sequence) {
        assert!(self.running.get(), "M3: only a checkpoint in progress is published");
        assert!(sequence >= self.anchor.get().1, "S5: checkpoints go forward");
        self.anchor.set((root, sequence));
    }

    /// Requests a checkpoint.
    pub(crate) fn request(&self) {
        self.due.notify();
    }

    /// Waits until a checkpoint was requested.
    pub(crate) async fn requested(&self) {
        self.due.notified().await;
    }

    /// Counts blocks of a record, and requests a checkpoint if enough were written.
    pub(super) fn on_blocks(&self, blocks: u64) {
        self.blocks.set(self.blocks.get() + blocks);
        if self.blocks.get() >= self.blocks_max {
            self.request();
        }
    }

    /// Counts blocks from zero: the state of the next checkpoint is frozen.
    pub(crate) fn restart_count(&self) {
        assert!(self.running.get(), "M3: only a checkpoint in progress freezes the map");
        self.blocks.set(0);
    }

    /// Returns true while a checkpoint is in progress.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    pub(super) fn started(&self) {
        assert!(!self.running.replace(true), "M3: checkpoints are made one at a time");
    }

    pub(super) fn ended(&self) {
        assert!(self.running.replace(false), "M3: a checkpoint ends that has not begun");
    }
}
