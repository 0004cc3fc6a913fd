//! The pool's control: a task on the pool's home reactor that owns the superblock and the free
//! zones.
//!
//! Shards allocate zones from it, report lost drives to it, and publish their recovery state
//! through it. Always true:
//! - C1: a published state is flushed on every online drive before [`Control::publish`] returns.
//! - C2: superblocks of one opening differ in their generation, those of two openings in their
//!   lineage.
//! - C3: before any code relies on a drive's loss, the superblocks record the loss and every shard
//!   has taken the drive offline.
//!
//! Must not know: records, maps, volumes.

mod errors;
mod loss;
mod members;
mod publish;
mod repair;
mod scrub;
mod services;
mod trim;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use format::{
    DriveIndex, DriveState, EventKind, Generation, Incarnation, Scheme, SegmentClass, SegmentRecord,
    SegmentState, StateStamp, Superblock, ZoneIndex,
};
use reactor::{Drive, Handle, Notify, Semaphore, WaitList};

use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::geometry::{Geometry, SuperblockSlot};
use crate::join_all::join_all;
use crate::scrub::Scrub;
use crate::segments::AllocPriority;
use crate::shard::Shard;
use crate::space::{Reserve, Space};
use crate::state_store::PoolStateStore;
use crate::zones::{AllocatedZones, FreeSpace, Zones};
use members::JoiningDrive;

/// The control of a pool.
pub(crate) struct Control {
    state: RefCell<State>,
    geometry: Geometry,
    /// The drives, as opened on this reactor; `None` for offline ones.
    drives: RefCell<Vec<Option<Rc<dyn Drive>>>>,
    /// Slot of each drive's newest superblock.
    slots: RefCell<Vec<SuperblockSlot>>,
    shards: RefCell<Vec<Handle<Shard>>>,
    /// Segments reserved for internal operations.
    reserve: Cell<Reserve>,
    /// Fill level of the pool, shared with the shards.
    space: Arc<Space>,
    /// Event log.
    events: Arc<Events>,
    /// Storage outside of the pool that remembers the newest state.
    memory: Option<Arc<dyn PoolStateStore>>,
    changed: Notify,
    published: WaitList,
    /// This opening has started to write superblocks.
    has_published: Cell<bool>,
    /// [`Control::run`] is running.
    running: Cell<bool>,
    loss_done: WaitList,
    /// Signalled when zones are released, and by [`Control::stop`].
    zones_freed: Notify,
    /// Serializes membership changes.
    membership: Rc<Semaphore>,
    /// Set while a task checks if removed and returning drives are complete; `finish_again` makes
    /// it start over.
    finishing_changes: Cell<bool>,
    finish_again: Cell<bool>,
    /// Error state of the drives.
    errors: errors::ErrorTracking,
    scrubbing: scrub::ScrubControl,
    /// Reservations and discards of backing space exclude each other.
    reserving: Cell<bool>,
    /// Number of waiting reservations, which have priority over discards.
    waiting_reservations: Cell<usize>,
    discarding: Cell<bool>,
    idle: WaitList,
}

struct State {
    superblock: Superblock,
    zones: Zones,
    /// Number of publishes requested, and of those completed.
    requested: u64,
    completed: u64,
    /// Newest state of this opening that is on every online drive.
    published: Option<StateStamp>,
    /// Clean flag and drive states last stored in the [`PoolStateStore`].
    memory_state: Option<(bool, Vec<DriveState>)>,
    /// The error of the last attempt to store the newest state in the [`PoolStateStore`].
    unrecorded: Option<String>,
    failure: Option<Error>,
    /// Lost drives that are not yet marked lost in the superblocks, or still in use by a shard.
    propagating: Vec<DriveIndex>,
    /// Drive to join with the next publish, and the error of the last join.
    joining: Option<JoiningDrive>,
    join_error: Option<Error>,
    stopping: bool,
}

/// Fill level of a pool, in segments of its scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCounters {
    /// Zones of online drives.
    pub zones: u64,
    /// Free zones of online drives.
    pub free_zones: u64,
    /// Segments that can still be opened for user data.
    pub free_segments: u32,
    /// Segments reserved for internal operations.
    pub reserve_segments: u32,
    /// Live blocks: data, map and tables.
    pub live_blocks: u64,
    /// Maximum number of live blocks; beyond it, writes that need more space fail.
    pub capacity_blocks: u64,
    /// Blocks reserved for thick volumes and not written yet.
    pub reservation_blocks: u64,
}

