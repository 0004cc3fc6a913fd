//! The receiving half of a connection: PDUs of the host, with their digests checked.
//!
//! Must not know commands.

use reactor::Span;

use super::disconnect::QueueCloseReason;
use super::wire::{
    COMMAND_BYTES, COMMON_LEN, ConnectionRequest, Digests, FatalError, Frame, FrameKind, HostData, IC_LEN,
    NvmeCommand, SHORT_LEN, terminate_status,
};
use crate::transport::{Link, Payload, RecvBuffer};

/// The most bytes of a header after the command: digest and padding.
const HEADER_REST: usize = 256;

/// A PDU of a host. Its data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostPdu {
    Command { command: NvmeCommand, frame: Frame },
    Data { header: HostData, frame: Frame },
}

/// The receiving half of a connection.
pub(super) struct PduReader {
    pub(super) recv: RecvBuffer,
    digests: Digests,
    /// The most bytes of data of one PDU.
    data_max: usize,
    /// The header of the current PDU, for error messages to the host.
    header: Vec<u8>,
}

impl PduReader {
    pub(super) fn new(link: impl Into<Link>, data_max: usize) -> Self {
        let (digests, header) = (Digests::default(), Vec::new());
        Self { recv: RecvBuffer::new(link), digests, data_max, header }
    }

    /// Continues on another connection, before the first PDU.
    pub(super) fn continue_on(&mut self, link: Link) {
        self.recv = RecvBuffer::new(link);
    }

    /// Receives the request to open the connection.
    pub(super) async fn connection_request(&mut self) -> Result<ConnectionRequest, QueueCloseReason> {
        let bytes = self.recv.header::<IC_LEN>().await?;
        self.header = bytes.to_vec();
        let request = ConnectionRequest::decode(&bytes)?;
        self.digests = request.digests;
        Ok(request)
    }

    /// The header of the current PDU.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    /// True if the header of the next PDU is available without a wait.
    pub(super) fn has_header(&self) -> bool {
        self.recv.has(COMMON_LEN + COMMAND_BYTES + HEADER_REST)
    }

    /// Receives the header of the next PDU. Dropped early, it loses nothing as long as no byte of
    /// the PDU was taken.
    pub(super) async fn next(&mut self) -> Result<HostPdu, QueueCloseReason> {
        let common = self.recv.header::<COMMON_LEN>().await?;
        self.header.clear();
        self.header.extend_from_slice(&common);
        let frame = Frame::decode(&common, self.digests, self.data_max)?;
        match frame.kind {
            FrameKind::Command => {
                let bytes = self.recv.body::<COMMAND_BYTES>().await?;
                self.finish_header(&bytes, &frame).await?;
                Ok(HostPdu::Command { command: NvmeCommand::new(bytes), frame })
            }
            FrameKind::Data => {
                let bytes = self.recv.body::<{ SHORT_LEN - COMMON_LEN }>().await?;
                self.finish_header(&bytes, &frame).await?;
                let header = HostData::decode(&bytes);
                if header.length as usize != frame.data {
                    return Err(FatalError::HeaderField(16).into());
                }
                Ok(HostPdu::Data { header, frame })
            }
            FrameKind::Terminate => {
                let (status, information) =
                    terminate_status(&self.recv.body::<{ SHORT_LEN - COMMON_LEN }>().await?);
                Err(QueueCloseReason::HostTerminated(status, information))
            }
        }
    }

    async fn finish_header(&mut self, bytes: &[u8], frame: &Frame) -> Result<(), QueueCloseReason> {
        self.header.extend_from_slice(bytes);
        if frame.header_digest {
            let digest = u32::from_le_bytes(self.recv.body().await?);
            if digest != codec::crc32c(&self.header) {
                return Err(FatalError::HeaderDigest(digest).into());
            }
        }
        if frame.padding > 0 {
            self.recv.skip(frame.padding as u64).await?;
        }
        Ok(())
    }

    /// Receives the data of the current PDU without a copy. Returns false if its digest is wrong.
    pub(super) async fn payload(&mut self, frame: &Frame) -> Result<(Payload, bool), QueueCloseReason> {
        let payload = self.recv.payload(frame.data).await?;
        let is_intact = self.check_data(frame, &payload.data).await?;
        Ok((payload, is_intact))
    }

    /// Receives the data of the current PDU into `into`. Returns false if its digest is wrong.
    pub(super) async fn fill(&mut self, frame: &Frame, into: &Span) -> Result<bool, QueueCloseReason> {
        self.recv.fill(into).await?;
        self.check_data(frame, into).await
    }

    /// Skips the data of the current PDU.
    pub(super) async fn skip(&mut self, frame: &Frame) -> Result<(), QueueCloseReason> {
        let digest = if frame.data_digest { 4 } else { 0 };
        Ok(self.recv.skip((frame.data + digest) as u64).await?)
    }

    async fn check_data(&mut self, frame: &Frame, data: &Span) -> Result<bool, QueueCloseReason> {
        if !frame.data_digest {
            return Ok(true);
        }
        let digest = u32::from_le_bytes(self.recv.body().await?);
        Ok(digest == data.peek(codec::crc32c))
    }
}
