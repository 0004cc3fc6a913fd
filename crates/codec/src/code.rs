//! The erasure code k+m: its definition, and the encoding of parities.
//!
//! Owns `Code`. Always true: any k of the k+m columns determine all others. Must not know where
//! columns are stored or how long they live; decoding belongs to `Decoder`.

use std::fmt;
use std::ops::Range;

use crate::implementation::Implementation;
use crate::matrix::{Matrix, coefficient};
use crate::{CodeError, MAX_COLUMNS};

/// A systematic maximum-distance-separable code with k data and m parity columns over GF(2^8),
/// polynomial 0x11D.
///
/// Columns are numbered from 0: data columns `0..k`, parity columns `k..k+m`. Byte i of each column
/// forms a separate codeword, so columns may be cut anywhere and encoded in parts. The coefficient
/// of data column j in parity i depends only on i and j, not on k and m: adding or removing a
/// column of zeros changes no parity, and the first m parities of k+m and k+(m+1) are the same.
///
/// # Why any k columns suffice
/// The parity part is a Cauchy matrix, 1 / (x_i + y_j) with all x_i and y_j different, with rows
/// and columns multiplied by non-zero constants so that its first row and first column are all
/// ones. Every square submatrix of a Cauchy matrix is a Cauchy matrix, and its determinant is the
/// product of all (x_i + x_j)(y_i + y_j), i < j, over the product of all (x_i + y_j), which is
/// never zero. Multiplying rows or columns by non-zero constants multiplies the determinant by
/// them. So every square submatrix is invertible, which is the requirement of a systematic code:
/// with e data columns missing and e parities in their place, the coefficients of the e unknowns
/// are an e x e submatrix. (Bloemer et al., "An XOR-Based Erasure-Resilient Coding Scheme", 1995;
/// the scaling as in Plank and Xu, "Optimizing Cauchy Reed-Solomon Codes for Fault-Tolerant Network
/// Storage Applications", 2006.)
///
/// The first row makes parity 0 the XOR of the data (RAID 5); the first column makes 1+m a plain
/// mirror. With the chosen points, parity 1 is the sum of 2^j times data column j: the first two
/// parities are P and Q of RAID 6 (Anvin, "The Mathematics of RAID-6").
#[derive(Clone)]
pub struct Code {
    generator: Matrix,
    implementation: Implementation,
}

impl Code {
    /// Returns the code with `data` (k) data and `parity` (m) parity columns, with the fastest
    /// implementation.
    ///
    /// # Errors
    /// [`CodeError::NoData`] if k is 0, [`CodeError::TooManyColumns`] if k + m exceeds
    /// [`MAX_COLUMNS`].
    pub fn new(data: u8, parity: u8) -> Result<Self, CodeError> {
        Self::with_implementation(data, parity, Implementation::best())
    }

    /// Returns the code with a given implementation, for tests and benchmarks.
    ///
    /// # Errors
    /// The errors of [`Code::new`].
    pub fn with_implementation(
        data: u8,
        parity: u8,
        implementation: Implementation,
    ) -> Result<Self, CodeError> {
        if data == 0 {
            return Err(CodeError::NoData);
        }
        if usize::from(data) + usize::from(parity) > MAX_COLUMNS {
            return Err(CodeError::TooManyColumns { data, parity });
        }
        Ok(Self { generator: Matrix::new(parity, data, coefficient), implementation })
    }

    /// Returns k, the number of data columns.
    #[must_use]
    pub fn data_columns(&self) -> u8 {
        self.generator.columns() as u8
    }

    /// Returns m, the number of parity columns and of columns that may be lost.
    #[must_use]
    pub fn parity_columns(&self) -> u8 {
        self.generator.rows() as u8
    }

    /// Returns k + m, the number of columns.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.data_columns() + self.parity_columns()
    }

    /// Returns the implementation of this code.
    #[must_use]
    pub fn implementation(&self) -> Implementation {
        self.implementation
    }

    /// Computes all m parity columns from the k data columns, in one pass over the data. Every byte
    /// of the parity columns is written, none is read. Any length is possible; multiples of 64
    /// bytes are fastest.
    ///
    /// # Panics
    /// If there are not k data and m parity columns, or the lengths differ.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length = data.first().map_or(0, |column| column.len());
        self.encode_part(data, parity, 0..length);
    }

    /// Does the same as [`Code::encode`] for a part of each column, which must be in range.
    pub(crate) fn encode_part(&self, data: &[&[u8]], parity: &mut [&mut [u8]], part: Range<usize>) {
        self.implementation.combine(&self.generator, data, parity, part);
    }
}

/// Displays the scheme, for example `4+1`.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data_columns(), self.parity_columns())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({self}, {})", self.implementation)
    }
}

#[cfg(test)]
mod tests;
