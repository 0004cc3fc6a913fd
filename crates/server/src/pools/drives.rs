//! Adding, removing, replacing, failing and re-adding drives of an open pool.
//!
//! Invariant: the daemon has exactly the drives of the pool open and locked, except drives that
//! were lost or removed since the last periodic check.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{PoolStatus, RepairLimits};
use format::DriveState;
use reactor::DriveOptions;

use super::checks::{check_empty, check_free, check_users, inspect_all};
use super::create::{claim, wipe_all};
use super::{OpenPool, Pools};
use crate::blocking::blocking;
use crate::drives::OpenDrive;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect;
use crate::operations::Progress;
use crate::request;
use api::types;

impl Pools {
    /// Marks a drive as failed.
    ///
    /// # Errors
    /// When the pool is not open, the drive is not in use, or data would be lost without the drive.
    pub(crate) async fn fail_drive(&self, name: &str, index: u16) -> Result<()> {
        let open = self.get(name)?;
        let failed = open.call(move |pool| async move { pool.fail_drive(index).await }).await;
        failed.map_err(|error| match error.kind() {
            ErrorKind::PoolFailed => {
                error.hint(format!("nothing was changed, because data would be lost without drive {index}"))
            }
            _ => not_used(error, name, index),
        })?;
        tracing::warn!(pool = name, drive = index, "drive marked as failed on request");
        Ok(())
    }

    /// Adds a new drive to a pool.
    ///
    /// # Errors
    /// When the drive is in use, holds data, or is too small. The drive is unchanged then, except
    /// that with `wipe` its contents may be erased.
    pub(crate) async fn add_drive(
        &self,
        name: &str,
        request: &types::AddDrive,
        progress: &Progress,
    ) -> Result<()> {
        let open = self.get(name)?;
        let inspected =
            inspect_all(vec![request::path(&request.path)?], self.drive_owners().await?, progress).await?;
        check_free(&inspected)?;
        let drive = claim(&inspected, progress).await?;
        if request.wipe {
            wipe_all(&inspected, progress).await?;
        } else {
            check_empty(&inspected)?;
        }
        let Some(drive) = drive.into_iter().next() else {
            return Err(Error::new(ErrorKind::Internal, "the opened drive is missing"));
        };
        let mut id = [0; 16];
        request::fill_random(&mut id)?;
        let source = drive.clone();
        progress.step("adding the drive to the pool");
        let index = open.call(move |pool| async move { pool.add_drive(source, id).await }).await?;
        tracing::info!(pool = name, drive = index, path = %drive.path().display(), "drive added on request");
        open.open_drives().push(drive);
        self.persist_drives(name, &open)
    }

    /// Adds a new drive to a pool, and starts the removal of drive `index` if that drive is in use.
    ///
    /// # Errors
    /// As [`Pools::add_drive`]; `NotFound` if there is no such drive.
    pub(crate) async fn replace_drive(
        &self,
        name: &str,
        index: u16,
        request: &types::AddDrive,
        progress: &Progress,
    ) -> Result<()> {
        let open = self.get(name)?;
        let state = drive_state(&open, index).await?;
        if state.is_none_or(|state| state == DriveState::Removed) {
            return Err(no_drive(name, index));
        }
        self.add_drive(name, request, progress).await?;
        if state.is_some_and(DriveState::is_lost) {
            // The rebuild writes the data of the lost drive to the new drive automatically.
            return Ok(());
        }
        self.remove_drive(name, index).await
    }

    /// Starts the removal of a drive: it leaves the pool once its data is on other drives.
    ///
    /// # Errors
    /// When it is not in use, or the other drives are too few or have too little free space.
    pub(crate) async fn remove_drive(&self, name: &str, index: u16) -> Result<()> {
        let open = self.get(name)?;
        let removal = open.call(move |pool| async move { pool.remove_drive(index).await }).await;
        removal.map_err(|error| match error.kind() {
            ErrorKind::Invalid => error.hint(format!(
                "'gabion drive replace {name} {index} --with DRIVE' adds a drive and removes this one; 'gabion drive add' adds one"
            )),
            ErrorKind::NoSpace => {
                error.hint(format!("delete or trim data, or add a drive first: 'gabion drive add {name} DRIVE'"))
            }
            _ => not_used(error, name, index),
        })?;
        tracing::info!(pool = name, drive = index, "removal of a drive started on request");
        Ok(())
    }

    /// Cancels the removal of a drive.
    ///
    /// # Errors
    /// When the drive is not in use or not being removed.
    pub(crate) async fn cancel_remove_drive(&self, name: &str, index: u16) -> Result<()> {
        let open = self.get(name)?;
        let cancelled = open.call(move |pool| async move { pool.cancel_remove_drive(index).await }).await;
        cancelled.map_err(|error| match error.kind() {
            ErrorKind::Invalid => {
                error.hint(format!("'gabion drive list {name}' shows the states of the drives"))
            }
            _ => not_used(error, name, index),
        })?;
        tracing::info!(pool = name, drive = index, "removal of a drive cancelled on request");
        Ok(())
    }

