//! The commands by which a host authenticates itself, before its queue is used.
//!
//! Always true: no other command is executed on a queue before the authentication has succeeded;
//! a host that fails is disconnected; the memory and the number of messages are limited.

use super::authentication::{AuthenticationExchange, DhChapKeys, compute};
use super::direct_replies::{send, send_head};
use super::disconnect::QueueCloseReason;
use super::limits::{ADMIN_CAPSULE_DATA, AUTHENTICATION_COMMANDS};
use super::opcodes::FABRICS;
use super::pdu_reader::{HostPdu, PduReader};
use super::wire::{DataLocation, FatalError, Frame, NvmeCommand, NvmeCompletion, NvmeStatus, PduEncoder};
use crate::transport::Link;

/// Types of fabrics commands.
mod fabrics {
    pub(super) const AUTHENTICATION_SEND: u8 = 0x05;
    pub(super) const AUTHENTICATION_RECEIVE: u8 = 0x06;
}

/// The bit of a connect command's result that asks for an authentication.
pub(super) const REQUIRED: u64 = 1 << 17;

/// A queue whose host authenticates itself.
pub(super) struct QueueAuthentication<'a> {
    pub(super) link: &'a Link,
    pub(super) reader: &'a mut PduReader,
    pub(super) encoder: PduEncoder,
    /// Entries of the submission queue.
    pub(super) entries: u32,
    /// Commands that were received.
    pub(super) commands: u32,
}

impl QueueAuthentication<'_> {
    /// Authenticates a host. Returns the number of commands that the queue has received.
    pub(super) async fn run(
        mut self,
        keys: &DhChapKeys,
        host: &str,
        subsystem: &str,
    ) -> Result<u32, QueueCloseReason> {
        let mut exchange = AuthenticationExchange::new(keys, host, subsystem);
        loop {
            match exchange.result() {
                Some(true) => return Ok(self.commands),
                Some(false) => return Err(QueueCloseReason::Refused("the authentication failed")),
                None if self.commands > AUTHENTICATION_COMMANDS => {
                    return Err(QueueCloseReason::Refused("the authentication takes too many commands"));
                }
                None => self.next_command(&mut exchange).await?,
            }
        }
    }

    async fn next_command(
        &mut self,
        exchange: &mut AuthenticationExchange<'_>,
    ) -> Result<(), QueueCloseReason> {
        let HostPdu::Command { command, frame } = self.reader.next().await? else {
            return Err(FatalError::Sequence.into());
        };
        self.commands += 1;
        let data = self.capsule(&frame).await?;
        let kind = (command.opcode() == FABRICS).then(|| command.fabrics_type());
        match (kind, data) {
            (Some(fabrics::AUTHENTICATION_SEND), Ok(data)) => {
                let status = check_send(&command, &data);
                if status == NvmeStatus::SUCCESS {
                    exchange.receive(&data);
                    while let Some(task) = exchange.task() {
                        exchange.resume(compute(task).await);
                    }
                }
                self.respond(&command, status, &[]).await
            }
            (Some(fabrics::AUTHENTICATION_RECEIVE), Ok(_)) => {
                let length = command.word(11);
                if !is_own_protocol(&command) || command.data() != (DataLocation::Transport { length }) {
                    return self.respond(&command, NvmeStatus::INVALID_FIELD, b"").await;
                }
                let mut message = exchange.send();
                if length > ADMIN_CAPSULE_DATA || message.len() > length as usize {
                    return Err(QueueCloseReason::Refused("the buffer for a message has an invalid length"));
                }
                message.resize(length as usize, 0);
                self.respond(&command, NvmeStatus::SUCCESS, &message).await
            }
            (_, Err(status)) => self.respond(&command, status, b"").await,
            _ => self.respond(&command, NvmeStatus::AUTHENTICATION_REQUIRED, b"").await,
        }
    }

    /// The data in the capsule of a command.
    async fn capsule(&mut self, frame: &Frame) -> Result<Result<Vec<u8>, NvmeStatus>, QueueCloseReason> {
        if frame.data > ADMIN_CAPSULE_DATA as usize {
            self.reader.skip(frame).await?;
            return Ok(Err(NvmeStatus::SGL_LENGTH));
        }
        if frame.data == 0 {
            return Ok(Ok(Vec::new()));
        }
        let (payload, is_intact) = self.reader.payload(frame).await?;
        if !is_intact {
            return Ok(Err(NvmeStatus::TRANSPORT));
        }
        Ok(Ok(payload.data.peek(<[u8]>::to_vec)))
    }

    /// Sends data, unless it is empty, and the response of a command.
    async fn respond(
        &mut self,
        command: &NvmeCommand,
        status: NvmeStatus,
        data: &[u8],
    ) -> Result<(), QueueCloseReason> {
        let head = (self.commands % self.entries) as u16;
        let entry = NvmeCompletion { command: command.id(), status, result: 0, head }.encode();
        let digest = if self.encoder.digests.data && !data.is_empty() {
            codec::crc32c(data).to_le_bytes().to_vec()
        } else {
            Vec::new()
        };
        if !data.is_empty() {
            let header = self.encoder.data(command.id(), data.len() as u32, false);
            let padding = vec![0; self.encoder.padding()];
            send(self.link, &[header.as_bytes(), &padding, data].concat()).await?;
        }
        send_head(self.link, &self.encoder.response(&entry, &digest)).await
    }
}

/// True if a command is about the protocol that this module knows.
fn is_own_protocol(command: &NvmeCommand) -> bool {
    /// The security protocol of NVMe, and its first specific field.
    const PROTOCOL: [u8; 3] = [1, 1, 0xe9];
    [command.byte(41), command.byte(42), command.byte(43)] == PROTOCOL
}

fn check_send(command: &NvmeCommand, data: &[u8]) -> NvmeStatus {
    let length = command.word(11);
    if !is_own_protocol(command) || length as usize != data.len() || length == 0 {
        return NvmeStatus::INVALID_FIELD;
    }
    match command.data() == (DataLocation::Capsule { offset: 0, length }) {
        true => NvmeStatus::SUCCESS,
        false => NvmeStatus::SGL_TYPE,
    }
}
