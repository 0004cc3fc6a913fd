//! How full the pool is, for everybody who decides by it: a few numbers that the control and the shards keep up to date.
//!
//! Always true: the numbers are hints of a moment. What must hold exactly (which zones are free, how many blocks of a
//! segment live) is owned by the control and by each shard's segment table; nobody takes a zone on the word of these.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use format::{DriveState, Scheme, Superblock};

use crate::geometry::Geometry;
use crate::segments::AllocPriority;

/// See the module. Shared by the reactors of a pool.
#[derive(Debug)]
pub(crate) struct Space {
    /// Segments of the pool's scheme that the drives in use have room for, free or taken.
    total: AtomicU32,
    /// Those that could be opened now, the reserve included.
    available: AtomicU32,
    /// Those of them that would have all their columns.
    full_width: AtomicU32,
    /// Segments kept back for cleaning, trims and checkpoints.
    reserve: AtomicU32,
    /// Blocks of a segment that can live.
    segment_payload: u64,
    /// What each shard holds.
    usage: Vec<ShardUsage>,
}

/// On a cache line of its own: each shard writes its own often.
#[repr(align(64))]
#[derive(Debug, Default)]
struct ShardUsage {
    /// Live blocks.
    live: AtomicU64,
    /// Blocks that room is kept for, and the nodes of the map for them.
    reserved: AtomicU64,
}

