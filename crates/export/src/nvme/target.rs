//! The subsystems of the target, their namespaces and controllers.
//!
//! Always true: a subsystem has at least one namespace; a namespace is visible to the hosts that
//! its export allows, and to all hosts if it names none; ids of controllers are unique within their
//! subsystem. Used from several threads. Must not know messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::Handle;

use super::controller::{Controller, NvmeHost};
use super::host_secrets::HostSecrets;
use super::limits::CONTROLLERS;
use super::queue_control::{NvmeEvent, QueueControl};
use super::tls::NvmeTlsKey;
use crate::reservation::VolumeReservations;

/// An exported volume.
pub(super) struct NvmeNamespace<S> {
    pub(super) id: u32,
    pub(super) source: Arc<S>,
    pub(super) read_only: bool,
    /// The identity of the volume, which is the same after a restart or another export.
    pub(super) identity: [u8; 16],
    /// The hosts that may use it; all if empty.
    pub(super) hosts: Vec<String>,
    /// The secrets that its hosts need.
    pub(super) secrets: HostSecrets,
    /// The addresses at which it is served.
    pub(super) listen: Vec<SocketAddr>,
    /// Counts the queues that have the volume open, and identifies their leases.
    pub(super) leases: Arc<AtomicU64>,
    pub(super) reservations: Arc<VolumeReservations>,
}

impl<S> NvmeNamespace<S> {
    fn allows(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|allowed| allowed == host)
    }

    /// True if a host may use both namespaces.
    fn shares_hosts(&self, other: &Self) -> bool {
        self.hosts.is_empty() || other.hosts.is_empty() || self.hosts.iter().any(|host| other.allows(host))
    }
}

/// A subsystem.
pub(super) struct Subsystem<S> {
    pub(super) name: String,
    /// Counts changes of the namespaces.
    generation: AtomicU64,
    state: Mutex<SubsystemState<S>>,
}

struct SubsystemState<S> {
    namespaces: BTreeMap<u32, Arc<NvmeNamespace<S>>>,
    controllers: BTreeMap<u16, Arc<Controller>>,
    next_controller: u16,
    /// All queues whose commands may be in execution, also those whose connection or controller
    /// has ended.
    queues: Vec<HostQueue>,
}

/// A queue whose commands may be in execution.
struct HostQueue {
    controller: Arc<Controller>,
    control: Handle<QueueControl>,
}

impl<S> SubsystemState<S> {
    /// The secrets of a host, which are the same for all namespaces that it may use. `None` if
    /// there are none.
    fn secrets_of(&self, host: &str) -> Option<&HostSecrets> {
        let visible = self.namespaces.values().find(|namespace| namespace.allows(host));
        visible.map(|namespace| &namespace.secrets)
    }
}

/// The largest id of a controller.
const CONTROLLER_MAX: u16 = 0xffef;

