//! Executes requests on a volume.
//!
//! Always true: a request that has begun runs to its end, and only then is its result known. Must
//! not know queues.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use reactor::{Buffer, Span};
use smallvec::SmallVec;

use super::limits::{SEGMENT_BYTES_MAX, TRANSFERS_MAX};
use super::memory::{GuestMemory, GuestSegments};
use super::plan::{Transfer, plan, plan_write};
use super::request::{BlkOperation, BlkRange, BlkStatus, ID_BYTES};
use crate::reserve::Reserve;
use crate::{Volume, VolumeError};

/// Settings of a device that affect requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceOptions {
    /// Changes are durable before they are acknowledged, because the guest has not negotiated a
    /// cache.
    pub(super) write_through: bool,
    /// The serial number.
    pub(super) id: [u8; ID_BYTES],
}

/// Everything that a request needs for its execution.
pub(super) struct RequestContext<'a, V> {
    pub(super) volume: &'a V,
    /// Maps the guest's addresses.
    pub(super) memory: &'a GuestMemory,
    pub(super) options: &'a DeviceOptions,
    /// Limits the memory of bounce buffers, since a guest chooses their number.
    pub(super) bounce_buffers: &'a Reserve,
}

impl<V: Volume> RequestContext<'_, V> {
    /// Executes a request. Returns the number of bytes written to the guest's memory.
    ///
    /// # Errors
    /// Returns the status for the guest.
    pub(super) async fn execute(&self, operation: &BlkOperation) -> Result<u32, BlkStatus> {
        let done = match operation {
            BlkOperation::Read { offset, into, len } => {
                self.read(*offset, into).await.map(|()| u32::try_from(*len).unwrap_or(u32::MAX))
            }
            BlkOperation::Write { offset, from, .. } => self.write(*offset, from).await.map(|()| 0),
            // On the heap, so that reads and writes need no space for these futures.
            BlkOperation::Flush => Box::pin(self.volume.flush()).await.map(|()| 0),
            BlkOperation::Discard(ranges) => Box::pin(self.discard(ranges)).await.map(|()| 0),
            BlkOperation::WriteZeroes(ranges) => Box::pin(self.write_zeroes(ranges)).await.map(|()| 0),
            BlkOperation::Id { into, .. } => Ok(write_id(into, self.memory, &self.options.id)),
        };
        let changes =
            !matches!(operation, BlkOperation::Read { .. } | BlkOperation::Flush | BlkOperation::Id { .. });
        let done = match done {
            Ok(bytes) if self.options.write_through && changes => {
                Box::pin(self.volume.flush()).await.map(|()| bytes)
            }
            done => done,
        };
        done.map_err(|error| {
            tracing::debug!(%error, "request from guest failed");
            BlkStatus::IoError
        })
    }

    async fn read(&self, offset: u64, into: &GuestSegments) -> Result<(), VolumeError> {
        if let Some(whole) = self.single_segment(into) {
            return self.volume.read(offset, &whole).await;
        }
        Box::pin(self.read_transfers(offset, into)).await
    }

    async fn read_transfers(&self, offset: u64, into: &GuestSegments) -> Result<(), VolumeError> {
        let transfers = plan(into, self.volume.sector());
        run_all(&transfers, |transfer| self.read_transfer(offset + transfer.at, transfer)).await
    }

    async fn read_transfer(&self, offset: u64, transfer: &Transfer) -> Result<(), VolumeError> {
        if let [only] = transfer.segments.as_slice() {
            return self.volume.read(offset, &self.memory.span(only)).await;
        }
        let _share = self.bounce_buffers.take(transfer.bytes()).await;
        let buffer = Buffer::new(transfer.bytes());
        self.volume.read(offset, &buffer.span()).await?;
        scatter(&buffer.span(), transfer, self.memory, |span, segment| segment.copy_from_span(span));
        Ok(())
    }

    async fn write(&self, offset: u64, from: &GuestSegments) -> Result<(), VolumeError> {
        if let Some(whole) = self.single_segment(from) {
            return self.volume.write(offset, &whole).await;
        }
        Box::pin(self.write_transfers(offset, from)).await
    }

    async fn write_transfers(&self, offset: u64, from: &GuestSegments) -> Result<(), VolumeError> {
        let transfers = plan_write(from, self.volume.sector());
        run_all(&transfers, |transfer| self.write_transfer(offset + transfer.at, transfer)).await
    }

    async fn write_transfer(&self, offset: u64, transfer: &Transfer) -> Result<(), VolumeError> {
        if let [only] = transfer.segments.as_slice() {
            return self.volume.write(offset, &self.memory.span(only)).await;
        }
        let _share = self.bounce_buffers.take(transfer.bytes()).await;
        let buffer = Buffer::new(transfer.bytes());
        scatter(&buffer.span(), transfer, self.memory, |span, segment| span.copy_from_span(segment));
        self.volume.write(offset, &buffer.span()).await
    }

    /// Returns the span of a request with a single segment, the most common case.
    fn single_segment(&self, segments: &GuestSegments) -> Option<Span> {
        match segments.as_slice() {
            [only] if only.len <= SEGMENT_BYTES_MAX => Some(self.memory.span(only)),
            _ => None,
        }
    }

    async fn discard(&self, ranges: &[BlkRange]) -> Result<(), VolumeError> {
        for range in ranges {
            self.volume.discard(range.offset, range.len).await?;
        }
        Ok(())
    }

    async fn write_zeroes(&self, ranges: &[BlkRange]) -> Result<(), VolumeError> {
        for range in ranges {
            self.volume.write_zeroes(range.offset, range.len).await?;
        }
        Ok(())
    }
}

