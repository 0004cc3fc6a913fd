//! The pool's own state: one task of the pool's home reactor that owns the superblock and the free zones.
//!
//! Shards ask it for zones, tell it of lost drives, and have it publish what recoveries start from. Always true:
//! - C1: what a publish promises is on every drive in use, flushed, before its caller goes on.
//! - C2: two superblocks of one opening differ in their generation, and of two openings in their lineage.
//! - C3: a drive is taken out of use by every shard, and the superblocks say so, before anybody counts on it.
//!
//! Must not know: records, maps, volumes.

mod errors;
mod link;
mod loss;
mod members;
mod publish;
mod repair;
mod scrub;
mod trim;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use format::{
    DriveIndex, DriveState, EventKind, Generation, Incarnation, Scheme, SegmentClass, SegmentRecord,
    SegmentState, StateStamp, Superblock, ZoneIndex,
};
use reactor::{Drive, Home, Notify, Semaphore, WaitList};

use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::geometry::{Geometry, SuperblockSlot};
use crate::pool::StateMemory;
use crate::scrub::Scrub;
use crate::segments::AllocPriority;
use crate::shard::Shard;
use crate::space::{Reserve, Space};
use crate::volume::join_all;
use crate::zones::{AllocatedZones, Zones};
pub(crate) use link::ControlLink;
use members::JoiningDrive;
pub(crate) use repair::ZoneGrant;

/// See the module.
pub(crate) struct Control {
    state: RefCell<State>,
    geometry: Geometry,
    /// The drives as this reactor opened them; `None` where they are not in use.
    drives: RefCell<Vec<Option<Rc<dyn Drive>>>>,
    /// The slot that holds each drive's last superblock.
    slots: RefCell<Vec<SuperblockSlot>>,
    shards: RefCell<Vec<Home<Shard>>>,
    /// Free segments that only the pool's own records may use.
    reserve: Cell<Reserve>,
    /// How full the pool is, for the shards.
    space: Arc<Space>,
    /// Where is said what happens to drives.
    events: Arc<Events>,
    /// Keeps the newest state beside the drives.
    memory: Option<Arc<dyn StateMemory>>,
    changed: Notify,
    published: WaitList,
    /// This opening has begun to write superblocks.
    has_published: Cell<bool>,
    /// [`Control::run`] has not ended.
    running: Cell<bool>,
    loss_done: WaitList,
    /// Zones came back, or [`Control::stop`].
    zones_freed: Notify,
    /// Drives join and leave one at a time.
    membership: Rc<Semaphore>,
    /// Lost drives are being looked at: does anything still refer to them?
    finishing_changes: Cell<bool>,
    finish_again: Cell<bool>,
    /// What is known of the drives' errors.
    errors: errors::ErrorTracking,
    scrubbing: scrub::ScrubControl,
    /// What is done to free zones, one at a time.
    reserving: Cell<bool>,
    /// How many wait to reserve: discards let them go first.
    to_reserve: Cell<usize>,
    discarding: Cell<bool>,
    idle: WaitList,
}

struct State {
    superblock: Superblock,
    zones: Zones,
    /// Publishes asked for, and those that are done.
    wanted: u64,
    done: u64,
    /// The newest state of this opening that is on every drive in use.
    published: Option<StateStamp>,
    /// What the memory beside the pool was last told of: whether the pool is closed, and the states of its drives.
    remembered: Option<(bool, Vec<DriveState>)>,
    failure: Option<Error>,
    /// Lost drives of which not everybody knows yet.
    propagating: Vec<DriveIndex>,
    /// The drive that is to join with the next publish, and why the last one could not.
    joining: Option<JoiningDrive>,
    refused: Option<Error>,
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
    /// Blocks that room is kept for in thick volumes, beside those that live.
    pub reservation_blocks: u64,
}

