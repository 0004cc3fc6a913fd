//! Fill level of the pool: counters that the control and the shards keep up to date.
//!
//! Always true: these numbers are hints. The control owns the free zones, and each shard's segment
//! table owns the live counts; allocation decisions that must be exact use those.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use format::{DriveState, Scheme, Superblock};

use crate::geometry::Geometry;
use crate::invariant::narrow;
use crate::segments::AllocPriority;

/// Fill level of the pool. Shared by the pool's reactors.
#[derive(Debug)]
pub(crate) struct Space {
    /// Segments of the pool's scheme that fit the drives in use, free or allocated.
    total: AtomicU32,
    /// Segments that can be opened now, the reserve included.
    available: AtomicU32,
    /// Segments that can be opened now with all columns.
    full_width: AtomicU32,
    /// Segments reserved for cleaning, trims and checkpoints.
    reserve: AtomicU32,
    /// Blocks of a segment available for live data.
    segment_payload: u64,
    /// Usage of each shard.
    usage: Vec<ShardUsage>,
}

/// Usage of one shard. On a cache line of its own, because each shard updates its own counters
/// often.
#[repr(align(64))]
#[derive(Debug, Default)]
struct ShardUsage {
    /// Live blocks.
    live: AtomicU64,
    /// Blocks reserved for thick volumes, including their map nodes.
    reserved: AtomicU64,
}

/// Minimum reserve per shard, in segments: for checkpoints, trims and the cleaner, and for crashes
/// during these, each of which seals the open segments early.
const RESERVE_PER_SHARD: u32 = 16;
/// The reserve is 1/48 of all segments: half of it holds the map of a full pool twice, so a
/// checkpoint can store the whole map.
const RESERVE_SHARE: u32 = 48;
/// Maximum reserve per shard, in segments: half of it is more than a checkpoint ever stores.
const RESERVE_PER_SHARD_MAX: u32 = 128;
/// Minimum number of blocks that each shard's checkpoints have. Enough for two checkpoints, because
/// the space that the second one frees is released only after it. Increases the reserve if segments
/// are tiny.
const CHECKPOINT_BLOCKS_MIN: u64 = 160;
/// Blocks of a checkpoint that hold no nodes: tables, headers, unused ends of segments.
pub(crate) const CHECKPOINT_OVERHEAD: u64 = 20;
/// Parts of the reserve.
const LEVELS: u32 = 4;
/// Segments that each shard needs in addition to live data: open ones, and freed ones that are not
/// released yet.
const SLACK_PER_SHARD: u32 = 6;
/// 1/16 of the pool stays free of live data, so that the cleaner finds cheap victims.
const FREE_SHARE: u32 = 16;
/// Reserved blocks per reserved map node: a leaf covers 256 blocks, plus the inner nodes.
const RESERVED_PER_NODE: u64 = 128;
/// Writes within a reservation may exceed the capacity by 1/64.
const RESERVATION_SLACK: u64 = 64;

impl Space {
    pub(crate) fn new(shards: usize, segment_payload: u64) -> Self {
        Self {
            total: AtomicU32::new(0),
            available: AtomicU32::new(0),
            full_width: AtomicU32::new(0),
            reserve: AtomicU32::new(0),
            segment_payload,
            usage: (0..shards).map(|_| ShardUsage::default()).collect(),
        }
    }

