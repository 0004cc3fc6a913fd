//! Reads ahead of a database that is being opened.
//!
//! After a crash the database reads its whole file, page after page, and a read of one page costs
//! as much as one of many. Always true: the bytes returned are those of the volume, because a write
//! drops all chunks. Pages are read one by one while their neighbours are rarely read next, as in a
//! file with random order.

use std::collections::{HashMap, VecDeque};
use std::io;

use crate::volume::BlockVolume;

/// The bytes of a chunk, which is read as a whole.
const CHUNK: usize = 256 << 10;
const CHUNK_BYTES: u64 = CHUNK as u64;
/// The largest number of chunks in memory.
const CHUNKS_MAX: usize = 64;
/// The price of a chunk; each read that finds its bytes in memory or next to the last one pays one.
const PRICE: u32 = 4;
/// The credit at the beginning, and the largest one.
const CREDIT_MAX: u32 = 64;

/// The chunks in memory.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    chunks: HashMap<u64, Vec<u8>>,
    /// The numbers of the chunks, the oldest first.
    order: VecDeque<u64>,
    credit: u32,
    /// The chunk of the last read that was not in memory.
    last: u64,
}

impl ReadAhead {
    pub(crate) fn new() -> Self {
        Self { chunks: HashMap::new(), order: VecDeque::new(), credit: CREDIT_MAX, last: u64::MAX }
    }

    /// Fills `out` from `offset` of the volume on. The bytes before `end` may be read too.
    ///
    /// # Errors
    /// When the volume cannot be read.
    pub(crate) fn read(
        &mut self,
        volume: &dyn BlockVolume,
        offset: u64,
        out: &mut [u8],
        end: u64,
    ) -> io::Result<()> {
        let number = offset / CHUNK_BYTES;
        let start = number * CHUNK_BYTES;
        let last = (offset + out.len() as u64).saturating_sub(1);
        if out.is_empty() || last / CHUNK_BYTES != number {
            return volume.read(offset, out);
        }
        if self.chunks.contains_key(&number) {
            self.earn();
        } else {
            if number == self.last {
                self.earn();
            }
            self.last = number;
            if self.credit < PRICE {
                return volume.read(offset, out);
            }
            self.credit -= PRICE;
            let length = usize::try_from(end.saturating_sub(start)).unwrap_or(CHUNK).min(CHUNK);
            let mut bytes = vec![0; length];
            volume.read(start, &mut bytes)?;
            self.insert(number, bytes);
        }
        let within = usize::try_from(offset - start).unwrap_or(CHUNK);
        match self.chunks.get(&number).and_then(|bytes| bytes.get(within..within + out.len())) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => volume.read(offset, out)?,
        }
        Ok(())
    }

    fn earn(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
    }

    fn insert(&mut self, number: u64, bytes: Vec<u8>) {
        if self.order.len() == CHUNKS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.chunks.remove(&oldest);
        }
        self.order.push_back(number);
        self.chunks.insert(number, bytes);
    }

    /// Drops all bytes, before a write.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::MemoryBlocks;
    use crate::tests::observed_volume::ObservedVolume;
    use crate::volume::BLOCK;

    const SIZE: u64 = 32 << 20;
    /// Bytes of a volume without data, much larger than the chunks in memory.
    const LARGE: u64 = 512 << 20;

    fn volume() -> ObservedVolume {
        let inner = MemoryBlocks::new(LARGE);
        for block in 0..SIZE / BLOCK {
            inner.write(block * BLOCK, &[u8::try_from(block % 251).unwrap(); 4096]).unwrap();
        }
        ObservedVolume::new(inner)
    }

    fn check(ahead: &mut ReadAhead, volume: &ObservedVolume, block: u64) {
        let mut page = [0; 4096];
        ahead.read(volume, block * BLOCK, &mut page, SIZE).unwrap();
        assert_eq!(page, [u8::try_from(block % 251).unwrap(); 4096], "block {block}");
    }

    #[test]
    fn neighbours_are_read_together() {
        let (mut ahead, volume) = (ReadAhead::new(), volume());
        (0..SIZE / BLOCK).for_each(|block| check(&mut ahead, &volume, block));
        assert_eq!(volume.reads.load(Ordering::Relaxed), usize::try_from(SIZE).unwrap() / CHUNK);
        assert!(ahead.chunks.len() <= CHUNKS_MAX && ahead.order.len() == ahead.chunks.len());
    }

    #[test]
    fn pages_in_random_order_are_read_one_by_one() {
        let (mut ahead, volume) = (ReadAhead::new(), volume());
        let (blocks, pages) = (SIZE / BLOCK, 20_000);
        let mut random = 1_u64;
        for _ in 0..pages {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (mut page, mut expected) = ([1; 4096], [2; 4096]);
            let offset = (random >> 32) % (LARGE / BLOCK) * BLOCK;
            ahead.read(&volume, offset, &mut page, LARGE).unwrap();
            volume.inner.read(offset, &mut expected).unwrap();
            assert_eq!(page, expected);
        }
        let bytes = volume.bytes.load(Ordering::Relaxed) as u64;
        assert!(bytes < 3 * pages * BLOCK, "{bytes} bytes were read for {pages} pages");
        // Neighbours are recognised again.
        volume.reads.store(0, Ordering::Relaxed);
        (0..blocks).for_each(|block| check(&mut ahead, &volume, block));
        let reads = volume.reads.load(Ordering::Relaxed) as u64;
        assert!(reads < blocks / 16, "{reads} reads of {blocks} pages");
    }

    #[test]
    fn the_end_and_reads_across_chunks_are_read_from_the_volume() {
        let (mut ahead, volume) = (ReadAhead::new(), volume());
        let end = CHUNK_BYTES + 2 * BLOCK;
        let mut across = [0; 8192];
        ahead.read(&volume, CHUNK_BYTES - BLOCK, &mut across, end).unwrap();
        let mut expected = [0; 8192];
        volume.inner.read(CHUNK_BYTES - BLOCK, &mut expected).unwrap();
        assert_eq!(across, expected);
        ahead.read(&volume, CHUNK_BYTES + BLOCK, &mut across[..4096], end).unwrap();
        assert_eq!(volume.bytes.load(Ordering::Relaxed), 8192 + 8192, "no byte after the end");
        ahead.clear();
        volume.write(CHUNK_BYTES, &[9; 4096]).unwrap();
        ahead.read(&volume, CHUNK_BYTES, &mut across[..4096], end).unwrap();
        assert_eq!(across[..4096], [9; 4096]);
    }
}
