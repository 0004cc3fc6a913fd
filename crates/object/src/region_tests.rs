//! Reads of several threads, and reads ahead between writes.

use std::sync::Barrier;

use super::*;
use crate::MemoryBlocks;
use crate::tests::observed_volume::ObservedVolume;

const SIZE: u64 = 64 << 20;
const LENGTH: u64 = 1 << 20;

fn region() -> (IndexRegion, Arc<ObservedVolume>) {
    let volume = Arc::new(ObservedVolume::new(MemoryBlocks::new(SIZE)));
    let (region, _) = IndexRegion::open(volume.clone()).unwrap();
    region.set_len(LENGTH).unwrap();
    (region, volume)
}

fn page(region: &IndexRegion, offset: u64) -> u8 {
    let mut page = [0; 4096];
    region.read(offset, &mut page).unwrap();
    assert!(page.iter().all(|byte| *byte == page[0]));
    page[0]
}

#[test]
fn reads_of_two_threads_are_in_the_volume_at_the_same_time() {
    let (region, volume) = region();
    *volume.barrier.lock().unwrap() = Some(Arc::new(Barrier::new(2)));
    // Would wait for ever if one read excluded the other.
    std::thread::scope(|scope| {
        let other = region.clone();
        scope.spawn(move || page(&other, 8192));
        page(&region, 0);
    });
}

#[test]
fn a_read_ahead_never_returns_bytes_from_before_a_write() {
    let (region, _) = region();
    region.with_read_ahead(|| {
        assert_eq!(page(&region, 0), 0);
        region.write(0, &[7; 4096]).unwrap();
        assert_eq!(page(&region, 0), 7, "before the write is synchronised");
        region.sync_data().unwrap();
        assert_eq!(page(&region, 0), 7);
        // A shorter file that grows again has zeros.
        region.set_len(0).unwrap();
        region.set_len(LENGTH).unwrap();
        assert_eq!(page(&region, 0), 0);
    });
}
