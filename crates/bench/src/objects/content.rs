//! Contents of objects that identify their key and version.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Random bytes that all contents repeat, from different offsets on.
const BASE_BYTES: usize = 1 << 20;
/// The key and the version at the begin of each content.
const STAMP_BYTES: usize = 16;

/// Makes and compares contents.
#[derive(Clone)]
pub(super) struct Contents {
    base: Arc<[u8]>,
}

impl Contents {
    pub(super) fn new() -> Self {
        let mut base = vec![0; BASE_BYTES];
        SmallRng::seed_from_u64(1).fill(base.as_mut_slice());
        Self { base: base.into() }
    }

    /// Returns the content of a version of a key.
    pub(super) fn make(&self, key: u64, version: u64, length: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(length);
        let stamp = stamp(key, version);
        content.extend_from_slice(stamp.get(..length.min(STAMP_BYTES)).unwrap_or_default());
        while content.len() < length {
            let part = self.from(key, version, content.len());
            content.extend_from_slice(part.get(..(length - content.len()).min(part.len())).unwrap_or(part));
        }
        content
    }

    /// Returns true if `bytes` are the content from `offset` on.
    pub(super) fn matches(&self, key: u64, version: u64, offset: usize, bytes: &[u8]) -> bool {
        let (mut offset, mut rest) = (offset, bytes);
        if offset < STAMP_BYTES {
            let stamp = stamp(key, version);
            let expected = stamp.get(offset..).unwrap_or_default();
            let count = expected.len().min(rest.len());
            if rest.get(..count) != expected.get(..count) {
                return false;
            }
            rest = rest.get(count..).unwrap_or_default();
            offset += count;
        }
        while !rest.is_empty() {
            let expected = self.from(key, version, offset);
            let count = expected.len().min(rest.len());
            if rest.get(..count) != expected.get(..count) {
                return false;
            }
            rest = rest.get(count..).unwrap_or_default();
            offset += count;
        }
        true
    }

    /// Returns the base from an offset of a content on, up to the end of the base.
    fn from(&self, key: u64, version: u64, offset: usize) -> &[u8] {
        let mixed = (key ^ version.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let start = usize::try_from(mixed).unwrap_or(0).wrapping_add(offset) % self.base.len();
        self.base.get(start..).unwrap_or_default()
    }
}

fn stamp(key: u64, version: u64) -> [u8; STAMP_BYTES] {
    (u128::from(key) << 64 | u128::from(version)).to_le_bytes()
}