impl Control {
    pub(crate) fn new(
        superblock: Superblock,
        zones: Zones,
        drives: Vec<Option<Rc<dyn Drive>>>,
        slots: Vec<SuperblockSlot>,
        reserve: Reserve,
        (space, events, memory): (Arc<Space>, Arc<Events>, Option<Arc<dyn StateMemory>>),
        (retire_after, scrub): (u32, Arc<Scrub>),
    ) -> Rc<Self> {
        let geometry = Geometry::of(&superblock);
        let errors = errors::ErrorTracking::new(&superblock, retire_after);
        let state = State {
            superblock,
            zones,
            wanted: 0,
            done: 0,
            published: None,
            remembered: None,
            failure: None,
            propagating: Vec::new(),
            joining: None,
            refused: None,
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
            to_reserve: Cell::default(),
            discarding: Cell::default(),
            idle: WaitList::default(),
        });
        control.count_space();
        control
    }

    /// Tells the shards how many segments there are, after zones were taken, given back or lost.
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

    /// A copy of the superblock as it is now.
    pub(crate) fn superblock(&self) -> Superblock {
        self.state.borrow().superblock.clone()
    }

    /// The path by which a drive was last known.
    fn path_of(&self, drive: DriveIndex) -> String {
        let state = self.state.borrow();
        state.superblock.drive(drive).map(|record| record.path.clone()).unwrap_or_default()
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

    /// Has every shard but one clean, for that one. True if it gained anything.
    async fn clean_others(&self, except: usize) -> bool {
        let shards = self.shards.borrow().clone();
        let others = shards.into_iter().enumerate().filter(|(index, _)| *index != except);
        let gained = Cell::new(false);
        let clean = others.map(|(_, shard)| async {
            let shard = shard;
            let clean = shard.call(|shard| async move { shard.clean_for_others().await });
            gained.set(clean.await.unwrap_or(false) || gained.get());
            Ok(())
        });
        join_all(clean).await.is_ok() && gained.get()
    }

    /// Free zones of each drive.
    pub(crate) fn free_zones(&self) -> Vec<u32> {
        self.state.borrow().zones.free_by_drive()
    }

    /// Zones for a new segment, and who may use it.
    ///
    /// # Errors
    /// `NoSpace` if none are left for this use, or a file under a drive cannot grow.
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
            let none = "the pool has no free zones: bring back drives that are missing, or add one";
            (allocated.ok_or_else(|| Error::new(ErrorKind::NoSpace, none))?, level)
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

    /// Takes zones back.
    fn release(&self, zones: &[(DriveIndex, ZoneIndex)]) {
        for (index, zone) in zones {
            self.state.borrow_mut().zones.free(*index, *zone);
        }
        self.zones_freed.notify();
        self.notify_space_freed();
    }

    /// There is more space than there was: who waits for some looks again.
    fn notify_space_freed(&self) {
        self.count_space();
        for shard in self.shards.borrow().iter() {
            let _ = shard.remote().post({
                let shard = shard.clone();
                move || shard.local().into_iter().for_each(|shard| shard.space_freed())
            });
        }
    }

    /// A drive as this reactor opened it; `None` if it is missing.
    fn drive(&self, index: DriveIndex) -> Option<Rc<dyn Drive>> {
        self.drives.borrow().get(index.index()).cloned().flatten()
    }
}

/// Columns that segments of the pool may miss: one for each drive that belongs to it and is not in use, or has come back and misses
/// something; more if too few drives are left for all columns of a segment.
pub(crate) fn columns_missing(superblock: &Superblock) -> usize {
    let count = |is: fn(DriveState) -> bool| superblock.drives.iter().filter(|drive| is(drive.state)).count();
    let (lost, in_use) = (count(DriveState::counts_as_lost), count(DriveState::is_in_use));
    lost.max(usize::from(superblock.scheme.width()).saturating_sub(in_use))
}

/// Drives that were to be emptied stay while others count as lost: what those held comes first, and wants the space. Gives those that stay.
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
        tracing::warn!(drive = %index, "a drive that was to be emptied stays: another one is lost");
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
    /// Columns that a segment of the pool may miss, as far as drives tell.
    fn lost(&self) -> usize {
        columns_missing(&self.superblock)
    }

    /// True if a drive is read and written.
    fn is_in_use(&self, drive: DriveIndex) -> bool {
        self.superblock.drive(drive).is_some_and(|record| record.state.is_in_use())
    }

    /// The same when this drive is lost too.
    fn lost_with(&self, drive: DriveIndex) -> usize {
        let mut superblock = self.superblock.clone();
        superblock
            .drives
            .get_mut(drive.index())
            .into_iter()
            .for_each(|record| record.state = DriveState::Failed);
        columns_missing(&superblock)
    }

    fn mark_lost(&mut self, drive: DriveIndex, becomes: DriveState) {
        assert!(becomes.is_lost(), "a lost drive is missing or has failed");
        let (since, left_at) = (self.superblock.generation, self.superblock.stamp());
        if let Some(record) = self.superblock.drives.get_mut(drive.index()) {
            (record.state, record.since, record.left_at) = (becomes, since, left_at);
        }
        self.zones.set_online(drive, false);
    }

    /// A drive was lost: those that were to be emptied stay.
    fn cancel_draining_drives(&mut self, events: &Events) {
        let since = self.superblock.generation;
        for index in cancel_draining(&mut self.superblock, since, events) {
            self.zones.set_online(index, true);
        }
    }
}
