//! The listeners of the discovery service at addresses of its own.
//!
//! Every address of an export serves discovery too. Always true: an address that cannot be
//! listened on for exports fails none of them; it is reported once, and retried while an export
//! uses it. Limit: an export that names the port of discovery itself can find it taken by a
//! listener for all addresses.
//!
//! Must not know messages.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Handle, Reactor, Task};

use crate::ExportError;
use crate::context::call_object;
use crate::listen::{ListenLabel, RETRY_FOR};
use crate::transport::{ConnectionServer, TcpListeners, acquire_all};

/// The port at which hosts look for the discovery service.
pub const DISCOVERY_PORT: u16 = 8009;

/// The addresses of discovery, for errors and logs.
const LABEL: ListenLabel = ListenLabel { protocol: "NVMe/TCP discovery", setting: "nvme.discovery" };
/// Pause between two tries to listen on an address that another process uses.
const PAUSE: Duration = Duration::from_secs(30);

/// The addresses of the discovery service, in addition to those of the exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvmeDiscovery {
    /// No further ones.
    ExportsOnly,
    /// The addresses of the exports with this port, while there are exports.
    Port(u16),
    /// These addresses, from the start on.
    Addresses(Vec<SocketAddr>),
}

/// The listeners of the discovery service. Used from several threads.
pub(super) struct DiscoveryListeners<T: ConnectionServer> {
    /// The port of the addresses of exports, and their listeners.
    of_exports: Option<(u16, Handle<PortListeners<T>>)>,
}

impl<T: ConnectionServer> DiscoveryListeners<T> {
    /// Listens on the configured addresses.
    ///
    /// # Errors
    /// When a configured address cannot be listened on, or the reactor has shut down.
    pub(super) async fn start(
        config: NvmeDiscovery,
        listeners: &Handle<TcpListeners<T>>,
    ) -> Result<Arc<Self>, ExportError> {
        let of_exports = match config {
            NvmeDiscovery::ExportsOnly => None,
            NvmeDiscovery::Addresses(addresses) => {
                acquire_all(listeners, &addresses, LABEL).await?;
                None
            }
            NvmeDiscovery::Port(port) => {
                let register = |listeners: Rc<TcpListeners<T>>| async move {
                    let all = PortListeners { listeners, used: RefCell::default() };
                    Handle::register(&Reactor::current(), Rc::new(all))
                };
                Some((port, call_object(listeners, register).await?))
            }
        };
        Ok(Arc::new(Self { of_exports }))
    }

    /// Listens on the discovery port of the addresses of an export.
    pub(super) async fn acquire(&self, addresses: &[SocketAddr]) {
        self.for_each(addresses, PortListeners::acquire).await;
    }

    /// Ends the use of the addresses of an export.
    pub(super) async fn release(&self, addresses: &[SocketAddr]) {
        self.for_each(addresses, PortListeners::release).await;
    }

    async fn for_each(&self, addresses: &[SocketAddr], change: fn(&Rc<PortListeners<T>>, SocketAddr)) {
        let Some((port, handle)) = &self.of_exports else { return };
        // The scope of a link-local address stays.
        let at_port = |mut address: SocketAddr| {
            address.set_port(*port);
            address
        };
        let mut own: Vec<_> = addresses.iter().copied().map(at_port).collect();
        own.sort_unstable();
        own.dedup();
        let change_all = move |listeners: Rc<PortListeners<T>>| async move {
            own.into_iter().for_each(|address| change(&listeners, address));
            // The first try of the tasks that listen.
            Reactor::current().yield_now().await;
        };
        // A reactor that has shut down listens on nothing.
        let _ = call_object(handle, change_all).await;
    }

    /// Ends the tries to listen on further addresses.
    pub(super) async fn close(&self) {
        let Some((_, handle)) = &self.of_exports else { return };
        let close = |listeners: Rc<PortListeners<T>>| async move { listeners.used.borrow_mut().clear() };
        let _ = call_object(handle, close).await;
    }
}

/// The listeners of the discovery port at the addresses of exports, on one reactor.
struct PortListeners<T: ConnectionServer> {
    listeners: Rc<TcpListeners<T>>,
    used: RefCell<BTreeMap<SocketAddr, UsedAddress>>,
}

struct UsedAddress {
    /// Exports at the address.
    users: usize,
    is_listening: Rc<Cell<bool>>,
    /// Listens on the address; it ends when this is dropped.
    _task: Task<()>,
}

impl<T: ConnectionServer> PortListeners<T> {
    fn acquire(self: &Rc<Self>, address: SocketAddr) {
        if let Some(used) = self.used.borrow_mut().get_mut(&address) {
            used.users += 1;
            return;
        }
        let is_listening = Rc::new(Cell::new(false));
        let task = Reactor::current().spawn(self.clone().listen(address, is_listening.clone()));
        let used = UsedAddress { users: 1, is_listening, _task: task };
        self.used.borrow_mut().insert(address, used);
    }

    fn release(self: &Rc<Self>, address: SocketAddr) {
        let mut all = self.used.borrow_mut();
        let Some(used) = all.get_mut(&address) else { return };
        used.users -= 1;
        if used.users == 0 {
            let is_listening = used.is_listening.get();
            all.remove(&address);
            if is_listening {
                self.listeners.release(address);
            }
        }
    }

    /// Listens on an address, as soon as no other process uses it.
    async fn listen(self: Rc<Self>, address: SocketAddr, is_listening: Rc<Cell<bool>>) {
        let mut is_reported = false;
        loop {
            match self.listeners.acquire(address, RETRY_FOR, LABEL).await {
                Ok(_) => return is_listening.set(true),
                Err(error) if !is_reported && !self.is_covered(address) => {
                    is_reported = true;
                    let hint = error.hint_text();
                    tracing::warn!(%address, %error, hint, "discovery is not served at this address; retrying");
                }
                Err(_) => {}
            }
            Reactor::current().sleep(PAUSE).await;
        }
    }

    /// True if a listener for all addresses of this host serves the address.
    fn is_covered(&self, address: SocketAddr) -> bool {
        let covers = |(other, used): (&SocketAddr, &UsedAddress)| {
            used.is_listening.get() && covers(other.ip(), address.ip())
        };
        self.used.borrow().iter().any(covers)
    }
}

/// True if a socket at `any` receives the connections to `ip`. A socket at `[::]` receives those to
/// addresses of IPv4 too.
fn covers(any: IpAddr, ip: IpAddr) -> bool {
    any != ip && any.is_unspecified() && (any.is_ipv6() || ip.is_ipv4())
}