/// Runs `step(span, segment)` for each segment of a transfer and its bytes in `whole`.
fn scatter(whole: &Span, transfer: &Transfer, memory: &GuestMemory, step: impl Fn(&Span, &Span)) {
    let mut at = 0;
    for segment in &transfer.segments {
        let end = at + segment.len as usize;
        step(&whole.slice(at..end), &memory.span(segment));
        at = end;
    }
}

/// Writes the serial number to the guest's memory, as far as it fits. Returns the bytes written.
fn write_id(into: &GuestSegments, memory: &GuestMemory, id: &[u8; ID_BYTES]) -> u32 {
    let mut written = 0;
    for segment in into {
        let left = id.get(written..).unwrap_or(&[]);
        let now = left.get(..left.len().min(segment.len as usize)).unwrap_or(&[]);
        if now.is_empty() {
            break;
        }
        memory.span(segment).copy_from(0, now);
        written += now.len();
    }
    u32::try_from(written).unwrap_or(0)
}

/// Runs the transfers of a request concurrently, a few at a time. Returns the first error, after
/// all started transfers have ended.
async fn run_all<'a, F>(
    transfers: &'a [Transfer],
    begin: impl Fn(&'a Transfer) -> F,
) -> Result<(), VolumeError>
where
    F: Future<Output = Result<(), VolumeError>> + 'a,
{
    if let [only] = transfers {
        return begin(only).await;
    }
    let mut left = transfers.iter();
    let mut in_flight: SmallVec<[Pin<Box<F>>; 4]> = SmallVec::new();
    let mut failure = None;
    std::future::poll_fn(|context| {
        loop {
            in_flight.retain(|future| match future.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => {
                    failure.get_or_insert(error);
                    false
                }
            });
            let mut begun = false;
            while in_flight.len() < TRANSFERS_MAX && failure.is_none() {
                let Some(transfer) = left.next() else { break };
                in_flight.push(Box::pin(begin(transfer)));
                begun = true;
            }
            if !begun {
                break;
            }
        }
        if in_flight.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    failure.map_or(Ok(()), Err)
}

impl Transfer {
    /// Returns the length in bytes.
    fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.len as usize).sum()
    }
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