impl Control {
    pub(crate) fn new(
        superblock: Superblock,
        zones: Zones,
        drives: Vec<Option<Rc<dyn Drive>>>,
        slots: Vec<SuperblockSlot>,
        reserve: Reserve,
        (space, events, memory): (Arc<Space>, Arc<Events>, Option<Arc<dyn PoolStateStore>>),
        (retire_after, scrub): (u32, Arc<Scrub>),
    ) -> Rc<Self> {
        let geometry = Geometry::of(&superblock);
        let errors = errors::ErrorTracking::new(&superblock, retire_after);
        let state = State {
            superblock,
            zones,
            requested: 0,
            completed: 0,
            published: None,
            memory_state: None,
            unrecorded: None,
            failure: None,
            propagating: Vec::new(),
            joining: None,
            join_error: None,
            stopping: false,
        };
        let control = Rc::new(Self {
            state: RefCell::new(state),
            geometry,
            drives: RefCell::new(drives),
            slots: RefCell::new(slots),
            shards: RefCell::default(),
            reserve: Cell::new(reserve),
            space,
            events,
            memory,
            changed: Notify::default(),
            published: WaitList::default(),
            has_published: Cell::new(false),
            running: Cell::new(true),
            loss_done: WaitList::default(),
            zones_freed: Notify::default(),
            membership: Semaphore::new(1),
            finishing_changes: Cell::default(),
            finish_again: Cell::default(),
            errors,
            scrubbing: scrub::ScrubControl::new(scrub),
            reserving: Cell::default(),
            waiting_reservations: Cell::default(),
            discarding: Cell::default(),
            idle: WaitList::default(),
        });
        control.count_space();
        control
    }

    /// Updates the shared segment counts after zones were allocated, freed or lost.
    fn count_space(&self) {
        {
            let mut state = self.state.borrow_mut();
            let State { superblock, zones, .. } = &mut *state;
            zones.allow_holes(superblock.drives.iter().map(|record| record.state.counts_as_lost()));
        }
        let state = self.state.borrow();
        self.space.set_full_width(state.zones.full_width(self.geometry.scheme));
        let (total, available) =
            (state.zones.capacity(self.geometry.scheme), state.zones.available(self.geometry.scheme));
        self.space.set_segments(total, available, self.reserve.get().with_drives(state.zones.drives()));
    }

    /// Returns a copy of the current superblock.
    pub(crate) fn superblock(&self) -> Superblock {
        self.state.borrow().superblock.clone()
    }

    /// Last known path of a drive.
    fn path_of(&self, drive: DriveIndex) -> String {
        let state = self.state.borrow();
        state.superblock.drive(drive).map_or_else(String::new, |record| record.path.clone())
    }

    /// Returns the reason if the pool is read-only.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.borrow().failure.clone()
    }

    /// Returns the fill level of the pool.
    pub(crate) fn space(&self) -> SpaceCounters {
        let state = self.state.borrow();
        let (zones, free_zones) = state.zones.totals();
        let available = state.zones.available(self.geometry.scheme);
        let reserve = self.reserve.get().with_drives(state.zones.drives());
        SpaceCounters {
            zones,
            free_zones,
            free_segments: available.saturating_sub(reserve),
            reserve_segments: reserve.min(available),
            live_blocks: self.space.live(),
            capacity_blocks: self.space.capacity(),
            reservation_blocks: self.space.reservations(),
        }
    }

    /// Returns the free zones that new segments can take.
    fn free_space(&self) -> FreeSpace {
        self.state.borrow().zones.free_space(self.geometry.scheme)
    }

    /// Cleans in every shard except one, on behalf of that one. Returns true if space was freed.
    async fn clean_others(&self, except: usize) -> bool {
        let shards = self.shards.borrow().clone();
        let others = shards.into_iter().enumerate().filter(|(index, _)| *index != except);
        let freed = Cell::new(false);
        let clean = others.map(|(_, shard)| async {
            let shard = shard;
            let clean = shard.call(|shard| async move { shard.cleaner.clean_for_others(&shard).await });
            freed.set(clean.await.unwrap_or(false) || freed.get());
            Ok(())
        });
        join_all(clean).await.is_ok() && freed.get()
    }

    /// Number of free zones of each drive.
    pub(crate) fn free_zones(&self) -> Vec<u32> {
        self.state.borrow().zones.free_by_drive()
    }

    /// Allocates zones for a new segment; also returns the lowest priority that may use it.
    ///
    /// # Errors
    /// `NoSpace` if no segment is available at this priority, or if a file under a drive cannot
    /// grow.
    async fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> Result<(SegmentRecord, AllocPriority)> {
        let (allocated, level) = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let available = state.zones.available(self.geometry.scheme);
            let level = self.reserve.get().level(&self.space, available, state.zones.drives());
            if priority < level {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the pool is full: delete or trim data, or add a drive",
                ));
            }
            let allocated = state.zones.allocate(scheme);
            let message = "the pool has no free zones: return missing drives, or add a drive";
            (allocated.ok_or_else(|| Error::new(ErrorKind::NoSpace, message))?, level)
        };
        self.count_space();
        let AllocatedZones { columns, unbacked } = allocated;
        if let Err(error) = self.reserve_backing(&unbacked).await {
            let zones = columns.iter().filter_map(|column| column.zone);
            self.state.borrow_mut().zones.return_unused(zones, &unbacked);
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

    /// Frees zones.
    fn release(&self, zones: &[(DriveIndex, ZoneIndex)]) {
        for (index, zone) in zones {
            self.state.borrow_mut().zones.free(*index, *zone);
        }
        self.zones_freed.notify();
        self.notify_space_freed();
    }

    /// Updates the shared counts and wakes tasks that wait for space.
    fn notify_space_freed(&self) {
        self.count_space();
        for shard in self.shards.borrow().iter() {
            let _ = shard.remote().post({
                let shard = shard.clone();
                move || shard.local().into_iter().for_each(|shard| shard.space_freed())
            });
        }
    }

    /// Returns a drive as opened on this reactor; `None` if it is offline.
    fn drive(&self, index: DriveIndex) -> Option<Rc<dyn Drive>> {
        self.drives.borrow().get(index.index()).cloned().flatten()
    }
}

