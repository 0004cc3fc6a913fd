//! Memory volumes by name.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::MemoryVolume;
use crate::{Exports, ListedExport, OpenError, OpenErrorKind, OpenExport};

/// Memory volumes that are exported by name, in the order of their names.
#[derive(Default)]
pub struct MemoryExports {
    entries: RefCell<BTreeMap<String, OpenExport<MemoryVolume>>>,
    refusal: Cell<Option<OpenErrorKind>>,
}

impl MemoryExports {
    /// Exports `volume` under `name`, in place of an earlier export of that name.
    pub fn insert(&self, name: impl Into<String>, description: impl Into<String>, volume: &MemoryVolume) {
        let export = OpenExport { volume: volume.clone(), description: description.into() };
        self.entries.borrow_mut().insert(name.into(), export);
    }

    /// Removes the export `name`. Clients that have it open keep it.
    pub fn remove(&self, name: &str) {
        self.entries.borrow_mut().remove(name);
    }

    /// Refuses the next open, for tests.
    pub fn refuse_next(&self, kind: OpenErrorKind) {
        self.refusal.set(Some(kind));
    }
}

impl Exports for MemoryExports {
    type Volume = MemoryVolume;

    async fn open(&self, name: &str) -> Result<OpenExport<MemoryVolume>, OpenError> {
        if let Some(kind) = self.refusal.take() {
            return Err(OpenError::new(kind, "injected by a test"));
        }
        let found = self.entries.borrow().get(name).cloned();
        found.ok_or_else(|| OpenError::new(OpenErrorKind::NotFound, format!("no export is called {name:?}")))
    }

    async fn list(&self) -> Vec<ListedExport> {
        let entries = self.entries.borrow();
        let listed = entries.iter().map(|(name, export)| ListedExport {
            name: name.clone(),
            description: export.description.clone(),
        });
        listed.collect()
    }
}
