//! Computing lost columns from k that are left.
//!
//! Owns `Decoder`, a plan made once for a pattern of losses and applied to any number of columns. Must not know
//! why a column is wanted (lost drive, bad checksum, rebuild) or where the others come from.
#![allow(
    clippy::indexing_slicing,
    reason = "column numbers were checked against k + m, loop bounds against k"
)]

use std::fmt;

use crate::field::multiply;
use crate::implementation::Implementation;
use crate::matrix::{Matrix, Square, coefficient};
use crate::{Code, CodeError, ColumnSet, MAX_COLUMNS};

/// A plan to compute the wanted columns from exactly k others. Made by [`Code::decoder`].
#[derive(Clone)]
pub struct Decoder {
    /// Row r gives wanted column r from the sources.
    matrix: Matrix,
    sources: [u8; MAX_COLUMNS],
    wanted: [u8; MAX_COLUMNS],
    implementation: Implementation,
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

    /// The k columns to hand to [`Decoder::apply`], in this order (ascending).
    #[must_use]
    pub fn sources(&self) -> &[u8] {
        &self.sources[..self.matrix.columns()]
    }

    /// The columns that [`Decoder::apply`] computes, in the order they were asked for.
    #[must_use]
    pub fn wanted(&self) -> &[u8] {
        &self.wanted[..self.matrix.rows()]
    }

    /// Computes the wanted columns: `inputs` are those of [`Decoder::sources`], `outputs` become those of
    /// [`Decoder::wanted`]. Columns may be any equal part of the stored ones, say one row's cells.
    ///
    /// # Panics
    /// If there are not as many of each, or not all of one length.
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

/// The matrix that makes the columns `wanted` of the `sources` (k of them, ascending). Most often one column of a
/// RAID 5 is lost and it is a row of ones.
///
/// The data columns missing among the sources are unknowns, and each parity among them is an equation: parity p
/// less the data that is there is the sum of coefficient(p, u) times the unknown u. Solving these few equations
/// instead of inverting k x k keeps the plan small: e x e for e missing data columns.
fn plan_matrix(k: u8, sources: &[u8], wanted: &[u8]) -> Matrix {
    let data = sources.iter().take_while(|&&c| c < k).count();
    let (data, parities) = sources.split_at(data);
    if is_sum(k, sources, wanted) {
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
        through.fold(direct(k, column, data[source]), |sum, (&parity, &weight)| {
            sum ^ multiply(weight, coefficient(parity - k, data[source]))
        })
    })
}

/// Whether one column of the first k+1 is wanted and the others are the sources, whose XOR it is.
fn is_sum(k: u8, sources: &[u8], wanted: &[u8]) -> bool {
    matches!(wanted, &[column] if column <= k && sources.iter().all(|&c| c <= k && c != column))
}

/// The factor of data column `data` in column `column`.
fn direct(k: u8, column: u8, data: u8) -> u8 {
    if column < k { u8::from(column == data) } else { coefficient(column - k, data) }
}

/// The data columns that are not among `data` (ascending), at most as many as there are parities.
fn missing(k: u8, data: &[u8]) -> [u8; MAX_COLUMNS / 2] {
    let there: ColumnSet = data.iter().copied().collect();
    let mut columns = [0u8; MAX_COLUMNS / 2];
    for (slot, column) in columns.iter_mut().zip(ColumnSet::first(k).difference(there)) {
        *slot = column;
    }
    columns
}

/// The factor of each parity among the sources in `column`: the column's factors of the unknowns times the
/// solution.
fn parity_weights(k: u8, column: u8, unknowns: &[u8], solved: &Square) -> [u8; MAX_COLUMNS / 2] {
    let mut weights = [0u8; MAX_COLUMNS / 2];
    for (u, &unknown) in unknowns.iter().enumerate().take(solved.size()) {
        let factor = direct(k, column, unknown);
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
