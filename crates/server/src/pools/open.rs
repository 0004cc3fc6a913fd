//! Bringing a pool into service.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use engine::OpenOptions;

use super::find::{Found, Places, Wanted, find};
use super::newest::NewestStates;
use super::slot::{Status, Transition};
use super::volumes::now;
use super::watch::Passed;
use super::{OpenPool, Pools};
use crate::drives::{OpenDrive, as_sources};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect;
use crate::operations::Progress;
use crate::request;
use api::types;

/// Pause between two looks for drives that are not there yet.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How a pool is to be opened.
#[derive(Default)]
struct Opening {
    /// Its drives, if they were named.
    drives: Vec<PathBuf>,
    missing: Missing,
    /// Open an older state than this host has used.
    accept_stale: bool,
}

/// What to do about drives that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Missing {
    /// Refuse.
    #[default]
    Refuse,
    /// Wait for them until then, and go on without them.
    WaitUntil(Instant),
}

impl Pools {
    /// Opens a pool that is known, or one from the drives that are given.
    ///
    /// # Errors
    /// When it is open already, or cannot be opened; then it is kept why.
    pub(crate) async fn open(
        self: &Arc<Self>,
        name: &str,
        request: types::OpenPool,
        progress: &Progress,
    ) -> Result<()> {
        let missing = if request.degraded { Missing::WaitUntil(Instant::now()) } else { Missing::Refuse };
        let drives = request.drives.iter().map(|path| request::path(path)).collect::<Result<Vec<_>>>()?;
        let opening = Opening { drives, missing, accept_stale: request.accept_stale };
        self.bring_in(name, opening, progress).await
    }

    /// Opens a pool at start: its drives may come late, and if they do not come at all it is opened without them.
    ///
    /// # Errors
    /// When it cannot be opened; then it is kept why.
    pub(crate) async fn open_at_start(self: &Arc<Self>, name: &str, progress: &Progress) -> Result<()> {
        let missing = Missing::WaitUntil(Instant::now() + self.drive_wait);
        self.bring_in(name, Opening { missing, ..Opening::default() }, progress).await
    }

