//! Free zones of each drive, and the choice of drives for new segments. Plain state, pure
//! decisions.
//!
//! Always true (Z1): a zone is in exactly one of these states: free, part of a segment, freed and
//! waiting for a checkpoint, or being discarded. Freed zones are reused first, and discarded only
//! after they have stayed free for a while, because discarding a zone that is soon rewritten costs
//! more than it gains.

use format::{DriveIndex, Scheme, SegmentColumn, ZoneIndex};

use crate::invariant::narrow;

/// The free zones of a pool.
pub(crate) struct Zones {
    drives: Vec<DriveZones>,
    /// Number of allocations; rotates the columns, so that each drive holds parity in turn.
    rotation: usize,
    /// Maximum number of columns that a segment may lack if the drives have no room for all.
    holes: u32,
}

struct DriveZones {
    /// Free zones that were discarded or never used: the drive holds no space for them.
    discarded: ZoneSet,
    /// Free zones with backing space; allocated first.
    backed: ZoneSet,
    /// Zones of `backed` that are discarded next, unless they are allocated before.
    aging: ZoneSet,
    zones: u32,
    online: bool,
    /// Counts as failed even if it is online: new data must not depend on this drive alone.
    lost: bool,
    /// Accumulated share of allocated columns, in units of [`COLUMN_COST`].
    credit: i64,
}

/// Credit that one column costs.
const COLUMN_COST: i64 = 1 << 32;
/// Maximum credit of a drive.
const CREDIT_MAX: i64 = 4 * COLUMN_COST;

impl DriveZones {
    fn new(zones: u32, online: bool) -> Self {
        let none = ZoneSet::new(zones);
        let mut discarded = none.clone();
        (0..zones).for_each(|zone| assert!(discarded.set(zone, true), "Z1: zone {zone} is free twice"));
        Self { discarded, backed: none.clone(), aging: none, zones, online, lost: false, credit: 0 }
    }

    fn free(&self) -> u32 {
        self.discarded.count + self.backed.count
    }

    /// Takes a free zone; also returns whether its backing space is allocated.
    fn take(&mut self) -> Option<(ZoneIndex, bool)> {
        let (zone, backed) = match self.backed.first() {
            Some(zone) => (zone, true),
            None => (self.discarded.first()?, false),
        };
        assert!(self.remove(zone), "Z1: zone {zone} is not free");
        Some((ZoneIndex::new(zone), backed))
    }

    /// Removes a zone from the free zones; false if it is not free.
    fn remove(&mut self, zone: u32) -> bool {
        self.aging.set(zone, false);
        let was_free = self.discarded.set(zone, false) || self.backed.set(zone, false);
        assert!(!self.is_free(zone), "Z1: zone {zone} is free twice");
        was_free
    }

    fn is_free(&self, zone: u32) -> bool {
        self.discarded.has(zone) || self.backed.has(zone)
    }
}

/// A pseudorandom function of the rotation and the drive (splitmix64, Steele et al., 2014).
fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A bitmap of zones.
#[derive(Clone)]
struct ZoneSet {
    words: Vec<u64>,
    count: u32,
    zones: u32,
    /// All words before this index are zero.
    hint: usize,
}

impl ZoneSet {
    fn new(zones: u32) -> Self {
        Self { words: vec![0; (zones as usize).div_ceil(64)], count: 0, zones, hint: 0 }
    }

    fn has(&self, zone: u32) -> bool {
        self.words.get(zone as usize / 64).is_some_and(|word| word & 1 << (zone % 64) != 0)
    }

    /// Adds or removes a zone; false if nothing changed.
    fn set(&mut self, zone: u32, to: bool) -> bool {
        let at = zone as usize / 64;
        let Some(word) = self.words.get_mut(at).filter(|_| zone < self.zones) else { return false };
        let bit = 1u64 << (zone % 64);
        if (*word & bit != 0) == to {
            return false;
        }
        *word ^= bit;
        if to {
            self.count += 1;
            assert!(self.count <= self.zones, "Z1: more zones are free than exist");
            self.hint = self.hint.min(at);
        } else {
            assert!(self.count > 0, "Z1: a zone is taken from an empty set");
            self.count -= 1;
        }
        true
    }

