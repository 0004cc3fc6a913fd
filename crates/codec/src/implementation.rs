//! Selection of the implementation at run time.
//!
//! Owns `Implementation` and the dispatch to the kernels. A value of `Implementation` is proof that
//! this machine supports the instructions of the kernels, so only this module can create one. Must
//! not know the purpose of a computation.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::matrix::Matrix;
use crate::scalar;
#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// An implementation of parities and checksums that this machine supports. All implementations
/// produce the same results.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Implementation(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Scalar,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Returns the implementations that this machine supports, fastest first. The last is always
/// [`Implementation::SCALAR`].
#[must_use]
pub fn implementations() -> &'static [Implementation] {
    static AVAILABLE: OnceLock<Vec<Implementation>> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if avx512::is_available() {
            available.push(Implementation(Kind::Avx512));
        }
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            available.push(Implementation(Kind::Avx2));
        }
        available.extend([Implementation::PORTABLE, Implementation::SCALAR]);
        available
    })
}

impl Implementation {
    /// Plain loops over bytes, for any machine: the oracle of the tests.
    pub const SCALAR: Self = Self(Kind::Scalar);
    /// Plain loops over bytes for parities and crc-fast for checksums, for any machine.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// Returns the fastest implementation that this machine supports.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Implementation> = OnceLock::new();
        *BEST.get_or_init(|| implementations().first().copied().unwrap_or(Self::SCALAR))
    }

    /// Returns a short name: `avx512` (with GFNI and VPCLMULQDQ), `avx2`, `portable` or `scalar`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
        }
    }

    /// Does the same as [`crc32c_append`](crate::crc32c_append), with this implementation.
    #[must_use]
    pub fn crc32c_append(self, crc: u32, data: &[u8]) -> u32 {
        match self.0 {
            Kind::Scalar => scalar::crc32c_append(crc, data),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this kind is created only if avx512::is_available() is true.
            Kind::Avx512 => unsafe { avx512::crc32c_append(crc, data) },
            _ => crc_fast_append(crc, data),
        }
    }

    /// Computes the CRC-32C of each `size` bytes. `size` is not 0, and `data` is `crcs.len()`
    /// blocks long.
    pub(crate) fn crc32c_blocks(self, data: &[u8], size: usize, crcs: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Avx512 {
            // SAFETY: this kind is created only if avx512::is_available() is true.
            return unsafe { avx512::crc32c_blocks(data, size, crcs) };
        }
        let mut blocks = data.chunks_exact(size);
        let mut next = blocks.next();
        for crc in crcs {
            let Some(block) = next else { break };
            next = blocks.next();
            #[cfg(target_arch = "x86_64")]
            if let (Kind::Avx2, Some(next)) = (self.0, next) {
                avx2::prefetch(next);
            }
            *crc = self.crc32c_append(0, block);
        }
    }

    /// Does the same as [`is_zero`](crate::is_zero), with this implementation.
    #[must_use]
    pub fn is_zero(self, data: &[u8]) -> bool {
        match self.0 {
            Kind::Scalar => scalar::is_zero(data),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this kind is created only if avx512::is_available() is true.
            Kind::Avx512 => unsafe { avx512::is_zero(data) },
            _ => crate::scalar::is_zero_by_words(data),
        }
    }

    /// Copies `length` bytes and returns the CRC-32C of the copy. `next` is the source of the next
    /// copy, or any other address: it may be prefetched.
    ///
    /// # Safety
    /// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not
    /// overlap. The source may change concurrently.
    pub(crate) unsafe fn copy_crc32c(
        self,
        source: *const u8,
        destination: *mut u8,
        length: usize,
        next: *const u8,
    ) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Avx512 {
            // SAFETY: this kind is created only if avx512::is_available() is true; the rest is
            // the caller's contract.
            return unsafe { avx512::copy_crc32c(source, destination, length, next) };
        }
        let _ = next;
        // SAFETY: the caller's contract. From here on only the copy is read, since the source may
        // change.
        let copy = unsafe {
            source.copy_to_nonoverlapping(destination, length);
            std::slice::from_raw_parts(destination, length)
        };
        self.crc32c_append(0, copy)
    }

    /// Computes output r = the sum over c of matrix(r, c) * input c, for a part of each column.
    ///
    /// # Panics
    /// If the number of columns is not that of the matrix, the lengths differ, or the part is out
    /// of range.
    pub(crate) fn combine(
        self,
        matrix: &Matrix,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        part: Range<usize>,
    ) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this kind is created only if avx512::is_available() is true.
            Kind::Avx512 => unsafe { avx512::combine(matrix, inputs, outputs, part) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this kind is created only if avx2::is_available() is true.
            Kind::Avx2 => unsafe { avx2::combine(matrix, inputs, outputs, part) },
            Kind::Scalar | Kind::Portable => scalar::combine(matrix, inputs, outputs, part),
        }
    }
}

fn crc_fast_append(crc: u32, data: &[u8]) -> u32 {
    if crc == 0 {
        return crc_fast::crc32_iscsi(data);
    }
    let state = u64::from(!crc);
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, state);
    digest.update(data);
    digest.finalize() as u32
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

#[cfg(test)]
mod tests;
