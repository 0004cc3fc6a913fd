//! The pool's own state: one task of the pool's home reactor that owns the superblock and the free zones.
//!
//! Shards ask it for zones, tell it of lost drives, and have it publish what recoveries start from. Always true:
//! - C1: what a publish promises is on every drive in use, flushed, before its caller goes on.
//! - C2: two superblocks of one opening differ in their generation, and of two openings in their lineage.
//! - C3: a drive is taken out of use by every shard, and the superblocks say so, before anybody counts on it.
//!
//! Must not know: records, maps, volumes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use format::limits::SUPERBLOCK_SLOT;
use format::{
    DriveIndex, DriveState, Generation, Incarnation, Scheme, SegmentClass, SegmentRecord, SegmentState,
    ShardIndex, ShardRecord, Superblock,
};
use reactor::{Buffer, Drive, Home, IoError, IoErrorKind, Notify, Reactor, WaitList};

use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{Geometry, Slot};
use crate::segments::Privilege;
use crate::shard::Shard;
use crate::space::Space;
use crate::zones::Zones;

/// See the module.
pub(crate) struct Control {
    state: RefCell<State>,
    geometry: Geometry,
    /// The drives as this reactor opened them; `None` where missing.
    drives: Vec<Option<Rc<dyn Drive>>>,
    /// The slot that holds each drive's last superblock.
    slots: RefCell<Vec<Slot>>,
    shards: RefCell<Vec<Home<Shard>>>,
    /// Free segments that only the pool's own records may use.
    reserve: u32,
    /// How full the pool is, for the shards.
    space: Arc<Space>,
    changed: Notify,
    published: WaitList,
}

struct State {
    superblock: Superblock,
    zones: Zones,
    /// Publishes asked for, and those that are done.
    wanted: u64,
    done: u64,
    failure: Option<Error>,
    stopping: bool,
}

/// Fill of a pool, in segments of its scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCounters {
    /// Zones of drives in use.
    pub zones: u64,
    /// Those that are free.
    pub free_zones: u64,
    /// Segments that could be opened for user data.
    pub free_segments: u32,
    /// Segments kept back for the pool's own records.
    pub reserve_segments: u32,
    /// Blocks that live: data, map and tables.
    pub live_blocks: u64,
    /// Live blocks that the pool takes; beyond that, writes that need more room are refused.
    pub capacity_blocks: u64,
}

impl Control {
    pub(crate) fn new(
        superblock: Superblock,
        zones: Zones,
        drives: Vec<Option<Rc<dyn Drive>>>,
        slots: Vec<Slot>,
        reserve: u32,
        space: Arc<Space>,
    ) -> Rc<Self> {
        let geometry = Geometry::of(&superblock);
        let state = State { superblock, zones, wanted: 0, done: 0, failure: None, stopping: false };
        let control = Rc::new(Self {
            state: RefCell::new(state),
            geometry,
            drives,
            slots: RefCell::new(slots),
            shards: RefCell::default(),
            reserve,
            space,
            changed: Notify::default(),
            published: WaitList::default(),
        });
        control.count_space();
        control
    }

    /// Tells the shards how many segments there are, after zones were taken, given back or lost.
    fn count_space(&self) {
        let state = self.state.borrow();
        let (total, available) =
            (state.zones.capacity(self.geometry.scheme), state.zones.available(self.geometry.scheme));
        self.space.set_segments(total, available, self.reserve);
    }

    /// Introduces the shards, before any of them writes.
    pub(crate) fn set_shards(&self, shards: Vec<Home<Shard>>) {
        *self.shards.borrow_mut() = shards;
    }

    /// A copy of the superblock as it is now.
    pub(crate) fn superblock(&self) -> Superblock {
        self.state.borrow().superblock.clone()
    }

