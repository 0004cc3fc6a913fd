//! The requests of a load: the direction and the offset of each.

/// The requests of a load.
pub(crate) struct RequestSequence {
    /// Share of reads.
    read_percent: u8,
    random: bool,
    /// The part of the disk to use: its offset, and its requests of `length` bytes.
    from: u64,
    length: u64,
    count: u64,
    /// The next request of a sequential load.
    next: u64,
    state: u64,
}

impl RequestSequence {
    /// Returns the requests of `length` bytes within `size` bytes from `from` on. Loads with
    /// different seeds access different offsets. A sequential load begins with request `first`.
    pub(crate) fn new(
        (read_percent, random): (u8, bool),
        (from, size): (u64, u64),
        length: u32,
        first: u64,
        seed: u32,
    ) -> Self {
        let length = u64::from(length.max(1));
        let state = 0x9E37_79B9_7F4A_7C15 ^ (u64::from(seed) << 40 | 0x5A5A);
        Self { read_percent, random, from, length, count: (size / length).max(1), next: first, state }
    }

    /// Returns the next request: true for a read, and its offset in bytes.
    pub(crate) fn next(&mut self) -> (bool, u64) {
        let is_read = self.draw() % 100 < u64::from(self.read_percent);
        let index = if self.random {
            u64::try_from((u128::from(self.draw()) * u128::from(self.count)) >> 64).unwrap_or(0)
        } else {
            self.next += 1;
            (self.next - 1) % self.count
        };
        (is_read, self.from + index * self.length)
    }

    /// xorshift64* (Vigna, 2016).
    fn draw(&mut self) -> u64 {
        let mut x = self.state;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.state = x;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_in_their_part_and_have_the_share_of_reads() {
        let mut requests = RequestSequence::new((70, true), (1 << 20, 64 << 10), 4096, 0, 3);
        let drawn: Vec<_> = (0..10_000).map(|_| requests.next()).collect();
        assert!(drawn.iter().all(|(_, at)| (1 << 20..(1 << 20) + (64 << 10)).contains(at) && at % 4096 == 0));
        let reads = drawn.iter().filter(|(is_read, _)| *is_read).count();
        assert!((6800..7200).contains(&reads), "{reads}");
        let mut offsets: Vec<_> = drawn.iter().map(|(_, at)| *at).collect();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), 16, "every block is reached");
    }

    #[test]
    fn a_sequential_load_begins_at_its_first_request_and_wraps() {
        let mut requests = RequestSequence::new((0, false), (0, 16_384), 4096, 2, 0);
        let offsets: Vec<_> = (0..4).map(|_| requests.next()).collect();
        assert_eq!(offsets, [(false, 8192), (false, 12_288), (false, 0), (false, 4096)]);
    }
}
