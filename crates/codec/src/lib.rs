//! Erasure code over GF(2^8) and checksums, scalar and SIMD.
//!
//! Owns the k+m code (the definition of the parity bytes), CRC-32C, MD5 of several streams, and the
//! fastest available implementations of all. Always true: every implementation produces the same
//! bytes as the scalar one. Must not know about I/O, drives, pools or the layout of records: its
//! input and output are slices of bytes.
//!
//! # Implementations
//! [`implementations`] lists the implementations that the machine supports; the fastest one is used
//! unless another one is requested.
//! - `avx512`: AVX-512 with GFNI for products and VPCLMULQDQ for checksums (Ice Lake, Zen 4 and
//!   later).
//! - `avx2`: look-up of nibbles for products; checksums by crc-fast.
//! - `portable`: plain loops; checksums by crc-fast, which has SIMD code for other processors.
//! - `scalar`: plain loops for everything, the oracle of the tests.
//!
//! # The write path, fused and separate
//! A write copies blocks, computes the checksum of each, and computes parities. Measured on Zen 5
//! (figures in comparison/README.md):
//! - [`Code::encode_record_copy`] is 1.2 to 1.4 times as fast as separate steps if everything is in
//!   the L2 cache, 1.3 to 1.8 times if the sources are in memory, and 1.1 to 1.3 times if the
//!   destination is in memory. It copies and checksums a block in one pass while it prefetches the
//!   next source, and encodes a row while it is in the cache.
//! - Prefetching makes the difference: without it, a fused pass from memory is hardly faster than
//!   separate passes. Therefore one call for a record is faster than one call per row, and
//!   [`crc32c_blocks`] is faster than [`crc32c`] on each block.
//! - Computing the parities in the same pass as well was faster only if the whole row was in the L1
//!   cache. Otherwise it was slower: 2k + m streams at the same page offset are too many for the
//!   prefetchers and for a 12-way cache with ways of 4096 bytes.
//! - Streaming stores are faster for parities of long columns ([`Code::encode`] uses them beyond 1
//!   MiB per call), but not for rows of blocks, because their buffers are reused soon.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod checksum;
mod code;
mod column_set;
mod decoder;
mod error;
mod field;
mod implementation;
mod matrix;
mod md5;
#[cfg(target_arch = "x86_64")]
mod passes;
mod polynomial;
mod record;
mod scalar;
#[cfg(test)]
mod testing;
mod zero;

pub use checksum::{copy_crc32c, copy_crc32c_from, crc32c, crc32c_append, crc32c_blocks};
pub use code::Code;
pub use column_set::{ColumnSet, Columns};
pub use decoder::Decoder;
pub use error::CodeError;
pub use implementation::{Implementation, implementations};
pub use md5::{MD5_LANES, Md5Stream, md5_update_many};
pub use record::Source;
pub use zero::is_zero;

/// The maximum number of columns of a code: k + m.
pub const MAX_COLUMNS: usize = 32;
