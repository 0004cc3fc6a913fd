//! Drives that join the pool while it is in service, come back to it, or are to be emptied.
//!
//! Always true (C4): a drive that joins has the state that calls it in use, flushed, before any other drive has. So whatever the
//! newest state is that a crash leaves, the drives that it calls in use belong together.

use std::rc::Rc;
use std::sync::Arc;

use format::limits::DRIVES_MAX;
use format::{DriveErrors, DriveId, DriveIndex, DriveRecord, DriveState, EventKind, StateStamp, Superblock};
use reactor::{Drive, Home, IoErrorKind, Permit};

use super::publish::encoded;
use super::{Control, State};
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{SuperblockSlot, drive_bytes_min};
use crate::in_flight::InFlight;
use crate::latched::latched;
use crate::pool::{
    DriveSource, DriveSuperblock, OnDrive, check_zones, prepare_drive, read_superblocks, short_path,
};
use crate::shard::Shard;
use crate::space::Reserve;

/// Segments for each shard that must be free without a drive that is to be emptied, besides what is kept back.
const ROOM_PER_SHARD: u32 = 4;

/// A drive that is to join.
pub(super) struct JoiningDrive {
    index: DriveIndex,
    record: DriveRecord,
    drive: Rc<dyn Drive>,
    /// The slot that its first superblock goes to.
    slot: SuperblockSlot,
}

/// A lost drive that is there again.
struct ReturningDrive {
    index: DriveIndex,
    /// The slot of its newest superblock.
    slot: SuperblockSlot,
    /// The state that it holds.
    held: StateStamp,
}

impl JoiningDrive {
    /// Has a superblock call the drive in use.
    fn put_into(&self, superblock: &mut Superblock) {
        let record = DriveRecord { since: superblock.generation, ..self.record.clone() };
        match superblock.drives.get_mut(self.index.index()) {
            Some(place) => *place = record,
            None => superblock.drives.push(record),
        }
    }
}

impl Control {
    /// Takes a new drive into the pool, whatever it holds; gives its number. `id` is random.
    ///
    /// # Errors
    /// `Invalid` if it is too small or there are too many; `Exists` if it belongs to the pool already; `Io` or `NoSpace` if it
    /// cannot be written. Nothing has changed then.
    pub(crate) async fn add_drive(
        self: &Rc<Self>,
        source: Arc<dyn DriveSource>,
        id: DriveId,
    ) -> Result<DriveIndex> {
        let _alone = self.begin_change().await?;
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
        tracing::info!(drive = %index, path, size, "a drive was added");
        self.events.emit_drive(index, EventKind::DriveAdded, &path);
        Ok(index)
    }

    /// Takes a drive of the pool that was lost back into use; gives its number. What it missed is completed.
    ///
    /// # Errors
    /// `NotFound` if it is none of the pool's, `Exists` if it is in use, `Invalid` if it cannot be what it was. Nothing has changed then.
    pub(crate) async fn return_drive(self: &Rc<Self>, source: Arc<dyn DriveSource>) -> Result<DriveIndex> {
        let _alone = self.begin_change().await?;
        let source = latched(source);
        let drive = source.open();
        let path = source.path();
        let ReturningDrive { index, slot, held } = self.check_returning(&*drive, &path).await?;
        // It still knows the loss only from others: what was begun before must have ended, by shards and by ourselves.
        self.loss_propagated(index).await?;
        for shard in self.all_shards() {
            shard.call(move |shard| async move { shard.wait_until_unused(index).await }).await?;
        }
        // What was found may be in its cache only: it must be safe before the other slot is written.
        drive.flush().await.map_err(|error| Error::io(format!("{path} does not flush"), index, error))?;
        let record = self.state.borrow().superblock.drive(index).cloned();
        let Some(record) = record.filter(|record| record.state.is_lost()) else {
            return Err(Error::new(ErrorKind::NotFound, format!("drive {index} is lost no more")));
        };
        if held.is_before(&record.confirmed) {
            self.invalidate(index, &path).await?;
        }
        let (state, path_now) = (DriveState::Returning, short_path(&path));
        let record = DriveRecord { state, path: path_now, confirmed: held, ..record };
        self.join(JoiningDrive { index, record, drive, slot: slot.other() }, source).await?;
        tracing::info!(drive = %index, path, "a drive has come back");
        self.events.emit_drive(index, EventKind::DriveReturned, &path);
        Ok(index)
    }