/// Segments of the reserve that each shard needs at least: for checkpoints, for trims, for the cleaner, and for crashes in
/// the middle of all that, each of which ends the open segments early.
const RESERVE_PER_SHARD: u32 = 16;
/// One segment in this many belongs to it: half of that holds the map of a full pool twice, so that a checkpoint may store all of it.
const RESERVE_SHARE: u32 = 48;
/// Segments of it that a shard can make use of: half of that is more than a checkpoint ever stores.
const RESERVE_PER_SHARD_MAX: u32 = 128;
/// Blocks of it that are for each shard's checkpoints at least: for two of them, because what the second frees comes back
/// only after it. Takes more segments where these are tiny.
const CHECKPOINT_BLOCKS_MIN: u64 = 160;
/// Blocks that a checkpoint stores besides nodes, or cannot use: tables, headers, the ends of segments.
pub(crate) const CHECKPOINT_OVERHEAD: u64 = 20;
/// Parts that the reserve has.
const LEVELS: u32 = 4;
/// Segments of slack that each shard needs beside what lives: the open ones, and those on their way to be free.
const SLACK_PER_SHARD: u32 = 6;
/// One part in this many of the pool stays free of live data, so that the cleaner finds segments worth cleaning.
const FREE_SHARE: u32 = 16;
/// Blocks for which room is kept that one node of the map comes with: a leaf for 256, and what lies above.
const RESERVED_PER_NODE: u64 = 128;
/// One part in this many of the capacity: how far those may go beyond it that room is kept for.
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

    /// The control has counted anew.
    pub(crate) fn set_segments(&self, total: u32, available: u32, reserve: u32) {
        self.total.store(total, Ordering::Relaxed);
        self.available.store(available, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
    }

    /// The control has counted those segments that would have all their columns.
    pub(crate) fn set_full_width(&self, full_width: u32) {
        self.full_width.store(full_width, Ordering::Relaxed);
    }

    /// True if so many segments of each shard that miss columns can be completed, and have successors with all columns for which there are
    /// drives. Else those who were completed would have taken the zones that their successors miss then, without end.
    pub(crate) fn can_replace(&self, segments: usize) -> bool {
        self.full_width.load(Ordering::Relaxed) as usize >= 2 * segments * self.usage.len()
    }

    /// A shard has counted anew.
    pub(crate) fn set_usage(&self, shard: usize, live: u64, reserved: u64) {
        if let Some(usage) = self.usage.get(shard) {
            usage.live.store(live, Ordering::Relaxed);
            usage.reserved.store(reserved + reserved / RESERVED_PER_NODE, Ordering::Relaxed);
        }
    }

    /// Blocks of a segment that can live.
    pub(crate) fn segment_payload(&self) -> u64 {
        self.segment_payload
    }

    /// Blocks that live in the pool: data, map and tables.
    pub(crate) fn live(&self) -> u64 {
        self.usage.iter().map(|usage| usage.live.load(Ordering::Relaxed)).sum()
    }

    /// Blocks that room is kept for, in thick volumes: they do not live yet.
    pub(crate) fn reservations(&self) -> u64 {
        self.usage.iter().map(|usage| usage.reserved.load(Ordering::Relaxed)).sum()
    }

    /// Segments that user data may still open.
    pub(crate) fn free_for_users(&self) -> u32 {
        self.available.load(Ordering::Relaxed).saturating_sub(self.reserve.load(Ordering::Relaxed))
    }

    /// True if so little is free that only what certainly gains is worth opening a segment for.
    pub(crate) fn is_low(&self) -> bool {
        self.available.load(Ordering::Relaxed) <= freeing_from(self.reserve.load(Ordering::Relaxed))
    }

    /// True if what is left is for checkpoints: nothing can be moved but by them.
    pub(crate) fn only_checkpoint_reserve_left(&self) -> bool {
        let checkpoints = self.checkpoint_segments(self.reserve.load(Ordering::Relaxed));
        self.available.load(Ordering::Relaxed) <= checkpoints
    }

    /// A shard's part of the segments that could be opened now.
    pub(crate) fn shard_share(&self) -> u64 {
        u64::from(self.available.load(Ordering::Relaxed)) / self.usage.len() as u64
    }

    /// Segments of such a reserve that are for checkpoints alone: half of it, or what two of each shard may store at most, where so
    /// little lives that this is less. Else a pool that lost more drives than it had room for could be full of garbage that nothing moves.
    pub(crate) fn checkpoint_segments(&self, reserve: u32) -> u32 {
        let segments = self.usage.iter().map(|usage| {
            // Nodes that there are, and as many that merging layers makes anew.
            let nodes = 2 * usage.live.load(Ordering::Relaxed);
            (2 * (nodes + CHECKPOINT_OVERHEAD)).div_ceil(self.segment_payload.max(1))
        });
        checkpoints_from(reserve).min(u32::try_from(segments.sum::<u64>()).unwrap_or(u32::MAX))
    }

    /// Free segments, or such as the next checkpoint gives back, below which there is cleaning: it settles at half of them. With fewer,
    /// checkpoints store the map more often than it pays; with more, segments have less time to empty by themselves.
    pub(crate) fn high_water(&self) -> u32 {
        let shards = u32::try_from(self.usage.len()).unwrap_or(u32::MAX);
        (self.total.load(Ordering::Relaxed) / 20).clamp(SLACK_PER_SHARD * shards, 128 * shards)
    }

    /// Live blocks that the pool takes. Beyond that, writes that need more room are refused: the rest is what cleaning
    /// and checkpoints work with.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity_of(self.total.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed))
    }

    /// The same for so many segments, with such a reserve.
    pub(crate) fn capacity_of(&self, total: u32, reserve: u32) -> u64 {
        let usable = total.saturating_sub(reserve);
        // Tiny pools: a quarter at most is kept back.
        u64::from(usable - self.slack(total).min(usable / 4)) * self.segment_payload
    }

    /// Segments of so many that are on their way from one use to the next.
    fn slack(&self, total: u32) -> u32 {
        let shards = u32::try_from(self.usage.len()).unwrap_or(u32::MAX);
        (total / FREE_SHARE).max(SLACK_PER_SHARD * shards)
    }

    /// Live blocks up to which it is certain that there is room: the capacity, but in tiny pools, where shards may be in each other's way.
    fn guaranteed(&self) -> u64 {
        let (total, reserve) = (self.total.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed));
        u64::from(total.saturating_sub(reserve).saturating_sub(self.slack(total))) * self.segment_payload
    }

    /// True if the pool holds, or keeps room for, as much as it takes.
    pub(crate) fn is_full(&self) -> bool {
        self.live() + self.reservations() >= self.capacity()
    }

    /// The same for those that room is kept for: others' writes that were let in together may have taken a little of it.
    pub(crate) fn is_full_for_reservations(&self) -> bool {
        let capacity = self.capacity();
        self.live() >= capacity + capacity / RESERVATION_SLACK
    }

    /// True if room is kept for more than there certainly is.
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.live() + self.reservations() > self.guaranteed()
    }

    /// Free segments as a share of [`Space::high_water`]. `coming` are segments that the next checkpoint gives back.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn free_ratio(&self, coming: u32) -> f32 {
        (self.free_for_users() + coming) as f32 / self.high_water() as f32
    }
}