    /// Stores the control's segment counts.
    pub(crate) fn set_segments(&self, total: u32, available: u32, reserve: u32) {
        self.total.store(total, Ordering::Relaxed);
        self.available.store(available, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
    }

    /// Stores the number of segments that can be opened with all columns.
    pub(crate) fn set_full_width(&self, full_width: u32) {
        self.full_width.store(full_width, Ordering::Relaxed);
    }

    /// Returns true if `segments` segments of each shard that lack columns can be completed and
    /// later be replaced by full-width segments. Otherwise the completed segments could take the
    /// zones that their replacements need, in an endless cycle.
    pub(crate) fn can_replace(&self, segments: usize) -> bool {
        self.full_width.load(Ordering::Relaxed) as usize >= 2 * segments * self.usage.len()
    }

    /// Stores a shard's counts.
    pub(crate) fn set_usage(&self, shard: usize, live: u64, reserved: u64) {
        if let Some(usage) = self.usage.get(shard) {
            usage.live.store(live, Ordering::Relaxed);
            usage.reserved.store(reserved + reserved / RESERVED_PER_NODE, Ordering::Relaxed);
        }
    }

    /// Blocks of a segment available for live data.
    pub(crate) fn segment_payload(&self) -> u64 {
        self.segment_payload
    }

    /// Live blocks in the pool: data, map and tables.
    pub(crate) fn live(&self) -> u64 {
        self.usage.iter().map(|usage| usage.live.load(Ordering::Relaxed)).sum()
    }

    /// Blocks reserved for thick volumes and not written yet.
    pub(crate) fn reservations(&self) -> u64 {
        self.usage.iter().map(|usage| usage.reserved.load(Ordering::Relaxed)).sum()
    }

    /// Segments that can still be opened for user data.
    pub(crate) fn free_for_users(&self) -> u32 {
        self.available.load(Ordering::Relaxed).saturating_sub(self.reserve.load(Ordering::Relaxed))
    }

    /// Returns true if free space is so low that a checkpoint should free the pending segments.
    pub(crate) fn wants_checkpoint(&self, pending_free: usize) -> bool {
        pending_free > 0 && self.free_for_users() <= self.high_water() / 8
    }

    /// Returns true if only operations that certainly free space may open a segment.
    pub(crate) fn is_low(&self) -> bool {
        self.available.load(Ordering::Relaxed) <= freeing_from(self.reserve.load(Ordering::Relaxed))
    }

    /// Returns true if the remaining segments are reserved for checkpoints, so that nothing can be
    /// moved.
    pub(crate) fn only_checkpoint_reserve_left(&self) -> bool {
        let checkpoints = self.checkpoint_segments(self.reserve.load(Ordering::Relaxed));
        self.available.load(Ordering::Relaxed) <= checkpoints
    }

    /// A shard's share of the segments that can be opened now.
    pub(crate) fn shard_share(&self) -> u64 {
        u64::from(self.available.load(Ordering::Relaxed)) / self.usage.len() as u64
    }

    /// Segments of a reserve of this size that only checkpoints may use: half of it, or the most
    /// that two checkpoints of each shard can store, if that is less. With a fixed half, a small
    /// pool that has lost too many drives could fill up with garbage that cannot be moved.
    pub(crate) fn checkpoint_segments(&self, reserve: u32) -> u32 {
        let segments = self.usage.iter().map(|usage| {
            // Existing nodes, and the same number for nodes rewritten when layers are merged.
            let nodes = 2 * usage.live.load(Ordering::Relaxed);
            (2 * (nodes + CHECKPOINT_OVERHEAD)).div_ceil(self.segment_payload.max(1))
        });
        let needed = segments.sum::<u64>().min(u64::from(u32::MAX));
        checkpoints_from(reserve).min(narrow(needed, "S4"))
    }

    /// Number of free segments, including segments that the next checkpoint releases, below which
    /// cleaning starts; cleaning settles at half of it. A lower mark makes checkpoints store the
    /// map too often; a higher one gives segments less time to become empty without cleaning.
    pub(crate) fn high_water(&self) -> u32 {
        let shards: u32 = narrow(self.usage.len(), "C5");
        (self.total.load(Ordering::Relaxed) / 20).clamp(SLACK_PER_SHARD * shards, 128 * shards)
    }

    /// Maximum number of live blocks. Writes that need more space fail; cleaning and checkpoints
    /// need the rest.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity_of(self.total.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed))
    }

    /// Returns the capacity for this many segments with a reserve of this size.
    pub(crate) fn capacity_of(&self, total: u32, reserve: u32) -> u64 {
        let usable = total.saturating_sub(reserve);
        // In tiny pools the slack is limited to a quarter.
        u64::from(usable - self.slack(total).min(usable / 4)) * self.segment_payload
    }

    /// Segments that hold no live data because they are open, freed, or needed by the cleaner.
    fn slack(&self, total: u32) -> u32 {
        let shards: u32 = narrow(self.usage.len(), "C5");
        (total / FREE_SHARE).max(SLACK_PER_SHARD * shards)
    }

