//! Drives that join, leave, are lost and come back while their pool is in service.
//!
//! Always true: the daemon has exactly the drives open and locked that the pool uses, but for those that it has lost or emptied
//! since it was looked at last.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{PoolStatus, RepairLimits};
use format::DriveState;
use reactor::DriveOptions;

use super::create::{check_empty, check_free, claim, inspect_all, refuse_used, wipe_all};
use super::{OpenPool, Pools};
use crate::blocking::blocking;
use crate::drives::OpenDrive;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, Openers};
use crate::operations::Progress;
use crate::request;
use api::types;

impl Pools {
    /// Takes a drive out of use.
    ///
    /// # Errors
    /// When the pool is not open, the drive is not in use, or the pool could not bear its loss.
    pub(crate) async fn fail_drive(&self, name: &str, index: u16) -> Result<()> {
        let open = self.get(name)?;
        let failed = open.call(move |pool| async move { pool.fail_drive(index).await }).await;
        failed.map_err(|error| match error.kind() {
            ErrorKind::PoolFailed => {
                error.hint(format!("nothing was changed: with drive {index} gone too, data would be lost"))
            }
            _ => not_used(error, name, index),
        })?;
        tracing::warn!(pool = name, drive = index, "a drive was taken out of use, as asked");
        Ok(())
    }

    /// Takes a new drive into a pool.
    ///
    /// # Errors
    /// When it is used, holds something, or is too small; nothing has changed then but what `wipe` allowed.
    pub(crate) async fn add_drive(
        &self,
        name: &str,
        request: &types::AddDrive,
        progress: &Progress,
    ) -> Result<()> {
        let open = self.get(name)?;
        let inspected = inspect_all(vec![request::path(&request.path)?], progress).await?;
        check_free(&inspected)?;
        let drive = claim(&inspected, progress).await?;
        if request.wipe {
            wipe_all(&inspected, progress).await?;
        } else {
            check_empty(&inspected)?;
        }
        let Some(drive) = drive.into_iter().next() else {
            return Err(Error::new(ErrorKind::Internal, "a drive that was opened is gone"));
        };
        let mut id = [0; 16];
        request::fill_random(&mut id)?;
        let source = drive.clone();
        progress.step("taking the drive into the pool");
        let index = open.call(move |pool| async move { pool.add_drive(source, id).await }).await?;
        tracing::info!(pool = name, drive = index, path = %drive.path().display(), "a drive was added, as asked");
        open.open_drives().push(drive);
        self.remember_drives(name, &open)
    }

    /// Takes a new drive into a pool, and has another one emptied if it is in use.
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
            // What it held is written to the new one, without being told.
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
        let removal = open.call(move |pool| async move { pool.evacuate_drive(index).await }).await;
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
        let cancelled = open.call(move |pool| async move { pool.keep_drive(index).await }).await;
        cancelled.map_err(|error| not_used(error, name, index))?;
        tracing::info!(pool = name, drive = index, "removal of a drive cancelled on request");
        Ok(())
    }

    /// Takes a drive that was lost back into use.
    ///
    /// # Errors
    /// When it is not lost, is not there, or is not what it was.
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
            let message = format!("drive {index} of pool '{name}' is not lost");
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint(format!("'gabion pool status {name}' shows the drives with their numbers")));
        }
        let path = match &request.path {
            Some(path) => request::path(path)?,
            None => PathBuf::from(&record.path),
        };
        let looked_at = path.clone();
        // A drive that is not there is said below.
        if let Ok(users) = blocking(move || inspect::users(&looked_at, &Openers::scan())).await? {
            refuse_used(std::iter::once((path.as_path(), users.as_slice())))?;
        }
        // Whoever still holds it holds what is gone.
        let was = record.path.clone();
        open.open_drives().retain(|drive| drive.path().to_string_lossy() != was);
        let stable = inspect::stable_path(&path);
        let opened = blocking(move || OpenDrive::open(&stable, DriveOptions::default())).await?;
        let drive = opened.map_err(|error| {
            error.hint(format!(
                "plug it in, or say where it is: 'gabion drive return {name} {index} --path DRIVE'"
            ))
        })?;
        let source = drive.clone();
        let returned = open.call(move |pool| async move { pool.return_drive(source).await }).await;
        let number = returned.map_err(|error| {
            error.hint(format!(
                "'gabion drive identify {0}' shows what it holds; 'gabion drive replace {name} {index} --with {0} --wipe' takes \
                 it as a new drive",
                path.display()
            ))
        })?;
        tracing::info!(pool = name, drive = number, path = %path.display(), "a drive has come back, as told");
        open.open_drives().push(drive);
        self.remember_drives(name, &open)
    }

    /// Pauses, resumes or rate-limits the rebuild.
    ///
    /// # Errors
    /// When the pool is not open.
    pub(crate) async fn change_rebuild(&self, name: &str, request: types::ChangeRebuild) -> Result<()> {
        let open = self.get(name)?;
        let set = move |pool: engine::Pool| async move {
            let now = pool.repair_limits();
            let limits = RepairLimits {
                paused: request.paused.unwrap_or(now.paused),
                bytes_per_second: request.rate_limit.unwrap_or(now.bytes_per_second),
            };
            pool.set_repair_limits(limits).await
        };
        open.call(set).await?;
        tracing::info!(pool = name, ?request, "rebuild settings changed on request");
        Ok(())
    }

    /// Lets go of drives that belong to a pool no more, and takes its mark off them.
    pub(super) async fn let_go(&self, name: &str, open: &Arc<OpenPool>, status: &PoolStatus) {
        let gone: Vec<Arc<OpenDrive>> = {
            let is_gone = |drive: &Arc<OpenDrive>| {
                let path = drive.path().to_string_lossy();
                let mut of_path = status.drives.iter().filter(|record| record.path == path).peekable();
                of_path.peek().is_some() && of_path.all(|record| record.state == DriveState::Removed)
            };
            open.open_drives().extract_if(.., |drive| is_gone(drive)).collect()
        };
        if gone.is_empty() {
            return;
        }
        for drive in gone {
            let path = drive.path().display().to_string();
            let erased = open.home.call(move || async move { engine::erase(&*drive).await }).await;
            let erased = erased.is_ok_and(|erased| erased.is_ok());
            tracing::info!(pool = name, path, erased, "a drive is no part of the pool any more");
        }
        if let Err(error) = self.remember_drives(name, open) {
            tracing::warn!(pool = name, %error, "where the pool's drives are could not be noted");
        }
    }

    /// Notes where the drives of a pool are.
    fn remember_drives(&self, name: &str, open: &OpenPool) -> Result<()> {
        if let Some(slot) = self.lock().get_mut(name) {
            slot.drives = open.stable_paths();
        }
        self.remember(name, true)
    }
}

async fn drive_state(open: &OpenPool, index: u16) -> Result<Option<DriveState>> {
    let status = open.call(|pool| async move { pool.status().await }).await?;
    Ok(status.drives.iter().find(|drive| drive.index == index).map(|drive| drive.state))
}

fn no_drive(name: &str, index: u16) -> Error {
    Error::new(ErrorKind::NotFound, format!("pool '{name}' uses no drive {index}"))
        .hint(format!("'gabion pool status {name}' shows its drives with their numbers"))
}

fn not_used(error: Error, name: &str, index: u16) -> Error {
    if error.kind() == ErrorKind::NotFound { no_drive(name, index) } else { error }
}
