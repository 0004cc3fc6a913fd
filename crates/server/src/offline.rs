//! Offline operations, without a daemon: identifying drives, and verifying a closed pool.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use format::limits::BLOCK_BYTES;
use reactor::{Backend, DriveOptions, Remote};

use crate::drives::{OpenDrive, as_sources};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::PoolDrives;
use crate::pools::lost_range;
use crate::reactors::{Reactors, Settings};
use crate::{identify, panics};
use api::types::{CheckFinding, CheckReport, Damage, IdentifiedDrive};

/// Describes drives and their contents without writing. The error of an unreadable drive is in its
/// entry.
///
/// # Errors
/// When no reactor can be started.
pub fn identify(drives: Vec<PathBuf>) -> Result<Vec<IdentifiedDrive>> {
    with_reactor(|reactor| async move { identify::all(&reactor, drives, PoolDrives::new()).await })
}

/// Verifies a closed pool without writing.
///
/// # Errors
/// When a drive cannot be read or is in use, or the drives hold no pool that can be verified.
pub fn check(drives: &[PathBuf]) -> Result<CheckReport> {
    let opened = open_read_only(drives)?;
    let started = Instant::now();
    let sources = as_sources(&opened);
    let report = with_reactor(|reactor| async move {
        Ok(reactor.call(move || async move { engine::check(&sources).await }).await??)
    })?;
    Ok(to_wire(report, started.elapsed()))
}

/// Opens drives read-only.
///
/// # Errors
/// When a drive cannot be read or is in use.
pub(crate) fn open_read_only(drives: &[PathBuf]) -> Result<Vec<Arc<OpenDrive>>> {
    let options = DriveOptions { read_only: true, busy_timeout: Duration::ZERO, ..DriveOptions::default() };
    let open = |path: &PathBuf| {
        OpenDrive::open(path, options).map_err(|error| match error.kind() {
            ErrorKind::Busy => error.hint("close its pool first: 'gabion pool close POOL'"),
            _ => error,
        })
    };
    drives.iter().map(open).collect()
}

/// Starts one reactor.
///
/// # Errors
/// When the thread or its I/O backend cannot be started.
pub(crate) fn start_reactor() -> Result<Reactors> {
    panics::install();
    let settings = Settings { cores: vec![None], poll: Duration::ZERO, backend: Backend::Auto };
    Reactors::start(&settings).map_err(|error| cannot_start(error.to_string()))
}

fn cannot_start(error: String) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot start a reactor: {error}"))
}

/// Runs `work` with a reactor of its own.
fn with_reactor<T, F: Future<Output = Result<T>>>(work: impl FnOnce(Remote) -> F) -> Result<T> {
    let reactors = start_reactor()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| cannot_start(error.to_string()))?;
    let result = runtime.block_on(work(reactors.next()));
    reactors.stop();
    result
}

/// Converts a finding of the engine for the API.
pub(crate) fn to_wire_finding(finding: engine::Finding) -> CheckFinding {
    CheckFinding {
        damage: match finding.kind {
            engine::FindingKind::Damaged => Damage::Repairable,
            engine::FindingKind::Lost => Damage::Lost,
            engine::FindingKind::Inconsistent => Damage::Inconsistent,
        },
        drive: finding.drive,
        message: finding.message,
        lost: finding.lost.iter().map(lost_range).collect(),
    }
}

fn to_wire(report: engine::CheckReport, duration: Duration) -> CheckReport {
    CheckReport {
        pool: report.name,
        id: report.pool.to_string(),
        sound: report.findings.is_empty(),
        degraded: !report.missing.is_empty(),
        clean: report.clean,
        missing: report.missing,
        volumes: report.volumes,
        data_bytes: report.data_blocks * BLOCK_BYTES,
        meta_bytes: report.meta_blocks * BLOCK_BYTES,
        segments: report.segments,
        rows: report.rows,
        records: report.records,
        incomplete: report.incomplete,
        damaged_superblocks: report.damaged_superblocks,
        findings: report.findings.into_iter().map(to_wire_finding).collect(),
        lost: report.lost.iter().map(lost_range).collect(),
        stale: report.stale,
        seconds: duration.as_secs_f64(),
    }
}