    /// Returns the lowest zone.
    fn first(&mut self) -> Option<u32> {
        let found = self.words.iter().skip(self.hint).position(|word| *word != 0);
        self.hint += found.unwrap_or(self.words.len() - self.hint.min(self.words.len()));
        let word = self.words.get(self.hint)?;
        Some(narrow::<u32, _>(self.hint * 64, "C5") + word.trailing_zeros())
    }

    /// Returns the length of the run of zones that starts at `zone`, up to `max`.
    fn run(&self, zone: u32, max: u32) -> u32 {
        (zone..zone.saturating_add(max)).take_while(|zone| self.has(*zone)).count() as u32
    }
}

/// The zones of a new segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AllocatedZones {
    pub(crate) columns: Vec<SegmentColumn>,
    /// Zones without allocated backing space, on sparse drives.
    pub(crate) unbacked: Vec<(DriveIndex, ZoneIndex)>,
}

/// Consecutive zones of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneRun {
    pub(crate) drive: DriveIndex,
    pub(crate) first: ZoneIndex,
    pub(crate) count: u32,
}

impl ZoneRun {
    fn zones(self) -> impl Iterator<Item = u32> {
        self.first.get()..self.first.get() + self.count
    }
}

impl Zones {
    /// Creates drives with these numbers of zones, all free, and their online state.
    pub(crate) fn new(drives: impl Iterator<Item = (u32, bool)>) -> Self {
        Self {
            drives: drives.map(|(zones, online)| DriveZones::new(zones, online)).collect(),
            rotation: 0,
            holes: 0,
        }
    }

    /// Marks a zone as used by an existing segment. Returns false if the zone is not free or does
    /// not exist: then the segment tables are damaged (Z1).
    pub(crate) fn occupy(&mut self, drive: DriveIndex, zone: ZoneIndex) -> bool {
        self.drives.get_mut(drive.index()).is_some_and(|zones| zones.remove(zone.get()))
    }

    /// Frees a zone.
    ///
    /// # Panics
    /// If the zone is already free (Z1).
    pub(crate) fn free(&mut self, drive: DriveIndex, zone: ZoneIndex) {
        let free = |zones: &mut DriveZones| !zones.is_free(zone.get()) && zones.backed.set(zone.get(), true);
        let freed = self.drives.get_mut(drive.index()).is_some_and(free);
        assert!(freed, "Z1: zone {zone} of drive {drive} was freed twice");
    }

    /// Frees zones that were allocated but not used; those in `unbacked` have no backing space.
    pub(crate) fn return_unused(
        &mut self,
        zones: impl Iterator<Item = (DriveIndex, ZoneIndex)>,
        unbacked: &[(DriveIndex, ZoneIndex)],
    ) {
        for (drive, zone) in zones {
            if unbacked.contains(&(drive, zone)) {
                self.finish_discard(ZoneRun { drive, first: zone, count: 1 });
            } else {
                self.free(drive, zone);
            }
        }
    }

    /// Returns the run of discarded zones directly after this zone, up to `max`.
    pub(crate) fn discarded_after(&self, drive: DriveIndex, zone: ZoneIndex, max: u32) -> ZoneRun {
        let first = ZoneIndex::new(zone.get() + 1);
        let count = self.drives.get(drive.index()).map_or(0, |zones| zones.discarded.run(first.get(), max));
        ZoneRun { drive, first, count }
    }

    /// Marks free zones of a run as having backing space, so that they are allocated first.
    pub(crate) fn mark_backed(&mut self, run: ZoneRun) {
        let zones = self.drive_mut(run.drive);
        for zone in run.zones() {
            if zones.discarded.set(zone, false) {
                assert!(zones.backed.set(zone, true), "Z1: zone {zone} of drive {} is free twice", run.drive);
            }
        }
    }

