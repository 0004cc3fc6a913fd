//! The segments of a stored body.

use serde::{Deserialize, Serialize};

/// A segment of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BodySegment {
    /// Bytes in the index.
    Inline(Vec<u8>),
    /// Bytes of an allocated run.
    Run {
        /// The first block of the run.
        run: u64,
        /// The first byte within the run.
        offset: u64,
        /// The length in bytes.
        length: u64,
    },
}

impl BodySegment {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Run { length, .. } => *length,
        }
    }
}

/// Returns the bytes `range` of a body as segments.
pub(crate) fn slice(body: &[BodySegment], range: std::ops::Range<u64>) -> Vec<BodySegment> {
    let mut start = 0;
    let mut sliced = Vec::new();
    for segment in body {
        let end = start + segment.len();
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            let (skip, count) = (from - start, to - from);
            sliced.push(match segment {
                BodySegment::Run { run, offset, .. } => {
                    BodySegment::Run { run: *run, offset: offset + skip, length: count }
                }
                BodySegment::Inline(bytes) => {
                    let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
                    let bytes = bytes.get(index(skip)..index(skip + count)).unwrap_or_default();
                    BodySegment::Inline(bytes.to_vec())
                }
            });
        }
        start = end;
    }
    sliced
}
