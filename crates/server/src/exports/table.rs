//! The table of exports: which exist, how they are configured, and whether they run.
//!
//! Always true: a volume's exports have different keys; [`check_coexistence`] holds for each pair
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use export::{ExportConfig, ExportName, RunningExport};

use super::io_counters::ExportCounters;
use crate::error::{Error, ErrorKind, Result};
use api::types::Protocol;

/// The identity of an export.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExportKey {
    pub(super) pool: String,
    pub(super) volume: String,
    pub(super) protocol: Protocol,
    /// Distinguishes the exports of a volume by the same protocol, from 1.
    pub(super) number: u32,
}

impl ExportKey {
    /// The identifier of the export among those of its volume.
    pub(super) fn id(&self) -> String {
        format!("{}{}", self.protocol, self.suffix())
    }

    /// The export's name within its frontend, by which clients ask for it.
    pub(super) fn name(&self) -> ExportName {
        ExportName::new(format!("{}/{}{}", self.pool, self.volume, self.suffix()))
    }

    /// The suffix of all but the first export by a protocol. No name of a volume has a colon.
    fn suffix(&self) -> String {
        if self.number == 1 { String::new() } else { format!(":{}", self.number) }
    }

    pub(super) fn is_of(&self, pool: &str, volume: &str) -> bool {
        self.pool == pool && self.volume == volume
    }
}

/// An export.
#[derive(Clone)]
pub(super) struct ExportEntry {
    pub(super) config: ExportConfig,
    /// Other exports of the volume may write as well.
    pub(super) shared: bool,
    /// The program that manages the export: only this one deletes it without force.
    pub(super) owner: Option<String>,
    /// The running export, or why it does not run.
    pub(super) running: Result<Arc<dyn RunningExport>>,
    /// Counters of its requests, over all times that it runs.
    pub(super) counters: Arc<ExportCounters>,
}

/// The exports by key.
#[derive(Default)]
pub(super) struct Table {
    entries: Mutex<BTreeMap<ExportKey, ExportEntry>>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ExportKey, ExportEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every export, in the order of the keys.
    pub(super) fn all(&self) -> Vec<(ExportKey, ExportEntry)> {
        self.lock().iter().map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }

    /// The exports of a volume.
    pub(super) fn of_volume(&self, pool: &str, volume: &str) -> Vec<(ExportKey, ExportEntry)> {
        let exports = self.lock();
        let own = exports.iter().filter(|(key, _)| key.is_of(pool, volume));
        own.map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }

    /// Returns the names of the exported volumes of a pool.
    pub(super) fn volumes(&self, pool: &str) -> BTreeSet<String> {
        self.lock().keys().filter(|key| key.pool == pool).map(|key| key.volume.clone()).collect()
    }

    /// The exports of a pool.
    pub(super) fn of_pool(&self, pool: &str) -> Vec<(ExportKey, ExportEntry)> {
        self.all().into_iter().filter(|(key, _)| key.pool == pool).collect()
    }

    pub(super) fn insert(&self, key: ExportKey, entry: ExportEntry) {
        self.lock().insert(key, entry);
    }

    pub(super) fn remove(&self, key: &ExportKey) {
        self.lock().remove(key);
    }

    /// Changes whether an export runs. Returns the export that ran before.
    pub(super) fn set_running(
        &self,
        key: &ExportKey,
        running: Result<Arc<dyn RunningExport>>,
    ) -> Option<Arc<dyn RunningExport>> {
        let mut entries = self.lock();
        let entry = entries.get_mut(key)?;
        std::mem::replace(&mut entry.running, running).ok()
    }
}

/// The key of a new export: the smallest free number of its protocol.
pub(super) fn new_key(
    others: &[(ExportKey, ExportEntry)],
    pool: &str,
    volume: &str,
    protocol: Protocol,
) -> ExportKey {
    let is_taken =
        |number: &u32| others.iter().any(|(key, _)| key.protocol == protocol && key.number == *number);
    let number = (1..).find(|number| !is_taken(number)).unwrap_or(u32::MAX);
    ExportKey { pool: pool.to_owned(), volume: volume.to_owned(), protocol, number }
}

