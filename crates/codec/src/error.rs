//! Errors of creating a code or a decoder.
//!
//! Owns `CodeError`. Every kind can be caused by a user or a drive (a scheme in a configuration or
//! a superblock, the remaining drives); invalid shapes, which only this program's own code can
//! pass, are assertions.

use crate::{ColumnSet, MAX_COLUMNS};

/// The reason why a [`Code`](crate::Code) or a [`Decoder`](crate::Decoder) cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The number of data columns is 0.
    #[error("an erasure code needs at least one data column")]
    NoData,
    /// k + m exceeds [`MAX_COLUMNS`].
    #[error("{data}+{parity} has more than {MAX_COLUMNS} columns")]
    TooManyColumns {
        /// The requested k.
        data: u8,
        /// The requested m.
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
    /// Fewer than k columns are left: the contents of the others are lost.
    #[error("only columns {present} of {data}+{parity} are left, but {data} columns are needed")]
    TooFewColumns {
        /// The columns that are left.
        present: ColumnSet,
        /// k of the code.
        data: u8,
        /// m of the code.
        parity: u8,
    },
    /// More columns were requested at once than the code can reconstruct.
    #[error("cannot reconstruct {wanted} columns of {data}+{parity} at once; the maximum is {parity}")]
    TooManyWanted {
        /// The number of requested columns.
        wanted: usize,
        /// k of the code.
        data: u8,
        /// m of the code.
        parity: u8,
    },
}
