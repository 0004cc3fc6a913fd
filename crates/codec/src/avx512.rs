//! AVX-512 with GFNI and VPCLMULQDQ: Ice Lake and Zen 4 onwards.
//!
//! Owns the list of CPU features that its kernels may use: `Implementation` uses this module only
//! if all of them are available. Must produce the same bytes as `scalar`.

mod affine;
mod combine;
mod crc;
mod fold;
mod zero;

pub(crate) use combine::combine;
pub(crate) use crc::{copy_crc32c, crc32c_append, crc32c_blocks};
pub(crate) use zero::is_zero;

/// Returns true if this machine has every feature that the kernels of this module are compiled for.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("gfni")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}
