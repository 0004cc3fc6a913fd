//! Taking a pool out of service, for a while or for good.

use std::sync::Arc;

use super::slot::{Status, Transition};
use super::{OpenPool, Pools};
use crate::error::{Error, ErrorKind, Result};
use crate::operations::Progress;

impl Pools {
    /// Closes a pool on request: it stays closed when the daemon is restarted. A pool that is not open is only
    /// remembered as closed.
    ///
    /// # Errors
    /// `NotFound`, `Busy`; what went wrong with the last checkpoint, after which it is closed all the same.
    pub(crate) async fn close(self: &Arc<Self>, name: &str, forget: bool, progress: &Progress) -> Result<()> {
        let (transition, before) = Transition::begin(self, name, "being closed", |_| Ok(()))?;
        let closed = match before {
            Status::Open(pool) => shut(name, pool, Some(progress)).await,
            _ => Ok(()),
        };
        transition.end(Status::Closed);
        if forget {
            self.forget(name)?;
        } else {
            self.remember(name, false)?;
        }
        closed
    }

    /// Closes a pool because the daemon ends: the next one opens it again.
    ///
    /// # Errors
    /// As [`Pools::close`].
    pub(crate) async fn close_at_end(self: &Arc<Self>, name: &str) -> Result<()> {
        let (transition, before) = Transition::begin(self, name, "being closed", |_| Ok(()))?;
        let closed = match before {
            Status::Open(pool) => shut(name, pool, None).await,
            _ => Ok(()),
        };
        transition.end(Status::not_opened_yet());
        closed
    }

    /// Closes a pool that is open and takes it off its drives.
    ///
    /// # Errors
    /// `NotFound`, `NotOpen`, `Busy`; `Io` if a drive cannot be written.
    pub(crate) async fn destroy(self: &Arc<Self>, name: &str, progress: &Progress) -> Result<()> {
        let open = |status: &Status| match status {
            Status::Open(_) => Ok(()),
            other => Err(other.why_not_open(name)),
        };
        let (transition, before) = Transition::begin(self, name, "being destroyed", open)?;
        let Status::Open(pool) = before else {
            return Err(Error::new(ErrorKind::Internal, format!("pool '{name}' was not open after all")));
        };
        let (home, drives) = (pool.home.clone(), pool.open_drives().clone());
        if let Err(error) = shut(name, pool, Some(progress)).await {
            tracing::warn!(pool = name, %error, "closing a pool that is destroyed failed");
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
                let error = error.hint("the other drives are erased; wipe this one before it is used again");
                transition.end(Status::Unavailable(error.clone()));
                Err(error)
            }
        }
    }
}

async fn shut(name: &str, pool: Arc<OpenPool>, progress: Option<&Progress>) -> Result<()> {
    if let Some(progress) = progress {
        progress.step("writing a last checkpoint");
    }
    let closed = pool.call(engine::Pool::close).await;
    match &closed {
        Ok(()) => tracing::info!(pool = name, "the pool is closed"),
        Err(error) => {
            tracing::error!(pool = name, %error, "the pool was not closed in order: the next opening recovers it")
        }
    }
    closed
}