    /// Marks every zone in `backed` for the next discard. Returns true if an online drive has such
    /// zones.
    pub(crate) fn age_backed(&mut self) -> bool {
        self.drives.iter_mut().for_each(|zones| zones.aging = zones.backed.clone());
        self.drives.iter().any(|zones| zones.online && zones.backed.count > 0)
    }

    /// Takes up to `max` aged zones of each drive for a discard.
    pub(crate) fn take_aged(&mut self, max: u32) -> Vec<ZoneRun> {
        let aged = |(index, zones): (usize, &mut DriveZones)| {
            let first = zones.aging.first().filter(|_| zones.online)?;
            let run = ZoneRun {
                drive: DriveIndex::new(u16::try_from(index).ok()?),
                first: ZoneIndex::new(first),
                count: zones.aging.run(first, max),
            };
            run.zones().for_each(|zone| assert!(zones.remove(zone), "Z1: aging zone {zone} is not free"));
            Some(run)
        };
        self.drives.iter_mut().enumerate().filter_map(aged).collect()
    }

    /// Frees zones taken by [`Zones::take_aged`] after the discard.
    pub(crate) fn finish_discard(&mut self, run: ZoneRun) {
        let zones = self.drive_mut(run.drive);
        for zone in run.zones() {
            let free = !zones.is_free(zone) && zones.discarded.set(zone, true);
            assert!(free, "Z1: zone {zone} of drive {} was freed during its discard", run.drive);
        }
    }

    /// Adds a drive with this many free zones, offline for allocation.
    pub(crate) fn add_drive(&mut self, drive: DriveIndex, zones: u32) {
        assert_eq!(drive.index(), self.drives.len(), "Z1: drives are numbered in join order");
        self.drives.push(DriveZones::new(zones, false));
    }

    /// Allows or forbids new segments on a drive.
    pub(crate) fn set_online(&mut self, drive: DriveIndex, online: bool) {
        self.drive_mut(drive).online = online;
    }

    /// Returns a drive.
    ///
    /// # Panics
    /// If the drive does not exist: drives are added before they are used, and stay (Z1).
    fn drive_mut(&mut self, drive: DriveIndex) -> &mut DriveZones {
        match self.drives.get_mut(drive.index()) {
            Some(zones) => zones,
            None => panic!("Z1: drive {drive} does not exist"),
        }
    }

    /// Allocates zones for a new segment of `scheme`, on the drives that [`Zones::choose`] returns,
    /// with rotating columns. If too few drives are online, the last parity columns become holes,
    /// so that reads need no decoding. If too few drives have free zones, the allocation fails
    /// rather than reducing the redundancy, unless drives have failed: then a segment may lack as
    /// many columns as drives have failed, and columns on drives that count as failed do not count
    /// as present.
    pub(crate) fn allocate(&mut self, scheme: Scheme) -> Option<AllocatedZones> {
        let drives: Vec<usize> = (0..self.drives.len()).filter(|drive| self.free_zones(*drive) > 0).collect();
        let width = usize::from(scheme.width());
        if drives.len() < self.columns(scheme) as usize {
            let counted = drives.iter().filter(|drive| self.counts_as_present(**drive)).count();
            if self.holes == 0 || counted < self.min_columns(scheme, self.holes) as usize {
                return None;
            }
        }
        self.rotation = self.rotation.wrapping_add(1);
        let mut drives = self.choose(drives, width, scheme);
        drives.sort_unstable();
        assert!(drives.is_sorted_by(|a, b| a < b), "Z1: two columns of a segment on one drive");
        assert!(!drives.is_empty() && drives.len() <= width, "Z1: a segment has at most {width} columns");
        let rotation = self.rotation % drives.len();
        drives.rotate_left(rotation);
        let mut unbacked = Vec::new();
        let mut take = |drive: usize| {
            let taken = self.drives.get_mut(drive).and_then(DriveZones::take);
            let (Some((zone, backed)), Ok(drive)) = (taken, u16::try_from(drive).map(DriveIndex::new)) else {
                panic!("Z1: drive {drive} has no free zone")
            };
            if !backed {
                unbacked.push((drive, zone));
            }
            SegmentColumn::whole(drive, zone)
        };
        let mut columns: Vec<_> = drives.into_iter().map(&mut take).collect();
        assert!(columns.len() <= width, "Z1: a segment has more columns than its scheme");
        columns.resize(width, SegmentColumn::hole());
        Some(AllocatedZones { columns, unbacked })
    }