    /// Why the pool takes no more writes, if so.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.borrow().failure.clone()
    }

    /// How full the pool is.
    pub(crate) fn space(&self) -> SpaceCounters {
        let state = self.state.borrow();
        let (zones, free_zones) = state.zones.totals();
        let available = state.zones.available(self.geometry.scheme);
        let reserve = self.reserve;
        SpaceCounters {
            zones,
            free_zones,
            free_segments: available.saturating_sub(reserve),
            reserve_segments: reserve.min(available),
            live_blocks: self.space.live(),
            capacity_blocks: self.space.capacity(),
        }
    }

    /// Zones for a new segment, and who may use it.
    ///
    /// # Errors
    /// `NoSpace` if none are left for this use, or a file under a drive cannot grow.
    async fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        privilege: Privilege,
    ) -> Result<(SegmentRecord, Privilege)> {
        let (columns, level) = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let available = state.zones.available(self.geometry.scheme);
            let level = match self.reserve {
                reserve if available > reserve => Privilege::User,
                // Trims and the cleaner need each other: neither is to keep the other from its last segments.
                reserve if available > reserve / 3 => Privilege::Cleaning,
                _ => Privilege::Checkpoint,
            };
            if privilege < level {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the pool is full: delete or trim data, or add a drive",
                ));
            }
            let columns = state.zones.allocate(scheme);
            (columns.ok_or_else(|| Error::new(ErrorKind::NoSpace, "the pool has no free zones"))?, level)
        };
        self.count_space();
        if let Err(error) = self.reserve_backing(&columns).await {
            for (drive, zone) in columns.iter().filter_map(|column| column.zone) {
                self.state.borrow_mut().zones.free(drive, zone);
            }
            self.count_space();
            return Err(error);
        }
        let mut state = self.state.borrow_mut();
        let incarnation = state.superblock.next_incarnation;
        state.superblock.next_incarnation = Incarnation::new(incarnation.get() + 1);
        tracing::debug!(%incarnation, ?class, ?level, ?columns, "zones allocated");
        let record =
            SegmentRecord { incarnation, scheme, class, state: SegmentState::Open, rows: 0, columns };
        Ok((record, level))
    }

    /// Lets files under drives grow now, while running out of space is still an answer and not a loss.
    async fn reserve_backing(&self, columns: &[format::SegmentColumn]) -> Result<()> {
        for (index, zone) in columns.iter().filter_map(|column| column.zone) {
            let Some(drive) = self.drives.get(index.index()).and_then(Option::as_ref) else { continue };
            let reserved = drive.reserve(self.geometry.zone_offset(zone), self.geometry.zone_bytes).await;
            match reserved {
                Err(error) if error.kind() == IoErrorKind::NoSpace => {
                    let message = format!("the file system under drive {index} is full");
                    return Err(Error::new(ErrorKind::NoSpace, message));
                }
                // Anything else shows when the zone is written.
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes zones back. They are told to the drives as unused before anybody may use them again.
    async fn release(&self, segments: Vec<SegmentRecord>) {
        let freed: Vec<_> = segments.iter().map(|segment| segment.incarnation.get()).collect();
        tracing::debug!(incarnations = ?freed, "zones come back");
        for (index, zone) in
            segments.iter().flat_map(|segment| &segment.columns).filter_map(|column| column.zone)
        {
            let drive = self.drives.get(index.index()).and_then(Option::as_ref);
            if let Some(drive) = drive.filter(|drive| drive.properties().discard) {
                // A refused discard costs the drive some spare area, nothing else.
                let _ = drive.discard(self.geometry.zone_offset(zone), self.geometry.zone_bytes).await;
            }
            self.state.borrow_mut().zones.free(index, zone);
        }
        self.count_space();
        for shard in self.shards.borrow().iter() {
            let _ = shard.remote().post({
                let shard = shard.clone();
                move || shard.local().into_iter().for_each(|shard| shard.space_freed())
            });
        }
    }

    /// Changes the superblock and waits until the change is on the drives (C1).
    pub(crate) async fn publish(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let ticket = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            change(&mut state.superblock);
            state.wanted += 1;
            state.wanted
        };
        self.changed.notify();
        self.published
            .until(|| {
                let state = self.state.borrow();
                match &state.failure {
                    Some(failure) => Some(Err(failure.clone())),
                    None => (state.done >= ticket).then_some(Ok(())),
                }
            })
            .await
    }

    /// Writes superblocks whenever one is wanted, until [`Control::stop`]. One task a pool.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.changed.notified().await;
            while self.has_work() {
                self.publish_round().await;
            }
            if self.state.borrow().stopping {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        let state = self.state.borrow();
        state.failure.is_none() && state.done < state.wanted
    }

    /// Ends the publishing task.
    pub(crate) fn stop(&self) {
        self.state.borrow_mut().stopping = true;
        self.changed.notify();
    }

    /// Writes the superblock as it is now to every drive in use, and loses the drives that do not take it.
    async fn publish_round(&self) {
        let (superblock, ticket) = {
            let mut state = self.state.borrow_mut();
            let next = Generation::new(state.superblock.generation.get() + 1);
            state.superblock.generation = next;
            (state.superblock.clone(), state.wanted)
        };
        let failed = self.write_superblock(&superblock).await;
        if failed.is_empty() {
            self.state.borrow_mut().done = ticket;
            self.published.wake_all();
            return;
        }
        for (drive, error) in failed {
            // The state has changed; the next round writes it to the drives that are left.
            self.lose(drive, "a superblock write failed", error).await;
        }
        self.published.wake_all();
    }

    async fn write_superblock(&self, superblock: &Superblock) -> Vec<(DriveIndex, IoError)> {
        let mut writes = Vec::new();
        for (index, record, drive) in self.online(superblock) {
            let bytes = superblock.encode(record.id);
            assert!(bytes.len() as u64 <= SUPERBLOCK_SLOT, "a superblock fits its slot");
            let slot = self.slots.borrow().get(index.index()).copied().unwrap_or_default().other();
            let write = drive.write(slot.offset(), &[Buffer::copy_of(&bytes).span()]);
            writes.push((index, drive, write));
        }
        let mut failed = Vec::new();
        let mut flushes = Vec::new();
        for (index, drive, write) in writes {
            match write.await {
                Ok(_) => flushes.push((index, drive.flush())),
                Err(error) => failed.push((index, error)),
            }
        }
        for (index, flush) in flushes {
            match flush.await {
                Ok(_) => {
                    if let Some(slot) = self.slots.borrow_mut().get_mut(index.index()) {
                        *slot = slot.other();
                    }
                }
                Err(error) => failed.push((index, error)),
            }
        }
        failed
    }

    fn online<'a>(
        &'a self,
        superblock: &'a Superblock,
    ) -> impl Iterator<Item = (DriveIndex, &'a format::DriveRecord, &'a Rc<dyn Drive>)> {
        let drives = superblock.drives.iter().zip(&self.drives).enumerate();
        drives.filter_map(|(index, (record, drive))| {
            let index = DriveIndex::new(u16::try_from(index).ok()?);
            (record.state == DriveState::Online).then_some((index, record, drive.as_ref()?))
        })
    }

    /// Takes a drive out of use everywhere and makes the superblocks say so (C3).
    ///
    /// # Errors
    /// When that is more than the scheme bears: the pool has failed then.
    async fn drive_failed(&self, drive: DriveIndex, doing: &'static str, error: IoError) -> Result<()> {
        self.lose(drive, doing, error).await;
        self.publish(|_| ()).await
    }

    /// Takes a drive out of use on request.
    ///
    /// # Errors
    /// `NotFound` if it is not in use, `PoolFailed` if the pool could not bear that; nothing has changed then.
    pub(crate) async fn fail_drive(&self, drive: DriveIndex) -> Result<()> {
        {
            let state = self.state.borrow();
            if state.superblock.drive(drive).is_none_or(|record| record.state != DriveState::Online) {
                return Err(Error::new(ErrorKind::NotFound, format!("drive {drive} is not in use")));
            }
            if state.lost() >= usize::from(self.geometry.scheme.parity()) {
                let message =
                    format!("the pool cannot bear the loss of drive {drive}: {} lost already", state.lost());
                return Err(Error::new(ErrorKind::PoolFailed, message));
            }
        }
        self.lose(drive, "taken out of use on request", IoError::new(IoErrorKind::Gone)).await;
        self.publish(|_| ()).await
    }

    /// Takes a drive out of use, in memory and at the shards.
    async fn lose(&self, drive: DriveIndex, doing: &'static str, error: IoError) {
        let first = {
            let mut state = self.state.borrow_mut();
            let online =
                state.superblock.drive(drive).is_some_and(|record| record.state == DriveState::Online);
            if !online {
                false
            } else if state.lost() >= usize::from(self.geometry.scheme.parity()) {
                let why = Error::new(
                    ErrorKind::PoolFailed,
                    format!("{doing} on drive {drive} ({error}), and the pool cannot bear another loss"),
                );
                tracing::error!(%drive, %error, doing, "too many drives are lost: the pool takes no more writes");
                state.failure.get_or_insert(why);
                false
            } else {
                state.mark_failed(drive);
                true
            }
        };
        if let Some(failure) = self.failure() {
            self.fail_shards(&failure);
            return;
        }
        if first {
            self.count_space();
            tracing::error!(%drive, %error, doing, "a drive is lost: the pool is degraded");
            self.tell_shards(drive).await;
        }
    }

    /// Fails every shard: the pool is read-only from now on.
    fn fail_shards(&self, failure: &Error) {
        self.published.wake_all();
        for shard in self.shards.borrow().iter() {
            let (home, failure) = (shard.clone(), failure.clone());
            let _ = shard.remote().post(move || {
                home.local().into_iter().for_each(|shard| shard.fail(&failure));
            });
        }
    }

    /// Tells every shard that a drive is lost, and takes over what that changes in their segments.
    async fn tell_shards(&self, drive: DriveIndex) {
        let shards = self.shards.borrow().clone();
        for (index, shard) in shards.into_iter().enumerate() {
            let told = shard.call(move |shard| async move { shard.drive_lost(drive) }).await;
            if let (Ok(record), Some(place)) =
                (told, self.state.borrow_mut().superblock.shards.get_mut(index))
            {
                *place = record;
            }
        }
    }
}

