//! The volumes that a queue has open, by namespace.
//!
//! Always true: a namespace that was removed from its subsystem, or replaced, is not used by later
//! requests.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use super::queue_identity::QueueIdentity;
use super::shared::ServerShared;
use crate::VolumeSource;
use crate::exported_volume::ExportedVolume;
use crate::reservation::VolumeReservations;

/// The volumes that one queue has open, by namespace.
pub(super) struct OpenVolumes<S: VolumeSource> {
    shared: Rc<ServerShared<S>>,
    /// The generation of the subsystem in which the volumes were opened.
    generation: Cell<u64>,
    open: RefCell<Vec<(u32, OpenVolume<S::Volume>)>>,
}

/// A volume that a queue has open, with its reservations.
pub(super) struct OpenNamespace<V> {
    volume: ExportedVolume<V>,
    pub(super) reservations: Arc<VolumeReservations>,
}

/// A volume that a queue has open.
pub(super) type OpenVolume<V> = Rc<OpenNamespace<V>>;

impl<V> Deref for OpenNamespace<V> {
    type Target = ExportedVolume<V>;

    fn deref(&self) -> &ExportedVolume<V> {
        &self.volume
    }
}

impl<S: VolumeSource> OpenVolumes<S> {
    pub(super) fn new(shared: Rc<ServerShared<S>>) -> Self {
        Self { shared, generation: Cell::new(0), open: RefCell::default() }
    }

    /// The volume of a namespace, if the queue's host may use it.
    pub(super) fn get(&self, queue: &QueueIdentity<S>, id: u32) -> Option<OpenVolume<S::Volume>> {
        let subsystem = queue.subsystem.as_ref()?;
        let generation = subsystem.generation();
        if self.generation.replace(generation) != generation {
            let closed = self.open.take();
            drop(closed);
        }
        if let Some((_, volume)) = self.open.borrow().iter().find(|(open, _)| *open == id) {
            return Some(volume.clone());
        }
        let namespace = subsystem.namespace(id, &queue.controller.host.name)?;
        let volume = self.shared.leases.open(namespace.source.open(), namespace.read_only, &namespace.leases);
        let reservations = namespace.reservations.clone();
        let controller = &queue.controller;
        controller.notices.observe(&controller.registrant, id, namespace.identity, &reservations);
        let volume = Rc::new(OpenNamespace { volume, reservations });
        self.open.borrow_mut().push((id, volume.clone()));
        Some(volume)
    }
}
