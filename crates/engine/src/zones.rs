//! Which zones of which drives are free, and which drives a new segment goes to. Plain state and pure choices.
//!
//! Always true (Z1): a zone is free, or in exactly one segment, or waiting for its segment's checkpoint; never two.

use format::{DriveIndex, Scheme, SegmentColumn, ZoneIndex};

/// The free zones of the pool.
pub(crate) struct Zones {
    drives: Vec<DriveZones>,
    /// Rotates the columns over the drives, so that parity lies on each in turn.
    turn: usize,
}

struct DriveZones {
    /// One bit a zone, set while it is free.
    free: Vec<u64>,
    count: u32,
    zones: u32,
    online: bool,
    /// Word at which the search for a free zone starts.
    hint: usize,
}

impl DriveZones {
    fn new(zones: u32, online: bool) -> Self {
        let words = (zones as usize).div_ceil(64);
        let mut free = vec![u64::MAX; words];
        if !zones.is_multiple_of(64)
            && let Some(last) = free.last_mut()
        {
            *last = (1 << (zones % 64)) - 1;
        }
        Self { free, count: zones, zones, online, hint: 0 }
    }

    fn take(&mut self) -> Option<ZoneIndex> {
        let (before, after) = self.free.split_at(self.hint);
        let found = after.iter().chain(before).position(|word| *word != 0)?;
        let word = (self.hint + found) % self.free.len();
        let bits = self.free.get_mut(word)?;
        let bit = bits.trailing_zeros();
        *bits &= *bits - 1;
        self.hint = word;
        self.count -= 1;
        Some(ZoneIndex::new(u32::try_from(word * 64).unwrap_or(u32::MAX) + bit))
    }

    /// Sets a zone's bit; false if it was in that state already.
    fn set(&mut self, zone: ZoneIndex, free: bool) -> bool {
        let bit = 1u64 << (zone.get() % 64);
        let Some(word) = self.free.get_mut(zone.index() / 64) else { return false };
        if zone.get() >= self.zones || (*word & bit != 0) == free {
            return false;
        }
        *word ^= bit;
        if free {
            self.count += 1
        } else {
            self.count -= 1
        }
        self.hint = self.hint.min(zone.index() / 64);
        true
    }
}

impl Zones {
    /// Drives with these numbers of zones, all free.
    pub(crate) fn new(drives: impl Iterator<Item = (u32, bool)>) -> Self {
        Self { drives: drives.map(|(zones, online)| DriveZones::new(zones, online)).collect(), turn: 0 }
    }

    /// Marks a zone as taken by a segment that exists. False if it is taken twice or does not exist: the tables are
    /// damaged (Z1).
    pub(crate) fn occupy(&mut self, drive: DriveIndex, zone: ZoneIndex) -> bool {
        self.drives.get_mut(drive.index()).is_some_and(|zones| zones.set(zone, false))
    }

    /// Gives a zone back.
    ///
    /// # Panics
    /// If it is free already (Z1).
    pub(crate) fn free(&mut self, drive: DriveIndex, zone: ZoneIndex) {
        let freed = self.drives.get_mut(drive.index()).is_some_and(|zones| zones.set(zone, true));
        assert!(freed, "Z1: zone {zone} of drive {drive} was freed twice");
    }

    /// Lets new segments use a drive, or not.
    pub(crate) fn set_online(&mut self, drive: DriveIndex, online: bool) {
        if let Some(zones) = self.drives.get_mut(drive.index()) {
            zones.online = online;
        }
    }

    /// Zones of a new segment of `scheme`: on the drives with most room, whose order rotates. With too few drives in use
    /// the last parity columns stay holes, so that reads need no decoding; with too little room on them there is no
    /// segment, because one with fewer columns than it could have would be worse protected.
    pub(crate) fn allocate(&mut self, scheme: Scheme) -> Option<Vec<SegmentColumn>> {
        let mut drives: Vec<usize> = (0..self.drives.len()).filter(|drive| self.room(*drive) > 0).collect();
        let width = usize::from(scheme.width());
        let online = (0..self.drives.len()).filter(|drive| self.is_online(*drive)).count();
        if drives.len() < width.min(online).max(usize::from(scheme.data())) {
            return None;
        }
        drives.sort_by_key(|drive| std::cmp::Reverse(self.room(*drive)));
        drives.truncate(width);
        drives.sort_unstable();
        let turn = self.turn % drives.len();
        drives.rotate_left(turn);
        self.turn = self.turn.wrapping_add(1);
        let mut columns: Vec<_> = drives.into_iter().map(|drive| self.take(drive)).collect();
        columns.resize(width, SegmentColumn::hole());
        Some(columns)
    }

    fn take(&mut self, drive: usize) -> SegmentColumn {
        let zone = self.drives.get_mut(drive).and_then(DriveZones::take);
        match (zone, u16::try_from(drive)) {
            (Some(zone), Ok(drive)) => SegmentColumn::whole(DriveIndex::new(drive), zone),
            _ => panic!("Z1: drive {drive} was said to have room"),
        }
    }

