//! Which of the compiled ways of computing is used: found once, at run time.
//!
//! Owns `Implementation` and the dispatch to the kernels. A value of it is the proof that this machine has the
//! instructions the kernels need, so it can only be had from this module. Must not know what is computed for whom.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::OnceLock;

use crate::matrix::Matrix;
use crate::row::Row;
use crate::scalar;

/// A way to compute parities and checksums. All give the same results. Having one means that this machine can run it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Implementation(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Scalar,
}

/// What this machine can run, fastest first. The last is always [`Implementation::SCALAR`].
#[must_use]
pub fn implementations() -> &'static [Implementation] {
    static FOUND: OnceLock<Vec<Implementation>> = OnceLock::new();
    FOUND.get_or_init(|| vec![Implementation::SCALAR])
}

impl Implementation {
    /// Plain loops over bytes, on any machine: the oracle the others are tested against.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// The fastest this machine can run.
    #[must_use]
    pub fn best() -> Self {
        implementations().first().copied().unwrap_or(Self::SCALAR)
    }

    /// A short name: `scalar`, `avx2`, `avx512`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
        }
    }

    pub(crate) fn combine(self, matrix: &Matrix, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = outputs.first().map_or(0, |o| o.len());
        assert_eq!(inputs.len(), matrix.columns(), "as many inputs as the matrix has columns");
        assert_eq!(outputs.len(), matrix.rows(), "as many outputs as the matrix has rows");
        assert!(outputs.iter().all(|o| o.len() == length), "all columns of one length");
        assert!(outputs.is_empty() || inputs.iter().all(|i| i.len() == length), "all columns of one length");
        match self.0 {
            Kind::Scalar => scalar::combine(matrix, inputs, outputs),
        }
    }

    /// As [`crc32c_append`](crate::crc32c_append), computed this way.
    #[must_use]
    pub fn crc32c_append(self, crc: u32, data: &[u8]) -> u32 {
        match self.0 {
            Kind::Scalar => scalar::crc32c_append(crc, data),
        }
    }

    /// As [`copy_crc32c_from`](crate::copy_crc32c_from), computed this way.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn copy_crc32c_from(self, source: *const u8, destination: &mut [u8]) -> u32 {
        match self.0 {
            // SAFETY: the caller's contract is the callee's.
            Kind::Scalar => unsafe { scalar::copy_crc32c_from(source, destination) },
        }
    }

    /// As [`is_zero`](crate::is_zero), computed this way.
    #[must_use]
    pub fn is_zero(self, data: &[u8]) -> bool {
        match self.0 {
            Kind::Scalar => scalar::is_zero(data),
        }
    }

    /// SAFETY: see [`Code::encode_row_copy`](crate::Code::encode_row_copy).
    pub(crate) unsafe fn encode_row(self, matrix: &Matrix, row: Row<'_, '_, '_>) {
        match self.0 {
            // SAFETY: the caller's contract is the callee's.
            Kind::Scalar => unsafe { scalar::encode_row(matrix, row) },
        }
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