    /// Returns up to `count` of `drives` for a segment of `scheme`. First come drives with so much
    /// free space that leaving them out would reduce the number of segments that fit; the others
    /// are chosen in proportion to their free space, in varying combinations, so that a rebuild
    /// reads from all drives.
    fn choose(&mut self, drives: Vec<usize>, count: usize, scheme: Scheme) -> Vec<usize> {
        if drives.len() <= count {
            return drives;
        }
        let remaining = self.full_width(scheme);
        let (mut chosen, others): (Vec<_>, Vec<_>) =
            drives.into_iter().partition(|drive| self.free_zones(*drive) >= remaining);
        if chosen.len() > count {
            return self.choose_weighted(chosen, count);
        }
        let rest = self.choose_weighted(others, count - chosen.len());
        chosen.extend(rest);
        chosen
    }

    /// Returns `count` of `drives`, weighted by free space: each drive earns credit for its share
    /// of every segment and pays for each column (deficit round-robin with a random component).
    fn choose_weighted(&mut self, mut drives: Vec<usize>, count: usize) -> Vec<usize> {
        let all: i64 = drives.iter().map(|drive| i64::from(self.free_zones(*drive))).sum();
        let columns: i64 = narrow(count, "C5");
        let rotation = self.rotation as u64;
        let mut ranking: Vec<(i64, usize)> = Vec::with_capacity(drives.len());
        for drive in drives.iter().copied() {
            let free = i64::from(self.free_zones(drive));
            let Some(zones) = self.drives.get_mut(drive) else { continue };
            zones.credit = (zones.credit + COLUMN_COST * columns * free / all.max(1)).min(CREDIT_MAX);
            let chance = splitmix64(rotation << 16 | drive as u64) % COLUMN_COST.unsigned_abs();
            ranking.push((zones.credit + narrow::<i64, _>(chance, "C5"), drive));
        }
        ranking.sort_unstable_by(|a, b| b.cmp(a));
        drives = ranking.into_iter().take(count).map(|(_, drive)| drive).collect();
        for drive in &drives {
            if let Some(zones) = self.drives.get_mut(*drive) {
                zones.credit -= COLUMN_COST;
            }
        }
        drives
    }

    /// Allocates a zone for one column of a segment on a drive other than `avoid`; also returns
    /// whether its backing space is allocated. Prefers a drive with more free zones than segments
    /// of `scheme` can use. Otherwise chooses any drive, weighted by free space, unless
    /// `only_unused` is set.
    pub(crate) fn allocate_one(
        &mut self,
        scheme: Scheme,
        avoid: &[DriveIndex],
        only_unused: bool,
    ) -> Option<((DriveIndex, ZoneIndex), bool)> {
        let numbers = self.others(avoid).map(DriveIndex::index);
        let drives: Vec<usize> = numbers.filter(|drive| self.free_zones(*drive) > 0).collect();
        let remaining = self.full_width(scheme);
        let max = drives.iter().copied().max_by_key(|drive| self.free_zones(*drive))?;
        self.rotation = self.rotation.wrapping_add(1);
        let drive = if self.free_zones(max) > remaining {
            max
        } else if only_unused {
            return None;
        } else {
            self.choose_weighted(drives, 1).first().copied()?
        };
        let (zone, backed) = self.drives.get_mut(drive)?.take()?;
        Some(((DriveIndex::new(u16::try_from(drive).ok()?), zone), backed))
    }

    /// Returns true if a drive other than `avoid` is online.
    pub(crate) fn has_other(&self, avoid: &[DriveIndex]) -> bool {
        self.others(avoid).next().is_some()
    }

