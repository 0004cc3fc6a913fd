//! The state of the open segments of a log, by class. Must not know: the way a segment is opened.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};

use format::{SegmentClass, SegmentId};
use reactor::WaitList;

use crate::error::Error;

/// The reason why a segment was not opened.
pub(super) enum OpenError {
    /// There are no zones for it: `NoSpace`, unless the pool has failed or was closed.
    Unallocated(Error),
    /// It could not be recorded in the superblocks: the log fails. Never `NoSpace`.
    Unpublished(Error),
}

/// All segment classes.
pub(super) const CLASSES: [SegmentClass; 4] =
    [SegmentClass::Hot, SegmentClass::Mirror, SegmentClass::Cold, SegmentClass::Map];

/// The open segments of each class.
#[derive(Default)]
pub(super) struct OpenSegments {
    hot: OpenClass,
    mirror: OpenClass,
    cold: OpenClass,
    map: OpenClass,
    /// Segments that are being opened, by request number.
    pub(super) opening_ids: RefCell<BTreeSet<u64>>,
    pub(super) requested: Cell<u64>,
    pub(super) registered: WaitList,
}

/// The open segment of a class, and its spares.
#[derive(Default)]
pub(super) struct OpenClass {
    pub(super) current: Cell<Option<SegmentId>>,
    /// Segments opened before they are needed.
    pub(super) spares: RefCell<VecDeque<SegmentId>>,
    /// Number of spares that are being opened.
    pub(super) opening: Cell<usize>,
    pub(super) opened: WaitList,
}

impl OpenSegments {
    pub(super) fn of(&self, class: SegmentClass) -> &OpenClass {
        match class {
            SegmentClass::Hot => &self.hot,
            SegmentClass::Mirror => &self.mirror,
            SegmentClass::Cold => &self.cold,
            SegmentClass::Map => &self.map,
        }
    }
}
