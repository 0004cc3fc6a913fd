//! Executes requests on a volume.
//!
//! Always true: a request that has begun runs to its end, and only then is its result known. Must
//! not know queues.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use reactor::{Buffer, Span};
use smallvec::SmallVec;

use super::limits::{PARTS_AT_ONCE, SEGMENT_BYTES_MAX};
use super::memory::{GuestMemory, Pieces};
use super::plan::{Part, plan, plan_write};
use super::request::{ID_BYTES, Operation, Range, Status};
use crate::reserve::Reserve;
use crate::{Volume, VolumeError};

/// Settings of a device that affect requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Changes are durable before they are acknowledged, because the guest has not negotiated a
    /// cache.
    pub(super) write_through: bool,
    /// The serial number.
    pub(super) id: [u8; ID_BYTES],
}

/// Everything that a request needs for its execution.
pub(super) struct Means<'a, V> {
    pub(super) volume: &'a V,
    /// Maps the guest's addresses.
    pub(super) memory: &'a GuestMemory,
    pub(super) manner: &'a Manner,
    /// Limits the memory of bounce buffers, since a guest chooses their number.
    pub(super) gathers: &'a Reserve,
}

impl<V: Volume> Means<'_, V> {
    /// Executes a request. Returns the number of bytes written to the guest's memory.
    ///
    /// # Errors
    /// Returns the status for the guest.
    pub(super) async fn execute(&self, operation: &Operation) -> Result<u32, Status> {
        let done = match operation {
            Operation::Read { offset, into, len } => {
                self.read(*offset, into).await.map(|()| u32::try_from(*len).unwrap_or(u32::MAX))
            }
            Operation::Write { offset, from, .. } => self.write(*offset, from).await.map(|()| 0),
            // On the heap, so that reads and writes need no space for these futures.
            Operation::Flush => Box::pin(self.volume.flush()).await.map(|()| 0),
            Operation::Discard(ranges) => Box::pin(self.discard(ranges)).await.map(|()| 0),
            Operation::WriteZeroes(ranges) => Box::pin(self.write_zeroes(ranges)).await.map(|()| 0),
            Operation::Id { into, .. } => Ok(tell_id(into, self.memory, &self.manner.id)),
        };
        let changes = !matches!(operation, Operation::Read { .. } | Operation::Flush | Operation::Id { .. });
        let done = match done {
            Ok(bytes) if self.manner.write_through && changes => {
                Box::pin(self.volume.flush()).await.map(|()| bytes)
            }
            done => done,
        };
        done.map_err(|error| {
            tracing::debug!(%error, "request from guest failed");
            Status::IoError
        })
    }

    async fn read(&self, offset: u64, into: &Pieces) -> Result<(), VolumeError> {
        if let Some(whole) = self.in_one_piece(into) {
            return self.volume.read(offset, &whole).await;
        }
        Box::pin(self.read_parts(offset, into)).await
    }

    async fn read_parts(&self, offset: u64, into: &Pieces) -> Result<(), VolumeError> {
        let parts = plan(into, self.volume.sector());
        all(&parts, |part| self.read_part(offset + part.at, part)).await
    }

    async fn read_part(&self, offset: u64, part: &Part) -> Result<(), VolumeError> {
        if let [only] = part.pieces.as_slice() {
            return self.volume.read(offset, &self.memory.span(only)).await;
        }
        let _share = self.gathers.take(part.bytes()).await;
        let buffer = Buffer::new(part.bytes());
        self.volume.read(offset, &buffer.span()).await?;
        scatter(&buffer.span(), part, self.memory, |span, piece| piece.copy_from_span(span));
        Ok(())
    }

    async fn write(&self, offset: u64, from: &Pieces) -> Result<(), VolumeError> {
        if let Some(whole) = self.in_one_piece(from) {
            return self.volume.write(offset, &whole).await;
        }
        Box::pin(self.write_parts(offset, from)).await
    }

    async fn write_parts(&self, offset: u64, from: &Pieces) -> Result<(), VolumeError> {
        let parts = plan_write(from, self.volume.sector());
        all(&parts, |part| self.write_part(offset + part.at, part)).await
    }

    async fn write_part(&self, offset: u64, part: &Part) -> Result<(), VolumeError> {
        if let [only] = part.pieces.as_slice() {
            return self.volume.write(offset, &self.memory.span(only)).await;
        }
        let _share = self.gathers.take(part.bytes()).await;
        let buffer = Buffer::new(part.bytes());
        scatter(&buffer.span(), part, self.memory, |span, piece| span.copy_from_span(piece));
        self.volume.write(offset, &buffer.span()).await
    }

    /// Returns the span of a request with a single segment, the most common case.
    fn in_one_piece(&self, pieces: &Pieces) -> Option<Span> {
        match pieces.as_slice() {
            [only] if only.len <= SEGMENT_BYTES_MAX => Some(self.memory.span(only)),
            _ => None,
        }
    }

    async fn discard(&self, ranges: &[Range]) -> Result<(), VolumeError> {
        for range in ranges {
            self.volume.discard(range.offset, range.len).await?;
        }
        Ok(())
    }

    async fn write_zeroes(&self, ranges: &[Range]) -> Result<(), VolumeError> {
        for range in ranges {
            self.volume.write_zeroes(range.offset, range.len).await?;
        }
        Ok(())
    }
}

/// Runs `step(span, segment)` for each segment of a transfer and its bytes in `whole`.
fn scatter(whole: &Span, part: &Part, memory: &GuestMemory, step: impl Fn(&Span, &Span)) {
    let mut at = 0;
    for piece in &part.pieces {
        let end = at + piece.len as usize;
        step(&whole.slice(at..end), &memory.span(piece));
        at = end;
    }
}

/// Writes the serial number to the guest's memory, as far as it fits. Returns the bytes written.
fn tell_id(into: &Pieces, memory: &GuestMemory, id: &[u8; ID_BYTES]) -> u32 {
    let mut written = 0;
    for piece in into {
        let left = id.get(written..).unwrap_or(&[]);
        let now = left.get(..left.len().min(piece.len as usize)).unwrap_or(&[]);
        if now.is_empty() {
            break;
        }
        memory.span(piece).copy_from(0, now);
        written += now.len();
    }
    u32::try_from(written).unwrap_or(0)
}

/// Runs the transfers of a request concurrently, a few at a time. Returns the first error, after
/// all started transfers have ended.
async fn all<'a, F>(parts: &'a [Part], begin: impl Fn(&'a Part) -> F) -> Result<(), VolumeError>
where
    F: Future<Output = Result<(), VolumeError>> + 'a,
{
    if let [only] = parts {
        return begin(only).await;
    }
    let mut left = parts.iter();
    let mut under_way: SmallVec<[Pin<Box<F>>; 4]> = SmallVec::new();
    let mut failure = None;
    std::future::poll_fn(|context| {
        loop {
            under_way.retain(|future| match future.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => {
                    failure.get_or_insert(error);
                    false
                }
            });
            let mut begun = false;
            while under_way.len() < PARTS_AT_ONCE && failure.is_none() {
                let Some(part) = left.next() else { break };
                under_way.push(Box::pin(begin(part)));
                begun = true;
            }
            if !begun {
                break;
            }
        }
        if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    failure.map_or(Ok(()), Err)
}

impl Part {
    /// Returns the length in bytes.
    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len as usize).sum()
    }
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