    /// Live blocks that certainly fit: the capacity, less in tiny pools, where shards compete for
    /// segments.
    fn guaranteed(&self) -> u64 {
        let (total, reserve) = (self.total.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed));
        u64::from(total.saturating_sub(reserve).saturating_sub(self.slack(total))) * self.segment_payload
    }

    /// Returns true if live and reserved blocks reach the capacity.
    pub(crate) fn is_full(&self) -> bool {
        self.live() + self.reservations() >= self.capacity()
    }

    /// Returns true if a write within a reservation does not fit. The limit is slightly above the
    /// capacity, because other writes admitted at the same time may have used a little of the
    /// reserved space.
    pub(crate) fn is_full_for_reservations(&self) -> bool {
        let capacity = self.capacity();
        self.live() >= capacity + capacity / RESERVATION_SLACK
    }

    /// Returns true if live and reserved blocks exceed the guaranteed capacity.
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.live() + self.reservations() > self.guaranteed()
    }

    /// Free segments as a fraction of [`Space::high_water`]. `coming` is the number of segments
    /// that the next checkpoint releases.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn free_ratio(&self, coming: u32) -> f32 {
        (self.free_for_users() + coming) as f32 / self.high_water() as f32
    }
}

/// The last segments of a pool, reserved for operations by [`AllocPriority`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// Number of segments with no spare drive.
    segments: u32,
    /// Drives left after as many failures as the scheme tolerates; at least the number of columns.
    left: u32,
}

impl Reserve {
    /// Returns the reserve of a pool: a share of all segments, and a minimum for each shard.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        let shards: u32 = narrow(superblock.shards.len(), "C5");
        let stays = |state| !matches!(state, DriveState::Removed | DriveState::Draining);
        let belong = || superblock.drives.iter().filter(|drive| stays(drive.state));
        let zones: u64 = belong().map(|drive| u64::from(drive.zones)).sum();
        let all =
            narrow::<u32, _>((zones / u64::from(superblock.scheme.width())).min(u64::from(u32::MAX)), "C5");
        let drives = narrow(belong().count(), "C5");
        let checkpoints = CHECKPOINT_BLOCKS_MIN.div_ceil(Geometry::of(superblock).segment_blocks());
        let checkpoints: u32 = narrow(checkpoints, "S4");
        let per_shard = RESERVE_PER_SHARD.max((LEVELS * checkpoints).min(all / 4 / shards));
        let share = (all / RESERVE_SHARE).min(RESERVE_PER_SHARD_MAX * shards);
        Self::new(share.max(per_shard * shards), superblock.scheme, drives)
    }

    fn new(segments: u32, scheme: Scheme, drives: u32) -> Self {
        let left = drives.saturating_sub(scheme.parity().into()).max(scheme.width().into());
        Self { segments, left }
    }

    /// Returns the reserve after the pool's drives have changed. It never shrinks, because shards
    /// have sized the work left to their next checkpoint by the old one.
    pub(crate) fn grown(self, superblock: &Superblock) -> Self {
        let now = Self::of(superblock);
        Self { segments: now.segments.max(self.segments), ..now }
    }

    /// Segments of the reserve with this many drives in use. With more drives than columns, each
    /// drive failure removes free zones; the remainder must still be sufficient.
    pub(crate) fn with_drives(self, drives: u32) -> u32 {
        if drives <= self.left {
            self.segments
        } else {
            (self.segments * drives).div_ceil(self.left) + LEVELS
        }
    }

    /// Maximum number of map nodes that a shard may dirty between two checkpoints. `recent` is the
    /// maximum number of segments that one checkpoint may fill. A checkpoint must fit the shard's
    /// part of the reserve, in addition to the previous one.
    pub(crate) fn dirty_nodes(self, geometry: &Geometry, shards: u64, recent: u64) -> u64 {
        let segments = (u64::from(checkpoints_from(self.segments)) / shards).clamp(1, recent.max(1));
        let half = (segments * geometry.segment_payload() / 2).saturating_sub(CHECKPOINT_OVERHEAD);
        (half * 7 / 8).max(1)
    }

    /// Returns the lowest priority that may open a segment, with `available` segments and `drives`
    /// drives.
    pub(crate) fn level(self, space: &Space, available: u32, drives: u32) -> AllocPriority {
        match self.with_drives(drives) {
            reserve if available > reserve => AllocPriority::User,
            reserve if available > freeing_from(reserve) => AllocPriority::Trimming,
            reserve if available > space.checkpoint_segments(reserve) => AllocPriority::Freeing,
            _ => AllocPriority::Checkpoint,
        }
    }
}

