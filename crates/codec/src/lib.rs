//! Erasure code over GF(2^8) and checksums, scalar and SIMD.
