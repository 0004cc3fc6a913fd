//! The state of one pool as the daemon sees it, and the changes between states.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use super::{OpenPool, Pools};
use crate::error::{Error, ErrorKind, Result};

/// A pool that the daemon knows.
pub(super) struct Slot {
    /// Its identity, once it has been seen.
    pub(super) id: Option<String>,
    /// Where its drives were last found.
    pub(super) drives: Vec<PathBuf>,
    pub(super) status: Status,
}

/// Whether it is in service.
pub(super) enum Status {
    /// In service.
    Open(Arc<OpenPool>),
    /// Something is being done to it.
    Changing(Cow<'static, str>),
    /// Closed on request.
    Closed,
    /// It should be in service and is not.
    Unavailable(Error),
}

impl Status {
    pub(super) fn not_opened_yet() -> Self {
        Self::Unavailable(Error::new(
            ErrorKind::NotOpen,
            "it has not been opened yet: the daemon is starting",
        ))
    }

    /// Why a pool in this state serves nothing.
    pub(super) fn why_not_open(&self, name: &str) -> Error {
        match self {
            Self::Open(_) => Error::new(ErrorKind::Internal, format!("pool '{name}' is open")),
            Self::Changing(doing) => Error::new(ErrorKind::Busy, format!("pool '{name}' is {doing}"))
                .hint("'gabion pool status' shows when it is done"),
            Self::Closed => Error::new(ErrorKind::NotOpen, format!("pool '{name}' is closed"))
                .hint(format!("'gabion pool open {name}' opens it")),
            Self::Unavailable(error) => {
                let explained = Error::new(ErrorKind::NotOpen, format!("pool '{name}' is not open: {error}"));
                explained.hint(format!("'gabion pool status {name}' says what to do"))
            }
        }
    }
}

/// The right to change a pool. Dropped without [`Transition::end`], it leaves the pool as unavailable.
pub(super) struct Transition {
    pools: Arc<Pools>,
    name: String,
    ended: bool,
}

impl Transition {
    /// Begins a change of a pool that the daemon knows and gives the state it was in.
    ///
    /// # Errors
    /// `NotFound`; what `allowed` says; `Busy` while something else is being done to it.
    pub(super) fn begin(
        pools: &Arc<Pools>,
        name: &str,
        doing: &'static str,
        allowed: impl FnOnce(&Status) -> Result<()>,
    ) -> Result<(Self, Status)> {
        let mut slots = pools.lock();
        let slot = slots.get_mut(name).ok_or_else(|| super::no_pool(name))?;
        if matches!(slot.status, Status::Changing(_)) {
            return Err(slot.status.why_not_open(name));
        }
        allowed(&slot.status)?;
        let before = std::mem::replace(&mut slot.status, Status::Changing(doing.into()));
        Ok((Self { pools: pools.clone(), name: name.to_owned(), ended: false }, before))
    }

    /// Begins with a pool that the daemon does not know yet.
    ///
    /// # Errors
    /// `Exists`.
    pub(super) fn begin_new(pools: &Arc<Pools>, name: &str, doing: &'static str) -> Result<Self> {
        let mut slots = pools.lock();
        if let Some(slot) = slots.get(name) {
            let hint = match slot.status {
                Status::Open(_) | Status::Changing(_) => "choose another name".to_owned(),
                _ => format!("choose another name, or forget that one: 'gabion pool close {name} --forget'"),
            };
            return Err(Error::new(ErrorKind::Exists, format!("there is a pool '{name}' already")).hint(hint));
        }
        let status = Status::Changing(doing.into());
        slots.insert(name.to_owned(), Slot { id: None, drives: Vec::new(), status });
        Ok(Self { pools: pools.clone(), name: name.to_owned(), ended: false })
    }

    /// Notes where the drives are.
    pub(super) fn set_drives(&self, id: Option<String>, drives: Vec<PathBuf>) {
        if let Some(slot) = self.pools.lock().get_mut(&self.name) {
            slot.id = id;
            slot.drives = drives;
        }
    }

    /// Ends the change.
    pub(super) fn end(mut self, status: Status) {
        self.ended = true;
        self.put(status);
    }

    /// Ends the change with a pool that the daemon knows no longer.
    pub(super) fn end_removed(mut self) {
        self.ended = true;
        self.pools.lock().remove(&self.name);
    }

    fn put(&self, status: Status) {
        if let Some(slot) = self.pools.lock().get_mut(&self.name) {
            slot.status = status;
        }
    }
}

impl Drop for Transition {
    fn drop(&mut self) {
        if !self.ended {
            let error = Error::new(ErrorKind::Internal, "a bug in the daemon left it in between").hint(
                "restart the daemon: the pool is recovered then; and please report it, with the daemon's log",
            );
            self.put(Status::Unavailable(error));
        }
    }
}