/// Checks that an export may exist beside the others of its volume: all of them read, or all are
/// shared.
///
/// A client that reads a volume caches it, and a client that writes a volume caches its file
/// system: neither notices the writes of another one, unless both expect them.
///
/// # Errors
/// `Busy`, which names the other export.
pub(super) fn check_coexistence(
    others: &[(ExportKey, ExportEntry)],
    volume: &str,
    read_only: bool,
    shared: bool,
) -> Result<()> {
    let conflict = others.iter().find(|(_, other)| {
        let both_read = read_only && other.config.read_only;
        let both_shared = shared && other.shared;
        !both_read && !both_shared
    });
    let Some((key, other)) = conflict else { return Ok(()) };
    let (id, access) = (key.id(), if other.config.read_only { "read-only" } else { "read-write" });
    let message = format!("'{volume}' is exported already, {access} by {id}");
    let delete = match &other.owner {
        Some(owner) => format!("{owner} manages that export"),
        None => format!("'gabion export delete {volume} --id {id}' removes that export"),
    };
    let hint = match (read_only, other.config.read_only) {
        (false, true) => format!("{delete}; or create this one with --read-only"),
        _ => format!(
            "{delete}; exports of which one writes need --shared on each of them, for users that coordinate \
             their writes (a cluster file system, a live migration)"
        ),
    };
    Err(Error::new(ErrorKind::Busy, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(list: &[(Protocol, u32, bool, bool)]) -> Vec<(ExportKey, ExportEntry)> {
        let entry = |(protocol, number, read_only, shared): &(Protocol, u32, bool, bool)| {
            let key = ExportKey {
                pool: "fast".into(),
                volume: "vm01".into(),
                protocol: *protocol,
                number: *number,
            };
            let config = ExportConfig { read_only: *read_only, ..ExportConfig::default() };
            (
                key,
                ExportEntry {
                    config,
                    shared: *shared,
                    owner: None,
                    running: Err(Error::new(ErrorKind::NotOpen, "closed")),
                    counters: Arc::default(),
                },
            )
        };
        list.iter().map(entry).collect()
    }

    #[test]
    fn exports_read_together_or_share() {
        let check = |others: &[(bool, bool)], read_only, shared| {
            let others: Vec<_> =
                others.iter().map(|(read, share)| (Protocol::Nbd, 1, *read, *share)).collect();
            check_coexistence(&exports(&others), "fast/vm01", read_only, shared)
        };
        let (read, write) = (true, false);
        for (others, read_only, shared, allowed) in [
            (&[][..], write, false, true),
            (&[(read, false)], read, false, true),
            (&[(read, false), (read, true)], read, true, true),
            (&[(read, false)], write, false, false),
            (&[(read, false)], write, true, false),
            (&[(write, false)], read, false, false),
            (&[(write, false)], write, true, false),
            (&[(write, true)], write, false, false),
            (&[(write, true)], read, false, false),
            (&[(write, true), (write, true)], write, true, true),
            (&[(write, true), (read, true)], read, true, true),
        ] {
            assert_eq!(check(others, read_only, shared).is_ok(), allowed, "{others:?} {read_only} {shared}");
        }
        let error = check(&[(write, false)], write, false).unwrap_err();
        assert_eq!(error.to_string(), "'fast/vm01' is exported already, read-write by nbd");
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("export delete fast/vm01 --id nbd") && hint.contains("--shared"), "{hint}");
    }

    #[test]
    fn identifiers_are_unique_and_numbers_are_reused() {
        let others = exports(&[(Protocol::Nbd, 1, true, false), (Protocol::VhostUser, 2, true, false)]);
        let key = |protocol| new_key(&others, "fast", "vm01", protocol);
        let shown = |key: ExportKey| (key.id(), key.name().to_string());
        assert_eq!(shown(key(Protocol::Nbd)), ("nbd:2".into(), "fast/vm01:2".into()));
        assert_eq!(shown(key(Protocol::VhostUser)), ("vhost-user".into(), "fast/vm01".into()));
        assert_eq!(shown(key(Protocol::Fuse)), ("fuse".into(), "fast/vm01".into()));
    }
}
