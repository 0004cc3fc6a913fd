//! Closing and destroying pools.

use std::sync::Arc;

use super::slot::{Status, Transition};
use super::{OpenPool, Pools};
use crate::error::{Error, ErrorKind, Result};
use crate::operations::Progress;

impl Pools {
    /// Closes a pool on request. The pool stays closed after a restart of the daemon. A pool that
    /// is not open is only marked as closed.
    ///
    /// # Errors
    /// `NotFound`, `Busy`; the error of the last checkpoint, with which the pool is closed
    /// nevertheless.
    pub(crate) async fn close(self: &Arc<Self>, name: &str, forget: bool, progress: &Progress) -> Result<()> {
        let (transition, before) = Transition::begin(self, name, "being closed", |_| Ok(()))?;
        let closed = match before {
            Status::Open(pool) => close_pool(name, pool, Some(progress)).await,
            _ => Ok(()),
        };
        transition.end(Status::Closed);
        if forget {
            self.forget(name)?;
        } else {
            self.persist(name, false)?;
        }
        closed
    }

    /// Closes a pool because the daemon shuts down. The pool is opened again at the next start.
    ///
    /// # Errors
    /// As [`Pools::close`].
    pub(crate) async fn close_at_shutdown(self: &Arc<Self>, name: &str) -> Result<()> {
        let (transition, before) = Transition::begin(self, name, "being closed", |_| Ok(()))?;
        let closed = match before {
            Status::Open(pool) => close_pool(name, pool, None).await,
            _ => Ok(()),
        };
        transition.end(Status::not_opened_yet());
        closed
    }

    /// Closes an open pool and erases its superblocks.
    ///
    /// # Errors
    /// `NotFound`, `NotOpen`, `Busy`; `Io` if a drive cannot be written.
    pub(crate) async fn destroy(self: &Arc<Self>, name: &str, progress: &Progress) -> Result<()> {
        let open = |status: &Status| match status {
            Status::Open(_) => Ok(()),
            other => Err(other.not_open_error(name)),
        };
        let (transition, before) = Transition::begin(self, name, "being destroyed", open)?;
        let Status::Open(pool) = before else {
            return Err(Error::new(ErrorKind::Internal, format!("pool '{name}' is not open")));
        };
        let (home, drives) = (pool.home.clone(), pool.open_drives().clone());
        if let Err(error) = close_pool(name, pool, Some(progress)).await {
            tracing::warn!(pool = name, %error, "cannot close the pool cleanly before it is destroyed");
        }
        progress.step(format!("erasing {} drives", drives.len()));
        let total = drives.len() as u64;
        let mut failed = None;
        for (done, drive) in (1..).zip(drives) {
            let path = drive.path().to_owned();
            let erased = home.call(move || async move { engine::erase(&*drive).await }).await?;
            if let Err(error) = erased {
                failed = Some(Error::new(ErrorKind::Io, format!("cannot erase {}: {error}", path.display())));
            }
            progress.done(done, total);
        }
        match failed {
            None => {
                transition.end(Status::Closed);
                self.forget(name)
            }
            Some(error) => {
                let error = error
                    .hint("the other drives are erased; erase this drive with 'wipefs --all' before you use it again");
                transition.end(Status::Unavailable(error.clone()));
                Err(error)
            }
        }
    }
}

async fn close_pool(name: &str, pool: Arc<OpenPool>, progress: Option<&Progress>) -> Result<()> {
    if let Some(progress) = progress {
        progress.step("writing the last checkpoint");
    }
    let closed = pool.call(engine::Pool::close).await;
    match &closed {
        Ok(()) => tracing::info!(pool = name, "pool closed"),
        Err(error) => {
            tracing::error!(pool = name, %error, "the pool was not closed cleanly; it is recovered when it is opened again")
        }
    }
    closed
}