    /// Re-adds a missing or failed drive.
    ///
    /// # Errors
    /// When the drive is not missing or failed, is not found, or does not hold this pool.
    pub(crate) async fn return_drive(
        &self,
        name: &str,
        index: u16,
        request: &types::ReturnDrive,
    ) -> Result<()> {
        let open = self.get(name)?;
        let status = open.call(|pool| async move { pool.status().await }).await?;
        let Some(record) = status.drives.iter().find(|drive| drive.index == index) else {
            return Err(no_drive(name, index));
        };
        if !record.state.is_lost() {
            let message = format!("drive {index} of pool '{name}' is not missing or failed");
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint(format!("'gabion pool status {name}' shows the drives with their indexes")));
        }
        let path = match &request.path {
            Some(path) => request::path(path)?,
            None => PathBuf::from(&record.path),
        };
        let mut in_pools = self.drive_owners().await?;
        // The pool may still have the lost drive open.
        in_pools.retain(|_, pool| pool != name);
        // The opening below reports a drive that does not exist.
        check_users(&path, &in_pools).await?;
        // An open handle refers to the device that was lost.
        let old = record.path.clone();
        open.open_drives().retain(|drive| drive.path().to_string_lossy() != old);
        let stable = inspect::stable_path(&path);
        let opened = blocking(move || OpenDrive::open(&stable, DriveOptions::default())).await?;
        let drive = opened.map_err(|error| {
            error.hint(format!(
                "reconnect the drive, or give its path: 'gabion drive return {name} {index} --path DRIVE'"
            ))
        })?;
        let source = drive.clone();
        let returned = open.call(move |pool| async move { pool.return_drive(source).await }).await;
        let number = returned.map_err(|error| {
            error.hint(format!(
                "'gabion drive identify {0}' shows its contents; 'gabion drive replace {name} {index} --with {0} --wipe' erases \
                 it and adds it as a new drive",
                path.display()
            ))
        })?;
        tracing::info!(pool = name, drive = number, path = %path.display(), "drive re-added on request");
        open.open_drives().push(drive);
        self.persist_drives(name, &open)
    }

    /// Pauses, resumes or rate-limits the rebuild.
    ///
    /// # Errors
    /// When the pool is not open.
    pub(crate) async fn change_rebuild(&self, name: &str, request: types::ChangeRebuild) -> Result<()> {
        let open = self.get(name)?;
        let set = move |pool: engine::Pool| async move {
            let current = pool.repair_limits();
            let limits = RepairLimits {
                paused: request.paused.unwrap_or(current.paused),
                bytes_per_second: request.rate_limit.unwrap_or(current.bytes_per_second),
            };
            pool.set_repair_limits(limits).await
        };
        open.call(set).await?;
        tracing::info!(pool = name, ?request, "rebuild settings changed on request");
        Ok(())
    }

    /// Closes drives that were removed from a pool and erases their superblocks.
    pub(super) async fn release_removed(&self, name: &str, open: &Arc<OpenPool>, status: &PoolStatus) {
        let removed: Vec<Arc<OpenDrive>> = {
            let is_removed = |drive: &Arc<OpenDrive>| {
                let path = drive.path().to_string_lossy();
                let mut of_path = status.drives.iter().filter(|record| record.path == path).peekable();
                of_path.peek().is_some() && of_path.all(|record| record.state == DriveState::Removed)
            };
            open.open_drives().extract_if(.., |drive| is_removed(drive)).collect()
        };
        if removed.is_empty() {
            return;
        }
        for drive in removed {
            let path = drive.path().display().to_string();
            let erased = open.home.call(move || async move { engine::erase(&*drive).await }).await;
            let erased = erased.is_ok_and(|erased| erased.is_ok());
            tracing::info!(pool = name, path, erased, "removed drive released");
        }
        if let Err(error) = self.persist_drives(name, open) {
            tracing::warn!(pool = name, %error, "cannot persist the drive paths of the pool");
        }
    }

    /// Persists the drive paths of a pool.
    fn persist_drives(&self, name: &str, open: &OpenPool) -> Result<()> {
        if let Some(slot) = self.lock().get_mut(name) {
            slot.drives = open.stable_paths();
        }
        self.persist(name, true)
    }
}

async fn drive_state(open: &OpenPool, index: u16) -> Result<Option<DriveState>> {
    let status = open.call(|pool| async move { pool.status().await }).await?;
    Ok(status.drives.iter().find(|drive| drive.index == index).map(|drive| drive.state))
}

fn no_drive(name: &str, index: u16) -> Error {
    Error::new(ErrorKind::NotFound, format!("pool '{name}' has no drive {index} in use"))
        .hint(format!("'gabion pool status {name}' shows the drives with their indexes"))
}

fn not_used(error: Error, name: &str, index: u16) -> Error {
    if error.kind() == ErrorKind::NotFound { no_drive(name, index) } else { error }
}
