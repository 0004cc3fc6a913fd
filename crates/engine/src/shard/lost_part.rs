//! The parts of a shard's metadata that cannot be read.

use std::ops::Range;

use format::{Address, MapEntry, Row, SegmentId, Sequence};

use crate::error::Error;
use crate::map::MissingNode;

/// A part of a shard's metadata that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct LostPart {
    pub(crate) part: LostPartKind,
    /// The entry that refers to it, if it is a block.
    pub(crate) entry: Option<MapEntry>,
    /// The cause.
    pub(crate) error: Option<Error>,
}

/// The kinds of [`LostPart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LostPartKind {
    /// The root of the checkpoint, and with it all tables.
    Root,
    /// A block of the segment table: the zones of these segments.
    Segments(Range<u32>),
    /// A block of live counts.
    Live(Range<u32>),
    /// A block of the layer table.
    Layers,
    /// A node of a layer's map.
    Node(MissingNode),
    /// Records of the log, from the first to the last of these.
    Records(Sequence, Sequence),
    /// The header at this row of the log cannot be read: records may follow.
    LogEnd(SegmentId, Row),
    /// The header at this row of the log is authentic and invalid.
    Header(SegmentId, Row),
}

impl LostPart {
    pub(crate) fn new(part: LostPartKind, entry: Option<MapEntry>, error: Option<Error>) -> Self {
        Self { part, entry, error }
    }

    /// Returns the part's address, if it is a block.
    pub(crate) fn address(&self) -> Option<Address> {
        self.entry.and_then(MapEntry::address)
    }

    /// Returns true if data written since the last checkpoint may be missing because of it.
    pub(super) fn makes_stale(&self) -> bool {
        matches!(self.part, LostPartKind::Records(..) | LostPartKind::LogEnd(..) | LostPartKind::Header(..))
    }
}