/// The last segments of a pool, which only those may open who need them most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// What it takes with no drive to spare.
    segments: u32,
    /// Drives that are left when as many are lost as the scheme bears; not fewer than a segment has columns.
    left: u32,
}

impl Reserve {
    /// A share of the pool, and a few segments for each shard.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        let shards = u32::try_from(superblock.shards.len()).unwrap_or(u32::MAX);
        let stays = |state| !matches!(state, DriveState::Removed | DriveState::Draining);
        let belong = || superblock.drives.iter().filter(|drive| stays(drive.state));
        let zones: u64 = belong().map(|drive| u64::from(drive.zones)).sum();
        let all = u32::try_from(zones / u64::from(superblock.scheme.width())).unwrap_or(u32::MAX);
        let drives = u32::try_from(belong().count()).unwrap_or(u32::MAX);
        let checkpoints = CHECKPOINT_BLOCKS_MIN.div_ceil(Geometry::of(superblock).segment_blocks());
        let checkpoints = u32::try_from(checkpoints).unwrap_or(u32::MAX / LEVELS);
        let per_shard = RESERVE_PER_SHARD.max((LEVELS * checkpoints).min(all / 4 / shards));
        let share = (all / RESERVE_SHARE).min(RESERVE_PER_SHARD_MAX * shards);
        Self::new(share.max(per_shard * shards), superblock.scheme, drives)
    }

    fn new(segments: u32, scheme: Scheme, drives: u32) -> Self {
        let left = drives.saturating_sub(scheme.parity().into()).max(scheme.width().into());
        Self { segments, left }
    }

    /// The same for a pool whose drives are others by now. It never becomes smaller: what shards may leave to do for a checkpoint was
    /// reckoned with what it was.
    pub(crate) fn grown(self, superblock: &Superblock) -> Self {
        let now = Self::of(superblock);
        Self { segments: now.segments.max(self.segments), ..now }
    }

    /// Segments of it while this many drives are in use. With more of them than a segment has columns, free zones go with
    /// each that is lost: what is left then must still do.
    pub(crate) fn with_drives(self, drives: u32) -> u32 {
        if drives <= self.left {
            self.segments
        } else {
            (self.segments * drives).div_ceil(self.left) + LEVELS
        }
    }

    /// Nodes of the map that a shard may change between two checkpoints, `recent` segments being the most that one may fill: what a
    /// checkpoint stores must fit its part of the reserve, beside what the one before stored.
    pub(crate) fn dirty_nodes(self, geometry: &Geometry, shards: u64, recent: u64) -> u64 {
        let segments = (u64::from(checkpoints_from(self.segments)) / shards).clamp(1, recent.max(1));
        let half = (segments * geometry.segment_payload() / 2).saturating_sub(CHECKPOINT_OVERHEAD);
        (half * 7 / 8).max(1)
    }

    /// Who may open a segment, with `available` of them and this many drives in use.
    pub(crate) fn level(self, space: &Space, available: u32, drives: u32) -> AllocPriority {
        match self.with_drives(drives) {
            reserve if available > reserve => AllocPriority::User,
            reserve if available > freeing_from(reserve) => AllocPriority::Trimming,
            reserve if available > space.checkpoint_segments(reserve) => AllocPriority::Freeing,
            _ => AllocPriority::Checkpoint,
        }
    }
}

/// Segments of a reserve below which trims take no more of it.
fn freeing_from(reserve: u32) -> u32 {
    reserve - reserve / 4
}

/// Those that are for checkpoints alone: half, because how seldom there has to be a checkpoint hangs on how much one may store.
fn checkpoints_from(reserve: u32) -> u32 {
    reserve / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_of_the_reserve_outlast_lost_drives() {
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
                    "{text} {drives}: {least} becomes {after}"
                );
            }
        }
    }

    #[test]
    fn checkpoints_keep_no_more_than_they_may_store() {
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
    fn what_comes_with_the_next_checkpoint_counts_as_free() {
        let space = Space::new(1, 1024);
        space.set_segments(1280, 1280, 32);
        assert_eq!(space.high_water(), 64);
        space.set_segments(1280, 64, 32);
        assert_eq!((space.free_ratio(0), space.free_ratio(32)), (0.5, 1.0));
        space.set_segments(1280, 20, 32);
        assert_eq!((space.free_ratio(0), space.free_for_users()), (0.0, 0));
    }

    #[test]
    fn a_pool_is_full_before_its_last_segments() {
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
    fn what_room_is_kept_for_counts_for_others_only() {
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
