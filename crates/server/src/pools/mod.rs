//! The pools that the daemon knows: in service, closed, or not to be had.
//!
//! Owns which pools there are and what may be done to each when. Always true: one change at a time is done to a pool; a
//! pool that is in service or was closed on purpose is remembered as that. Must not know: HTTP, exports.

mod close;
mod create;
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

use crate::config::Config;
use crate::drives::OpenDrive;
use crate::error::{Error, ErrorKind, Result};
use crate::reactors::Reactors;
use crate::state::State;
use api::types;
use slot::{Slot, Status};
pub(crate) use status::{drive_state, lost_shown};

/// The pools, by name.
pub(crate) struct Pools {
    reactors: Arc<Reactors>,
    state: Arc<State>,
    tuning: Tuning,
    drive_wait: std::time::Duration,
    /// Percent of the room from which a pool counts as filling up.
    warn_at: Vec<u8>,
    slots: Mutex<BTreeMap<String, Slot>>,
}

/// A pool in service.
pub(crate) struct OpenPool {
    pool: engine::Pool,
    home: Remote,
    report: types::OpenReport,
    /// Open and locked as long as the pool uses them.
    drives: Mutex<Vec<Arc<OpenDrive>>>,
    passed: watch::Passed,
}

impl OpenPool {
    fn open_drives(&self) -> MutexGuard<'_, Vec<Arc<OpenDrive>>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the pool's home reactor.
    ///
    /// # Errors
    /// Those of the work; `ShuttingDown` when the reactors are gone.
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
    /// The pools that are remembered and those of the configuration, which knows better; none is open yet.
    pub(crate) fn new(config: &Config, reactors: Arc<Reactors>, state: Arc<State>) -> Arc<Self> {
        let mut slots = BTreeMap::new();
        for (name, known) in state.get().pools {
            let status = if known.open { Status::not_opened_yet() } else { Status::Closed };
            slots.insert(name, Slot { id: known.id, drives: known.drives, status });
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
            slowdown: config.slowdown,
            ..Tuning::default()
        };
        let drive_wait = config.drive_wait;
        let warn_at = config.warn_at.clone();
        Arc::new(Self { reactors, state, tuning, drive_wait, warn_at, slots: Mutex::new(slots) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all pools.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// The pools that are to be opened at start.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let waiting = |slot: &Slot| matches!(slot.status, Status::Unavailable(_));
        self.lock().iter().filter(|(_, slot)| waiting(slot)).map(|(name, _)| name.clone()).collect()
    }

    /// The pools in service.
    pub(crate) fn open_names(&self) -> Vec<String> {
        let open = |slot: &Slot| matches!(slot.status, Status::Open(_));
        self.lock().iter().filter(|(_, slot)| open(slot)).map(|(name, _)| name.clone()).collect()
    }

    /// A pool in service.
    ///
    /// # Errors
    /// `NotFound`, or `NotOpen` with the reason.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<OpenPool>> {
        match self.lock().get(name).map(|slot| &slot.status) {
            Some(Status::Open(pool)) => Ok(pool.clone()),
            Some(status) => Err(status.why_not_open(name)),
            None => Err(no_pool(name)),
        }
    }

    /// Refuses at once what an operation on a pool would refuse as its first step.
    ///
    /// # Errors
    /// `Busy` while something is being done to the pool.
    pub(crate) fn check_idle(&self, name: &str) -> Result<()> {
        match self.lock().get(name).map(|slot| &slot.status) {
            Some(status @ Status::Changing(_)) => Err(status.why_not_open(name)),
            _ => Ok(()),
        }
    }

    /// As [`Pools::check_idle`], for a pool that must be known.
    ///
    /// # Errors
    /// `Busy`, `NotFound`.
    pub(crate) fn check_known(&self, name: &str) -> Result<()> {
        self.check_idle(name)?;
        if self.lock().contains_key(name) { Ok(()) } else { Err(no_pool(name)) }
    }

    /// Where a pool's drives were last found.
    fn known_drives(&self, name: &str) -> Option<(Option<String>, Vec<PathBuf>)> {
        self.lock().get(name).map(|slot| (slot.id.clone(), slot.drives.clone()))
    }

    /// Remembers a pool as it is in its slot now.
    fn remember(&self, name: &str, open: bool) -> Result<()> {
        let known = self.known_drives(name);
        self.state.update(|state| {
            if let Some((id, drives)) = known {
                let pool = crate::state::RememberedPool { id, drives, open };
                state.pools.insert(name.to_owned(), pool);
            }
        })
    }

    /// Forgets a pool.
    fn forget(&self, name: &str) -> Result<()> {
        self.state.update(|state| {
            state.pools.remove(name);
            state.exports.retain(|export| export.pool != name);
        })?;
        self.lock().remove(name);
        Ok(())
    }
}

/// There is no such pool.
fn no_pool(name: &str) -> Error {
    let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    Error::new(ErrorKind::NotFound, format!("no pool '{shown}'")).hint(
        "'gabion pool list' shows the pools; 'gabion pool open NAME --drives ...' opens one from its drives",
    )
}
