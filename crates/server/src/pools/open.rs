//! Opening pools.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::OpenOptions;

use super::find::{FoundDrives, PoolSelector, SearchPaths, find};
use super::newest::NewestStates;
use super::slot::{Status, Transition};
use super::watch::SpaceLevel;
use super::{OpenPool, Pools};
use crate::drives::{OpenDrive, as_sources};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect;
use crate::operations::Progress;
use crate::request;
use crate::unix_time::unix_time;
use api::types;

/// Pause between two searches for missing drives.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

/// The options of an opening.
#[derive(Default)]
struct OpenRequest {
    /// The drives, if the request names them.
    drives: Vec<PathBuf>,
    missing: MissingPolicy,
    /// True to open a state that is older than the newest state used by this host.
    accept_stale: bool,
}

/// The handling of missing drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MissingPolicy {
    /// Refuse to open the pool.
    #[default]
    Refuse,
    /// Wait for the drives until this time, then open the pool without them.
    WaitUntil(Instant),
}

impl Pools {
    /// Opens a registered pool, or a pool on the drives of the request.
    ///
    /// # Errors
    /// When the pool is open already or cannot be opened. The status of the pool shows the reason.
    pub(crate) async fn open(
        self: &Arc<Self>,
        name: &str,
        request: types::OpenPool,
        progress: &Progress,
    ) -> Result<()> {
        let missing =
            if request.degraded { MissingPolicy::WaitUntil(Instant::now()) } else { MissingPolicy::Refuse };
        let drives = request.drives.iter().map(|path| request::path(path)).collect::<Result<Vec<_>>>()?;
        let request = OpenRequest { drives, missing, accept_stale: request.accept_stale };
        self.register_and_open(name, request, progress).await
    }

    /// Opens a pool at the start of the daemon. Waits for missing drives for up to `drive_wait`,
    /// then opens the pool without them.
    ///
    /// # Errors
    /// When the pool cannot be opened. The status of the pool shows the reason.
    pub(crate) async fn open_at_start(self: &Arc<Self>, name: &str, progress: &Progress) -> Result<()> {
        let missing = MissingPolicy::WaitUntil(Instant::now() + self.drive_wait);
        self.register_and_open(name, OpenRequest { missing, ..OpenRequest::default() }, progress).await
    }

    async fn register_and_open(
        self: &Arc<Self>,
        name: &str,
        request: OpenRequest,
        progress: &Progress,
    ) -> Result<()> {
        let registered = self.registered_drives(name);
        let new = registered.is_none();
        let (id, last_known) = match registered {
            None if request.drives.is_empty() => return Err(super::no_pool(name)),
            Some(registered) => registered,
            None => {
                engine::check_name(name)?;
                (None, Vec::new())
            }
        };
        let search = match (request.drives.as_slice(), request.missing) {
            ([], _) => SearchPaths::LastKnown(last_known),
            (given, MissingPolicy::Refuse) => SearchPaths::Given(given.to_vec()),
            (given, MissingPolicy::WaitUntil(_)) => SearchPaths::OnlyGiven(given.to_vec()),
        };
        let transition = if new {
            Transition::begin_new(self, name, "being opened")?
        } else {
            Transition::begin(self, name, "being opened", |status| not_open(status, name))?.0
        };
        let wanted = PoolSelector { name: name.to_owned(), id };
        match self.find_and_open(&wanted, &search, &request, progress).await {
            Ok(pool) => {
                transition.set_drives(Some(pool.pool.id().to_string()), pool.stable_paths());
                transition.end(Status::Open(Arc::new(pool)));
                self.persist(name, true)
            }
            Err(error) => {
                match new {
                    true => transition.end_removed(),
                    false => transition.end(Status::Unavailable(error.clone())),
                }
                Err(error)
            }
        }
    }

    async fn find_and_open(
        &self,
        wanted: &PoolSelector,
        search: &SearchPaths,
        request: &OpenRequest,
        progress: &Progress,
    ) -> Result<OpenPool> {
        progress.step("searching for the drives of the pool");
        let reactor = self.reactors.next();
        let mut is_waiting = false;
        let found = loop {
            let found = find(&reactor, wanted, search, self.drive_owners().await?).await?;
            let absent = found.absent();
            let complete = !found.drives().is_empty() && absent.is_empty();
            match request.missing {
                _ if complete => break found,
                _ if progress.is_closing() => {
                    return Err(Error::new(ErrorKind::ShuttingDown, "the daemon is shutting down"));
                }
                MissingPolicy::WaitUntil(end) if Instant::now() < end => {
                    let left = end.saturating_duration_since(Instant::now()).as_secs() + 1;
                    let drives = if absent.is_empty() { "all drives".into() } else { absent.join(", ") };
                    if !is_waiting {
                        tracing::warn!(
                            pool = wanted.name,
                            seconds = left,
                            drives,
                            "drives are missing: waiting for them"
                        );
                        is_waiting = true;
                    }
                    let step = format!("waiting up to {left} s for {drives}");
                    self.set_activity(&wanted.name, format!("being opened: {step}"));
                    progress.step(step);
                    // The drives are unlocked while waiting: connecting the others may need them.
                    drop(found);
                    tokio::time::sleep(SEARCH_INTERVAL).await;
                }
                MissingPolicy::WaitUntil(_) => break found,
                MissingPolicy::Refuse => return Err(incomplete(wanted, found, &absent)),
            }
        };
        for error in &found.refused {
            tracing::warn!(pool = wanted.name, %error, hint = error.hint_text(), "drive not used");
        }
        if found.drives().is_empty() {
            return Err(incomplete(wanted, found, &[]));
        }
        self.open_on(&wanted.name, found.drives(), request.accept_stale, progress).await
    }

