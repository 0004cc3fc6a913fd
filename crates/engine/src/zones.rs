//! Which zones of which drives are free, and which drives a new segment goes to. Plain state and pure choices.
//!
//! Always true (Z1): a zone is free, or in exactly one segment, or waits for its segment's checkpoint, or is being
//! discarded; never two of these. Zones that come back are used again before others and told to the drives as unused
//! only when nobody has wanted them for a while: discarding what is overwritten soon costs more than it gives.

use format::{DriveIndex, Scheme, SegmentColumn, ZoneIndex};

/// The free zones of the pool.
pub(crate) struct Zones {
    drives: Vec<DriveZones>,
    /// Segments and columns allocated: rotates the columns over the drives, so that parity lies on each in turn.
    rotation: usize,
    /// Columns that a segment may do without if the drives have no room for all.
    holes: u32,
}

struct DriveZones {
    /// Free, and nothing of the drive's is held for them: discarded, or never used.
    discarded: ZoneSet,
    /// Free, and still as they were left: taken first, because their space is there already.
    backed: ZoneSet,
    /// Those of `backed` that are to be discarded next unless they are taken before.
    aging: ZoneSet,
    zones: u32,
    online: bool,
    /// It counts as lost, though it may be written again: nothing that is new may be there alone.
    lost: bool,
    /// Columns that it has earned and not taken, in parts of [`COLUMN_COST`].
    credit: i64,
}

/// What a drive pays for a column.
const COLUMN_COST: i64 = 1 << 32;
/// What it can have earned at most.
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

    /// A free zone, and whether its space is there.
    fn take(&mut self) -> Option<(ZoneIndex, bool)> {
        let (zone, backed) = match self.backed.first() {
            Some(zone) => (zone, true),
            None => (self.discarded.first()?, false),
        };
        self.remove(zone);
        Some((ZoneIndex::new(zone), backed))
    }

    /// Takes a zone out of those that are free; false if it is not among them.
    fn remove(&mut self, zone: u32) -> bool {
        self.aging.set(zone, false);
        self.discarded.set(zone, false) || self.backed.set(zone, false)
    }

    fn is_free(&self, zone: u32) -> bool {
        self.discarded.has(zone) || self.backed.has(zone)
    }
}

/// The same number for the same turn and drive, and no pattern in sight (splitmix64, Steele and others, 2014).
fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A set of zones.
#[derive(Clone)]
struct ZoneSet {
    words: Vec<u64>,
    count: u32,
    zones: u32,
    /// No word before this one has a bit.
    hint: usize,
}

impl ZoneSet {
    fn new(zones: u32) -> Self {
        Self { words: vec![0; (zones as usize).div_ceil(64)], count: 0, zones, hint: 0 }
    }

    fn has(&self, zone: u32) -> bool {
        self.words.get(zone as usize / 64).is_some_and(|word| word & 1 << (zone % 64) != 0)
    }

    /// Puts a zone in or takes it out; false if that changes nothing.
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
            self.hint = self.hint.min(at);
        } else {
            self.count -= 1;
        }
        true
    }

    /// The lowest.
    fn first(&mut self) -> Option<u32> {
        let found = self.words.iter().skip(self.hint).position(|word| *word != 0);
        self.hint += found.unwrap_or(self.words.len() - self.hint.min(self.words.len()));
        let word = self.words.get(self.hint)?;
        Some(u32::try_from(self.hint * 64).unwrap_or(u32::MAX) + word.trailing_zeros())
    }

    /// How many follow one another from `zone`, itself included; at most `most`.
    fn run(&self, zone: u32, most: u32) -> u32 {
        (zone..zone.saturating_add(most)).take_while(|zone| self.has(*zone)).count() as u32
    }
}

/// Zones of a new segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AllocatedZones {
    pub(crate) columns: Vec<SegmentColumn>,
    /// Those whose space is not there yet, where drives take it as they are written.
    pub(crate) unbacked: Vec<(DriveIndex, ZoneIndex)>,
}