/// Number of available segments below which trims may not open a segment.
fn freeing_from(reserve: u32) -> u32 {
    reserve - reserve / 4
}

/// Half of a reserve, for checkpoints. The maximum size of a checkpoint determines the interval
/// between checkpoints.
fn checkpoints_from(reserve: u32) -> u32 {
    reserve / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_levels_hold_after_drive_losses() {
        for (text, drives) in [("1+2", 5), ("1+1", 4), ("4+1", 6), ("4+1", 24), ("4+2", 6)] {
            let scheme: Scheme = text.parse().unwrap();
            let reserve = Reserve::new(24, scheme, drives);
            assert_eq!(reserve.with_drives(scheme.width().into()), 24);
            let space = Space::new(1, 100);
            space.set_usage(0, 1_000_000, 0);
            let (width, lost) = (u32::from(scheme.width()), u32::from(scheme.parity()));
            for level in [AllocPriority::Trimming, AllocPriority::Freeing] {
                let least =
                    (0..100).find(|available| reserve.level(&space, *available, drives) <= level).unwrap();
                let left = (drives - lost).max(1);
                let after = least * width * left / drives / width.min(left);
                assert!(
                    reserve.level(&space, after, left) <= level,
                    "{text} {drives}: {least} before, {after} after"
                );
            }
        }
    }

    #[test]
    fn checkpoints_reserve_no_more_than_they_can_store() {
        let space = Space::new(2, 44);
        space.set_usage(0, 66, 0);
        space.set_usage(1, 39, 0);
        assert_eq!(space.checkpoint_segments(32), 7 + 5);
        assert_eq!(space.checkpoint_segments(16), 8);
        space.set_usage(0, 5_000, 0);
        assert_eq!(space.checkpoint_segments(32), 16);
        space.set_segments(26, 14, 32);
        assert!(space.only_checkpoint_reserve_left());
        space.set_usage(0, 66, 0);
        assert!(!space.only_checkpoint_reserve_left());
    }

    #[test]
    fn segments_released_by_the_next_checkpoint_count_as_free() {
        let space = Space::new(1, 1024);
        space.set_segments(1280, 1280, 32);
        assert_eq!(space.high_water(), 64);
        space.set_segments(1280, 64, 32);
        assert_eq!((space.free_ratio(0), space.free_ratio(32)), (0.5, 1.0));
        space.set_segments(1280, 20, 32);
        assert_eq!((space.free_ratio(0), space.free_for_users()), (0.0, 0));
    }

    #[test]
    fn the_pool_is_full_before_the_last_segments() {
        let space = Space::new(2, 100);
        space.set_segments(1000, 0, 30);
        assert_eq!(space.capacity(), (1000 - 30 - 62) * 100);
        space.set_usage(0, 50_000, 0);
        space.set_usage(1, 40_799, 0);
        assert!(!space.is_full());
        space.set_usage(1, 40_800, 0);
        assert!(space.is_full());
        space.set_segments(20, 0, 12);
        assert_eq!(space.capacity(), 600);
    }

    #[test]
    fn reservations_count_only_for_other_writers() {
        let space = Space::new(1, 100);
        space.set_segments(1000, 0, 30);
        space.set_usage(0, 2_000, 90_000);
        assert!(space.is_full() && !space.is_full_for_reservations());
        assert_eq!(space.reservations(), 90_000 + 703);
        space.set_usage(0, 2_000, 80_000);
        assert!(!space.is_full());
        space.set_usage(0, 94_000, 0);
        assert!(space.is_full_for_reservations());
    }
}
