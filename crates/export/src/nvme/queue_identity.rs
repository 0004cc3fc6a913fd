//! A connected queue: its controller, and the subsystem that it serves.
//!
//! Always true: at the latest when the value is dropped, the queue is removed from its controller,
//! and the controller of an admin queue ends; a queue whose commands may be in execution is known
//! to its subsystem. The value lives as long as its commands.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Handle, Reactor, Stream};

use super::authentication::DhChapKeys;
use super::controller::{Controller, NvmeHost, QueueRefusal};
use super::limits::QUEUE_ENTRIES;
use super::queue_control::{QueueControl, fence_all};
use super::target::{DISCOVERY_NAME, NvmeTarget, Subsystem};
use super::tls::TlsPeer;
use super::wire::{ANY_CONTROLLER, ConnectField, ConnectRequest, NvmeStatus};
use crate::transport::LocalAddress;

/// A connected queue.
pub(super) struct QueueIdentity<S> {
    pub(super) target: Arc<NvmeTarget<S>>,
    /// The subsystem; `None` for discovery.
    pub(super) subsystem: Option<Arc<Subsystem<S>>>,
    pub(super) controller: Arc<Controller>,
    pub(super) control: Rc<QueueControl>,
    /// The keys by which the host must authenticate itself before it uses the queue.
    pub(super) keys: Option<DhChapKeys>,
    handle: Handle<QueueControl>,
    disconnected: Cell<bool>,
    /// The id: 0 for the admin queue.
    pub(super) id: u16,
    /// Entries of the submission queue.
    pub(super) entries: u32,
    pub(super) flow_control: bool,
    /// The address by which the host reached the target.
    pub(super) reached: SocketAddr,
}

/// The status and the result of a refused connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectRefusal {
    pub(super) status: NvmeStatus,
    pub(super) result: u64,
    pub(super) reason: &'static str,
}

fn refusal(status: NvmeStatus, field: ConnectField, reason: &'static str) -> ConnectRefusal {
    ConnectRefusal { status, result: field.result(), reason }
}

impl<S> QueueIdentity<S> {
    /// Connects a queue that a host has asked for at `address`, on the reactor of this thread.
    /// `peer`: the host that has proven a key, if it uses TLS.
    pub(super) fn connect(
        target: &Arc<NvmeTarget<S>>,
        request: &ConnectRequest,
        address: LocalAddress,
        stream: &Rc<Stream>,
        peer: Option<&TlsPeer>,
    ) -> Result<Self, ConnectRefusal> {
        let parameters = |field, reason| refusal(NvmeStatus::CONNECT_PARAMETERS, field, reason);
        if request.entries > QUEUE_ENTRIES.into() {
            return Err(parameters(ConnectField::SIZE, "the queue is too large"));
        }
        let subsystem = find(target, request, address.listener)?;
        check_names(request, peer)?;
        if subsystem.is_none() && request.queue != 0 {
            return Err(parameters(ConnectField::QUEUE, "discovery has no queues for I/O"));
        }
        let owner = subsystem.as_deref().unwrap_or(&target.discovery);
        let controller = match request.queue {
            0 => new_controller(owner, request)?,
            _ => {
                let controller = owner.controller(request.controller);
                let own = controller.filter(|controller| controller.host == host_of(request));
                own.ok_or_else(|| parameters(ConnectField::CONTROLLER, "there is no such controller"))?
            }
        };
        let added = add_queue(owner, &controller, request, stream, peer).inspect_err(|_| {
            if request.queue == 0 {
                owner.remove_controller(&controller);
            }
        });
        let AddedQueue { control, handle, keys } = added?;
        owner.add_queue(&controller, handle.clone());
        Ok(Self {
            target: target.clone(),
            subsystem,
            controller,
            control,
            keys,
            handle,
            disconnected: Cell::new(false),
            id: request.queue,
            entries: request.entries,
            flow_control: !request.no_flow_control,
            reached: address.reached,
        })
    }

    /// The name of the subsystem.
    pub(super) fn name(&self) -> &str {
        self.subsystem.as_ref().map_or(DISCOVERY_NAME, |subsystem| &subsystem.name)
    }

    /// The subsystem that holds the controller.
    fn owner(&self) -> &Subsystem<S> {
        self.subsystem.as_deref().unwrap_or(&self.target.discovery)
    }

    /// Waits until commands have ended that the host sent over earlier connections, so that it may
    /// repeat them. For an admin queue, these are the commands of all its queues in the subsystem;
    /// otherwise those of connections that have ended.
    pub(super) async fn fence_earlier(&self) {
        let (owner, host) = (self.owner(), &self.controller.host);
        let mut queues = if self.is_admin() { owner.queues_of(host) } else { owner.ended_queues_of(host) };
        queues.retain(|queue| !queue.is_same(&self.handle));
        fence_all(&queues).await;
    }

    /// Waits until the I/O commands of the controller have ended, whose queues are being closed.
    pub(super) async fn fence_reset(&self) {
        let mut queues = self.controller.queue_handles();
        queues.retain(|queue| !queue.is_same(&self.handle));
        queues.extend(self.owner().ended_queues_of(&self.controller.host));
        fence_all(&queues).await;
    }

