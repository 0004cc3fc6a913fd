//! The coefficients of the generator matrix, and small matrices of field elements.
//!
//! Owns the coefficient of each data column in each parity column (part of the on-disk format,
//! checked by a known-answer test) and the solution of a decoder's systems of equations. A `Matrix`
//! has up to k * m <= 256 elements, since k + m <= 32, so it needs no heap allocation. Must not
//! know how a matrix is multiplied with columns of bytes.
#![allow(
    clippy::indexing_slicing,
    reason = "loop bounds beside each index, all below the array's fixed size"
)]

use std::ops::Range;

use crate::MAX_COLUMNS;
use crate::field::{inverse, multiply, power_of_two};

/// The maximum of r * c with r + c <= `MAX_COLUMNS`.
const MAX_ELEMENTS: usize = MAX_COLUMNS * MAX_COLUMNS / 4;
/// The maximum number of data columns that can be missing at once: min(k, m).
const MAX_MISSING: usize = MAX_COLUMNS / 2;

/// Returns the coefficient of data column `data` in parity column `parity` (counted from 0 within
/// the parities).
pub(crate) fn coefficient(parity: u8, data: u8) -> u8 {
    COEFFICIENTS[usize::from(parity)][usize::from(data)]
}

/// All coefficients, by parity and data column; those of k+m are the upper left corner.
///
/// A Cauchy matrix 1 / (x_i + y_j), each column divided by its first element and then each row by
/// its first, so that row 0 and column 0 are all ones. With u(a) = a / (1 + a), the points are x_0
/// = 0, x_1 = 1, x_i = u(2^(256 - i)) and y_j = u(2^(j + 1)). They are all different, since u is
/// injective, is 0 only for 0 and never 1, and 2 has order 255. With these points, row 1 is 2^j:
/// (x_0 + y) / (x_1 + y) = u(a) / (1 + u(a)) = a.
static COEFFICIENTS: [[u8; MAX_COLUMNS]; MAX_COLUMNS - 1] = coefficients();

const fn coefficients() -> [[u8; MAX_COLUMNS]; MAX_COLUMNS - 1] {
    let mut rows = [[0u8; MAX_COLUMNS]; MAX_COLUMNS - 1];
    let (x0, y0) = (parity_point(0), data_point(0));
    let mut i = 0;
    while i < rows.len() {
        let mut j = 0;
        while j < rows[i].len() {
            let (xi, yj) = (parity_point(i as u8), data_point(j as u8));
            rows[i][j] = multiply(multiply(x0 ^ yj, inverse(xi ^ yj)), multiply(xi ^ y0, inverse(x0 ^ y0)));
            j += 1;
        }
        i += 1;
    }
    rows
}

const fn parity_point(parity: u8) -> u8 {
    if parity < 2 { parity } else { fraction(power_of_two(256 - parity as u16)) }
}

const fn data_point(data: u8) -> u8 {
    fraction(power_of_two(data as u16 + 1))
}

/// Returns a / (1 + a).
const fn fraction(a: u8) -> u8 {
    multiply(a, inverse(1 ^ a))
}

/// A matrix of field elements: output row r is the sum over c of element (r, c) times input c.
#[derive(Clone)]
pub(crate) struct Matrix {
    rows: u8,
    columns: u8,
    first_row_is_xor: bool,
    elements: [u8; MAX_ELEMENTS],
}

impl Matrix {
    /// Returns a matrix of `rows` x `columns` with the given elements by (row, column).
    pub(crate) fn new(rows: u8, columns: u8, element: impl Fn(u8, u8) -> u8) -> Self {
        assert!(usize::from(rows) * usize::from(columns) <= MAX_ELEMENTS, "k + m is at most MAX_COLUMNS");
        let mut elements = [0u8; MAX_ELEMENTS];
        for row in 0..rows {
            for column in 0..columns {
                elements[usize::from(row) * usize::from(columns) + usize::from(column)] =
                    element(row, column);
            }
        }
        let first_row_is_xor = rows > 0 && elements[..usize::from(columns)].iter().all(|&e| e == 1);
        Self { rows, columns, first_row_is_xor, elements }
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.rows)
    }

    pub(crate) fn columns(&self) -> usize {
        usize::from(self.columns)
    }

    /// Returns true if row 0 is all ones, so that its output is a plain XOR.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the SIMD kernels"))]
    pub(crate) fn first_row_is_xor(&self) -> bool {
        self.first_row_is_xor
    }

    /// Checks the shapes of the operands of a multiplication.
    ///
    /// # Panics
    /// If the number of columns is not that of the matrix, the lengths differ, or the part is out
    /// of range.
    pub(crate) fn check(&self, inputs: &[&[u8]], outputs: &[&mut [u8]], part: &Range<usize>) {
        assert_eq!(inputs.len(), self.columns(), "number of input columns");
        assert_eq!(outputs.len(), self.rows(), "number of output columns");
        let length = inputs.first().map_or(0, |input| input.len());
        let equal = inputs.iter().all(|i| i.len() == length) && outputs.iter().all(|o| o.len() == length);
        assert!(equal, "all columns must have the same length");
        assert!(part.start <= part.end && part.end <= length, "the part must be within the columns");
    }

    /// Returns the elements of one row.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.elements[row * self.columns()..][..self.columns()]
    }
}

/// A square matrix of up to 16 x 16: the coefficients of the missing data columns in the parities
/// that are read.
pub(crate) struct Square {
    size: usize,
    elements: [[u8; MAX_MISSING]; MAX_MISSING],
}

impl Square {
    /// Returns a matrix of `size` x `size` with the given elements by (row, column).
    pub(crate) fn new(size: usize, element: impl Fn(usize, usize) -> u8) -> Self {
        assert!(size <= MAX_MISSING, "min(k, m) is at most half of MAX_COLUMNS");
        let mut elements = [[0u8; MAX_MISSING]; MAX_MISSING];
        for (r, row) in elements.iter_mut().enumerate().take(size) {
            for (c, value) in row.iter_mut().enumerate().take(size) {
                *value = element(r, c);
            }
        }
        Self { size, elements }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn get(&self, row: usize, column: usize) -> u8 {
        self.elements[row][column]
    }

    /// Returns the inverse, or `None` for a singular matrix (Gauss-Jordan elimination, in place).
    pub(crate) fn inverted(mut self) -> Option<Self> {
        let n = self.size;
        let mut swaps = [0usize; MAX_MISSING];
        for (pivot, swap) in swaps.iter_mut().enumerate().take(n) {
            let found = (pivot..n).find(|&r| self.elements[r][pivot] != 0)?;
            *swap = found;
            self.elements.swap(pivot, found);
            self.clear_column(pivot);
        }
        // Row swaps of the elimination become column swaps of the inverse, in reverse order.
        for pivot in (0..n).rev() {
            for row in self.elements.iter_mut().take(n) {
                row.swap(pivot, swaps[pivot]);
            }
        }
        Some(self)
    }

    /// Performs one step of the elimination: replaces the pivot's column by that of the inverse.
    fn clear_column(&mut self, pivot: usize) {
        let n = self.size;
        let scale = inverse(self.elements[pivot][pivot]);
        self.elements[pivot][pivot] = 1;
        for value in &mut self.elements[pivot][..n] {
            *value = multiply(*value, scale);
        }
        let row = self.elements[pivot];
        for (r, other) in self.elements.iter_mut().enumerate().take(n) {
            if r != pivot {
                let factor = std::mem::replace(&mut other[pivot], 0);
                for c in 0..n {
                    other[c] ^= multiply(factor, row[c]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