impl<S> Subsystem<S> {
    fn new(name: String) -> Self {
        let (namespaces, controllers, queues) = Default::default();
        let state = SubsystemState { namespaces, controllers, next_controller: 1, queues };
        Self { name, generation: AtomicU64::new(1), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, SubsystemState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever a namespace is added or removed.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The namespace of this id, if the host may use it.
    pub(super) fn namespace(&self, id: u32, host: &str) -> Option<Arc<NvmeNamespace<S>>> {
        self.lock().namespaces.get(&id).filter(|namespace| namespace.allows(host)).cloned()
    }

    /// True if the namespace of this id is the one that `leases` identifies.
    pub(super) fn namespace_is(&self, id: u32, leases: &Arc<AtomicU64>) -> bool {
        self.lock().namespaces.get(&id).is_some_and(|namespace| Arc::ptr_eq(&namespace.leases, leases))
    }

    /// The namespaces that a host may use, in the order of their ids.
    pub(super) fn namespaces(&self, host: &str) -> Vec<Arc<NvmeNamespace<S>>> {
        self.lock().namespaces.values().filter(|namespace| namespace.allows(host)).cloned().collect()
    }

    /// True if the host may use a namespace that is served at `address`.
    pub(super) fn is_served(&self, host: &str, address: SocketAddr) -> bool {
        self.namespaces(host).iter().any(|namespace| namespace.listen.contains(&address))
    }

    /// True if a namespace is served at `address`, to any host.
    pub(super) fn has_listener(&self, address: SocketAddr) -> bool {
        self.lock().namespaces.values().any(|namespace| namespace.listen.contains(&address))
    }

    /// The addresses at which a host finds the subsystem.
    pub(super) fn addresses(&self, host: &str) -> Vec<SocketAddr> {
        let namespaces = self.namespaces(host);
        let mut all: Vec<_> = namespaces.iter().flat_map(|namespace| namespace.listen.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// True if a host finds an address of the subsystem by this namespace alone, whether or not it
    /// was removed already.
    fn is_found_by(&self, host: &str, namespace: &NvmeNamespace<S>) -> bool {
        let state = self.lock();
        let others: Vec<_> = state
            .namespaces
            .values()
            .filter(|other| other.id != namespace.id && other.allows(host))
            .collect();
        let is_own = |address| !others.iter().any(|other| other.listen.contains(address));
        namespace.allows(host) && namespace.listen.iter().any(is_own)
    }

    /// Adds a controller for a host. `None` if there are too many, or the last namespace was
    /// removed.
    pub(super) fn add_controller(&self, host: NvmeHost, keep_alive: u32) -> Option<Arc<Controller>> {
        let mut state = self.lock();
        let is_removed = state.namespaces.is_empty() && self.name != DISCOVERY_NAME;
        if is_removed || state.controllers.len() >= CONTROLLERS {
            return None;
        }
        while state.controllers.contains_key(&state.next_controller) {
            state.next_controller = state.next_controller % CONTROLLER_MAX + 1;
        }
        let id = state.next_controller;
        state.next_controller = id % CONTROLLER_MAX + 1;
        let secrets = state.secrets_of(&host.name).cloned().unwrap_or_default();
        let controller = Arc::new(Controller::new(id, host, keep_alive, secrets));
        state.controllers.insert(id, controller.clone());
        Some(controller)
    }

    /// The key of the TLS connections of a host. `None` if it uses none.
    pub(super) fn tls_key(&self, host: &str) -> Option<NvmeTlsKey> {
        self.lock().secrets_of(host)?.tls_key.clone()
    }

    /// The controller of this id.
    pub(super) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().controllers.get(&id).cloned()
    }

    /// Removes a controller that has ended.
    pub(super) fn remove_controller(&self, controller: &Controller) {
        self.lock().controllers.remove(&controller.id);
    }

    /// Adds a queue, until [`Self::forget_queue`].
    pub(super) fn add_queue(&self, controller: &Arc<Controller>, control: Handle<QueueControl>) {
        self.lock().queues.push(HostQueue { controller: controller.clone(), control });
    }

    /// Removes a queue that has no command in execution.
    pub(super) fn forget_queue(&self, control: &Handle<QueueControl>) {
        self.lock().queues.retain(|queue| !queue.control.is_same(control));
    }

    /// The queues of a host whose commands may be in execution.
    pub(super) fn queues_of(&self, host: &NvmeHost) -> Vec<Handle<QueueControl>> {
        let state = self.lock();
        let own = state.queues.iter().filter(|queue| queue.controller.host == *host);
        own.map(|queue| queue.control.clone()).collect()
    }

    /// The queues of a host whose connection has ended, and whose commands may be in execution.
    pub(super) fn ended_queues_of(&self, host: &NvmeHost) -> Vec<Handle<QueueControl>> {
        let state = self.lock();
        let own = state.queues.iter().filter(|queue| queue.controller.host == *host);
        own.filter(|queue| !queue.controller.has_queue(&queue.control))
            .map(|queue| queue.control.clone())
            .collect()
    }

    /// The number of hosts connected, counted by their controllers.
    pub(super) fn controller_count(&self) -> u64 {
        self.lock().controllers.len() as u64
    }

    /// The controllers.
    pub(super) fn controllers(&self) -> Vec<Arc<Controller>> {
        self.lock().controllers.values().cloned().collect()
    }

    /// Reports to all hosts that a namespace was added, removed or resized.
    pub(super) fn announce(&self, namespace: u32) {
        for controller in self.controllers() {
            controller.namespace_changed(namespace);
        }
    }
}

/// The reason why a namespace cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamespaceRefusal {
    /// The id is in use.
    Taken,
    /// Another namespace of the same hosts has other secrets.
    Secrets,
    /// Another namespace of the same hosts has another TLS key, or one of both has none.
    TlsKey,
}

/// The subsystems by name.
pub(super) struct NvmeTarget<S> {
    subsystems: Mutex<BTreeMap<String, Arc<Subsystem<S>>>>,
    /// Counts changes of the list of subsystems.
    generation: AtomicU64,
    /// The controllers of discovery.
    pub(super) discovery: Subsystem<S>,
}

/// The name by which hosts ask for discovery.
pub(super) const DISCOVERY_NAME: &str = "nqn.2014-08.org.nvmexpress.discovery";

impl<S> Default for NvmeTarget<S> {
    fn default() -> Self {
        let discovery = Subsystem::new(DISCOVERY_NAME.to_owned());
        Self { subsystems: Mutex::default(), generation: AtomicU64::new(1), discovery }
    }
}

impl<S> NvmeTarget<S> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Subsystem<S>>>> {
        self.subsystems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever a subsystem is added or removed.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The subsystem of this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Subsystem<S>>> {
        self.lock().get(name).cloned()
    }

    /// The key of the TLS connections of a host to a subsystem. `None` if it uses none.
    pub(super) fn tls_key(&self, subsystem: &str, host: &str) -> Option<NvmeTlsKey> {
        self.find(subsystem)?.tls_key(host)
    }

    /// The subsystems in the order of their names.
    pub(super) fn all(&self) -> Vec<Arc<Subsystem<S>>> {
        self.lock().values().cloned().collect()
    }

    /// True if a subsystem of this name has this namespace.
    pub(super) fn has(&self, name: &str, namespace: u32) -> bool {
        self.find(name).is_some_and(|subsystem| subsystem.lock().namespaces.contains_key(&namespace))
    }

    /// Adds a namespace to a subsystem, which is created if necessary. Ends controllers whose hosts
    /// have not authenticated themselves, or do not use TLS, as the namespace requires it.
    pub(super) fn add(
        &self,
        name: &str,
        namespace: NvmeNamespace<S>,
    ) -> Result<Arc<Subsystem<S>>, NamespaceRefusal> {
        let id = namespace.id;
        let added = {
            let mut all = self.lock();
            let subsystem =
                all.entry(name.to_owned()).or_insert_with(|| Arc::new(Subsystem::new(name.to_owned())));
            let mut state = subsystem.lock();
            if state.namespaces.contains_key(&id) {
                return Err(NamespaceRefusal::Taken);
            }
            let differs = |other: &Arc<NvmeNamespace<S>>| {
                other.secrets != namespace.secrets && other.shares_hosts(&namespace)
            };
            if let Some(other) = state.namespaces.values().find(|other| differs(other)) {
                return Err(match other.secrets.tls_key == namespace.secrets.tls_key {
                    true => NamespaceRefusal::Secrets,
                    false => NamespaceRefusal::TlsKey,
                });
            }
            let strangers = state.controllers.values().filter(|controller| {
                controller.secrets != namespace.secrets && namespace.allows(&controller.host.name)
            });
            strangers.for_each(|controller| {
                controller.end(controller.secrets.difference(&namespace.secrets));
            });
            let namespace = Arc::new(namespace);
            state.namespaces.insert(id, namespace.clone());
            drop(state);
            (subsystem.clone(), namespace)
        };
        let (subsystem, namespace) = added;
        self.changed(&subsystem, &namespace);
        Ok(subsystem)
    }

    /// Removes a namespace. Ends the controllers of a subsystem that has no other one.
    pub(super) fn remove(&self, name: &str, namespace: u32) {
        let removed = {
            let mut all = self.lock();
            let Some(subsystem) = all.get(name).cloned() else { return };
            let mut state = subsystem.lock();
            let Some(namespace) = state.namespaces.remove(&namespace) else { return };
            let is_empty = state.namespaces.is_empty();
            drop(state);
            if is_empty {
                all.remove(name);
            }
            (subsystem, namespace, is_empty)
        };
        let (subsystem, namespace, is_empty) = removed;
        self.changed(&subsystem, &namespace);
        if is_empty {
            for controller in subsystem.controllers() {
                controller.end("the export was removed");
            }
        }
    }

    /// Reports that a namespace was added or removed: to the hosts of its subsystem, and to those
    /// hosts of discovery whose log has changed.
    fn changed(&self, subsystem: &Subsystem<S>, namespace: &NvmeNamespace<S>) {
        subsystem.generation.fetch_add(1, Ordering::AcqRel);
        self.generation.fetch_add(1, Ordering::AcqRel);
        subsystem.announce(namespace.id);
        for controller in self.discovery.controllers() {
            if subsystem.is_found_by(&controller.host.name, namespace) {
                controller.raise(NvmeEvent::Discovery);
            }
        }
    }
}