    /// Removes the queue from its controller, and ends the controller of an admin queue. Commands
    /// may still be in execution. A second call does nothing.
    pub(super) fn disconnect(&self) {
        if self.disconnected.replace(true) {
            return;
        }
        self.controller.remove_queue(self.id);
        if self.is_admin() {
            self.controller.end("the admin queue was closed");
            self.owner().remove_controller(&self.controller);
        }
    }

    /// True for the admin queue.
    pub(super) fn is_admin(&self) -> bool {
        self.id == 0
    }
}

/// The parts of a queue that was added to its controller.
struct AddedQueue {
    control: Rc<QueueControl>,
    handle: Handle<QueueControl>,
    keys: Option<DhChapKeys>,
}

fn add_queue<S>(
    owner: &Subsystem<S>,
    controller: &Controller,
    request: &ConnectRequest,
    stream: &Rc<Stream>,
    peer: Option<&TlsPeer>,
) -> Result<AddedQueue, ConnectRefusal> {
    check_key(controller, peer)?;
    let keys = keys_of(controller, &owner.name)?;
    let control = Rc::new(QueueControl::new(stream));
    let handle = Handle::register(&Reactor::current(), control.clone());
    let Err(reason) = controller.add_queue(request.queue, handle.clone()) else {
        return Ok(AddedQueue { control, handle, keys });
    };
    handle.unregister();
    let (status, field) = (NvmeStatus::CONNECT_PARAMETERS, ConnectField::QUEUE);
    Err(match reason {
        QueueRefusal::Id => refusal(status, field, "the queue id is in use or too large"),
        QueueRefusal::NotReady => ConnectRefusal {
            status: NvmeStatus::SEQUENCE,
            result: 0,
            reason: "the controller is not enabled",
        },
    })
}

fn keys_of(controller: &Controller, subsystem: &str) -> Result<Option<DhChapKeys>, ConnectRefusal> {
    let Some(secrets) = &controller.secrets.dhchap else { return Ok(None) };
    let keys = secrets.keys(&controller.host.name, subsystem);
    let reason = "the secret of the export is invalid";
    keys.map(Some).ok_or_else(|| refusal(NvmeStatus::CONNECT_HOST, ConnectField::HOST, reason))
}

fn host_of(request: &ConnectRequest) -> NvmeHost {
    NvmeHost { name: request.host.clone(), id: request.host_id }
}

/// Finds the subsystem of a request; `None` for discovery.
fn find<S>(
    target: &NvmeTarget<S>,
    request: &ConnectRequest,
    address: SocketAddr,
) -> Result<Option<Arc<Subsystem<S>>>, ConnectRefusal> {
    if request.subsystem == DISCOVERY_NAME {
        return Ok(None);
    }
    let unavailable = NvmeStatus::CONNECT_UNAVAILABLE;
    let subsystem = target.find(&request.subsystem).filter(|found| found.has_listener(address));
    let subsystem = subsystem
        .ok_or_else(|| refusal(unavailable, ConnectField::SUBSYSTEM, "there is no such subsystem"))?;
    if !subsystem.is_served(&request.host, address) {
        return Err(refusal(NvmeStatus::CONNECT_HOST, ConnectField::HOST, "the host is not allowed"));
    }
    Ok(Some(subsystem))
}

/// Checks that the key of a TLS connection is for the names of its connect command.
fn check_names(request: &ConnectRequest, peer: Option<&TlsPeer>) -> Result<(), ConnectRefusal> {
    let reason = match peer.map(|peer| &peer.names) {
        Some(names) if names.host != request.host => "the TLS key belongs to another host",
        Some(names) if names.subsystem != request.subsystem => "the TLS key belongs to another subsystem",
        _ => return Ok(()),
    };
    Err(refusal(NvmeStatus::CONNECT_HOST, ConnectField::HOST, reason))
}

/// Checks that a host uses the TLS key of its controller, or no TLS if that has none. A change of
/// the key after this check ends the controller.
fn check_key(controller: &Controller, peer: Option<&TlsPeer>) -> Result<(), ConnectRefusal> {
    let reason = match (&controller.secrets.tls_key, peer) {
        (None, None) => return Ok(()),
        (Some(key), Some(peer)) if key.is_same(&peer.key) => return Ok(()),
        (Some(_), Some(_)) => "the TLS key of the export has changed since the connection began",
        (Some(_), None) => "the export requires TLS",
        (None, Some(_)) => "the export does not use TLS",
    };
    Err(refusal(NvmeStatus::CONNECT_HOST, ConnectField::HOST, reason))
}

fn new_controller<S>(
    owner: &Subsystem<S>,
    request: &ConnectRequest,
) -> Result<Arc<Controller>, ConnectRefusal> {
    if request.controller != ANY_CONTROLLER {
        let reason = "controllers are assigned by the target";
        return Err(refusal(NvmeStatus::CONNECT_PARAMETERS, ConnectField::CONTROLLER, reason));
    }
    let controller = owner.add_controller(host_of(request), request.keep_alive);
    let reason = "the subsystem has no free controller";
    controller.ok_or(ConnectRefusal { status: NvmeStatus::CONNECT_BUSY, result: 0, reason })
}

impl<S> Drop for QueueIdentity<S> {
    fn drop(&mut self) {
        self.disconnect();
        self.owner().forget_queue(&self.handle);
        self.handle.unregister();
    }
}
