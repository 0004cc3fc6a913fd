//! Protection schemes: k data and m parity columns.

use std::fmt;
use std::str::FromStr;

use crate::limits::COLUMNS_MAX;

/// `k+m`: k data columns and m parity columns. `4+1` is RAID 5 on five drives, `1+2` a three-way
/// mirror, `5+0` RAID 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scheme {
    data: u8,
    parity: u8,
}

/// The reason why a scheme is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// There are no data columns.
    #[error("a scheme needs at least one data column")]
    NoData,
    /// There are more columns than the format allows.
    #[error("a scheme of {0} columns is too wide; the maximum is {COLUMNS_MAX}")]
    TooWide(u32),
    /// The text does not have the form k+m.
    #[error("'{0}' is not a scheme: write k+m, for example 4+1")]
    Syntax(String),
}

impl Scheme {
    /// Returns the scheme `data+parity`.
    ///
    /// # Errors
    /// If there is no data column, or more than [`COLUMNS_MAX`] columns in total.
    pub fn new(data: u8, parity: u8) -> Result<Self, SchemeError> {
        if data == 0 {
            return Err(SchemeError::NoData);
        }
        let width = u32::from(data) + u32::from(parity);
        if width as usize > COLUMNS_MAX {
            return Err(SchemeError::TooWide(width));
        }
        Ok(Self { data, parity })
    }

    /// Returns the mirror that tolerates the same number of lost drives: 1+m.
    #[must_use]
    pub const fn mirror(self) -> Self {
        Self { data: 1, parity: self.parity }
    }

    /// Data columns, k.
    pub const fn data(self) -> u8 {
        self.data
    }

    /// Parity columns, m: the number of columns that may be lost.
    pub const fn parity(self) -> u8 {
        self.parity
    }

    /// All columns, k+m.
    pub const fn width(self) -> u8 {
        self.data + self.parity
    }

    /// Returns the number of rows that `blocks` blocks occupy.
    pub const fn rows_for(self, blocks: u32) -> u32 {
        blocks.div_ceil(self.data as u32)
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let syntax = || SchemeError::Syntax(text.to_owned());
        let (data, parity) = text.trim().split_once('+').ok_or_else(syntax)?;
        let data: u32 = data.trim().parse().map_err(|_| syntax())?;
        let parity: u32 = parity.trim().parse().map_err(|_| syntax())?;
        let width = data.saturating_add(parity);
        match (u8::try_from(data), u8::try_from(parity)) {
            (Ok(data), Ok(parity)) => Self::new(data, parity),
            _ => Err(SchemeError::TooWide(width)),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scheme({self})")
    }
}

#[cfg(test)]
#[path = "scheme_tests.rs"]
mod tests;
