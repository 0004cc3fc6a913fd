//! Membership changes of a running pool: adding, returning and draining drives.
//!
//! Always true (C4): a joining drive stores and flushes the state that lists it as online before
//! any other drive does. Therefore, after a crash, all drives online in the newest state are
//! consistent.

use std::rc::Rc;
use std::sync::Arc;

use format::limits::DRIVES_MAX;
use format::{DriveErrors, DriveId, DriveIndex, DriveRecord, DriveState, EventKind, StateStamp, Superblock};
use reactor::{Drive, Handle, IoErrorKind, Permit};

use super::publish::encoded;
use super::{Control, State};
use crate::drive_setup::{check_zones, prepare_drive, short_path};
use crate::drive_source::DriveSource;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{SuperblockSlot, drive_bytes_min};
use crate::in_flight::InFlight;
use crate::invariant::narrow;
use crate::latched::latched;
use crate::shard::Shard;
use crate::space::Reserve;
use crate::superblocks::{DriveSuperblock, SuperblockRead, read_superblocks};

/// Free segments per shard required to drain a drive, in addition to the reserve.
const ROOM_PER_SHARD: u32 = 4;

/// A drive about to join.
pub(super) struct JoiningDrive {
    index: DriveIndex,
    record: DriveRecord,
    drive: Rc<dyn Drive>,
    /// Slot of its first superblock.
    slot: SuperblockSlot,
}

/// A lost drive that is available again.
struct ReturningDrive {
    index: DriveIndex,
    /// Slot of its newest superblock.
    slot: SuperblockSlot,
    /// State stored on the drive.
    stamp: StateStamp,
}

impl JoiningDrive {
    /// Marks the drive as online in a superblock.
    fn set_online_in(&self, superblock: &mut Superblock) {
        let record = DriveRecord { since: superblock.generation, ..self.record.clone() };
        match superblock.drives.get_mut(self.index.index()) {
            Some(place) => *place = record,
            None => superblock.drives.push(record),
        }
    }
}

impl Control {
    /// Adds a new drive to the pool and overwrites its contents; returns its index. `id` is random.
    ///
    /// # Errors
    /// `Invalid` if the drive is too small or the pool has too many drives; `Exists` if the drive
    /// belongs to the pool; `Io` or `NoSpace` if it cannot be written. Then nothing has changed.
    pub(crate) async fn add_drive(
        self: &Rc<Self>,
        source: Arc<dyn DriveSource>,
        id: DriveId,
    ) -> Result<DriveIndex> {
        let _permit = self.begin_change().await?;
        let source = latched(source);
        let drive = source.open();
        let path = source.path();
        let index = self.check_new(&*drive, &path).await?;
        if let Err(error) = prepare_drive(&*drive, self.geometry.data_start).await {
            return Err(if error.kind() == IoErrorKind::NoSpace {
                let message = format!("the file system under {path} has no room for it");
                Error::new(ErrorKind::NoSpace, message)
            } else {
                Error::io(format!("{path} cannot be written"), index, error)
            });
        }
        let size = drive.properties().size;
        let record = DriveRecord {
            id,
            size,
            zones: self.geometry.zones(size),
            state: DriveState::Online,
            since: self.state.borrow().superblock.generation,
            confirmed: StateStamp::default(),
            left_at: StateStamp::default(),
            errors: DriveErrors::default(),
            path: short_path(&path),
        };
        self.join(JoiningDrive { index, record, drive, slot: SuperblockSlot::First }, source).await?;
        tracing::info!(drive = %index, path, size, "drive added");
        self.events.emit_drive(index, EventKind::DriveAdded, &path);
        Ok(index)
    }

