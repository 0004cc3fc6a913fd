//! The state of a registered pool, and the transitions between states.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use super::{OpenPool, Pools};
use crate::error::{Error, ErrorKind, Result};

/// A registered pool.
pub(super) struct Slot {
    /// The id of the pool, once the pool has been opened.
    pub(super) id: Option<String>,
    /// The last known paths of the drives.
    pub(super) drives: Vec<PathBuf>,
    pub(super) status: Status,
}

/// The state of a registered pool.
pub(super) enum Status {
    /// The pool is open.
    Open(Arc<OpenPool>),
    /// A transition is in progress; the text continues the sentence "the pool is ...".
    Changing(Cow<'static, str>),
    /// The pool was closed on request.
    Closed,
    /// The pool could not be opened, for this reason.
    Unavailable(Error),
}

impl Status {
    pub(super) fn not_opened_yet() -> Self {
        Self::Unavailable(Error::new(
            ErrorKind::NotOpen,
            "the pool has not been opened yet because the daemon is starting",
        ))
    }

    /// Returns the error for a request that needs an open pool.
    pub(super) fn not_open_error(&self, name: &str) -> Error {
        match self {
            Self::Open(_) => Error::new(ErrorKind::Internal, format!("pool '{name}' is open")),
            Self::Changing(activity) => Error::new(ErrorKind::Busy, format!("pool '{name}' is {activity}"))
                .hint("try again when 'gabion pool status' shows that this is complete"),
            Self::Closed => Error::new(ErrorKind::NotOpen, format!("pool '{name}' is closed"))
                .hint(format!("'gabion pool open {name}' opens it")),
            Self::Unavailable(error) => {
                let explained = Error::new(ErrorKind::NotOpen, format!("pool '{name}' is not open: {error}"));
                explained.hint(format!("'gabion pool status {name}' shows the required action"))
            }
        }
    }
}

/// An exclusive transition of a pool. Dropping it without [`Transition::end`] leaves the pool
/// unavailable.
pub(super) struct Transition {
    pools: Arc<Pools>,
    name: String,
    ended: bool,
}

impl Transition {
    /// Begins a transition of a registered pool and returns it with the pool's previous state.
    ///
    /// # Errors
    /// `NotFound`; the error of `allowed`; `Busy` while another transition is in progress.
    pub(super) fn begin(
        pools: &Arc<Pools>,
        name: &str,
        activity: &'static str,
        allowed: impl FnOnce(&Status) -> Result<()>,
    ) -> Result<(Self, Status)> {
        let mut slots = pools.lock();
        let slot = slots.get_mut(name).ok_or_else(|| super::no_pool(name))?;
        if matches!(slot.status, Status::Changing(_)) {
            return Err(slot.status.not_open_error(name));
        }
        allowed(&slot.status)?;
        let before = std::mem::replace(&mut slot.status, Status::Changing(activity.into()));
        Ok((Self { pools: pools.clone(), name: name.to_owned(), ended: false }, before))
    }

    /// Registers a new pool and begins its first transition.
    ///
    /// # Errors
    /// `Exists`.
    pub(super) fn begin_new(pools: &Arc<Pools>, name: &str, activity: &'static str) -> Result<Self> {
        let mut slots = pools.lock();
        if let Some(slot) = slots.get(name) {
            let hint = match slot.status {
                Status::Open(_) | Status::Changing(_) => "choose another name".to_owned(),
                _ => format!(
                    "choose another name, or unregister that pool: 'gabion pool close {name} --forget'"
                ),
            };
            return Err(Error::new(ErrorKind::Exists, format!("pool '{name}' exists already")).hint(hint));
        }
        let status = Status::Changing(activity.into());
        slots.insert(name.to_owned(), Slot { id: None, drives: Vec::new(), status });
        Ok(Self { pools: pools.clone(), name: name.to_owned(), ended: false })
    }

    /// Sets the id and the drive paths of the pool.
    pub(super) fn set_drives(&self, id: Option<String>, drives: Vec<PathBuf>) {
        if let Some(slot) = self.pools.lock().get_mut(&self.name) {
            slot.id = id;
            slot.drives = drives;
        }
    }

    /// Ends the transition with a new state.
    pub(super) fn end(mut self, status: Status) {
        self.ended = true;
        self.set_status(status);
    }

    /// Ends the transition and removes the pool from the list of pools.
    pub(super) fn end_removed(mut self) {
        self.ended = true;
        self.pools.lock().remove(&self.name);
    }

    fn set_status(&self, status: Status) {
        if let Some(slot) = self.pools.lock().get_mut(&self.name) {
            slot.status = status;
        }
    }
}

impl Drop for Transition {
    fn drop(&mut self) {
        if !self.ended {
            let error = Error::new(
                ErrorKind::Internal,
                "a bug in the daemon interrupted an operation on the pool",
            )
            .hint("restart the daemon to recover the pool, and please report the bug with the daemon's log");
            self.set_status(Status::Unavailable(error));
        }
    }
}
