//! The TCP listeners of the target: one for each address, shared by the exports that use it.
//!
//! Always true: an address is listened on while an export uses it. Runs on one reactor.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use reactor::{Handle, Platform, Reactor, Stream};

use super::queue_identity::LocalAddress;
use super::server::NvmeServer;
use crate::listen::{ListenLabel, accept_loop, listen_tcp};
use crate::{ExportError, Stop, VolumeSource};

/// The servers, one for each reactor.
pub(super) type NvmeServers<S> = std::sync::Arc<[Handle<NvmeServer<S>>]>;

/// The TCP listeners of one frontend.
pub(super) struct NvmeListeners<S: VolumeSource> {
    servers: NvmeServers<S>,
    platform: fn() -> Rc<Platform>,
    listeners: RefCell<BTreeMap<SocketAddr, UsedListener>>,
    /// The reactor of the next connection.
    next: Cell<usize>,
}

struct UsedListener {
    users: usize,
    stop: Stop,
}

impl<S: VolumeSource> NvmeListeners<S> {
    pub(super) fn new(servers: NvmeServers<S>, platform: fn() -> Rc<Platform>) -> Rc<Self> {
        Rc::new(Self { servers, platform, listeners: RefCell::default(), next: Cell::new(0) })
    }

    /// Listens on an address for one more export. Returns the address, with the port that the system
    /// chose if `address` has none.
    ///
    /// # Errors
    /// As [`listen_tcp`].
    pub(super) async fn acquire(self: &Rc<Self>, address: SocketAddr) -> Result<SocketAddr, ExportError> {
        if let Some(listener) = self.listeners.borrow_mut().get_mut(&address) {
            listener.users += 1;
            return Ok(address);
        }
        let label = ListenLabel { protocol: "NVMe/TCP", setting: "--listen" };
        let listener = listen_tcp(&(self.platform)(), address, label).await?;
        let address = listener.local_address().unwrap_or(address);
        let stop = Stop::default();
        let (stopped, listeners) = (stop.clone(), self.clone());
        let accept = async move {
            let dispatch = async |stream: Stream| listeners.dispatch(stream, address);
            accept_loop(&listener, &stopped, "NVMe/TCP", dispatch).await;
        };
        Reactor::current().spawn(accept).detach();
        self.listeners.borrow_mut().insert(address, UsedListener { users: 1, stop });
        Ok(address)
    }

    /// Ends the use of an address by one export.
    pub(super) fn release(&self, address: SocketAddr) {
        let mut listeners = self.listeners.borrow_mut();
        let Some(listener) = listeners.get_mut(&address) else { return };
        listener.users -= 1;
        if listener.users == 0 {
            listener.stop.raise();
            listeners.remove(&address);
        }
    }

    /// Closes all listeners.
    pub(super) fn close(&self) {
        for listener in self.listeners.take().into_values() {
            listener.stop.raise();
        }
    }

    /// Gives a connection to the next reactor.
    fn dispatch(&self, stream: Stream, listener: SocketAddr) {
        let turn = self.next.replace(self.next.get().wrapping_add(1));
        let Some(handle) = self.servers.get(turn % self.servers.len().max(1)) else { return };
        let place = LocalAddress { listener, reached: stream.local_address().unwrap_or(listener) };
        if let Some(server) = handle.local() {
            server.serve(stream, place);
            return;
        }
        let (detached, remote_handle, platform) = (stream.detach(), handle.clone(), self.platform);
        let serve = move || {
            let Some(server) = remote_handle.local() else { return };
            match detached.attach(&platform()) {
                Ok(stream) => server.serve(stream, place),
                Err(error) => tracing::warn!(%error, "cannot move a connection to its reactor"),
            }
        };
        // A reactor that has shut down drops the connection, which closes it.
        let _ = handle.remote().post(serve);
    }
}
