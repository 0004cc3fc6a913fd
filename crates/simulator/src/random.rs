//! Seeded randomness: xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64. The sequence
//! is the same on every machine.

use std::cell::Cell;

/// A random number generator. It is shared by reference: all parts of a run draw from a few
/// generators, in a fixed order.
pub struct Random {
    state: Cell<[u64; 4]>,
}

/// Performs one step of splitmix64. Also mixes two numbers into a seed.
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        let mut next = seed;
        let mut word = || {
            next = next.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(next)
        };
        Self { state: Cell::new([word(), word(), word(), word()]) }
    }

    /// Returns 64 random bits.
    pub fn bits(&self) -> u64 {
        let [a, b, c, d] = self.state.get();
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let t = b << 17;
        let c = c ^ a;
        let d = d ^ b;
        self.state.set([a ^ d, b ^ c, c ^ t, d.rotate_left(45)]);
        result
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0");
        u64::try_from((u128::from(self.bits()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `times` calls on average; never for 0.
    pub fn once_in(&self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// Returns one of `choices`.
    pub fn choose<'a, T>(&self, choices: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap_or(0);
        match choices.get(at) {
            Some(choice) => choice,
            None => panic!("nothing to choose from"),
        }
    }

    /// Returns the position of one of `weights`, drawn by weight. If all weights are zero, returns
    /// 0.
    pub fn weighted(&self, weights: &[u32]) -> usize {
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut left = if sum == 0 { 0 } else { self.below(sum) };
        for (at, weight) in weights.iter().enumerate() {
            if left < u64::from(*weight) {
                return at;
            }
            left -= u64::from(*weight);
        }
        0
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut();
        words.iter_mut().for_each(|word| *word = self.bits().to_le_bytes());
        if !rest.is_empty() {
            rest.iter_mut().zip(self.bits().to_le_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_words_in_order() {
        let (random, same) = (Random::new(7), Random::new(7));
        let mut bytes = [0; 21];
        random.fill(&mut bytes);
        let words: Vec<u8> = (0..3).flat_map(|_| same.bits().to_le_bytes()).collect();
        assert_eq!(bytes, words[..21]);
        assert_eq!(random.bits(), same.bits());
        random.fill(&mut []);
        assert_eq!(random.bits(), same.bits());
    }
}