    /// A drive that comes back is an old copy of itself: has every shard take all of its columns as missing, durably, before
    /// anything on it is believed.
    async fn invalidate(&self, index: DriveIndex, path: &str) -> Result<()> {
        tracing::warn!(drive = %index, path, "the drive holds an older state than it was given: all of it is rebuilt");
        self.events.emit_drive(index, EventKind::DriveStale, path);
        for shard in self.all_shards() {
            shard.call(move |shard| async move { shard.invalidate_drive(index).await }).await??;
        }
        Ok(())
    }

    /// Finds out which lost drive of the pool this is.
    async fn check_returning(&self, drive: &dyn Drive, path: &str) -> Result<ReturningDrive> {
        let found = read_superblocks(drive).await;
        let state = self.state.borrow();
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        let OnDrive::Superblock(found) = found else {
            return invalid(format!("{path} holds no superblock of a pool: it can only join as a new drive"));
        };
        let DriveSuperblock { superblock: theirs, drive: id, slot, .. } = *found;
        let numbered = (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        let known =
            numbered.filter(|_| theirs.pool == state.superblock.pool).find(|(_, record)| record.id == id);
        let Some((index, record)) = known.filter(|(_, record)| record.state != DriveState::Removed) else {
            let message = format!("{path} is no drive of this pool, or was removed from it");
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        if !record.state.is_lost() {
            return Err(Error::new(ErrorKind::Exists, format!("drive {index}, {path}, is in use")));
        }
        if !state.superblock.accounts_for(&theirs, id) {
            return invalid(format!(
                "{path} was used without the pool's other drives: it can only join as a new drive"
            ));
        }
        if drive.properties().size < record.size {
            return invalid(format!("{path} has become smaller: it can only join as a new drive"));
        }
        Ok(ReturningDrive { index, slot, held: theirs.stamp() })
    }

    /// Has a drive emptied, to be removed from the pool then; or, if not `leaves`, keeps it after all, whatever its errors.
    ///
    /// # Errors
    /// `NotFound` if it is not in use; `Invalid` if too few drives would be left; `Busy` if it has come back and is being completed, or
    /// another one counts as lost.
    pub(crate) async fn evacuate_drive(&self, drive: DriveIndex, leaves: bool) -> Result<()> {
        let _alone = self.begin_change().await?;
        if !leaves {
            self.clear_errors(drive);
        }
        let becomes = {
            let mut state = self.state.borrow_mut();
            let becomes = match (state.superblock.drive(drive).map(|record| record.state), leaves) {
                (Some(DriveState::Online), true) => DriveState::Draining,
                (Some(DriveState::Draining), false) => DriveState::Online,
                (Some(DriveState::Online | DriveState::Draining), _) => return Ok(()),
                (Some(DriveState::Returning), _) => {
                    let message =
                        format!("drive {drive} has come back, and what it missed is being completed");
                    return Err(Error::new(ErrorKind::Busy, message));
                }
                _ => return Err(Error::new(ErrorKind::NotFound, format!("drive {drive} is not in use"))),
            };
            let lost = state.superblock.drives.iter().position(|record| record.state.counts_as_lost());
            if let (true, Some(lost)) = (leaves, lost) {
                let message = format!(
                    "drive {lost} is lost or not complete yet: drive {drive} can be emptied when the pool is whole again"
                );
                return Err(Error::new(ErrorKind::Busy, message));
            }
            let width = u32::from(self.geometry.scheme.width());
            if leaves && state.zones.drives() <= width {
                let message = format!(
                    "scheme {} needs {width} drives, and the pool has no more: add one before drive {drive} is emptied",
                    self.geometry.scheme
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            state.zones.set_online(drive, !leaves);
            if let Some(reserve) = self.reserve_if(&state, drive, becomes) {
                self.reserve.set(reserve);
                becomes
            } else {
                state.zones.set_online(drive, true);
                let message = format!(
                    "the other drives have no room for what the pool holds: drive {drive} cannot be emptied"
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
        };
        self.notify_space_freed();
        let change = |superblock: &mut Superblock| {
            let since = superblock.generation;
            if let Some(record) = superblock.drives.get_mut(drive.index()) {
                (record.state, record.since) = (becomes, since);
            }
        };
        self.publish(change).await?;
        for shard in self.all_shards() {
            let leaving = self.leaving();
            shard.call(move |shard| async move { shard.set_draining(&leaving) }).await?;
        }
        let kind = if leaves { EventKind::DriveDraining } else { EventKind::DriveDrainCancelled };
        self.events.emit_drive(drive, kind, &self.path_of(drive));
        Ok(())
    }

    /// What must be kept back when a drive is to be emptied, as its zones say already; `None` if what the pool holds would not fit.
    fn reserve_if(&self, state: &State, drive: DriveIndex, becomes: DriveState) -> Option<Reserve> {
        let mut superblock = state.superblock.clone();
        superblock.drives.get_mut(drive.index()).into_iter().for_each(|record| record.state = becomes);
        let reserve = self.reserve.get().grown(&superblock);
        if becomes != DriveState::Draining {
            return Some(reserve);
        }
        let shards = u32::try_from(superblock.shards.len()).unwrap_or(u32::MAX);
        let kept = reserve.with_drives(state.zones.drives());
        let scheme = self.geometry.scheme;
        let has_room = state.zones.full_width(scheme) > kept + ROOM_PER_SHARD * shards;
        // What lies on the drive finds no place where the others are too unequal, however much is free on them.
        let total = state.zones.capacity(scheme).min(state.zones.capacity_if_rewritten(scheme));
        let fits = self.space.live() <= self.space.capacity_of(total, kept);
        (has_room && fits).then_some(reserve)
    }

    fn all_shards(&self) -> Vec<Home<Shard>> {
        self.shards.borrow().clone()
    }

    /// The drives that are to be emptied.
    pub(super) fn leaving(&self) -> Vec<DriveIndex> {
        let state = self.state.borrow();
        let numbered = (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        numbered.filter(|(_, record)| record.state == DriveState::Draining).map(|(index, _)| index).collect()
    }

    /// Drives join and leave one at a time, and not while the pool is being closed.
    pub(super) async fn begin_change(&self) -> Result<Permit> {
        let permit = self.membership.acquire().await;
        let state = self.state.borrow();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.stopping => Err(Error::new(ErrorKind::Closed, "the pool was closed")),
            None => Ok(permit),
        }
    }

    /// The number that a new drive gets.
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
            let message = format!("the pool has had {DRIVES_MAX} drives: it takes no more");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        check_zones(superblock, self.geometry.zones(size))?;
        if let OnDrive::Superblock(found) = found
            && found.superblock.pool == superblock.pool
            && superblock
                .drives
                .iter()
                .any(|record| record.id == found.drive && record.state != DriveState::Removed)
        {
            let message = format!("{path} belongs to the pool already");
            return Err(Error::new(ErrorKind::Exists, message));
        }
        Ok(DriveIndex::new(u16::try_from(superblock.drives.len()).unwrap_or(u16::MAX)))
    }

    /// Has the superblocks call a drive in use, it first, then everybody use it.
    async fn join(self: &Rc<Self>, joiner: JoiningDrive, source: Arc<dyn DriveSource>) -> Result<()> {
        let index = joiner.index;
        {
            let mut state = self.state.borrow_mut();
            assert!(state.joining.is_none(), "C4: drives join one at a time");
            state.joining = Some(joiner);
        }
        let published = self.publish(|_| ()).await;
        let refused = {
            let mut state = self.state.borrow_mut();
            state.joining = None;
            state.refused.take()
        };
        published?;
        refused.map_or(Ok(()), Err)?;
        for shard in self.all_shards() {
            let source = source.clone();
            let joins = shard.call(move |shard| async move { shard.attach_drive(index, source.open()) });
            joins.await?;
        }
        self.use_for_segments(index).await
    }

    /// Lets new segments lie on a drive that every shard knows of.
    ///
    /// # Errors
    /// If it has been lost again meanwhile.
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
                shard.call(|shard| async move { shard.request_repair() }).await?;
            }
            self.schedule_retirement();
            return Ok(());
        }
        // Before a shard knew of it, perhaps.
        self.loss_propagated(index).await?;
        for shard in self.all_shards() {
            shard.call(move |shard| async move { shard.detach_drive(index).await }).await??;
        }
        Err(Error::new(ErrorKind::Io, format!("drive {index} was lost as soon as it had joined")))
    }

    /// Gives a drive that is to join the superblock that says so, before anybody else gets one (C4).
    pub(super) async fn admit(&self) {
        let Some(joiner) = self.state.borrow_mut().joining.take() else { return };
        let superblock = {
            let mut superblock = self.state.borrow_mut().next_generation();
            joiner.put_into(&mut superblock);
            superblock
        };
        let copy = encoded(&superblock, joiner.record.id);
        let written = match InFlight::new(joiner.drive.write(joiner.slot.offset(), &[copy.span()])).await {
            Ok(_) => joiner.drive.flush().await,
            Err(error) => Err(error),
        };
        let mut state = self.state.borrow_mut();
        if let Err(error) = written {
            let error = Error::io("the drive did not take its superblock", joiner.index, error);
            state.refused = Some(error);
            return;
        }
        joiner.put_into(&mut state.superblock);
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
