//! Reconstruction of lost columns from k others.
//!
//! Owns `Decoder`, a plan that is computed once for a pattern of losses and applied to any number
//! of columns. Must not know why a column is needed (lost drive, bad checksum, rebuild) or how the
//! other columns are read.
#![allow(
    clippy::indexing_slicing,
    reason = "column numbers were checked against k + m, loop bounds against k"
)]

use std::fmt;

use crate::field::multiply;
use crate::implementation::Implementation;
use crate::matrix::{Matrix, Square, coefficient};
use crate::{Code, CodeError, ColumnSet, MAX_COLUMNS};

/// A plan to compute the wanted columns from exactly k other columns. Created by [`Code::decoder`].
#[derive(Clone)]
pub struct Decoder {
    /// Row r computes wanted column r from the sources.
    matrix: Matrix,
    sources: [u8; MAX_COLUMNS],
    wanted: [u8; MAX_COLUMNS],
    implementation: Implementation,
}

impl Code {
    /// Plans the computation of the columns `wanted` from the lowest k columns of `present`. To
    /// choose the sources, pass exactly k columns. Cheap enough for every degraded read, without
    /// heap allocation.
    ///
    /// `wanted` may contain up to m data and parity columns in any order. A present column is
    /// copied or recomputed.
    ///
    /// # Errors
    /// [`CodeError::TooFewColumns`] if fewer than k columns are present,
    /// [`CodeError::TooManyWanted`] if more than m are wanted, [`CodeError::NoSuchColumn`] if a
    /// column number is k + m or above.
    pub fn decoder(&self, present: ColumnSet, wanted: &[u8]) -> Result<Decoder, CodeError> {
        Decoder::plan(self, present, wanted)
    }
}

impl Decoder {
    pub(crate) fn plan(code: &Code, present: ColumnSet, wanted: &[u8]) -> Result<Self, CodeError> {
        check(code, present, wanted)?;
        let k = code.data_columns();
        let mut sources = [0u8; MAX_COLUMNS];
        for (slot, column) in sources.iter_mut().zip(present.iter().take(usize::from(k))) {
            *slot = column;
        }
        let mut columns = [0u8; MAX_COLUMNS];
        columns[..wanted.len()].copy_from_slice(wanted);
        let matrix = plan_matrix(k, &sources[..usize::from(k)], wanted);
        Ok(Self { matrix, sources, wanted: columns, implementation: code.implementation() })
    }

    /// Returns the k input columns of [`Decoder::apply`], in the required order (ascending).
    #[must_use]
    pub fn sources(&self) -> &[u8] {
        &self.sources[..self.matrix.columns()]
    }

    /// Returns the columns that [`Decoder::apply`] computes, in the order of the request.
    #[must_use]
    pub fn wanted(&self) -> &[u8] {
        &self.wanted[..self.matrix.rows()]
    }

    /// Computes the wanted columns: `inputs` are the columns of [`Decoder::sources`], `outputs`
    /// receive the columns of [`Decoder::wanted`]. Columns may be any equal part of the stored
    /// ones, for example the cells of one row.
    ///
    /// # Panics
    /// If the number of inputs or outputs is wrong, or the lengths differ.
    pub fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = inputs.first().map_or(0, |column| column.len());
        self.implementation.combine(&self.matrix, inputs, outputs, 0..length);
    }
}

fn check(code: &Code, present: ColumnSet, wanted: &[u8]) -> Result<(), CodeError> {
    let (data, parity) = (code.data_columns(), code.parity_columns());
    let beyond = present.difference(ColumnSet::first(code.columns()));
    let unknown = beyond.iter().next().or_else(|| wanted.iter().copied().find(|&w| w >= code.columns()));
    if let Some(column) = unknown {
        return Err(CodeError::NoSuchColumn { column, data, parity });
    }
    if present.len() < data {
        return Err(CodeError::TooFewColumns { present, data, parity });
    }
    if wanted.len() > usize::from(parity) {
        return Err(CodeError::TooManyWanted { wanted: wanted.len(), data, parity });
    }
    Ok(())
}

/// Returns the matrix that computes the columns `wanted` from the `sources` (k of them, ascending).
/// For a RAID 5 with one lost column it is a row of ones.
///
/// The data columns missing from the sources are unknowns, and each parity among the sources is an
/// equation: parity p minus the known data is the sum of coefficient(p, u) times unknown u. Solving
/// only these equations instead of inverting a k x k matrix keeps the plan small: e x e for e
/// missing data columns.
fn plan_matrix(k: u8, sources: &[u8], wanted: &[u8]) -> Matrix {
    let data = sources.iter().take_while(|&&c| c < k).count();
    let (data, parities) = sources.split_at(data);
    if is_xor_of_sources(k, sources, wanted) {
        return Matrix::new(1, k, |_, _| 1);
    }
    let unknowns = missing(k, data);
    let solved = Square::new(parities.len(), |p, u| coefficient(parities[p] - k, unknowns[u]))
        .inverted()
        .expect("every square submatrix of a Cauchy matrix is invertible");
    let mut weights = [[0u8; MAX_COLUMNS / 2]; MAX_COLUMNS];
    for (row, &column) in weights.iter_mut().zip(wanted) {
        *row = parity_weights(k, column, &unknowns, &solved);
    }
    Matrix::new(wanted.len() as u8, k, |row, source| {
        let (column, source) = (wanted[usize::from(row)], usize::from(source));
        let weights = &weights[usize::from(row)];
        if source >= data.len() {
            return weights[source - data.len()];
        }
        let through = parities.iter().zip(weights);
        through.fold(data_coefficient(k, column, data[source]), |sum, (&parity, &weight)| {
            sum ^ multiply(weight, coefficient(parity - k, data[source]))
        })
    })
}

/// Returns true if the only wanted column is one of the first k+1 and all sources are the others,
/// so that it is their XOR.
fn is_xor_of_sources(k: u8, sources: &[u8], wanted: &[u8]) -> bool {
    matches!(wanted, &[column] if column <= k && sources.iter().all(|&c| c <= k && c != column))
}

/// Returns the coefficient of data column `data` in column `column`.
fn data_coefficient(k: u8, column: u8, data: u8) -> u8 {
    if column < k { u8::from(column == data) } else { coefficient(column - k, data) }
}

/// Returns the data columns that are not in `data` (ascending). Their number is at most that of the
/// parities.
fn missing(k: u8, data: &[u8]) -> [u8; MAX_COLUMNS / 2] {
    let known: ColumnSet = data.iter().copied().collect();
    let mut columns = [0u8; MAX_COLUMNS / 2];
    for (slot, column) in columns.iter_mut().zip(ColumnSet::first(k).difference(known)) {
        *slot = column;
    }
    columns
}

/// Returns the coefficient of each parity among the sources in `column`: the column's coefficients
/// of the unknowns times the solution.
fn parity_weights(k: u8, column: u8, unknowns: &[u8], solved: &Square) -> [u8; MAX_COLUMNS / 2] {
    let mut weights = [0u8; MAX_COLUMNS / 2];
    for (u, &unknown) in unknowns.iter().enumerate().take(solved.size()) {
        let factor = data_coefficient(k, column, unknown);
        for (p, weight) in weights.iter_mut().enumerate().take(solved.size()) {
            *weight ^= multiply(factor, solved.get(u, p));
        }
    }
    weights
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({:?} from {:?}, {})", self.wanted(), self.sources(), self.implementation)
    }
}

#[cfg(test)]
mod tests;