    fn others(&self, avoid: &[DriveIndex]) -> impl Iterator<Item = DriveIndex> {
        let numbers = (0..self.drives.len()).filter(|drive| self.is_online(*drive));
        let indexes = numbers.filter_map(|drive| u16::try_from(drive).ok()).map(DriveIndex::new);
        indexes.filter(|drive| !avoid.contains(drive))
    }

    /// Sets whether each drive counts as failed. New segments may lack one column per failed drive.
    pub(crate) fn allow_holes(&mut self, lost: impl Iterator<Item = bool>) {
        self.holes = 0;
        for (drive, lost) in self.drives.iter_mut().zip(lost) {
            drive.lost = lost;
            self.holes += u32::from(lost);
        }
    }

    /// Minimum number of segments of `scheme` that can still be allocated.
    pub(crate) fn available(&self, scheme: Scheme) -> u32 {
        self.available_if(scheme, self.holes, |drive| !drive.lost)
    }

    /// The same if only `lost` drives had failed, none of them online.
    pub(crate) fn available_with(&self, scheme: Scheme, lost: u32) -> u32 {
        self.available_if(scheme, lost, |_| true)
    }

    fn available_if(&self, scheme: Scheme, holes: u32, counted: impl Fn(&DriveZones) -> bool) -> u32 {
        let whole = self.full_width(scheme);
        if holes == 0 {
            return whole;
        }
        // Segments with holes take a zone on every drive with free zones, while enough drives have
        // some.
        let rest = self.drives.iter().filter(|drive| drive.online && counted(drive));
        let mut free_counts: Vec<u32> = rest.map(|drive| drive.free().saturating_sub(whole)).collect();
        free_counts.sort_unstable_by(|a, b| b.cmp(a));
        let last = self.min_columns(scheme, holes).saturating_sub(1) as usize;
        whole + free_counts.get(last).map_or(0, |free| *free)
    }

    /// Minimum number of columns of a segment of `scheme` that may lack `holes` columns.
    fn min_columns(&self, scheme: Scheme, holes: u32) -> u32 {
        let width = u32::from(scheme.width()).saturating_sub(holes);
        width.min(self.columns(scheme)).max(scheme.data().into())
    }

    /// Number of segments of `scheme` that can still be allocated with a column on as many drives
    /// as possible, with at most one column of a segment per drive.
    pub(crate) fn full_width(&self, scheme: Scheme) -> u32 {
        segments_that_fit(self.free_counts(), self.columns(scheme))
    }

    fn free_counts(&self) -> impl Iterator<Item = u32> {
        self.drives.iter().filter(|drive| drive.online).map(DriveZones::free)
    }

    /// Total number of segments of `scheme`, for the current placement of used zones: excludes free
    /// zones that cannot be combined into segments until data on other drives is rewritten.
    pub(crate) fn capacity(&self, scheme: Scheme) -> u32 {
        let (all, free) = self.totals();
        let width = u64::from(self.columns(scheme));
        let unused = free - u64::from(self.full_width(scheme)) * width;
        narrow((all - unused).div_ceil(width).min(u64::from(u32::MAX)), "C5")
    }

    /// Total number of segments of `scheme` if all data were rewritten.
    pub(crate) fn capacity_if_rewritten(&self, scheme: Scheme) -> u32 {
        let zones = self.drives.iter().filter(|drive| drive.online).map(|drive| drive.zones);
        segments_that_fit(zones, self.columns(scheme))
    }

    /// Number of columns of a segment of `scheme` that are not holes.
    fn columns(&self, scheme: Scheme) -> u32 {
        self.drives().min(scheme.width().into()).max(scheme.data().into())
    }

    /// Number of online drives.
    pub(crate) fn drives(&self) -> u32 {
        self.drives.iter().map(|drive| u32::from(drive.online)).sum()
    }