    /// Segments of `scheme` that could still be allocated: the most for which the drives together have room, when none
    /// holds two columns of one segment.
    pub(crate) fn available(&self, scheme: Scheme) -> u32 {
        self.fit(scheme, |drive| drive.count)
    }

    /// The same if no zone were taken.
    pub(crate) fn capacity(&self, scheme: Scheme) -> u32 {
        self.fit(scheme, |drive| drive.zones)
    }

    fn fit(&self, scheme: Scheme, room: impl Fn(&DriveZones) -> u32) -> u32 {
        let rooms: Vec<u32> = self.drives.iter().filter(|drive| drive.online).map(room).collect();
        let width = usize::from(scheme.width()).min(rooms.len()).max(usize::from(scheme.data())) as u64;
        let fits = |segments: u32| {
            let columns: u64 = rooms.iter().map(|room| u64::from(segments.min(*room))).sum();
            columns >= u64::from(segments) * width
        };
        let most: u64 = rooms.iter().map(|room| u64::from(*room)).sum::<u64>() / width;
        let (mut low, mut high) = (0, u32::try_from(most).unwrap_or(u32::MAX));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// All zones of drives that are online, and how many of them are free.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let online = self.drives.iter().filter(|drive| drive.online);
        online
            .fold((0, 0), |(all, free), drive| (all + u64::from(drive.zones), free + u64::from(drive.count)))
    }

    fn is_online(&self, drive: usize) -> bool {
        self.drives.get(drive).is_some_and(|drive| drive.online)
    }

    /// Free zones that a new segment may use.
    fn room(&self, drive: usize) -> u32 {
        self.drives.get(drive).filter(|drive| drive.online).map_or(0, |drive| drive.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(text: &str) -> Scheme {
        text.parse().unwrap()
    }

    #[test]
    fn every_zone_is_given_out_once() {
        let mut zones = Zones::new([(70, true); 5].into_iter());
        let mut seen = std::collections::BTreeSet::new();
        assert_eq!(zones.available(scheme("4+1")), 70);
        for _ in 0..70 {
            for column in zones.allocate(scheme("4+1")).unwrap() {
                assert!(seen.insert(column.zone.unwrap()));
            }
        }
        assert_eq!(zones.allocate(scheme("4+1")), None);
        assert_eq!(zones.totals(), (350, 0));
        for (drive, zone) in seen {
            zones.free(drive, zone);
        }
        assert_eq!(zones.totals(), (350, 350));
    }

    #[test]
    fn parity_rotates_over_the_drives() {
        let mut zones = Zones::new([(100, true); 5].into_iter());
        let mut parity = [0; 5];
        for _ in 0..50 {
            let columns = zones.allocate(scheme("4+1")).unwrap();
            parity[columns[4].zone.unwrap().0.index()] += 1;
        }
        assert_eq!(parity, [10; 5]);
    }

    #[test]
    fn a_wider_pool_fills_evenly_and_counts_exactly() {
        let sizes = [40, 40, 20, 20, 10, 10];
        let mut zones = Zones::new(sizes.iter().map(|size| (*size, true)));
        let expected = zones.available(scheme("2+1"));
        let mut count = 0;
        while zones
            .allocate(scheme("2+1"))
            .is_some_and(|columns| columns.iter().all(|column| column.zone.is_some()))
        {
            count += 1;
        }
        assert_eq!(count, expected);
        assert_eq!(count, 46);
    }

    #[test]
    fn a_lost_drive_costs_parity_not_data() {
        let mut zones = Zones::new([(10, true), (10, false), (10, true), (10, true), (10, true)].into_iter());
        assert_eq!(zones.available(scheme("4+1")), 10);
        for _ in 0..10 {
            let columns = zones.allocate(scheme("4+1")).unwrap();
            assert!(columns[..4].iter().all(|column| column.zone.is_some()));
            assert_eq!(columns[4], SegmentColumn::hole());
        }
        assert_eq!(zones.available(scheme("4+1")), 0);
    }

    #[test]
    fn a_full_drive_never_costs_parity() {
        let mut zones = Zones::new([(10, true), (3, true), (10, true)].into_iter());
        assert_eq!(zones.available(scheme("1+2")), 3);
        for _ in 0..3 {
            assert!(zones.allocate(scheme("1+2")).unwrap().iter().all(|column| column.zone.is_some()));
        }
        assert_eq!(zones.allocate(scheme("1+2")), None);
    }

    #[test]
    fn a_zone_taken_twice_is_noticed() {
        let mut zones = Zones::new([(10, true)].into_iter());
        assert!(zones.occupy(DriveIndex::new(0), ZoneIndex::new(3)));
        assert!(!zones.occupy(DriveIndex::new(0), ZoneIndex::new(3)));
        assert!(!zones.occupy(DriveIndex::new(0), ZoneIndex::new(10)));
        assert!(!zones.occupy(DriveIndex::new(1), ZoneIndex::new(0)));
    }
}
