//! Files over volumes in memory, compared with plain bytes.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use proptest::prelude::*;
use reactor::{Clock, ParkDriver, Reactor, SystemClock};

use super::*;
use crate::MemoryVolume;

const SIZE: usize = 64 << 10;

fn run<T>(work: impl Future<Output = T>) -> T {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock).run(work)
}

fn file(sector: u32) -> (MemoryVolume, VolumeFile<MemoryVolume>) {
    let volume = MemoryVolume::new(SIZE as u64, sector);
    (volume.clone(), VolumeFile::new(volume))
}

#[derive(Clone, Debug)]
enum FileStep {
    Read(usize, usize),
    Write(usize, usize, u8),
    Zero(usize, usize),
}

fn step() -> impl Strategy<Value = FileStep> {
    // Offsets around sectors and the end, and anywhere.
    let place = || {
        prop_oneof![(0..20usize).prop_map(|n| n * 512), (0..20usize).prop_map(|n| n * 4096), 0..SIZE + 9000]
    };
    let len = || prop_oneof![Just(512usize), Just(4096), 1..9000usize];
    prop_oneof![
        (place(), len()).prop_map(|(at, len)| FileStep::Read(at, len)),
        (place(), len(), any::<u8>()).prop_map(|(at, len, byte)| FileStep::Write(at, len, byte)),
        (place(), len()).prop_map(|(at, len)| FileStep::Zero(at, len)),
    ]
}

proptest! {
    #[test]
    fn a_file_is_what_was_written(sector in prop_oneof![Just(512u32), Just(4096)], steps in prop::collection::vec(step(), 1..60)) {
        let (_, file) = file(sector);
        let mut plain = vec![0u8; SIZE];
        run(async {
            for step in steps {
                match step {
                    FileStep::Read(at, len) => {
                        let content = file.read(at as u64, len as u32).await.unwrap();
                        let wanted = plain.get(at..SIZE.min(at + len)).unwrap_or_default();
                        prop_assert_eq!(content.bytes(), wanted);
                    }
                    FileStep::Write(at, len, byte) => {
                        let data: Vec<u8> = (0..len).map(|index| byte.wrapping_add(index as u8)).collect();
                        let written = file.write(at as u64, &Buffer::copy_of(&data).span()).await;
                        if at >= SIZE {
                            prop_assert_eq!(written.unwrap_err().kind(), VolumeErrorKind::NoSpace);
                            continue;
                        }
                        let fits = len.min(SIZE - at);
                        prop_assert_eq!(written.unwrap(), fits);
                        plain[at..at + fits].copy_from_slice(&data[..fits]);
                    }
                    FileStep::Zero(at, len) => {
                        file.zero(at as u64, len as u64).await.unwrap();
                        let end = SIZE.min(at + len);
                        if at < end {
                            plain[at..end].fill(0);
                        }
                    }
                }
            }
            let content = file.read(0, SIZE as u32 + 1).await.unwrap();
            prop_assert_eq!(content.bytes(), plain.as_slice());
            Ok(())
        })?;
    }
}

#[test]
fn concurrent_writes_to_a_sector_keep_each_others_bytes() {
    let (volume, file) = file(4096);
    run(async {
        let mut context = Context::from_waker(Waker::noop());
        let (front, back) = (Buffer::copy_of(&[1; 100]).span(), Buffer::copy_of(&[2; 100]).span());
        let whole = Buffer::copy_of(&[3; 4096]).span();
        // The first write has read the sector and is about to write it. Neither the other part nor
        // the whole sector may be written in between.
        volume.faults().hold_writes();
        let (mut first, mut second) = (pin!(file.write(0, &front)), pin!(file.write(4000, &back)));
        let mut third = pin!(file.write(0, &whole));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert_eq!(volume.counters().reads, 1, "the second write reads the data of the first");
        volume.faults().release_writes();
        assert_eq!((first.await, second.await), (Ok(100), Ok(96 + 4)));
        let content = file.read(0, 4096).await.unwrap();
        let at = |index: usize| content.bytes()[index];
        assert_eq!([at(0), at(99), at(100), at(3999), at(4000), at(4095)], [1, 1, 0, 0, 2, 2]);
        drop(content);
        assert_eq!(third.await, Ok(4096));
        assert_eq!(file.read(0, 4096).await.unwrap().bytes(), [3; 4096]);
    });
}

#[test]
fn zeroed_ranges_take_no_space() {
    let (volume, file) = file(512);
    run(async {
        file.write(0, &Buffer::copy_of(&[7; 16384]).span()).await.unwrap();
        file.zero(100, 16000).await.unwrap();
        assert_eq!((volume.counters().zeroes, volume.counters().discards), (1, 0));
        assert_eq!(file.seek(0, SeekTarget::Data).await, Ok(Some(0)));
        assert_eq!(file.seek(0, SeekTarget::Hole).await, Ok(Some(4096)));
        assert_eq!(file.seek(5000, SeekTarget::Hole).await, Ok(Some(5000)));
        assert_eq!(file.seek(5000, SeekTarget::Data).await, Ok(Some(12288)));
        assert_eq!(file.seek(13000, SeekTarget::Data).await, Ok(Some(13000)));
        assert_eq!(file.seek(16384, SeekTarget::Data).await, Ok(None));
        assert_eq!(file.seek(SIZE as u64 - 1, SeekTarget::Hole).await, Ok(Some(SIZE as u64 - 1)));
        assert_eq!(file.seek(SIZE as u64, SeekTarget::Hole).await, Ok(None));
    });
}

#[test]
fn the_end_of_a_full_file_is_a_hole() {
    let (_, file) = file(512);
    run(async {
        file.write(0, &Buffer::copy_of(&[1; SIZE]).span()).await.unwrap();
        assert_eq!(file.seek(9, SeekTarget::Hole).await, Ok(Some(SIZE as u64)));
    });
}

#[test]
fn errors_of_the_volume_are_returned() {
    let (volume, file) = file(512);
    run(async {
        let data = Buffer::copy_of(&[1; 100]).span();
        volume.faults().fail_next_read(VolumeErrorKind::Io);
        assert_eq!(file.write(3, &data).await.unwrap_err().kind(), VolumeErrorKind::Io);
        assert_eq!(volume.counters().writes, 0);
        volume.faults().fail_next_write(VolumeErrorKind::NoSpace);
        assert_eq!(file.write(3, &data).await.unwrap_err().kind(), VolumeErrorKind::NoSpace);
        volume.set_read_only(true);
        assert_eq!(file.zero(0, 512).await.unwrap_err().kind(), VolumeErrorKind::ReadOnly);
        // A failed write releases its lock.
        volume.set_read_only(false);
        assert_eq!(file.write(3, &data).await, Ok(100));
    });
}