    /// Number of zones of online drives, and of free ones among them.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let online = self.drives.iter().filter(|drive| drive.online);
        online
            .fold((0, 0), |(all, free), drive| (all + u64::from(drive.zones), free + u64::from(drive.free())))
    }

    /// Free zones of each drive, online or not.
    pub(crate) fn free_by_drive(&self) -> Vec<u32> {
        self.drives.iter().map(DriveZones::free).collect()
    }

    /// Returns the free zones that new segments of `scheme` can take.
    pub(crate) fn free_space(&self, scheme: Scheme) -> FreeSpace {
        let drives = self.drives.iter().map(|drive| DriveSpace {
            free: drive.free(),
            online: drive.online,
            lost: drive.lost,
        });
        FreeSpace {
            drives: drives.collect(),
            columns: self.columns(scheme),
            columns_with_holes: (self.holes > 0).then(|| self.min_columns(scheme, self.holes)),
        }
    }

    fn is_online(&self, drive: usize) -> bool {
        self.drives.get(drive).is_some_and(|drive| drive.online)
    }

    fn counts_as_present(&self, drive: usize) -> bool {
        self.drives.get(drive).is_some_and(|drive| !drive.lost)
    }

    /// Number of free zones that a new segment may use.
    fn free_zones(&self, drive: usize) -> u32 {
        self.drives.get(drive).filter(|drive| drive.online).map_or(0, DriveZones::free)
    }
}

/// The unit of fractions of a segment: this many parts are a segment.
pub(crate) const SEGMENT_PARTS: u64 = 1 << 16;

/// The free zones that new segments can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreeSpace {
    drives: Vec<DriveSpace>,
    /// Columns of a segment without holes.
    columns: u32,
    /// Minimum number of columns of a segment, if drives count as lost.
    columns_with_holes: Option<u32>,
}

/// The free zones of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DriveSpace {
    free: u32,
    online: bool,
    lost: bool,
}

impl FreeSpace {
    /// Returns the number of segments that can be opened once `freed` further zones of each drive
    /// are free, in units of 1/[`SEGMENT_PARTS`]. The fraction shows how close the drives come to
    /// another segment. Its whole part is that of [`Zones::available`].
    pub(crate) fn parts_with(&self, freed: &[u32]) -> u64 {
        let usable = |(index, drive): (usize, &DriveSpace)| {
            let free = drive.free + freed.get(index).map_or(0, |more| *more);
            drive.online.then_some((free, drive.lost))
        };
        let drives: Vec<(u32, bool)> = self.drives.iter().enumerate().filter_map(usable).collect();
        let counts: Vec<u32> = drives.iter().map(|(free, _)| *free).collect();
        let whole = segment_parts_that_fit(counts, self.columns);
        // Segments with holes take a zone of every drive that does not count as lost, while enough
        // of these have some.
        let with_holes = self.columns_with_holes.and_then(|columns| {
            let mut counts: Vec<u32> =
                drives.iter().filter(|(_, lost)| !lost).map(|(free, _)| *free).collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts.get(columns.saturating_sub(1) as usize).copied()
        });
        with_holes.map_or(whole, |segments| whole.max(u64::from(segments) * SEGMENT_PARTS))
    }
}

/// Number of segments of `width` columns that fit drives with these numbers of free zones, at most
/// one column of a segment per drive, in units of 1/[`SEGMENT_PARTS`].
///
/// However many drives are left out, the others hold the remaining columns of each segment.
fn segment_parts_that_fit(mut free_counts: Vec<u32>, width: u32) -> u64 {
    assert!(width > 0, "C5: a segment has columns");
    free_counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut rest: u64 = free_counts.iter().map(|free| u64::from(*free)).sum();
    let mut fewest = u64::MAX;
    for (columns, largest) in (1..=width).rev().zip(free_counts.into_iter().chain(std::iter::repeat(0))) {
        fewest = fewest.min(rest * SEGMENT_PARTS / u64::from(columns));
        rest -= u64::from(largest);
    }
    fewest
}

/// The same in whole segments.
fn segments_that_fit(free_counts: impl Iterator<Item = u32>, width: u32) -> u32 {
    let whole = segment_parts_that_fit(free_counts.collect(), width) / SEGMENT_PARTS;
    narrow(whole.min(u64::from(u32::MAX)), "C5")
}

#[cfg(test)]
#[path = "zones_tests.rs"]
mod tests;
