//! The functions of Intel's ISA-L used in the comparison, with plain Rust signatures.
//!
//! Owns the extern declarations (isa-l/erasure_code.h, raid.h, crc.h). ISA-L selects its fastest
//! version for the machine at the first call. Must not know the measurements.

use std::ffi::{c_int, c_uchar, c_uint, c_void};

unsafe extern "C" {
    fn ec_init_tables(k: c_int, rows: c_int, a: *mut c_uchar, tables: *mut c_uchar);
    fn ec_encode_data(
        len: c_int,
        k: c_int,
        rows: c_int,
        tables: *mut c_uchar,
        data: *const *const u8,
        coding: *const *mut u8,
    );
    #[link_name = "xor_gen"]
    fn isal_xor_gen(vectors: c_int, len: c_int, array: *const *mut c_void) -> c_int;
    #[link_name = "pq_gen"]
    fn isal_pq_gen(vectors: c_int, len: c_int, array: *const *mut c_void) -> c_int;
    #[link_name = "crc32_iscsi"]
    fn isal_crc32_iscsi(buffer: *const c_uchar, len: c_int, init: c_uint) -> c_uint;
}

/// A matrix of coefficients in the form that ISA-L multiplies with.
pub struct Tables {
    k: usize,
    rows: usize,
    tables: Vec<u8>,
}

impl Tables {
    /// Returns the tables of `matrix`, which has `rows` rows of k elements.
    pub fn new(k: usize, rows: usize, matrix: &[u8]) -> Self {
        assert_eq!(matrix.len(), k * rows);
        let (mut matrix, mut tables) = (matrix.to_vec(), vec![0u8; 32 * k * rows]);
        // SAFETY: ISA-L reads k * rows bytes of the matrix and writes 32 bytes for each.
        unsafe { ec_init_tables(k as c_int, rows as c_int, matrix.as_mut_ptr(), tables.as_mut_ptr()) };
        Self { k, rows, tables }
    }

    /// Computes `rows` outputs from k inputs of `length` bytes.
    ///
    /// # Safety
    /// All pointers must be valid for `length` bytes, and the outputs must not overlap anything
    /// else.
    pub unsafe fn encode(&self, length: usize, inputs: &[*mut u8], outputs: &[*mut u8]) {
        assert!(inputs.len() == self.k && outputs.len() == self.rows);
        // SAFETY: the shapes match ISA-L's requirements. It does not write the tables; its
        // prototype only lacks the const.
        unsafe {
            ec_encode_data(
                length as c_int,
                self.k as c_int,
                self.rows as c_int,
                self.tables.as_ptr().cast_mut(),
                inputs.as_ptr().cast(),
                outputs.as_ptr(),
            );
        }
    }
}

/// Computes the last column as the XOR of the others.
///
/// # Safety
/// All pointers must be valid for `length` bytes and aligned to 64.
pub unsafe fn xor_gen(length: usize, columns: &[*mut u8]) {
    // SAFETY: the contract of this function.
    let failed = unsafe { isal_xor_gen(columns.len() as c_int, length as c_int, columns.as_ptr().cast()) };
    assert_eq!(failed, 0, "xor_gen refused its arguments");
}

/// Computes the last two columns as P and Q (RAID 6, powers of 2) of the others.
///
/// # Safety
/// All pointers must be valid for `length` bytes, a multiple of 64, and aligned to 64.
pub unsafe fn pq_gen(length: usize, columns: &[*mut u8]) {
    // SAFETY: the contract of this function.
    let failed = unsafe { isal_pq_gen(columns.len() as c_int, length as c_int, columns.as_ptr().cast()) };
    assert_eq!(failed, 0, "pq_gen refused its arguments");
}

/// Returns the CRC-32C by ISA-L, which inverts neither before nor after.
pub fn crc32c(data: &[u8]) -> u32 {
    // SAFETY: the slice is readable for its length.
    !unsafe { isal_crc32_iscsi(data.as_ptr(), data.len() as c_int, !0) }
}
