//! The opening of a connection: TLS, parameters of the transport, the connect command, and the
//! authentication of the host, as far as they are required.
//!
//! Always true: no other command is executed before the queue is connected; the data of the connect
//! command is in its capsule, so that no memory is requested for a host that is not admitted yet.

use std::sync::Arc;

use super::accept_tls::accept_tls;
use super::authenticate::{QueueAuthentication, REQUIRED};
use super::direct_replies::{send, send_head};
use super::disconnect::QueueCloseReason;
use super::limits::TRANSFER_MAX;
use super::opcodes::FABRICS;
use super::pdu_reader::{HostPdu, PduReader};
use super::queue_identity::{ConnectRefusal, QueueIdentity};
use super::target::NvmeTarget;
use super::wire::{
    CONNECT_BYTES, ConnectRequest, DataLocation, FatalError, Frame, NvmeCommand, NvmeCompletion, NvmeStatus,
    PduEncoder,
};
use crate::transport::LocalAddress;

/// The type of the connect command.
const CONNECT: u8 = 0x01;

/// A connection whose queue is connected.
pub(super) struct OpenedQueue<S> {
    pub(super) identity: QueueIdentity<S>,
    pub(super) encoder: PduEncoder,
    /// Commands that the queue has received.
    pub(super) commands: u32,
}

/// Opens a connection: receives the parameters and the connect command, and answers both.
pub(super) async fn open_queue<S>(
    reader: &mut PduReader,
    target: &Arc<NvmeTarget<S>>,
    address: LocalAddress,
) -> Result<OpenedQueue<S>, QueueCloseReason> {
    let peer = accept_tls(reader, target).await?;
    let link = reader.recv.link().clone();
    let request = reader.connection_request().await?;
    send(&link, &request.accept(TRANSFER_MAX)).await?;
    let encoder = PduEncoder { digests: request.digests, alignment: request.alignment };
    let HostPdu::Command { command, frame } = reader.next().await? else {
        return Err(FatalError::Sequence.into());
    };
    let connected = match receive_request(reader, &command, &frame).await? {
        Ok(request) => QueueIdentity::connect(target, &request, address, link.stream(), peer.as_ref()),
        Err(refusal) => Err(refusal),
    };
    if let Ok(identity) = &connected {
        // A write of a lost connection must not take place after one of this connection.
        identity.fence_earlier().await;
    }
    let (status, result) = match &connected {
        Ok(identity) => {
            let authentication = if identity.keys.is_some() { REQUIRED } else { 0 };
            (NvmeStatus::SUCCESS, u64::from(identity.controller.id) | authentication)
        }
        Err(refusal) => (refusal.status, refusal.result),
    };
    let completion = NvmeCompletion { command: command.id(), status, result, head: 1 };
    send_head(&link, &encoder.response(&completion.encode(), &[])).await?;
    let identity = connected.map_err(|refusal| QueueCloseReason::Refused(refusal.reason))?;
    let mut commands = 1;
    if let Some(keys) = &identity.keys {
        let queue = QueueAuthentication { link: &link, reader, encoder, entries: identity.entries, commands };
        commands = queue.run(keys, &identity.controller.host.name, identity.name()).await?;
    }
    Ok(OpenedQueue { identity, encoder, commands })
}

async fn receive_request(
    reader: &mut PduReader,
    command: &NvmeCommand,
    frame: &Frame,
) -> Result<Result<ConnectRequest, ConnectRefusal>, QueueCloseReason> {
    let refuse = |status, reason| Ok(Err(ConnectRefusal { status, result: 0, reason }));
    if frame.data != CONNECT_BYTES {
        reader.skip(frame).await?;
        return refuse(NvmeStatus::SEQUENCE, "the first command does not connect the queue");
    }
    let (payload, is_intact) = reader.payload(frame).await?;
    if command.opcode() != FABRICS || command.fabrics_type() != CONNECT {
        return refuse(NvmeStatus::SEQUENCE, "the first command does not connect the queue");
    }
    if !is_intact {
        return refuse(NvmeStatus::TRANSPORT, "the data digest is wrong");
    }
    if command.data() != (DataLocation::Capsule { offset: 0, length: CONNECT_BYTES as u32 }) {
        return refuse(NvmeStatus::SGL_TYPE, "the data of the connect command is not in its capsule");
    }
    if ConnectRequest::format(command) != 0 {
        return refuse(NvmeStatus::CONNECT_FORMAT, "the format of the connect command is unknown");
    }
    let mut data = [0; CONNECT_BYTES];
    payload.data.copy_to(0, &mut data);
    Ok(ConnectRequest::decode(command, &data).map_err(|field| ConnectRefusal {
        status: NvmeStatus::CONNECT_PARAMETERS,
        result: field.result(),
        reason: "a field of the connect command is invalid",
    }))
}
