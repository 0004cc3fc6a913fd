//! Test helpers: reproducible bytes at any alignment.

/// Returns reproducible noise (xorshift64*).
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    })
    .take(length)
    .collect()
}

/// `count` columns of noise of `length` bytes, each at a different alignment and surrounded by
/// guard bytes.
pub(crate) struct NoiseColumns {
    bytes: Vec<Vec<u8>>,
    length: usize,
}

/// Maximum number of guard bytes before a column, and the minimum after it.
const GUARD: usize = 70;

impl NoiseColumns {
    pub(crate) fn noise(seed: u64, count: usize, length: usize) -> Self {
        let column = |i| noise(seed.wrapping_mul(31).wrapping_add(i), length + 2 * GUARD);
        Self { bytes: (0..count as u64).map(column).collect(), length }
    }

    fn start(&self, column: usize) -> usize {
        (column * 13 + self.length) % GUARD
    }

    pub(crate) fn get(&self, column: usize) -> &[u8] {
        &self.bytes[column][self.start(column)..][..self.length]
    }

    pub(crate) fn all(&self) -> Vec<&[u8]> {
        (0..self.bytes.len()).map(|column| self.get(column)).collect()
    }

    pub(crate) fn all_mut(&mut self) -> Vec<&mut [u8]> {
        let starts: Vec<usize> = (0..self.bytes.len()).map(|column| self.start(column)).collect();
        let columns = self.bytes.iter_mut().zip(starts);
        columns.map(|(bytes, start)| &mut bytes[start..][..self.length]).collect()
    }

    /// Returns the guard bytes, to check that they were not overwritten.
    pub(crate) fn guards(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let guard = |column: usize| {
            let (before, rest) = self.bytes[column].split_at(self.start(column));
            (before.to_vec(), rest[self.length..].to_vec())
        };
        (0..self.bytes.len()).map(guard).collect()
    }
}
