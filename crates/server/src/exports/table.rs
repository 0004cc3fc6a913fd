//! The table of exports, for every thread: the API changes it, connections look names up in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use api::types::Protocol;

/// What a client asks for: `pool/volume`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) pool: String,
    pub(super) volume: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

/// How a volume is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    pub(super) protocol: Protocol,
    pub(super) read_only: bool,
    /// Queues of a machine's disk, if that is what it is.
    pub(super) queues: Option<u16>,
    /// The reactors that serve them; all of them if there are none.
    pub(super) reactors: Vec<u32>,
}

/// An export.
pub(super) struct Entry {
    pub(super) manner: Manner,
    /// What is served, or why nothing is.
    pub(super) active: Result<Arc<Active>>,
}

/// An export that is served.
pub(super) struct Active {
    pub(super) volume: engine::Volume,
    /// Clients that have it open.
    pub(super) connections: Arc<AtomicU64>,
}

impl Active {
    pub(super) fn new(volume: engine::Volume) -> Arc<Self> {
        Arc::new(Self { volume, connections: Arc::default() })
    }
}

/// The exports, by name.
#[derive(Default)]
pub(super) struct Table {
    entries: Mutex<BTreeMap<Name, Entry>>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn contains(&self, name: &Name) -> bool {
        self.lock().contains_key(name)
    }

    pub(super) fn insert(&self, name: Name, entry: Entry) {
        self.lock().insert(name, entry);
    }

    pub(super) fn remove(&self, name: &Name) -> Option<Entry> {
        self.lock().remove(name)
    }

    /// Every export, in the order of the names.
    pub(super) fn list<T>(&self, mut each: impl FnMut(&Name, &Entry) -> T) -> Vec<T> {
        self.lock().iter().map(|(name, entry)| each(name, entry)).collect()
    }

    /// The names of all exports by a protocol.
    pub(super) fn names(&self, protocol: Protocol) -> Vec<Name> {
        let entries = self.lock();
        let wanted = entries.iter().filter(|(_, entry)| entry.manner.protocol == protocol);
        wanted.map(|(name, _)| name.clone()).collect()
    }

    /// What is served by NBD under a name, and whether it may be written.
    pub(super) fn find(&self, name: &str) -> Option<(Result<Arc<Active>>, bool)> {
        let (pool, volume) = name.split_once('/')?;
        let name = Name { pool: pool.to_owned(), volume: volume.to_owned() };
        let entries = self.lock();
        let entry = entries.get(&name).filter(|entry| entry.manner.protocol == Protocol::Nbd)?;
        Some((entry.active.clone(), entry.manner.read_only))
    }

    /// Changes what is served under a name; gives what was served before.
    pub(super) fn set_active(&self, name: &Name, active: Result<Arc<Active>>) -> Option<Arc<Active>> {
        let mut entries = self.lock();
        let entry = entries.get_mut(name)?;
        std::mem::replace(&mut entry.active, active).ok()
    }
}