/// Zones of one drive that follow one another.
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
    /// Drives with these numbers of zones, all free.
    pub(crate) fn new(drives: impl Iterator<Item = (u32, bool)>) -> Self {
        Self {
            drives: drives.map(|(zones, online)| DriveZones::new(zones, online)).collect(),
            rotation: 0,
            holes: 0,
        }
    }

    /// Marks a zone as taken by a segment that exists. False if it is taken twice or does not exist: the tables are
    /// damaged (Z1).
    pub(crate) fn occupy(&mut self, drive: DriveIndex, zone: ZoneIndex) -> bool {
        self.drives.get_mut(drive.index()).is_some_and(|zones| zones.remove(zone.get()))
    }

    /// Gives a zone back.
    ///
    /// # Panics
    /// If it is free already (Z1).
    pub(crate) fn free(&mut self, drive: DriveIndex, zone: ZoneIndex) {
        let free = |zones: &mut DriveZones| !zones.is_free(zone.get()) && zones.backed.set(zone.get(), true);
        let freed = self.drives.get_mut(drive.index()).is_some_and(free);
        assert!(freed, "Z1: zone {zone} of drive {drive} was freed twice");
    }

    /// Gives back zones that were allocated and not used; no space is known to be held for those in `unbacked`.
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

    /// The zones after this one that no space is held for, as far as they follow one another; at most `most`.
    pub(crate) fn discarded_after(&self, drive: DriveIndex, zone: ZoneIndex, most: u32) -> ZoneRun {
        let first = ZoneIndex::new(zone.get() + 1);
        let count = self.drives.get(drive.index()).map_or(0, |zones| zones.discarded.run(first.get(), most));
        ZoneRun { drive, first, count }
    }

    /// Space is held for these zones now: those that are still free are to be used before others.
    pub(crate) fn mark_backed(&mut self, run: ZoneRun) {
        let Some(zones) = self.drives.get_mut(run.drive.index()) else { return };
        for zone in run.zones() {
            if zones.discarded.set(zone, false) {
                zones.backed.set(zone, true);
            }
        }
    }

    /// Marks every zone that is warm now to be discarded next time. True if there are any.
    pub(crate) fn age_backed(&mut self) -> bool {
        self.drives.iter_mut().for_each(|zones| zones.aging = zones.backed.clone());
        self.drives.iter().any(|zones| zones.online && zones.backed.count > 0)
    }

    /// Takes out, for discarding, up to `most` zones of each drive that have been free for a while.
    pub(crate) fn take_aged(&mut self, most: u32) -> Vec<ZoneRun> {
        let cooled = |(index, zones): (usize, &mut DriveZones)| {
            let first = zones.aging.first().filter(|_| zones.online)?;
            let run = ZoneRun {
                drive: DriveIndex::new(u16::try_from(index).ok()?),
                first: ZoneIndex::new(first),
                count: zones.aging.run(first, most),
            };
            run.zones().for_each(|zone| assert!(zones.remove(zone), "Z1: zone {zone} cools but is not free"));
            Some(run)
        };
        self.drives.iter_mut().enumerate().filter_map(cooled).collect()
    }

    /// Gives back what [`Zones::take_aged`] took out.
    pub(crate) fn finish_discard(&mut self, run: ZoneRun) {
        let Some(zones) = self.drives.get_mut(run.drive.index()) else { return };
        for zone in run.zones() {
            let free = !zones.is_free(zone) && zones.discarded.set(zone, true);
            assert!(free, "Z1: zone {zone} of drive {} was free while it was discarded", run.drive);
        }
    }

    /// A drive with this many zones, all free, joins; new segments may not use it yet.
    pub(crate) fn add_drive(&mut self, drive: DriveIndex, zones: u32) {
        assert_eq!(
            drive.index(),
            self.drives.len(),
            "Z1: drives are numbered in the order in which they join"
        );
        self.drives.push(DriveZones::new(zones, false));
    }

    /// Lets new segments use a drive, or not.
    pub(crate) fn set_online(&mut self, drive: DriveIndex, online: bool) {
        if let Some(zones) = self.drives.get_mut(drive.index()) {
            zones.online = online;
        }
    }

    /// Zones of a new segment of `scheme`, on drives that [`Zones::choose`] takes; which column lies on which of them rotates.
    /// With too few drives in use the last parity columns stay holes, so that reads need no decoding. With too little room on
    /// them there is no segment, because one with fewer columns than it could have would be worse protected; unless drives are lost:
    /// then it may miss as many columns as every other may, those counted that lie on drives which count as lost.
    pub(crate) fn allocate(&mut self, scheme: Scheme) -> Option<AllocatedZones> {
        let drives: Vec<usize> = (0..self.drives.len()).filter(|drive| self.room(*drive) > 0).collect();
        let width = usize::from(scheme.width());
        if drives.len() < self.columns(scheme) as usize {
            let counted = drives.iter().filter(|drive| self.counts_as_present(**drive)).count();
            if self.holes == 0 || counted < self.least(scheme, self.holes) as usize {
                return None;
            }
        }
        self.rotation = self.rotation.wrapping_add(1);
        let mut drives = self.choose(drives, width, scheme);
        drives.sort_unstable();
        let rotation = self.rotation % drives.len();
        drives.rotate_left(rotation);
        let mut unbacked = Vec::new();
        let mut take = |drive: usize| {
            let taken = self.drives.get_mut(drive).and_then(DriveZones::take);
            let (Some((zone, backed)), Ok(drive)) = (taken, u16::try_from(drive).map(DriveIndex::new)) else {
                panic!("Z1: drive {drive} was said to have room")
            };
            if !backed {
                unbacked.push((drive, zone));
            }
            SegmentColumn::whole(drive, zone)
        };
        let mut columns: Vec<_> = drives.into_iter().map(&mut take).collect();
        columns.resize(width, SegmentColumn::hole());
        Some(AllocatedZones { columns, unbacked })
    }

    /// At most `count` of `drives`, all of which have room, for a segment of `scheme`: those without which fewer segments would fit
    /// in the end, because so much more is left on them than on others; the rest in proportion to what is left on each, in
    /// ever other combinations, so that a rebuild has all drives to read from.
    fn choose(&mut self, drives: Vec<usize>, count: usize, scheme: Scheme) -> Vec<usize> {
        if drives.len() <= count {
            return drives;
        }
        let remaining = self.full_width(scheme);
        let (mut chosen, others): (Vec<_>, Vec<_>) =
            drives.into_iter().partition(|drive| self.room(*drive) >= remaining);
        if chosen.len() > count {
            return self.choose_weighted(chosen, count);
        }
        let rest = self.choose_weighted(others, count - chosen.len());
        chosen.extend(rest);
        chosen
    }

    /// `count` of `drives`, in proportion to what is left on each: every drive earns its share of each segment, and pays for the
    /// one that it takes part in.
    fn choose_weighted(&mut self, mut drives: Vec<usize>, count: usize) -> Vec<usize> {
        let all: i64 = drives.iter().map(|drive| i64::from(self.room(*drive))).sum();
        let columns = i64::try_from(count).unwrap_or(i64::MAX);
        let rotation = self.rotation as u64;
        let mut ranking: Vec<(i64, usize)> = Vec::with_capacity(drives.len());
        for drive in drives.iter().copied() {
            let room = i64::from(self.room(drive));
            let Some(zones) = self.drives.get_mut(drive) else { continue };
            zones.credit = (zones.credit + COLUMN_COST * columns * room / all.max(1)).min(CREDIT_MAX);
            let chance = splitmix64(rotation << 16 | drive as u64) % COLUMN_COST.unsigned_abs();
            ranking.push((zones.credit + i64::try_from(chance).unwrap_or(0), drive));
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

    /// A zone for one column of a segment whose other columns are on the drives `avoid`; and whether its space is there. It lies
    /// where more is left than segments of `scheme` can use, or else, unless it must not take what they could, on any drive, in
    /// proportion to what is left.
    pub(crate) fn allocate_one(
        &mut self,
        scheme: Scheme,
        avoid: &[DriveIndex],
        only_unused: bool,
    ) -> Option<((DriveIndex, ZoneIndex), bool)> {
        let numbers = self.others(avoid).map(DriveIndex::index);
        let drives: Vec<usize> = numbers.filter(|drive| self.room(*drive) > 0).collect();
        let remaining = self.full_width(scheme);
        let most = drives.iter().copied().max_by_key(|drive| self.room(*drive))?;
        self.rotation = self.rotation.wrapping_add(1);
        let drive = if self.room(most) > remaining {
            most
        } else if only_unused {
            return None;
        } else {
            self.choose_weighted(drives, 1).first().copied()?
        };
        let (zone, backed) = self.drives.get_mut(drive)?.take()?;
        Some(((DriveIndex::new(u16::try_from(drive).ok()?), zone), backed))
    }

    /// True if there is a drive in use that is none of `avoid`.
    pub(crate) fn has_other(&self, avoid: &[DriveIndex]) -> bool {
        self.others(avoid).next().is_some()
    }

    fn others(&self, avoid: &[DriveIndex]) -> impl Iterator<Item = DriveIndex> {
        let numbers = (0..self.drives.len()).filter(|drive| self.is_online(*drive));
        let indexes = numbers.filter_map(|drive| u16::try_from(drive).ok()).map(DriveIndex::new);
        indexes.filter(|drive| !avoid.contains(drive))
    }

    /// Says of each drive whether it counts as lost. If there is no room for all columns of a segment, as many may be left out.
    pub(crate) fn allow_holes(&mut self, lost: impl Iterator<Item = bool>) {
        self.holes = 0;
        for (drive, lost) in self.drives.iter_mut().zip(lost) {
            drive.lost = lost;
            self.holes += u32::from(lost);
        }
    }

    /// Segments of `scheme` that could still be allocated, at least.
    pub(crate) fn available(&self, scheme: Scheme) -> u32 {
        self.available_if(scheme, self.holes, |drive| !drive.lost)
    }

    /// The same if only so many drives were lost, and none of those that are in use.
    pub(crate) fn available_with(&self, scheme: Scheme, lost: u32) -> u32 {
        self.available_if(scheme, lost, |_| true)
    }

    fn available_if(&self, scheme: Scheme, holes: u32, counted: impl Fn(&DriveZones) -> bool) -> u32 {
        let whole = self.full_width(scheme);
        if holes == 0 {
            return whole;
        }
        // Those that miss columns take one on every drive that has room, as long as enough have.
        let rest = self.drives.iter().filter(|drive| drive.online && counted(drive));
        let mut rooms: Vec<u32> = rest.map(|drive| drive.free().saturating_sub(whole)).collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        let last = self.least(scheme, holes).saturating_sub(1) as usize;
        whole + rooms.get(last).copied().unwrap_or(0)
    }

    /// Columns that a segment of `scheme` must have if it may miss so many.
    fn least(&self, scheme: Scheme, holes: u32) -> u32 {
        let width = u32::from(scheme.width()).saturating_sub(holes);
        width.min(self.columns(scheme)).max(scheme.data().into())
    }

    /// Segments of `scheme` that could still be allocated with all columns for which there are drives: the most for which those
    /// together have room, when none holds two columns of one segment.
    pub(crate) fn full_width(&self, scheme: Scheme) -> u32 {
        segments_that_fit(self.rooms(), self.columns(scheme))
    }

    fn rooms(&self) -> impl Iterator<Item = u32> {
        self.drives.iter().filter(|drive| drive.online).map(DriveZones::free)
    }

    /// Segments of `scheme` that there could be in all, as the zones that are taken lie now: free zones that find no others to
    /// form segments with do not count. They do when what lies on the others has been written anew.
    pub(crate) fn capacity(&self, scheme: Scheme) -> u32 {
        let (all, free) = self.totals();
        let width = u64::from(self.columns(scheme));
        let unused = free - u64::from(self.full_width(scheme)) * width;
        u32::try_from((all - unused).div_ceil(width)).unwrap_or(u32::MAX)
    }

    /// Segments of `scheme` that there could be in all if everything were written anew.
    pub(crate) fn capacity_if_rewritten(&self, scheme: Scheme) -> u32 {
        let zones = self.drives.iter().filter(|drive| drive.online).map(|drive| drive.zones);
        segments_that_fit(zones, self.columns(scheme))
    }

    /// Columns of a segment of `scheme` that are not holes.
    fn columns(&self, scheme: Scheme) -> u32 {
        self.drives().min(scheme.width().into()).max(scheme.data().into())
    }

    /// Drives that are online.
    pub(crate) fn drives(&self) -> u32 {
        self.drives.iter().map(|drive| u32::from(drive.online)).sum()
    }

    /// All zones of drives that are online, and how many of them are free.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let online = self.drives.iter().filter(|drive| drive.online);
        online
            .fold((0, 0), |(all, free), drive| (all + u64::from(drive.zones), free + u64::from(drive.free())))
    }

    /// Free zones of each drive, whether or not it is online.
    pub(crate) fn free_by_drive(&self) -> Vec<u32> {
        self.drives.iter().map(DriveZones::free).collect()
    }

    fn is_online(&self, drive: usize) -> bool {
        self.drives.get(drive).is_some_and(|drive| drive.online)
    }

    fn counts_as_present(&self, drive: usize) -> bool {
        self.drives.get(drive).is_some_and(|drive| !drive.lost)
    }

    /// Free zones that a new segment may use.
    fn room(&self, drive: usize) -> u32 {
        self.drives.get(drive).filter(|drive| drive.online).map_or(0, DriveZones::free)
    }
}

/// Segments of so many columns that fit into drives with so much room.
fn segments_that_fit(rooms: impl Iterator<Item = u32>, width: u32) -> u32 {
    let rooms: Vec<u32> = rooms.collect();
    let fits = |segments: u32| {
        let columns: u64 = rooms.iter().map(|room| u64::from(segments.min(*room))).sum();
        columns >= u64::from(segments) * u64::from(width)
    };
    let most: u64 = rooms.iter().map(|room| u64::from(*room)).sum::<u64>() / u64::from(width.max(1));
    let (mut low, mut high) = (0, u32::try_from(most).unwrap_or(u32::MAX));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
#[path = "zones_tests.rs"]
mod tests;
