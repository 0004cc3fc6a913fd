//! The pools that are registered with the daemon: open, closed or unavailable.
//!
//! Owns the list of pools and their state transitions. Invariants: each pool has at most one
//! transition at a time; an open pool, and a pool closed on request, is persisted as such. Must not
//! know: HTTP, exports.

mod checks;
mod close;
mod create;
mod drive_health;
mod drives;
mod events;
mod find;
mod newest;
mod open;
mod problems;
mod scrub;
mod slot;
mod snapshots;
mod status;
mod volumes;
mod watch;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Tuning;
use reactor::Remote;

use crate::blocking::blocking;
use crate::config::Config;
use crate::drive_health::SmartCache;
use crate::drives::OpenDrive;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, PoolDrives};
use crate::reactors::Reactors;
use crate::state::State;
use api::types;
use slot::{Slot, Status};
pub(crate) use status::{drive_state_of, lost_range};
pub(crate) use volumes::OBJECTS_VOLUME;

/// The pools, by name.
pub(crate) struct Pools {
    reactors: Arc<Reactors>,
    state: Arc<State>,
    tuning: Tuning,
    drive_wait: std::time::Duration,
    /// The space usage thresholds in percent.
    warn_at: Vec<u8>,
    slots: Mutex<BTreeMap<String, Slot>>,
    smart: SmartCache,
}

/// An open pool.
pub(crate) struct OpenPool {
    pool: engine::Pool,
    home: Remote,
    report: types::OpenReport,
    /// The drives that the pool uses, open and locked.
    drives: Mutex<Vec<Arc<OpenDrive>>>,
    space_level: watch::SpaceLevel,
}

impl OpenPool {
    fn open_drives(&self) -> MutexGuard<'_, Vec<Arc<OpenDrive>>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the pool's home reactor.
    ///
    /// # Errors
    /// The errors of `work`; `ShuttingDown` when the reactors are gone.
    pub(crate) async fn call<T, F>(&self, work: impl FnOnce(engine::Pool) -> F + Send + 'static) -> Result<T>
    where
        F: Future<Output = engine::Result<T>> + 'static,
        T: Send + 'static,
    {
        let pool = self.pool.clone();
        Ok(self.home.call(move || work(pool)).await??)
    }
}

impl Pools {
    /// Returns the pools of the state directory and of the configuration, none of them open. For a
    /// pool in both, the drives of the configuration count.
    pub(crate) fn new(config: &Config, reactors: Arc<Reactors>, state: Arc<State>) -> Arc<Self> {
        let mut slots = BTreeMap::new();
        for (name, record) in state.get().pools {
            let status = if record.open { Status::not_opened_yet() } else { Status::Closed };
            slots.insert(name, Slot { id: record.id, drives: record.drives, status });
        }
        for (name, drives) in &config.pools {
            let slot = slots.entry(name.clone()).or_insert_with(|| Slot {
                id: None,
                drives: Vec::new(),
                status: Status::not_opened_yet(),
            });
            slot.drives.clone_from(drives);
        }
        let tuning = Tuning {
            map_bytes: config.map_memory.bytes(),
            checkpoint_bytes: config.checkpoint_after.bytes(),
            retire_after: config.retire_after,
            slowdown: config.latency_target,
            ..Tuning::default()
        };
        let drive_wait = config.drive_wait;
        let warn_at = config.warn_at.clone();
        let (slots, smart) = (Mutex::new(slots), SmartCache::default());
        Arc::new(Self { reactors, state, tuning, drive_wait, warn_at, slots, smart })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of all pools.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the names of the pools to open at start.
    pub(crate) fn names_to_open(&self) -> Vec<String> {
        let to_open = |slot: &Slot| matches!(slot.status, Status::Unavailable(_));
        self.lock().iter().filter(|(_, slot)| to_open(slot)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names of the open pools.
    pub(crate) fn open_names(&self) -> Vec<String> {
        let open = |slot: &Slot| matches!(slot.status, Status::Open(_));
        self.lock().iter().filter(|(_, slot)| open(slot)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the drives of all open pools.
    ///
    /// # Errors
    /// When the daemon is shutting down.
    pub(crate) async fn drive_owners(&self) -> Result<PoolDrives> {
        let mut paths = Vec::new();
        for (name, slot) in &*self.lock() {
            if let Status::Open(pool) = &slot.status {
                paths.extend(pool.open_drives().iter().map(|drive| (drive.path().to_owned(), name.clone())));
            }
        }
        let keys =
            || paths.into_iter().filter_map(|(path, name)| Some((inspect::drive_key(&path).ok()?, name)));
        blocking(|| keys().collect()).await
    }

    /// Returns an open pool.
    ///
    /// # Errors
    /// `NotFound`, or `NotOpen` with the reason.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<OpenPool>> {
        match self.lock().get(name).map(|slot| &slot.status) {
            Some(Status::Open(pool)) => Ok(pool.clone()),
            Some(status) => Err(status.not_open_error(name)),
            None => Err(no_pool(name)),
        }
    }

    /// Checks that no transition of the pool is in progress, before an operation is started.
    ///
    /// # Errors
    /// `Busy` during a transition.
    pub(crate) fn check_idle(&self, name: &str) -> Result<()> {
        match self.lock().get(name).map(|slot| &slot.status) {
            Some(status @ Status::Changing(_)) => Err(status.not_open_error(name)),
            _ => Ok(()),
        }
    }

    /// Checks that the pool is registered and that no transition of it is in progress.
    ///
    /// # Errors
    /// `Busy`, `NotFound`.
    pub(crate) fn check_registered(&self, name: &str) -> Result<()> {
        self.check_idle(name)?;
        if self.lock().contains_key(name) { Ok(()) } else { Err(no_pool(name)) }
    }

    /// Returns the id and the last known drive paths of a pool.
    fn registered_drives(&self, name: &str) -> Option<(Option<String>, Vec<PathBuf>)> {
        self.lock().get(name).map(|slot| (slot.id.clone(), slot.drives.clone()))
    }

    /// Persists the id and the drives of a pool's slot.
    fn persist(&self, name: &str, open: bool) -> Result<()> {
        let registered = self.registered_drives(name);
        self.state.update(|state| {
            if let Some((id, drives)) = registered {
                let pool = crate::state::PoolRecord { id, drives, open };
                state.pools.insert(name.to_owned(), pool);
            }
        })
    }

    /// Removes a pool and its exports from the persistent state and from the list of pools.
    fn forget(&self, name: &str) -> Result<()> {
        self.state.update(|state| {
            state.pools.remove(name);
            state.exports.retain(|export| export.pool != name);
            state.s3.remove(name);
        })?;
        self.lock().remove(name);
        Ok(())
    }
}

/// Returns the error for a pool that is not registered.
fn no_pool(name: &str) -> Error {
    let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    Error::new(ErrorKind::NotFound, format!("there is no pool '{shown}'")).hint(
        "'gabion pool list' lists the pools; 'gabion pool open NAME --drives ...' opens a pool from its drives",
    )
}
