//! The folder of a run.
//!
//! `run.json` is the plan, written first; `results.jsonl` has a line per measurement, flushed when
//! it completes; `fio/` has job files, fio's output and its logs; `lock` is held while a process
//! executes the run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use file_lock::FileLock;
use jiff::Timestamp;

use super::plan::{Step, steps};
use super::{Measured, Missing, RunError, RunPlan, SystemRecord};

const PLAN: &str = "run.json";
const RESULTS: &str = "results.jsonl";
const SYSTEMS: &str = "systems.json";
const LOCK: &str = "lock";

/// The state of a stored run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// A process executes it.
    Running,
    /// Measurements are missing or have failed; a resumed run repeats them.
    Incomplete,
    /// All measurements are stored.
    Complete,
}

/// The folder of a run.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    lock: Option<FileLock>,
}

/// Returns a name for a new run: suite, date and time in UTC.
pub fn new_id(suite: &str, seconds: u64) -> String {
    // The library refuses times after the year 9999.
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    format!("{suite}-{}", time.unwrap_or(Timestamp::MAX).strftime("%Y%m%d-%H%M%S"))
}

impl Store {
    /// Creates a new run in `parent`.
    ///
    /// # Errors
    /// If the folder cannot be created or exists.
    pub fn create(parent: &Path, plan: &RunPlan) -> Result<Self, RunError> {
        let folder = parent.join(&plan.id);
        std::fs::create_dir_all(parent).map_err(|error| RunError::file(parent, error))?;
        std::fs::create_dir(&folder).map_err(|error| RunError::file(&folder, error))?;
        let fio = folder.join("fio");
        std::fs::create_dir(&fio).map_err(|error| RunError::file(&fio, error))?;
        let mut store = Self { folder, lock: None };
        store.lock(&plan.id)?;
        store.write_json(PLAN, plan)?;
        Ok(store)
    }

    /// Opens an existing run for reading.
    ///
    /// # Errors
    /// If the run does not exist.
    pub fn open(parent: &Path, id: &str) -> Result<Self, RunError> {
        let folder = parent.join(id);
        let plain = !id.is_empty() && !id.contains('/') && id != "." && id != "..";
        if !plain || !folder.join(PLAN).is_file() {
            return Err(RunError::Unknown { id: id.into(), folder: parent.into() });
        }
        Ok(Self { folder, lock: None })
    }

    /// Returns the names of all runs, oldest first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn all(parent: &Path) -> Result<Vec<String>, RunError> {
        let entries = match std::fs::read_dir(parent) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| RunError::file(parent, error))?,
        };
        let runs = entries.flatten().filter(|entry| entry.path().join(PLAN).is_file());
        let mut names: Vec<String> = runs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // The date follows the last but one dash.
        names.sort_by_key(|name| {
            name.rmatch_indices('-').nth(1).map(|(at, _)| name.get(at..).unwrap_or("").to_owned())
        });
        Ok(names)
    }

    /// Locks the run.
    ///
    /// # Errors
    /// If another process holds the lock.
    pub fn lock(&mut self, id: &str) -> Result<(), RunError> {
        if self.lock.is_some() {
            return Ok(());
        }
        let path = self.folder.join(LOCK);
        let lock = FileLock::acquire(&path, 0o644).map_err(|error| RunError::file(&path, error))?;
        self.lock = Some(lock.ok_or_else(|| RunError::Busy(id.into()))?);
        Ok(())
    }

    /// Returns the state of a run with this plan and these results.
    ///
    /// # Errors
    /// If the lock cannot be examined.
    pub fn state(&self, plan: &RunPlan, results: &[Measured]) -> Result<RunState, RunError> {
        if self.is_locked()? {
            return Ok(RunState::Running);
        }
        // The order of the steps depends on the systems; their keys do not.
        let missing = |step: &Step| !Self::is_done(results, &step.key, step.results(plan));
        Ok(if steps(plan, &[]).iter().any(missing) { RunState::Incomplete } else { RunState::Complete })
    }

    /// True if a process executes the run.
    fn is_locked(&self) -> Result<bool, RunError> {
        let path = self.folder.join(LOCK);
        FileLock::is_held(&path).map_err(|error| RunError::file(&path, error))
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of fio's files.
    pub fn fio_folder(&self) -> PathBuf {
        self.folder.join("fio")
    }

    /// Reads the plan.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn plan(&self) -> Result<RunPlan, RunError> {
        self.read_json(PLAN)
    }

    /// Reads the descriptions of the systems.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn systems(&self) -> Result<Vec<SystemRecord>, RunError> {
        if self.folder.join(SYSTEMS).exists() { self.read_json(SYSTEMS) } else { Ok(Vec::new()) }
    }

    pub(super) fn save_plan(&self, plan: &RunPlan) -> Result<(), RunError> {
        self.write_json(PLAN, plan)
    }

    pub(super) fn save_systems(&self, systems: &[SystemRecord]) -> Result<(), RunError> {
        self.write_json(SYSTEMS, &systems)
    }

    /// Reads the results; the newest one of a repeated measurement.
    ///
    /// # Errors
    /// If they cannot be read, except for a last line that a crash truncated.
    pub fn results(&self) -> Result<Vec<Measured>, RunError> {
        let path = self.folder.join(RESULTS);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(|error| RunError::file(&path, error))?,
        };
        let complete = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or(""));
        let mut results: Vec<Measured> = Vec::new();
        for line in complete.lines().filter(|line| !line.is_empty()) {
            let measured: Measured =
                serde_json::from_str(line).map_err(|source| RunError::Json { path: path.clone(), source })?;
            let same =
                |other: &Measured| other.step == measured.step && other.case.name == measured.case.name;
            results.retain(|other| !same(other));
            results.push(measured);
        }
        Ok(results)
    }

    /// True if a step with this number of results is complete.
    pub(super) fn is_done(results: &[Measured], key: &str, count: usize) -> bool {
        let failed = |measured: &Measured| matches!(measured.missing, Some(Missing::Failed(_)));
        results.iter().filter(|measured| measured.step == key && !failed(measured)).count() >= count
    }

    /// Appends the results of a step durably.
    pub(super) fn add(&self, measured: &[Measured]) -> Result<(), RunError> {
        let path = self.folder.join(RESULTS);
        let failed = |error| RunError::file(&path, error);
        let mut file = File::options().create(true).append(true).read(true).open(&path).map_err(failed)?;
        let mut text = String::new();
        let before = std::fs::read(&path).map_err(failed)?;
        if before.last().is_some_and(|byte| *byte != b'\n') {
            // Removes a last line that a crash truncated: it was never a result.
            let whole = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            file.set_len(whole as u64).map_err(failed)?;
        }
        for one in measured {
            let line =
                serde_json::to_string(one).map_err(|source| RunError::Json { path: path.clone(), source })?;
            text.push_str(&line);
            text.push('\n');
        }
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)
    }

    fn read_json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, RunError> {
        let path = self.folder.join(name);
        let bytes = std::fs::read(&path).map_err(|error| RunError::file(&path, error))?;
        serde_json::from_slice(&bytes).map_err(|source| RunError::Json { path, source })
    }

    fn write_json<T: serde::Serialize>(&self, name: &str, value: &T) -> Result<(), RunError> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let bytes = serde_json::to_vec_pretty(value)
            .map_err(|source| RunError::Json { path: path.clone(), source })?;
        std::fs::write(&new, bytes)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|error| RunError::file(&path, error))
    }
}