    /// Sets the activity of a pool in a transition.
    fn set_activity(&self, name: &str, text: String) {
        if let Some(slot) = self.lock().get_mut(name)
            && let Status::Changing(activity) = &mut slot.status
        {
            *activity = text.into();
        }
    }

    /// Opens the pool on these drives.
    pub(super) async fn open_on(
        &self,
        name: &str,
        drives: Vec<Arc<OpenDrive>>,
        accept_stale: bool,
        progress: &Progress,
    ) -> Result<OpenPool> {
        progress.step("reading the pool's state and replaying its log");
        let (started, time) = (Instant::now(), unix_time());
        let reactors = self.reactors.next_first();
        let Some(home) = reactors.first().cloned() else {
            return Err(Error::new(ErrorKind::ShuttingDown, "the daemon is shutting down"));
        };
        let options = OpenOptions {
            tuning: self.tuning,
            reactors,
            nonce: request::random()?,
            now: Arc::new(unix_time),
            state_store: Some(Arc::new(NewestStates(self.state.clone()))),
            accept_stale,
        };
        let sources = as_sources(&drives);
        let opened = home.call(move || async move { engine::open(&sources, &options).await }).await?;
        let (pool, report) = opened.map_err(|error| explain_refusal(name, error))?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(
            pool = name,
            seconds,
            clean = report.clean,
            replayed = report.replayed,
            dropped = report.dropped,
            completed = report.completed,
            missing = ?report.missing,
            "pool opened"
        );
        let report = types::OpenReport {
            time,
            seconds,
            clean: report.clean,
            replayed: report.replayed as u64,
            discarded: report.dropped as u64,
            completed: report.completed,
            missing: report.missing,
            returned: report.returned,
            stale: report.stale,
            shrunk: report.shrunk,
            copies: report.copies,
            damaged_superblocks: report.damaged_superblocks,
            uncertain: report.uncertain,
        };
        Ok(OpenPool { pool, home, report, drives: Mutex::new(drives), space_level: SpaceLevel::unknown() })
    }
}

impl OpenPool {
    /// Returns paths of the drives that stay valid when drives are added or moved.
    pub(super) fn stable_paths(&self) -> Vec<PathBuf> {
        self.open_drives().iter().map(|drive| inspect::stable_path(drive.path())).collect()
    }
}

/// Adds a hint to the error of an opening.
fn explain_refusal(name: &str, error: engine::Error) -> Error {
    let stale = error.kind() == engine::ErrorKind::Stale;
    let error = Error::from(error);
    if !stale {
        return error;
    }
    error.hint(format!(
        "reconnect the drives that the pool used last. To use the \
         older state instead, and lose all newer writes: 'gabion pool open {name} --accept-stale'"
    ))
}

fn not_open(status: &Status, name: &str) -> Result<()> {
    match status {
        Status::Open(_) => Err(Error::new(ErrorKind::Busy, format!("pool '{name}' is open already"))
            .hint(format!("'gabion pool status {name}' shows its status"))),
        _ => Ok(()),
    }
}

/// Returns the error for a pool with missing drives.
fn incomplete(wanted: &PoolSelector, found: FoundDrives, absent: &[String]) -> Error {
    let name = &wanted.name;
    if absent.is_empty() {
        let mut refused = found.refused.into_iter();
        return match (refused.next(), refused.next()) {
            (Some(only), None) => only,
            (Some(first), Some(_)) => {
                let more = 1 + refused.count();
                let explained =
                    Error::new(first.kind(), format!("{first}; and {more} more drives cannot be used"));
                explained.hint(
                    first
                        .hint_text()
                        .unwrap_or("'gabion drive identify' shows the contents of a drive")
                        .to_owned(),
                )
            }
            (None, _) => Error::new(ErrorKind::NotAPool, format!("no drive of pool '{name}' was found"))
                .hint(format!("give the paths of its drives: 'gabion pool open {name} --drives ...'")),
        };
    }
    let reasons: Vec<String> = found.refused.iter().map(ToString::to_string).chain(found.copies()).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let message = format!("drives of pool '{name}' are missing: {}{reasons}", absent.join(", "));
    Error::new(ErrorKind::Incomplete, message).hint(format!(
        "reconnect them and try again, or open the pool without them: 'gabion pool open {name} --degraded'. Their data is then \
         rebuilt on the other drives if there are enough; on drives that return later, only the writes that they missed are rebuilt"
    ))
}
