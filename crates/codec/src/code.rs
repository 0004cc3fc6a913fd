//! The erasure code k+m: what is stored, and how parities are made from data.
//!
//! Owns `Code`. Any k of its k+m columns give back all the others, always. Must not know where columns lie or how
//! long they live; decoding is the `Decoder`'s.

use std::fmt;
use std::ops::Range;

use crate::implementation::Implementation;
use crate::matrix::{Matrix, coefficient};
use crate::{CodeError, ColumnSet, Decoder, MAX_COLUMNS};

/// A systematic maximum-distance-separable code with k data and m parity columns over GF(2^8), polynomial 0x11D.
///
/// Columns are numbered from 0: data columns `0..k`, parity columns `k..k+m`. Byte i of each column forms a
/// codeword of its own, so that columns may be cut anywhere and encoded in parts. The factor of data column j in
/// parity i depends on i and j only (never on k and m): a column of zeros may be added or taken away without
/// changing any parity, and k+m and k+(m+1) have their first m parities in common.
///
/// # Why any k columns suffice
/// The parity part is a Cauchy matrix, 1 / (x_i + y_j) with all x_i and y_j different, whose rows and columns have
/// been multiplied by non-zero constants so that its first row and first column are all ones. Every square
/// submatrix of a Cauchy matrix is a Cauchy matrix, and its determinant is the product of all (x_i + x_j)(y_i +
/// y_j), i < j, over the product of all (x_i + y_j): never zero. Multiplying rows or columns by non-zero constants
/// multiplies the determinant by them. So every square submatrix is invertible, which is what a systematic code
/// needs: with e data columns missing and e parities in their place, the e unknowns have an e x e submatrix.
/// (Bloemer et al., "An XOR-Based Erasure-Resilient Coding Scheme", 1995; the scaling as in Plank and Xu,
/// "Optimizing Cauchy Reed-Solomon Codes for Fault-Tolerant Network Storage Applications", 2006.)
///
/// The first row makes parity 0 the XOR of the data (RAID 5); the first column makes 1+m a plain mirror. The
/// points are chosen so that parity 1 is the sum of 2^j times data column j: the first two parities are the P and
/// Q of RAID 6 (Anvin, "The Mathematics of RAID-6").
#[derive(Clone)]
pub struct Code {
    generator: Matrix,
    implementation: Implementation,
}

impl Code {
    /// The code with `data` (k) data and `parity` (m) parity columns, computed with the best this machine has.
    ///
    /// # Errors
    /// [`CodeError::NoData`] if k is 0, [`CodeError::TooManyColumns`] if k + m is above [`MAX_COLUMNS`].
    pub fn new(data: u8, parity: u8) -> Result<Self, CodeError> {
        Self::with_implementation(data, parity, Implementation::best())
    }

    /// As [`Code::new`], computed in a given way: for tests and comparisons.
    ///
    /// # Errors
    /// As [`Code::new`].
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

    /// k, the number of data columns.
    #[must_use]
    pub fn data_columns(&self) -> u8 {
        self.generator.columns() as u8
    }

    /// m, the number of parity columns: as many columns may be lost.
    #[must_use]
    pub fn parity_columns(&self) -> u8 {
        self.generator.rows() as u8
    }

    /// k + m, the number of columns.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.data_columns() + self.parity_columns()
    }

    /// How this code is computed.
    #[must_use]
    pub fn implementation(&self) -> Implementation {
        self.implementation
    }

    /// Computes all m parity columns from the k data columns, in one pass over the data. Every byte of the parity
    /// columns is written, none is read. Any length goes, multiples of 64 bytes go fastest.
    ///
    /// # Panics
    /// If there are not k data and m parity columns, or not all of one length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length = data.first().map_or(0, |column| column.len());
        self.encode_part(data, parity, 0..length);
    }

    /// As [`Code::encode`] for some bytes of each column, which must be there.
    pub(crate) fn encode_part(&self, data: &[&[u8]], parity: &mut [&mut [u8]], part: Range<usize>) {
        self.implementation.combine(&self.generator, data, parity, part);
    }

    /// Plans how to compute the columns `wanted` from k columns of `present`: from the lowest k, which is all of
    /// them if the caller wants to choose. Cheap enough to be done for every degraded read, and without a heap.
    ///
    /// `wanted` may name data and parity columns in any order, at most m. One that is present is copied or
    /// recomputed.
    ///
    /// # Errors
    /// [`CodeError::TooFewColumns`] if fewer than k columns are present, [`CodeError::TooManyWanted`] if more than
    /// m are wanted, [`CodeError::NoSuchColumn`] if a number is not below k + m.
    pub fn decoder(&self, present: ColumnSet, wanted: &[u8]) -> Result<Decoder, CodeError> {
        Decoder::plan(self, present, wanted)
    }
}

/// As `4+1`.
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
