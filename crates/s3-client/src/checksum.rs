//! The checksum of bodies: CRC-64/NVME, which S3 combines from those of the parts.

use base64_simd::STANDARD;
use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-64/NVME of a body, computed while the body arrives.
#[derive(Clone, Debug)]
pub struct Checksum {
    digest: Digest,
    length: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc64Nvme), length: 0 }
    }
}

impl Checksum {
    /// Returns the checksum of a body.
    pub fn of(body: &[u8]) -> Self {
        let mut checksum = Self::default();
        checksum.update(body);
        checksum
    }

    /// Adds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// Returns the length of the body so far in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds a body that follows.
    pub fn append(&mut self, next: &Self) {
        self.digest.combine(&next.digest);
        self.length += next.length;
    }

    /// Returns the checksum as in the header `x-amz-checksum-crc64nvme`.
    #[allow(clippy::big_endian_bytes, reason = "the byte order of S3")]
    pub fn to_base64(&self) -> String {
        STANDARD.encode_to_string(self.digest.finalize().to_be_bytes())
    }
}