    /// Takes a lost drive of the pool back into use; returns its index. Missing columns are
    /// resynced.
    ///
    /// # Errors
    /// `NotFound` if the drive does not belong to the pool, `Exists` if it is online, `Invalid` if
    /// its state or size does not match. Then nothing has changed.
    pub(crate) async fn return_drive(self: &Rc<Self>, source: Arc<dyn DriveSource>) -> Result<DriveIndex> {
        let _permit = self.begin_change().await?;
        let source = latched(source);
        let drive = source.open();
        let path = source.path();
        let ReturningDrive { index, slot, stamp } = self.check_returning(&*drive, &path).await?;
        // Operations started before the loss must have ended, here and in the shards.
        self.loss_propagated(index).await?;
        for shard in self.all_shards() {
            shard
                .call(move |shard| async move { shard.repair.wait_until_unused(&shard, index).await })
                .await?;
        }
        // The newest superblock may be only in the drive's cache: flush it before overwriting the
        // other slot.
        drive.flush().await.map_err(|error| Error::io(format!("flush of {path} failed"), index, error))?;
        let record = self.state.borrow().superblock.drive(index).cloned();
        let Some(record) = record.filter(|record| record.state.is_lost()) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("drive {index} is no longer missing or failed"),
            ));
        };
        if stamp.is_before(&record.confirmed) {
            self.invalidate(index, &path).await?;
        }
        let (state, path_now) = (DriveState::Returning, short_path(&path));
        let record = DriveRecord { state, path: path_now, confirmed: stamp, ..record };
        self.join(JoiningDrive { index, record, drive, slot: slot.other() }, source).await?;
        tracing::info!(drive = %index, path, "drive returned");
        self.events.emit_drive(index, EventKind::DriveReturned, &path);
        Ok(index)
    }

    /// The returning drive holds an older state than confirmed: marks all of its columns as missing
    /// in every shard, durably, before any of its contents are used.
    async fn invalidate(&self, index: DriveIndex, path: &str) -> Result<()> {
        tracing::warn!(drive = %index, path, "the drive holds an outdated state: rebuilding all of its columns");
        self.events.emit_drive(index, EventKind::DriveStale, path);
        for shard in self.all_shards() {
            shard.call(move |shard| async move { shard.invalidate_drive(index).await }).await??;
        }
        Ok(())
    }

    /// Identifies the lost drive.
    async fn check_returning(&self, drive: &dyn Drive, path: &str) -> Result<ReturningDrive> {
        let found = read_superblocks(drive).await;
        let state = self.state.borrow();
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        let SuperblockRead::Superblock(found) = found else {
            return invalid(format!("{path} holds no superblock of a pool: it can only join as a new drive"));
        };
        let DriveSuperblock { superblock: found, drive: id, slot, .. } = *found;
        let numbered = (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        let known =
            numbered.filter(|_| found.pool == state.superblock.pool).find(|(_, record)| record.id == id);
        let Some((index, record)) = known.filter(|(_, record)| record.state != DriveState::Removed) else {
            let message = format!("{path} is not a drive of this pool, or was removed from it");
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        if !record.state.is_lost() {
            return Err(Error::new(ErrorKind::Exists, format!("drive {index}, {path}, is already online")));
        }
        if !state.superblock.accounts_for(&found, id) {
            return invalid(format!(
                "{path} was written without the pool's other drives: it can only join as a new drive"
            ));
        }
        if drive.properties().size < record.size {
            return invalid(format!("{path} is smaller than before: it can only join as a new drive"));
        }
        Ok(ReturningDrive { index, slot, stamp: found.stamp() })
    }

    /// Starts to drain a drive, which is removed when it is empty. If `drain` is false, cancels the
    /// drain and clears the drive's error count.
    ///
    /// # Errors
    /// `NotFound` if the drive is not online; `Invalid` if too few drives would remain, or there is
    /// neither a drain to cancel nor an error count to clear; `Busy` if the drive is returning and
    /// incomplete or another drive counts as lost; `NoSpace` if the other drives lack space.
    pub(crate) async fn remove_drive(&self, drive: DriveIndex, drain: bool) -> Result<()> {
        let _permit = self.begin_change().await?;
        let had_errors = !drain && self.clear_errors(drive);
        let new_state = {
            let mut state = self.state.borrow_mut();
            let new_state = match (state.superblock.drive(drive).map(|record| record.state), drain) {
                (Some(DriveState::Online), true) => DriveState::Draining,
                (Some(DriveState::Draining), false) => DriveState::Online,
                (Some(DriveState::Online), false) if !had_errors => {
                    let message = format!("drive {drive} is not being removed");
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
                (Some(DriveState::Online | DriveState::Draining), _) => return Ok(()),
                (Some(DriveState::Returning), _) => {
                    let message = format!("drive {drive} has returned, and its rebuild is not complete");
                    return Err(Error::new(ErrorKind::Busy, message));
                }
                _ => return Err(Error::new(ErrorKind::NotFound, format!("drive {drive} is not online"))),
            };
            let lost = state.superblock.drives.iter().position(|record| record.state.counts_as_lost());
            if let (true, Some(lost)) = (drain, lost) {
                let message = format!(
                    "drive {lost} is lost or incomplete: drive {drive} can be removed after the pool is healthy again"
                );
                return Err(Error::new(ErrorKind::Busy, message));
            }
            let width = u32::from(self.geometry.scheme.width());
            if drain && state.zones.drives() <= width {
                let message = format!(
                    "scheme {} needs {width} drives, and the pool has no spare one: add a drive before removing drive {drive}",
                    self.geometry.scheme
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            state.zones.set_online(drive, !drain);
            if let Some(reserve) = self.reserve_if(&state, drive, new_state) {
                self.reserve.set(reserve);
                new_state
            } else {
                state.zones.set_online(drive, true);
                let message = format!(
                    "the other drives have no room for the data of drive {drive}: add a drive before removing it"
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
        };
        self.notify_space_freed();
        let change = |superblock: &mut Superblock| {
            let since = superblock.generation;
            if let Some(record) = superblock.drives.get_mut(drive.index()) {
                (record.state, record.since) = (new_state, since);
            }
        };
        self.publish(change).await?;
        for shard in self.all_shards() {
            let draining = self.draining();
            shard.call(move |shard| async move { shard.repair.set_draining(&shard, &draining) }).await?;
        }
        let kind = if drain { EventKind::DriveDraining } else { EventKind::DriveDrainCancelled };
        self.events.emit_drive(drive, kind, &self.path_of(drive));
        Ok(())
    }

    /// Returns the reserve for a drive state change that the zones already reflect; `None` if the
    /// pool's data would not fit.
    fn reserve_if(&self, state: &State, drive: DriveIndex, new_state: DriveState) -> Option<Reserve> {
        let mut superblock = state.superblock.clone();
        superblock.drives.get_mut(drive.index()).into_iter().for_each(|record| record.state = new_state);
        let reserve = self.reserve.get().grown(&superblock);
        if new_state != DriveState::Draining {
            return Some(reserve);
        }
        let shards: u32 = narrow(superblock.shards.len(), "C5");
        let reserved = reserve.with_drives(state.zones.drives());
        let scheme = self.geometry.scheme;
        let has_room = state.zones.full_width(scheme) > reserved + ROOM_PER_SHARD * shards;
        // If the other drives are too unequal, their free zones cannot hold the data of the drive.
        let total = state.zones.capacity(scheme).min(state.zones.capacity_if_rewritten(scheme));
        let fits = self.space.live() <= self.space.capacity_of(total, reserved);
        (has_room && fits).then_some(reserve)
    }

    fn all_shards(&self) -> Vec<Handle<Shard>> {
        self.shards.borrow().clone()
    }

    /// The draining drives.
    pub(super) fn draining(&self) -> Vec<DriveIndex> {
        let state = self.state.borrow();
        let numbered = (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        numbered.filter(|(_, record)| record.state == DriveState::Draining).map(|(index, _)| index).collect()
    }

    /// Serializes membership changes, and fails if the pool is being closed.
    pub(super) async fn begin_change(&self) -> Result<Permit> {
        let permit = self.membership.acquire().await;
        let state = self.state.borrow();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.stopping => Err(Error::new(ErrorKind::Closed, "the pool was closed")),
            None => Ok(permit),
        }
    }

    /// Checks a new drive and returns the index it will get.
    async fn check_new(&self, drive: &dyn Drive, path: &str) -> Result<DriveIndex> {
        let found = read_superblocks(drive).await;
        let state = self.state.borrow();
        let superblock = &state.superblock;
        let (size, needed) = (drive.properties().size, drive_bytes_min(self.geometry.zone_bytes));
        if size < needed {
            let message = format!(
                "{path} has {size} bytes; a drive of this pool, with zones of {}, needs at least {needed}",
                self.geometry.zone_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if superblock.drives.len() >= DRIVES_MAX {
            let message = format!("the pool has had {DRIVES_MAX} drives, which is the maximum");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        check_zones(superblock, self.geometry.zones(size))?;
        if let SuperblockRead::Superblock(found) = found
            && found.superblock.pool == superblock.pool
            && superblock
                .drives
                .iter()
                .any(|record| record.id == found.drive && record.state != DriveState::Removed)
        {
            let message = format!("{path} already belongs to the pool");
            return Err(Error::new(ErrorKind::Exists, message));
        }
        Ok(DriveIndex::new(narrow(superblock.drives.len(), "C5")))
    }

    /// Marks a drive as online in the superblocks, first on the drive itself, then adds it to all
    /// shards.
    async fn join(self: &Rc<Self>, joiner: JoiningDrive, source: Arc<dyn DriveSource>) -> Result<()> {
        let index = joiner.index;
        {
            let mut state = self.state.borrow_mut();
            assert!(state.joining.is_none(), "C4: drives join one at a time");
            state.joining = Some(joiner);
        }
        let published = self.publish(|_| ()).await;
        let join_error = {
            let mut state = self.state.borrow_mut();
            state.joining = None;
            state.join_error.take()
        };
        published?;
        join_error.map_or(Ok(()), Err)?;
        for shard in self.all_shards() {
            let source = source.clone();
            let added = shard.call(move |shard| async move { shard.attach_drive(index, source.open()) });
            added.await?;
        }
        self.use_for_segments(index).await
    }

    /// Allows new segments on a drive that every shard has added.
    ///
    /// # Errors
    /// If the drive has been lost again.
    async fn use_for_segments(self: &Rc<Self>, index: DriveIndex) -> Result<()> {
        {
            let mut state = self.state.borrow_mut();
            if state.is_in_use(index) {
                state.zones.set_online(index, true);
                self.reserve.set(self.reserve.get().grown(&state.superblock));
            }
        }
        if self.state.borrow().is_in_use(index) {
            self.notify_space_freed();
            for shard in self.all_shards() {
                shard.call(|shard| async move { shard.repair.request() }).await?;
            }
            self.schedule_retirement();
            return Ok(());
        }
        // A shard may have added the drive after the loss.
        self.loss_propagated(index).await?;
        for shard in self.all_shards() {
            shard.call(move |shard| async move { shard.detach_drive(index).await }).await??;
        }
        Err(Error::new(ErrorKind::Io, format!("drive {index} was lost directly after joining")))
    }

    /// Writes the superblock with the joining drive to that drive, before any other drive gets it
    /// (C4).
    pub(super) async fn admit(&self) {
        let Some(joiner) = self.state.borrow_mut().joining.take() else { return };
        let superblock = {
            let mut superblock = self.state.borrow_mut().next_generation();
            joiner.set_online_in(&mut superblock);
            superblock
        };
        let copy = encoded(&superblock, joiner.record.id);
        let written = match InFlight::new(joiner.drive.write(joiner.slot.offset(), &[copy.span()])).await {
            Ok(_) => joiner.drive.flush().await,
            Err(error) => Err(error),
        };
        let mut state = self.state.borrow_mut();
        if let Err(error) = written {
            let error = Error::io("the superblock write failed", joiner.index, error);
            state.join_error = Some(error);
            return;
        }
        joiner.set_online_in(&mut state.superblock);
        if joiner.index.index() == self.slots.borrow().len() {
            state.zones.add_drive(joiner.index, joiner.record.zones);
            self.slots.borrow_mut().push(joiner.slot);
            self.drives.borrow_mut().push(Some(joiner.drive));
            return;
        }
        if let Some(place) = self.slots.borrow_mut().get_mut(joiner.index.index()) {
            *place = joiner.slot;
        }
        if let Some(place) = self.drives.borrow_mut().get_mut(joiner.index.index()) {
            *place = Some(joiner.drive);
        }
    }
}
