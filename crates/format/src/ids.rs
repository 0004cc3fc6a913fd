//! Newtypes for ids, indexes and counts, so that no two kinds can be confused.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a number.
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// Returns the number.
            pub const fn get(self) -> $inner {
                self.0
            }

            /// Returns the number as an array index.
            #[allow(clippy::cast_possible_truncation)]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

number!(
    /// Position of a drive in the pool's drive table. Never reused for another drive.
    DriveIndex(u16)
);
number!(
    /// A shard of the pool.
    ShardIndex(u16)
);
number!(
    /// A segment of a shard: its slot in the shard's segment table, counted from 1. Reused after
    /// the segment is freed.
    SegmentId(u32)
);
number!(
    /// One use of a segment slot, from allocation to release; unique within the pool and
    /// increasing.
    Incarnation(u64)
);
number!(
    /// Position of a record in its shard's log, from 1, without gaps.
    Sequence(u64)
);
number!(
    /// Version of the superblock within one opening of the pool.
    Generation(u64)
);
number!(
    /// A layer of the map. Never reused.
    LayerId(u32)
);
number!(
    /// A block of a layer, counted within one shard.
    LayerBlock(u64)
);
number!(
    /// A zone of a drive.
    ZoneIndex(u32)
);
number!(
    /// A row of a segment.
    Row(u32)
);
number!(
    /// A column of a segment: data columns first, then parity.
    Column(u8)
);
number!(
    /// A volume or snapshot: its slot in the pool's catalogue.
    VolumeId(u32)
);

impl LayerId {
    /// The layer of the pool's catalogue.
    pub const SYSTEM: Self = Self(1);
    /// The layer of the pool's event log.
    pub const EVENTS: Self = Self(2);
    /// The layer that stores, in each shard, the list of that shard's lost blocks.
    pub const LOST: Self = Self(3);
    /// The first layer of a volume.
    pub const FIRST_USER: Self = Self(16);
}

impl Sequence {
    /// Returns the sequence of the following record.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Row {
    /// Returns the row `count` rows after this one.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl LayerBlock {
    /// Returns the block `count` blocks after this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let number = u128::from_le_bytes(self.0);
                let group = |shift: u32, digits: u32| (number >> shift) & ((1 << (4 * digits)) - 1);
                write!(
                    f,
                    "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    group(96, 8),
                    group(80, 4),
                    group(64, 4),
                    group(48, 4),
                    group(0, 12)
                )
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

identity!(
    /// Identity of a pool, random.
    PoolId
);
identity!(
    /// Identity of a drive within its pool, random, assigned when the drive is added.
    DriveId
);

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
