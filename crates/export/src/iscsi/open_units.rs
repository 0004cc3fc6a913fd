//! The logical units that a session has open.
//!
//! Always true: a unit that was removed from its target, or replaced, is not used by later
//! commands.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::nexus::{Nexus, UnitAttentions};
use super::shared::IscsiShared;
use super::target::{IscsiTarget, IscsiUnit};
use crate::VolumeSource;
use crate::exported_volume::ExportedVolume;
use crate::reservation::ReservationObserver;

/// A unit that a session has open.
pub(super) struct OpenUnit<S: VolumeSource> {
    pub(super) unit: Arc<IscsiUnit<S>>,
    pub(super) volume: ExportedVolume<S::Volume>,
    pub(super) attentions: Arc<UnitAttentions>,
}

/// The units that one session has open.
pub(super) struct OpenUnits<S: VolumeSource> {
    shared: Rc<IscsiShared<S>>,
    target: Option<Arc<IscsiTarget<S>>>,
    nexus: Arc<Nexus>,
    /// The generation of the target in which the units were checked.
    generation: Cell<u64>,
    open: RefCell<Vec<Rc<OpenUnit<S>>>>,
}

impl<S: VolumeSource> OpenUnits<S> {
    pub(super) fn new(
        shared: Rc<IscsiShared<S>>,
        target: Option<Arc<IscsiTarget<S>>>,
        nexus: Arc<Nexus>,
    ) -> Self {
        Self { shared, target, nexus, generation: Cell::new(0), open: RefCell::default() }
    }

    /// The unit of this number, if the initiator may use it.
    pub(super) fn get(&self, number: u16) -> Option<Rc<OpenUnit<S>>> {
        let target = self.target.as_ref()?;
        let generation = target.generation();
        if self.generation.replace(generation) != generation {
            let is_current = |open: &Rc<OpenUnit<S>>| {
                let current = target.unit(open.unit.number, &self.nexus);
                current.is_some_and(|current| Arc::ptr_eq(&current, &open.unit))
            };
            self.open.borrow_mut().retain(is_current);
        }
        if let Some(open) = self.open.borrow().iter().find(|open| open.unit.number == number) {
            return Some(open.clone());
        }
        let unit = target.unit(number, &self.nexus)?;
        let volume = self.shared.leases.open(unit.source.open(), unit.read_only, &unit.leases);
        let attentions = UnitAttentions::new(self.nexus.port.clone());
        unit.observe(&attentions);
        let observer: Arc<dyn ReservationObserver> = attentions.clone();
        unit.reservations.observe(&observer);
        let open = Rc::new(OpenUnit { unit, volume, attentions });
        self.open.borrow_mut().push(open.clone());
        Some(open)
    }
}
