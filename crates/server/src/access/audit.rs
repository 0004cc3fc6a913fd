//! The audit log: every request that changed something or tried to, in files of the state
//! directory.
//!
//! Invariants: a record is one line of JSON; the files hold no secret, because headers are not
//! recorded, of bodies only named fields, and no path has one; their total size is bounded.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use api::types::AuditRecord;

use crate::error::{Error, ErrorKind, Result};

const FILE: &str = "audit.log";
const PREVIOUS: &str = "audit.log.1";
/// Size of the file in bytes from which a new one is begun. One previous file is kept.
const FILE_MAX: u64 = 16 << 20;

/// The audit log.
pub(super) struct AuditLog {
    directory: PathBuf,
    file_max: u64,
    file: Mutex<File>,
}

impl AuditLog {
    /// Opens the log in the state directory.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let file = open_file(directory).map_err(|error| {
            let message = format!("cannot open the audit log in {}: {error}", directory.display());
            Error::new(ErrorKind::Io, message).hint("use another directory with --state-dir")
        })?;
        Ok(Self { directory: directory.to_owned(), file_max: FILE_MAX, file: Mutex::new(file) })
    }

    /// Adds a record. A failure is reported in the daemon's log, which has the record as well.
    pub(super) fn add(&self, record: &AuditRecord) {
        let AuditRecord { client, address, role, method, path, status, detail, operation, result, time: _ } =
            record;
        let role = role.map(tracing::field::display);
        tracing::info!(client, address, role, method, path, status, detail, operation, result, "audit");
        if let Err(error) = self.append(record) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }

    fn append(&self, record: &AuditRecord) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.metadata()?.len() >= self.file_max {
            std::fs::rename(self.directory.join(FILE), self.directory.join(PREVIOUS))?;
            *file = open_file(&self.directory)?;
        }
        // One call, so that a crash leaves at most one incomplete line.
        file.write_all(&line)
    }

    /// Returns the last records, the oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn last(&self, count: usize) -> Result<Vec<AuditRecord>> {
        let mut records = Vec::new();
        for name in [PREVIOUS, FILE] {
            match std::fs::read(self.directory.join(name)) {
                // An incomplete line of a crash is skipped.
                Ok(text) => records.extend(
                    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()),
                ),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::new(ErrorKind::Io, format!("cannot read the audit log: {error}")));
                }
            }
        }
        Ok(records.split_off(records.len().saturating_sub(count)))
    }
}

fn open_file(directory: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(directory.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time: u64) -> AuditRecord {
        AuditRecord {
            time,
            client: "a\nb".into(),
            address: None,
            role: None,
            method: "POST".into(),
            path: "/v1/pools".into(),
            status: 202,
            detail: Some("name=fast".into()),
            operation: Some(7),
            result: None,
        }
    }

    #[test]
    fn records_survive_restarts_torn_lines_and_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog { file_max: 600, ..AuditLog::open(directory.path()).unwrap() };
        log.add(&record(0));
        log.file.lock().unwrap().write_all(b"{\"time\":\n").unwrap();
        for time in 1..20 {
            log.add(&record(time));
        }
        let times =
            |log: &AuditLog, count| log.last(count).unwrap().iter().map(|one| one.time).collect::<Vec<_>>();
        assert_eq!(times(&log, 3), [17, 18, 19]);
        let again = AuditLog::open(directory.path()).unwrap();
        assert_eq!(again.last(1000).unwrap().last(), Some(&record(19)));
        let size = |name| std::fs::metadata(directory.path().join(name)).unwrap().len();
        assert!(size(FILE) + size(PREVIOUS) < 1800);
        assert!(times(&again, 1000).len() < 20);
    }
}
