//! The receiving half of a connection: messages of the initiator, with their digests checked.
//!
//! Must not know commands.

use std::rc::Rc;

use reactor::{Span, Stream};

use super::disconnect::SessionCloseReason;
use super::limits::SEGMENT_MAX;
use super::wire::{HEADER_BYTES, HeaderFrame, InitiatorHeader, IscsiDigests};
use crate::transport::{Payload, RecvBuffer};

/// The receiving half of a connection.
pub(super) struct IscsiReader {
    pub(super) recv: RecvBuffer,
    /// The digests, after the login.
    pub(super) digests: IscsiDigests,
}

impl IscsiReader {
    pub(super) fn new(stream: Rc<Stream>) -> Self {
        Self { recv: RecvBuffer::new(stream), digests: IscsiDigests::default() }
    }

    /// Receives the header of the next message. Dropped early, it loses nothing as long as no byte
    /// of the message was taken.
    pub(super) async fn next(&mut self) -> Result<(InitiatorHeader, HeaderFrame), SessionCloseReason> {
        let header = InitiatorHeader::new(self.recv.header::<HEADER_BYTES>().await?);
        let frame = header.frame();
        if frame.data > SEGMENT_MAX as usize {
            return Err(SessionCloseReason::Violation("a message with too much data"));
        }
        if !self.digests.header {
            self.recv.skip(frame.additional as u64).await?;
            return Ok((header, frame));
        }
        let additional = self.recv.bytes(frame.additional).await?;
        let digest = u32::from_le_bytes(self.recv.body().await?);
        let covered = match additional.is_empty() {
            true => codec::crc32c(header.bytes()),
            false => codec::crc32c(&[&header.bytes()[..], &additional].concat()),
        };
        match covered == digest {
            true => Ok((header, frame)),
            false => Err(SessionCloseReason::HeaderDigest),
        }
    }

    /// Receives the data of the current message without a copy.
    pub(super) async fn payload(&mut self, frame: HeaderFrame) -> Result<Payload, SessionCloseReason> {
        let payload = self.recv.payload(frame.data).await?;
        self.finish(frame, &payload.data).await?;
        Ok(payload)
    }

    /// Receives the data of the current message into `into`.
    pub(super) async fn fill(&mut self, frame: HeaderFrame, into: &Span) -> Result<(), SessionCloseReason> {
        self.recv.fill(into).await?;
        self.finish(frame, into).await
    }

    /// Receives a copy of the data of the current message, which is short.
    pub(super) async fn bytes(&mut self, frame: HeaderFrame) -> Result<Vec<u8>, SessionCloseReason> {
        let payload = self.payload(frame).await?;
        Ok(payload.data.peek(<[u8]>::to_vec))
    }

    /// Skips the data of the current message.
    pub(super) async fn skip(&mut self, frame: HeaderFrame) -> Result<(), SessionCloseReason> {
        let digest = if self.digests.data && frame.data > 0 { 4 } else { 0 };
        Ok(self.recv.skip((frame.data + frame.padding + digest) as u64).await?)
    }

    /// Receives the padding and the digest of data.
    async fn finish(&mut self, frame: HeaderFrame, data: &Span) -> Result<(), SessionCloseReason> {
        if !self.digests.data || frame.data == 0 {
            if frame.padding > 0 {
                self.recv.skip(frame.padding as u64).await?;
            }
            return Ok(());
        }
        let padding = self.recv.bytes(frame.padding).await?;
        let digest = u32::from_le_bytes(self.recv.body().await?);
        let covered = match padding.is_empty() {
            true => data.peek(codec::crc32c),
            false => data.peek(|data| codec::crc32c(&[data, &padding].concat())),
        };
        match covered == digest {
            true => Ok(()),
            false => Err(SessionCloseReason::DataDigest),
        }
    }
}