    async fn bring_in(self: &Arc<Self>, name: &str, opening: Opening, progress: &Progress) -> Result<()> {
        let known = self.known_drives(name);
        let new = known.is_none();
        let (id, last_found) = match known {
            None if opening.drives.is_empty() => return Err(super::no_pool(name)),
            Some(known) => known,
            None => {
                engine::check_name(name)?;
                (None, Vec::new())
            }
        };
        let places = match (opening.drives.as_slice(), opening.missing) {
            ([], _) => Places::LastFound(last_found),
            (named, Missing::Refuse) => Places::Named(named.to_vec()),
            (named, Missing::WaitUntil(_)) => Places::OnlyNamed(named.to_vec()),
        };
        let transition = if new {
            Transition::begin_new(self, name, "being opened")?
        } else {
            Transition::begin(self, name, "being opened", |status| not_open(status, name))?.0
        };
        let wanted = Wanted { name: name.to_owned(), id };
        match self.find_and_open(&wanted, &places, &opening, progress).await {
            Ok(pool) => {
                transition.set_drives(Some(pool.pool.id().to_string()), pool.stable_paths());
                transition.end(Status::Open(Arc::new(pool)));
                self.remember(name, true)
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
        wanted: &Wanted,
        places: &Places,
        opening: &Opening,
        progress: &Progress,
    ) -> Result<OpenPool> {
        progress.step("looking for the pool's drives");
        let reactor = self.reactors.next();
        let mut waits = false;
        let found = loop {
            let found = find(&reactor, wanted, places).await?;
            let absent = found.absent();
            let complete = !found.drives().is_empty() && absent.is_empty();
            match opening.missing {
                _ if complete => break found,
                _ if progress.is_closing() => {
                    return Err(Error::new(ErrorKind::ShuttingDown, "the daemon is shutting down"));
                }
                Missing::WaitUntil(end) if Instant::now() < end => {
                    let left = end.saturating_duration_since(Instant::now()).as_secs() + 1;
                    let which = if absent.is_empty() { "all drives".into() } else { absent.join(", ") };
                    if !waits {
                        tracing::warn!(
                            pool = wanted.name,
                            seconds = left,
                            drives = which,
                            "drives are not there yet: they are waited for"
                        );
                        waits = true;
                    }
                    let step = format!("waiting up to {left} s for {which}");
                    self.now_doing(&wanted.name, format!("being opened: {step}"));
                    progress.step(step);
                    // What was found is let go of: whoever brings the rest may need it.
                    drop(found);
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Missing::WaitUntil(_) => break found,
                Missing::Refuse => return Err(incomplete(wanted, found, &absent)),
            }
        };
        for error in &found.refused {
            tracing::warn!(pool = wanted.name, %error, hint = error.hint_text(), "a drive is not used");
        }
        if found.drives().is_empty() {
            return Err(incomplete(wanted, found, &[]));
        }
        self.open_on(&wanted.name, found.drives(), opening.accept_stale, progress).await
    }

    /// Says what is being done to a pool that is being changed.
    fn now_doing(&self, name: &str, doing: String) {
        if let Some(slot) = self.lock().get_mut(name)
            && let Status::Changing(said) = &mut slot.status
        {
            *said = doing.into();
        }
    }

    /// Opens the pool that is on these drives.
    pub(super) async fn open_on(
        &self,
        name: &str,
        drives: Vec<Arc<OpenDrive>>,
        accept_stale: bool,
        progress: &Progress,
    ) -> Result<OpenPool> {
        progress.step("reading the pool's state and replaying its log");
        let (started, at) = (Instant::now(), SystemTime::now());
        let reactors = self.reactors.next_first();
        let Some(home) = reactors.first().cloned() else {
            return Err(Error::new(ErrorKind::ShuttingDown, "the daemon is shutting down"));
        };
        let options = OpenOptions {
            tuning: self.tuning,
            reactors,
            nonce: request::random()?,
            now: Arc::new(now),
            state_store: Some(Arc::new(NewestStates(self.state.clone()))),
            accept_stale,
        };
        let sources = as_sources(&drives);
        let opened = home.call(move || async move { engine::open(&sources, &options).await }).await?;
        let (pool, report) = opened.map_err(|error| why_refused(name, error))?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(
            pool = name,
            seconds,
            clean = report.clean,
            replayed = report.replayed,
            dropped = report.dropped,
            completed = report.completed,
            missing = ?report.missing,
            "the pool is open"
        );
        let report = types::OpenReport {
            time: at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
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
        Ok(OpenPool { pool, home, report, drives: Mutex::new(drives), passed: Passed::unknown() })
    }
}

impl OpenPool {
    /// Where its drives will be found again.
    pub(super) fn stable_paths(&self) -> Vec<PathBuf> {
        self.open_drives().iter().map(|drive| inspect::stable_path(drive.path())).collect()
    }
}

/// An error of opening a pool, with the way out.
fn why_refused(name: &str, error: engine::Error) -> Error {
    let stale = error.kind() == engine::ErrorKind::Stale;
    let error = Error::from(error);
    if !stale {
        return error;
    }
    error.hint(format!(
        "bring back the drives that were used last ('gabion pool events {name}' on an open pool names them). To go on with the old \
         state instead, and lose what was written since: 'gabion pool open {name} --accept-stale'"
    ))
}

fn not_open(status: &Status, name: &str) -> Result<()> {
    match status {
        Status::Open(_) => Err(Error::new(ErrorKind::Busy, format!("pool '{name}' is open already"))
            .hint(format!("'gabion pool status {name}' shows it"))),
        _ => Ok(()),
    }
}

/// Why a pool is not opened from what was found.
fn incomplete(wanted: &Wanted, found: Found, absent: &[String]) -> Error {
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
                        .unwrap_or("'gabion drive identify' shows what a drive holds")
                        .to_owned(),
                )
            }
            (None, _) => Error::new(ErrorKind::NotAPool, format!("no drive of pool '{name}' was found"))
                .hint(format!("'gabion pool open {name} --drives ...' says where they are")),
        };
    }
    let reasons: Vec<String> = found.refused.iter().map(ToString::to_string).chain(found.copies()).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let message = format!("drives of pool '{name}' are missing: {}{reasons}", absent.join(", "));
    Error::new(ErrorKind::Incomplete, message).hint(format!(
        "bring them back and try again; 'gabion pool open {name} --degraded' goes on without them: what they hold is \
         then written to other drives if there are enough, and when they come back, what they missed is written to them"
    ))
}
