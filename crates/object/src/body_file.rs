//! Bodies in allocated runs: written while they arrive, read while they are held.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::allocator::BodyRun;
use crate::body::Body;
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::segment::{BodySegment, slice};
use crate::space::{BodySpace, RunHold, StoredBody, allocate};
use crate::store::{BodyRead, BodyReader, BodyWriter};
use crate::volume::BLOCK;

/// The largest allocation at once, in bytes. The writer returns unused blocks at the end.
const ALLOCATION_MAX: u64 = 64 << 20;

/// Makes the allocation frontier advance durably.
pub(crate) type Advance = Box<dyn FnMut() -> Result<()> + Send>;

/// Writes a body to new runs.
pub(crate) struct RunWriter {
    advance: Advance,
    /// The runs that are written, and the length of the body so far.
    written: StoredBody,
    /// Allocated runs that are not written, in order.
    unused: VecDeque<StoredBody>,
    /// Bytes that are expected in addition to the written ones.
    expected: u64,
}

impl RunWriter {
    pub(crate) fn new(space: Arc<BodySpace>, expected: u64, advance: Advance) -> Self {
        let written = StoredBody::new(space, Vec::new(), 0);
        Self { advance, written, unused: VecDeque::new(), expected }
    }

    /// Returns the next run of up to `blocks` blocks.
    fn next_run(&mut self, blocks: u64) -> Result<StoredBody> {
        let space = self.written.space().clone();
        if self.unused.is_empty() {
            let bytes = self.expected.min(ALLOCATION_MAX).max(blocks * BLOCK);
            for run in allocate(&space, bytes, &mut self.advance)? {
                self.unused.push_back(StoredBody::new(space.clone(), vec![run], 0));
            }
        }
        let Some(run) = self.unused.pop_front() else {
            return Err(ObjectError::new(ObjectErrorKind::Io, "an allocation returned no blocks"));
        };
        let (first, rest) = run.split(blocks);
        if let Some(rest) = rest {
            self.unused.push_front(rest);
        }
        Ok(first)
    }
}

impl BodyWriter for RunWriter {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.write_bytes(Bytes::copy_from_slice(data))
    }

    fn write_bytes(&mut self, data: Bytes) -> Result<()> {
        if !self.written.len().is_multiple_of(BLOCK) {
            let message = "only the last write of a body may end within a block";
            return Err(ObjectError::new(ObjectErrorKind::Invalid, message));
        }
        let mut rest = data;
        while !rest.is_empty() {
            let run = self.next_run((rest.len() as u64).div_ceil(BLOCK))?;
            let BodyRun { start, blocks } =
                run.runs().first().copied().unwrap_or(BodyRun { start: 0, blocks: 0 });
            let count = rest.len().min(usize::try_from(blocks * BLOCK).unwrap_or(usize::MAX));
            let now = rest.split_to(count);
            let length = now.len() as u64;
            if length.is_multiple_of(BLOCK) {
                run.space().volume().write_bytes(start * BLOCK, now)?;
            } else {
                run.space().volume().write(start * BLOCK, &padded(&now))?;
            }
            self.written.append(run, length);
            self.expected = self.expected.saturating_sub(length);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Body> {
        Ok(Body::Stored(self.written))
    }
}

/// The bytes with zeros up to a whole block.
pub(crate) fn padded(data: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if (data.len() as u64).is_multiple_of(BLOCK) {
        return data.into();
    }
    let mut bytes = data.to_vec();
    bytes.resize(data.len().next_multiple_of(usize::try_from(BLOCK).unwrap_or(1)), 0);
    bytes.into()
}

/// Reads a body. The runs are held.
pub(crate) struct RunReader {
    pub(crate) space: Arc<BodySpace>,
    pub(crate) body: Vec<BodySegment>,
    pub(crate) _hold: RunHold,
}

impl BodyReader for RunReader {
    fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let wanted = slice(&self.body, offset..offset.saturating_add(length as u64));
        if let [BodySegment::Run { run, offset, .. }] = wanted.as_slice() {
            let length = usize::try_from(wanted.iter().map(BodySegment::len).sum::<u64>()).unwrap_or(0);
            return Ok(self.space.volume().read_bytes(run * BLOCK + offset, length)?);
        }
        let mut bytes =
            vec![0; usize::try_from(wanted.iter().map(BodySegment::len).sum::<u64>()).unwrap_or(0)];
        let mut rest = bytes.as_mut_slice();
        for segment in &wanted {
            let count = usize::try_from(segment.len()).unwrap_or(usize::MAX);
            let Some((now, later)) = rest.split_at_mut_checked(count) else { break };
            match segment {
                BodySegment::Inline(bytes) => now.copy_from_slice(bytes),
                BodySegment::Run { run, offset, .. } => {
                    self.space.volume().read(run * BLOCK + offset, now)?;
                }
            }
            rest = later;
        }
        Ok(bytes.into())
    }

    fn begin_read(&self, offset: u64, length: usize) -> Option<BodyRead> {
        let wanted = slice(&self.body, offset..offset.saturating_add(length as u64));
        let [BodySegment::Run { run, offset, length }] = wanted.as_slice() else { return None };
        let length = usize::try_from(*length).ok()?;
        let read = self.space.volume().begin_read(run * BLOCK + offset, length)?;
        Some(Box::pin(async move { Ok(read.await?) }))
    }
}
