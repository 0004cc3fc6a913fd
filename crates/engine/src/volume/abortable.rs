//! Reads and writes that can be aborted while they wait for the volume's rate limits.
//!
//! Always true: an aborted operation has had no effect; one that has begun is completed.

use futures_util::future::{Either, LocalBoxFuture, select};
use reactor::Span;

use super::{AttachedVolume, is_aligned};
use crate::error::Result;

/// The outcome of an operation that could be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// It has begun, and is complete.
    Completed,
    /// It was aborted before it began.
    Aborted,
}

impl AttachedVolume {
    /// Returns true if the volume has rate limits, for which operations may wait before they begin.
    pub fn is_rate_limited(&self) -> bool {
        self.shared.rate_limiter.is_limited()
    }

    /// As [`Self::read`], but aborted if `abort` completes before the rate limits admit the
    /// operation.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_unless<'a>(
        &'a self,
        offset: u64,
        into: &'a Span,
        abort: LocalBoxFuture<'a, ()>,
    ) -> LocalBoxFuture<'a, Result<Execution>> {
        Box::pin(async move {
            self.check(offset, into.len() as u64)?;
            if self.is_aborted(into.len() as u64, abort).await {
                return Ok(Execution::Aborted);
            }
            // The volume may have been shrunk or deleted in the meantime (F5).
            self.check(offset, into.len() as u64)?;
            match is_aligned(offset, into.len()) {
                true => self.read_aligned(offset, into).await?,
                false => self.read_unaligned(offset, into).await?,
            }
            Ok(Execution::Completed)
        })
    }

    /// As [`Self::write`], but aborted if `abort` completes before the rate limits admit the
    /// operation.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_unless<'a>(
        &'a self,
        offset: u64,
        data: &'a Span,
        abort: LocalBoxFuture<'a, ()>,
    ) -> LocalBoxFuture<'a, Result<Execution>> {
        Box::pin(async move {
            self.check_write(offset, data.len() as u64)?;
            if self.is_aborted(data.len() as u64, abort).await {
                return Ok(Execution::Aborted);
            }
            self.check_write(offset, data.len() as u64)?;
            match is_aligned(offset, data.len()) {
                true => self.write_aligned(offset, data).await?,
                false => self.write_unaligned(offset, data).await?,
            }
            Ok(Execution::Completed)
        })
    }

    /// Waits until the rate limits admit `bytes` more bytes, or `abort` completes. An aborted
    /// operation has used its part of the rate: the waiting times of later ones are fixed.
    async fn is_aborted(&self, bytes: u64, abort: LocalBoxFuture<'_, ()>) -> bool {
        if !self.is_rate_limited() {
            return false;
        }
        matches!(select(abort, self.wait_for_limits(bytes)).await, Either::Left(_))
    }
}
