//! A connected queue: its controller, and the subsystem that it serves.
//!
//! Always true: at the latest when the value is dropped, the queue is removed from its controller,
//! and the controller of an admin queue ends.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Handle, Reactor};

use super::controller::{Controller, NvmeHost, QueueRefusal};
use super::limits::QUEUE_ENTRIES;
use super::queue_control::QueueControl;
use super::target::{DISCOVERY_NAME, NvmeTarget, Subsystem};
use super::wire::{ANY_CONTROLLER, ConnectField, ConnectRequest, NvmeStatus};
use crate::transport::LocalAddress;

/// A connected queue.
pub(super) struct QueueIdentity<S> {
    pub(super) target: Arc<NvmeTarget<S>>,
    /// The subsystem; `None` for discovery.
    pub(super) subsystem: Option<Arc<Subsystem<S>>>,
    pub(super) controller: Arc<Controller>,
    pub(super) control: Rc<QueueControl>,
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
    pub(super) fn connect(
        target: &Arc<NvmeTarget<S>>,
        request: &ConnectRequest,
        address: LocalAddress,
    ) -> Result<Self, ConnectRefusal> {
        let parameters = |field, reason| refusal(NvmeStatus::CONNECT_PARAMETERS, field, reason);
        if request.entries > QUEUE_ENTRIES.into() {
            return Err(parameters(ConnectField::SIZE, "the queue is too large"));
        }
        let subsystem = find(target, request, address.listener)?;
        let owner = subsystem.as_deref().unwrap_or(&target.discovery);
        let controller = match request.queue {
            0 => new_controller(owner, request)?,
            _ => {
                let controller = owner.controller(request.controller);
                let own = controller.filter(|controller| controller.host == host_of(request));
                own.ok_or_else(|| parameters(ConnectField::CONTROLLER, "there is no such controller"))?
            }
        };
        let control = Rc::new(QueueControl::default());
        let handle = Handle::register(&Reactor::current(), control.clone());
        if let Err(reason) = controller.add_queue(request.queue, handle.clone()) {
            handle.unregister();
            return Err(match reason {
                QueueRefusal::Id => parameters(ConnectField::QUEUE, "the queue id is in use or too large"),
                QueueRefusal::NotReady => ConnectRefusal {
                    status: NvmeStatus::SEQUENCE,
                    result: 0,
                    reason: "the controller is not enabled",
                },
            });
        }
        Ok(Self {
            target: target.clone(),
            subsystem,
            controller,
            control,
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

    /// Removes the queue from its controller, and ends the controller of an admin queue. A second
    /// call does nothing.
    pub(super) fn disconnect(&self) {
        if self.disconnected.replace(true) {
            return;
        }
        self.handle.unregister();
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
    }
}
