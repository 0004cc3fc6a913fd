//! The exports that NBD clients find, for the servers of all reactors.
//!
//! Always true: a name that is reserved and not served is listed, and refused as unavailable.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exported_volume::ExportedVolume;
use crate::leases::Leases;
use crate::{ExportName, Exports, ListedExport, OpenError, OpenErrorKind, OpenExport, VolumeSource};

/// A volume that NBD serves.
pub(super) struct ServedVolume<S> {
    pub(super) source: Arc<S>,
    pub(super) read_only: bool,
    pub(super) connections: Arc<AtomicU64>,
}

/// The reserved names, and the served volumes. Used from several threads.
pub(super) struct ExportRegistry<S> {
    exports: Mutex<BTreeMap<ExportName, Option<Arc<ServedVolume<S>>>>>,
}

impl<S> Default for ExportRegistry<S> {
    fn default() -> Self {
        Self { exports: Mutex::default() }
    }
}

impl<S> ExportRegistry<S> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ExportName, Option<Arc<ServedVolume<S>>>>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a name. It is no longer served if it was.
    pub(super) fn reserve(&self, name: ExportName) {
        self.lock().insert(name, None);
    }

    /// Serves a volume under a name.
    pub(super) fn serve(&self, name: ExportName, volume: Arc<ServedVolume<S>>) {
        self.lock().insert(name, Some(volume));
    }

    /// Forgets a name.
    pub(super) fn release(&self, name: &ExportName) {
        self.lock().remove(name);
    }

    fn names(&self) -> Vec<String> {
        self.lock().keys().map(ToString::to_string).collect()
    }

    /// The volume of a name; `None` within if the name is reserved only.
    fn find(&self, name: &str) -> Option<Option<Arc<ServedVolume<S>>>> {
        self.lock().get(&ExportName::new(name)).cloned()
    }
}

/// The registry as the server of one reactor uses it.
pub(super) struct ReactorExports<S: VolumeSource> {
    registry: Arc<ExportRegistry<S>>,
    leases: Leases<S::Volume>,
}

impl<S: VolumeSource> ReactorExports<S> {
    pub(super) fn new(registry: Arc<ExportRegistry<S>>) -> Self {
        Self { registry, leases: Leases::default() }
    }

    /// Revokes the leases that `connections` counts.
    pub(super) async fn revoke(&self, connections: &Arc<AtomicU64>) {
        self.leases.revoke(connections).await;
    }
}

impl<S: VolumeSource> Exports for ReactorExports<S> {
    type Volume = ExportedVolume<S::Volume>;

    async fn open(&self, name: &str) -> Result<OpenExport<Self::Volume>, OpenError> {
        let served = match self.registry.find(name) {
            Some(Some(served)) => served,
            Some(None) => {
                let message = format!("export {name:?} is not being served at present");
                return Err(OpenError::new(OpenErrorKind::Unavailable, message));
            }
            None => {
                let message = format!("there is no export {name:?}");
                return Err(OpenError::new(OpenErrorKind::NotFound, message));
            }
        };
        let volume = self.leases.open(served.source.open(), served.read_only, &served.connections);
        Ok(OpenExport { volume, description: String::new() })
    }

    async fn list(&self) -> Vec<ListedExport> {
        let listed = |name| ListedExport { name, description: String::new() };
        self.registry.names().into_iter().map(listed).collect()
    }
}