/// Maximum number of columns that segments of the pool may lack: one per drive that is lost or
/// incomplete, more if too few drives are left for all columns.
pub(crate) fn columns_missing(superblock: &Superblock) -> usize {
    let count = |is: fn(DriveState) -> bool| superblock.drives.iter().filter(|drive| is(drive.state)).count();
    let (lost, in_use) = (count(DriveState::counts_as_lost), count(DriveState::is_in_use));
    lost.max(usize::from(superblock.scheme.width()).saturating_sub(in_use))
}

/// Cancels drains while other drives count as lost: repair comes first and needs the space. Returns
/// the drives that stay.
pub(crate) fn cancel_draining(
    superblock: &mut Superblock,
    since: Generation,
    events: &Events,
) -> Vec<DriveIndex> {
    if !superblock.drives.iter().any(|record| record.state.counts_as_lost()) {
        return Vec::new();
    }
    let numbered = (0..).map(DriveIndex::new).zip(&mut superblock.drives);
    let mut kept = Vec::new();
    for (index, record) in numbered.filter(|(_, record)| record.state == DriveState::Draining) {
        (record.state, record.since) = (DriveState::Online, since);
        tracing::warn!(drive = %index, "removal cancelled: another drive is lost");
        events.emit_drive(
            index,
            EventKind::DriveDrainCancelled,
            &format!("{}: another drive is lost", record.path),
        );
        kept.push(index);
    }
    kept
}

impl State {
    /// Maximum number of columns that a segment of the pool may lack, by the drive states.
    fn lost(&self) -> usize {
        columns_missing(&self.superblock)
    }

    /// Returns true if a drive is online.
    fn is_in_use(&self, drive: DriveIndex) -> bool {
        self.superblock.drive(drive).is_some_and(|record| record.state.is_in_use())
    }

    /// The same after the loss of one more drive.
    fn lost_with(&self, drive: DriveIndex) -> usize {
        let mut superblock = self.superblock.clone();
        superblock
            .drives
            .get_mut(drive.index())
            .into_iter()
            .for_each(|record| record.state = DriveState::Failed);
        columns_missing(&superblock)
    }

    fn mark_lost(&mut self, drive: DriveIndex, new_state: DriveState) {
        assert!(new_state.is_lost(), "a lost drive is missing or has failed");
        let (since, left_at) = (self.superblock.generation, self.superblock.stamp());
        if let Some(record) = self.superblock.drives.get_mut(drive.index()) {
            (record.state, record.since, record.left_at) = (new_state, since, left_at);
        }
        self.zones.set_online(drive, false);
    }

    /// Cancels drains after a drive loss.
    fn cancel_draining_drives(&mut self, events: &Events) {
        let since = self.superblock.generation;
        for index in cancel_draining(&mut self.superblock, since, events) {
            self.zones.set_online(index, true);
        }
    }
}