impl State {
    /// Drives that belong to the pool and are not in use.
    fn lost(&self) -> usize {
        let lost = |state| matches!(state, DriveState::Missing | DriveState::Failed);
        self.superblock.drives.iter().filter(|drive| lost(drive.state)).count()
    }

    fn mark_failed(&mut self, drive: DriveIndex) {
        let since = self.superblock.generation;
        if let Some(record) = self.superblock.drives.get_mut(drive.index()) {
            record.state = DriveState::Failed;
            record.since = since;
        }
        self.zones.set_online(drive, false);
    }
}

/// A shard's way to the pool's control.
#[derive(Clone)]
pub(crate) struct ControlLink {
    pub(crate) control: Home<Control>,
    pub(crate) shard: ShardIndex,
}

impl ControlLink {
    /// See [`Control::allocate`].
    pub(crate) async fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        privilege: Privilege,
    ) -> Result<(SegmentRecord, Privilege)> {
        let allocate =
            move |control: Rc<Control>| async move { control.allocate(scheme, class, privilege).await };
        self.control.call(allocate).await?
    }

    /// Publishes the shard's state.
    pub(crate) async fn publish(&self, record: ShardRecord) -> Result<()> {
        let index = self.shard.index();
        let publish = move |control: Rc<Control>| async move {
            let change = |superblock: &mut Superblock| {
                if let Some(place) = superblock.shards.get_mut(index) {
                    *place = record;
                }
            };
            control.publish(change).await
        };
        self.control.call(publish).await?
    }

    /// See [`Control::drive_failed`].
    pub(crate) async fn drive_failed(
        &self,
        drive: DriveIndex,
        doing: &'static str,
        error: IoError,
    ) -> Result<()> {
        let failed =
            move |control: Rc<Control>| async move { control.drive_failed(drive, doing, error).await };
        self.control.call(failed).await?
    }

    /// Gives zones back, in the background.
    pub(crate) fn release(&self, segments: Vec<SegmentRecord>) {
        let control = self.control.clone();
        let _ = self.control.remote().post(move || {
            if let Some(control) = control.local() {
                Reactor::current().spawn(async move { control.release(segments).await }).detach();
            }
        });
    }
}
