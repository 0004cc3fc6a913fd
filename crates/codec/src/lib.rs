//! Erasure code over GF(2^8) and checksums, scalar and SIMD.
//!
//! Owns the code k+m (what a parity byte is), CRC-32C, and the fastest ways this machine has to compute both.
//! Always true: every implementation gives bit for bit what the scalar one gives. Must not know about I/O, drives,
//! pools or the layout of records: it sees slices of bytes.
//!
//! # Ways to compute
//! [`implementations`] lists what the machine can do; the fastest is used unless another is asked for.
//! - `avx512`: AVX-512 with GFNI for products and VPCLMULQDQ for checksums (Ice Lake, Zen 4 and later).
//! - `avx2`: look-ups of nibbles for products; checksums by crc-fast.
//! - `portable`: plain loops; checksums by crc-fast, which has its own instructions on other processors.
//! - `scalar`: plain loops for everything, the oracle of the tests.
//!
//! # The write path, fused or not
//! A write copies blocks, checksums each and computes parities. Measured on Zen 5 (comparison/README.md has the
//! figures):
//! - [`Code::encode_record_copy`] is 1.2 to 1.4 times as fast as separate steps where everything is in the second-level
//!   cache, 1.3 to 1.8 times where the sources come from memory, and 1.1 to 1.3 times where what is written goes there.
//!   It copies and checksums a block in one pass, fetching the next source meanwhile, and encodes a row while it is in
//!   the cache.
//! - Fetching ahead is what counts: without it a fused pass from memory is hardly faster than separate ones. It is
//!   why a whole record in one call beats a call for each row, and [`crc32c_blocks`] beats [`crc32c`] on each
//!   block.
//! - Putting the parities into the same pass too was faster only if all of a row was in the first-level cache
//!   already. From anywhere else it was slower: 2k + m streams at the same offset of a page are too many for a
//!   12-way cache whose ways are 4096 bytes, and for the prefetchers.
//! - Writing past the caches pays for parities of long columns ([`Code::encode`] does it beyond 1 MiB a call),
//!   never for rows of blocks, whose buffers are used again soon.

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
#[cfg(target_arch = "x86_64")]
mod passes;
mod record;
mod scalar;
#[cfg(test)]
mod testing;
mod zero;

pub use checksum::{copy_crc32c, copy_crc32c_blocks, copy_crc32c_from, crc32c, crc32c_append, crc32c_blocks};
pub use code::Code;
pub use column_set::{ColumnSet, Columns};
pub use decoder::Decoder;
pub use error::CodeError;
pub use implementation::{Implementation, implementations};
pub use record::Source;
pub use zero::is_zero;

/// The most columns a code can have: k + m.
pub const MAX_COLUMNS: usize = 32;
