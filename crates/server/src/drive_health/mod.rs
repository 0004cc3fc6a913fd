//! The health of drives: SMART reports, and the kernel's counters of requests.
//!
//! Owns the cache of SMART reports. Invariants: a status never waits for a drive; a report that
//! could not be renewed is dropped after [`REPORT_MAX_AGE`]; one `smartctl` runs at a time, and a
//! drive that does not answer ends it after a limit. Must not know: pools.

mod counters;
mod smart;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::types::SmartReport;

pub(crate) use counters::{device_of, requests};
pub(crate) use smart::Smartctl;

/// Interval between two reads of a drive's SMART data.
const REPORT_INTERVAL: Duration = Duration::from_secs(300);
/// Age at which a report is dropped: a drive in standby is not woken for a new one.
const REPORT_MAX_AGE: Duration = Duration::from_secs(86_400);

/// The state of one drive in the cache.
struct CachedReport {
    /// Time of the last attempt.
    tried: Instant,
    /// The last report, with the time at which it was read.
    report: Option<(Instant, SmartReport)>,
}

/// The last SMART report of each drive, by path.
#[derive(Default)]
pub(crate) struct SmartCache {
    drives: Mutex<BTreeMap<PathBuf, CachedReport>>,
}

impl SmartCache {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, CachedReport>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last report of a drive.
    pub(crate) fn get(&self, drive: &Path) -> Option<SmartReport> {
        self.lock().get(drive)?.report.as_ref().map(|(_, report)| report.clone())
    }

    /// Forgets all drives but these, and returns those whose report is due.
    pub(crate) fn due(&self, drives: &[PathBuf], now: Instant) -> Vec<PathBuf> {
        let mut cached = self.lock();
        cached.retain(|path, _| drives.contains(path));
        let is_due = |path: &&PathBuf| {
            cached.get(*path).is_none_or(|drive| now.duration_since(drive.tried) >= REPORT_INTERVAL)
        };
        drives.iter().filter(is_due).cloned().collect()
    }

    /// Stores the result of an attempt to read a drive's report.
    pub(crate) fn store(&self, drive: PathBuf, report: Option<SmartReport>, now: Instant) {
        let mut cached = self.lock();
        let former = cached.remove(&drive).and_then(|drive| drive.report);
        let recent = former.filter(|(read, _)| now.duration_since(*read) < REPORT_MAX_AGE);
        let report = report.map(|report| (now, report)).or(recent);
        cached.insert(drive, CachedReport { tried: now, report });
    }
}
