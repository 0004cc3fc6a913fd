//! What can be wrong with a code or a decoder that a caller asks for.
//!
//! Owns `CodeError`. Every kind here can come from what a user or a drive says (a scheme in a configuration or a
//! superblock, the drives that are left); shapes only our own code can get wrong are asserts where they are used.

use crate::{ColumnSet, MAX_COLUMNS};

/// Why a [`Code`](crate::Code) or a [`Decoder`](crate::Decoder) cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// A code needs at least one data column.
    #[error("an erasure code needs at least one data column")]
    NoData,
    /// k + m is above [`MAX_COLUMNS`].
    #[error("{data}+{parity} has more than {MAX_COLUMNS} columns")]
    TooManyColumns {
        /// k, as asked for.
        data: u8,
        /// m, as asked for.
        parity: u8,
    },
    /// A column number is k + m or above.
    #[error("there is no column {column} in {data}+{parity}")]
    NoSuchColumn {
        /// The number.
        column: u8,
        /// k of the code.
        data: u8,
        /// m of the code.
        parity: u8,
    },
    /// Fewer than k columns are left: what was in the others is lost.
    #[error("columns {present} are left of {data}+{parity}, and {data} are needed")]
    TooFewColumns {
        /// The columns that are left.
        present: ColumnSet,
        /// k of the code.
        data: u8,
        /// m of the code.
        parity: u8,
    },
    /// More columns are wanted at once than the code can lose.
    #[error("{wanted} columns wanted at once of {data}+{parity}, which makes at most {parity}")]
    TooManyWanted {
        /// How many were asked for.
        wanted: usize,
        /// k of the code.
        data: u8,
        /// m of the code.
        parity: u8,
    },
}
