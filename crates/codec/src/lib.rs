//! Erasure code over GF(2^8) and checksums, scalar and SIMD.
//!
//! Owns the code k+m (what a parity byte is), CRC-32C, and the fastest ways this machine has to compute both.
//! Always true: every implementation gives bit for bit what the scalar one gives. Must not know about I/O, drives, pools
//! or the layout of records: it sees slices of bytes.

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

pub use checksum::{copy_crc32c, copy_crc32c_from, crc32c, crc32c_append, crc32c_blocks};
pub use code::Code;
pub use column_set::{ColumnSet, Columns};
pub use decoder::Decoder;
pub use error::CodeError;
pub use implementation::{Implementation, implementations};
pub use record::Source;
pub use zero::is_zero;

/// The most columns a code can have: k + m.
pub const MAX_COLUMNS: usize = 32;
