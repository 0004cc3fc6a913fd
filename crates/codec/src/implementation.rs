//! Which of the compiled ways of computing is used: found once, at run time.
//!
//! Owns `Implementation` and the dispatch to the kernels. A value of it is the proof that this machine has the
//! instructions the kernels need, so it can only be had from this module. Must not know what is computed for whom.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::matrix::Matrix;
use crate::scalar;
#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// From so many bytes on what is copied is written past the caches: below, it is likely to be read again soon.
#[cfg(target_arch = "x86_64")]
const PAST_CACHES_MIN: usize = 32 << 10;
/// What the destination of such a copy is aligned to.
#[cfg(target_arch = "x86_64")]
const VECTOR_BYTES: usize = 64;
/// What its blocks are multiples of.
#[cfg(target_arch = "x86_64")]
const LANES_BYTES: usize = 256;

/// A way to compute parities and checksums. All give the same results. Having one means that this machine can run
/// it.
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

/// What this machine can run, fastest first. The last is always [`Implementation::SCALAR`].
#[must_use]
pub fn implementations() -> &'static [Implementation] {
    static FOUND: OnceLock<Vec<Implementation>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if avx512::is_available() {
            found.push(Implementation(Kind::Avx512));
        }
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            found.push(Implementation(Kind::Avx2));
        }
        found.extend([Implementation::PORTABLE, Implementation::SCALAR]);
        found
    })
}

impl Implementation {
    /// Plain loops over bytes, on any machine: the oracle the others are tested against.
    pub const SCALAR: Self = Self(Kind::Scalar);
    /// Plain loops over bytes for parities and crc-fast's best for checksums, on any machine.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// The fastest this machine can run.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Implementation> = OnceLock::new();
        *BEST.get_or_init(|| implementations().first().copied().unwrap_or(Self::SCALAR))
    }

    /// A short name: `avx512` (with GFNI and VPCLMULQDQ), `avx2`, `portable` or `scalar`.
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

    /// As [`crc32c_append`](crate::crc32c_append), computed this way.
    #[must_use]
    pub fn crc32c_append(self, crc: u32, data: &[u8]) -> u32 {
        match self.0 {
            Kind::Scalar => scalar::crc32c_append(crc, data),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this kind is made only where avx512::is_available().
            Kind::Avx512 => unsafe { avx512::crc32c_append(crc, data) },
            _ => crc_fast_append(crc, data),
        }
    }

    /// CRC-32C of each `size` bytes, not 0, of which `data` has as many as there are sums.
    pub(crate) fn crc32c_blocks(self, data: &[u8], size: usize, crcs: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Avx512 {
            // SAFETY: a value of this kind is made only where avx512::is_available().
            return unsafe { avx512::crc32c_blocks(data, size, crcs) };
        }
        for (crc, block) in crcs.iter_mut().zip(data.chunks_exact(size)) {
            *crc = self.crc32c_append(0, block);
        }
    }

    /// As [`is_zero`](crate::is_zero), computed this way.
    #[must_use]
    pub fn is_zero(self, data: &[u8]) -> bool {
        match self.0 {
            Kind::Scalar => scalar::is_zero(data),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this kind is made only where avx512::is_available().
            Kind::Avx512 => unsafe { avx512::is_zero(data) },
            _ => crate::zero::is_zero_by_words(data),
        }
    }

    /// Copies `length` bytes and gives the CRC-32C of the copy. `next` is where the next copy will be made from,
    /// or anything else: it may be fetched into the caches.
    ///
    /// # Safety
    /// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap. Others
    /// may be writing to the source.
    pub(crate) unsafe fn copy_crc32c(
        self,
        source: *const u8,
        destination: *mut u8,
        length: usize,
        next: *const u8,
    ) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Avx512 {
            // SAFETY: the kind is made only where avx512::is_available(); the rest is the caller's contract.
            return unsafe { avx512::copy_crc32c(source, destination, length, next) };
        }
        let _ = next;
        // SAFETY: the caller's contract. From here on only the copy is looked at, whatever the source does.
        let copy = unsafe {
            source.copy_to_nonoverlapping(destination, length);
            std::slice::from_raw_parts(destination, length)
        };
        self.crc32c_append(0, copy)
    }

    /// Copies blocks of `size` bytes, not 0, as many as there are sums, and gives the CRC-32C of each copy.
    ///
    /// # Safety
    /// As [`Implementation::copy_crc32c`], for all of them together.
    pub(crate) unsafe fn copy_crc32c_blocks(
        self,
        source: *const u8,
        destination: *mut u8,
        size: usize,
        crcs: &mut [u32],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Avx512
            && size * crcs.len() >= PAST_CACHES_MIN
            && size.is_multiple_of(LANES_BYTES)
            && destination.addr().is_multiple_of(VECTOR_BYTES)
        {
            // SAFETY: the kind is made only where avx512::is_available(); the rest is the caller's contract, and checked.
            return unsafe { avx512::stream_crc32c_blocks(source, destination, size, crcs) };
        }
        let last = crcs.len().saturating_sub(1) * size;
        for (crc, at) in crcs.iter_mut().zip((0..).step_by(size)) {
            // SAFETY: there are as many blocks as sums.
            *crc = unsafe {
                let next = source.add(last.min(at + size));
                self.copy_crc32c(source.add(at), destination.add(at), size, next)
            };
        }
    }

    /// Output r = the sum over c of matrix(r, c) * input c, for some bytes of each column.
    ///
    /// # Panics
    /// If the columns are not as many as the matrix says, or not all of one length, or the part is not in them.
    pub(crate) fn combine(
        self,
        matrix: &Matrix,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        part: Range<usize>,
    ) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this kind is made only where avx512::is_available().
            Kind::Avx512 => unsafe { avx512::combine(matrix, inputs, outputs, part) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this kind is made only where avx2::is_available().
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
