//! A set of a code's columns, in one word.
//!
//! Owns `ColumnSet`. Columns are numbered from 0: the k data columns first, then the m parity
//! columns; all numbers in a set are below `MAX_COLUMNS`. Must not know which columns are data and
//! which are parity.

use std::fmt;

use crate::MAX_COLUMNS;

/// A set of column numbers, each below [`MAX_COLUMNS`]. `Copy`, and iterated in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ColumnSet(u32);

impl ColumnSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the columns `0..count`.
    ///
    /// # Panics
    /// If `count` exceeds [`MAX_COLUMNS`].
    #[must_use]
    pub const fn first(count: u8) -> Self {
        assert!(count as usize <= MAX_COLUMNS, "a set holds at most MAX_COLUMNS columns");
        Self(((1u64 << count) - 1) as u32)
    }

    /// Returns the set that contains column c if bit c of `bits` is one.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the set as bits: bit c is one if column c is in the set.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if `column` is in the set, and false for any number of [`MAX_COLUMNS`] or
    /// above.
    #[must_use]
    pub const fn contains(self, column: u8) -> bool {
        (column as usize) < MAX_COLUMNS && self.0 >> column & 1 == 1
    }

    /// Adds `column`; returns true if it was not in the set before.
    ///
    /// # Panics
    /// If `column` is [`MAX_COLUMNS`] or above.
    pub const fn insert(&mut self, column: u8) -> bool {
        assert!((column as usize) < MAX_COLUMNS, "column numbers are below MAX_COLUMNS");
        let added = !self.contains(column);
        self.0 |= 1 << column;
        added
    }

    /// Removes `column`; returns true if it was in the set.
    pub const fn remove(&mut self, column: u8) -> bool {
        let contained = self.contains(column);
        if contained {
            self.0 &= !(1 << column);
        }
        contained
    }

    /// Returns the number of columns in the set.
    #[must_use]
    pub const fn len(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Returns true if the set has no columns.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the columns of this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Iterates over the columns in ascending order.
    #[must_use]
    pub const fn iter(self) -> Columns {
        Columns(self.0)
    }
}

/// Iterator over the columns of a [`ColumnSet`] in ascending order.
#[derive(Clone, Debug)]
pub struct Columns(u32);

impl Iterator for Columns {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let column = self.0.trailing_zeros() as u8;
        // Clears the lowest bit that is one, if any.
        self.0 &= self.0.wrapping_sub(1);
        ((column as usize) < MAX_COLUMNS).then_some(column)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.count_ones() as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Columns {}

impl IntoIterator for ColumnSet {
    type Item = u8;
    type IntoIter = Columns;

    fn into_iter(self) -> Columns {
        self.iter()
    }
}

/// # Panics
/// If a column is [`MAX_COLUMNS`] or above.
impl FromIterator<u8> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = u8>>(columns: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(columns);
        set
    }
}

/// # Panics
/// If a column is [`MAX_COLUMNS`] or above.
impl Extend<u8> for ColumnSet {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, columns: I) {
        for column in columns {
            self.insert(column);
        }
    }
}

/// Displays the columns, for example `{0,1,4}`.
impl fmt::Display for ColumnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, column) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{column}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for ColumnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
