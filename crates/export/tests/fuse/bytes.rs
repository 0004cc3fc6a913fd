//! Files as programs see them: bytes, sizes, holes, errors.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use export::{Volume, VolumeErrorKind};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom as To, fallocate};
use rustix::io::Errno;
use test_support::pattern;

use super::served::{SIZE, Served};

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_volume_is_a_file_of_its_size() {
    let Some(served) = Served::start(4096, false) else { return };
    let stat = std::fs::metadata(served.place()).unwrap();
    assert!(stat.is_file());
    assert_eq!((stat.len(), stat.blksize(), stat.permissions().mode() & 0o777), (SIZE, 4096, 0o600));
    let mut file = served.open();
    assert_eq!(served.opens(), 1);
    // Unaligned, although the volume has sectors.
    let data = pattern(1, 300_001);
    file.seek(SeekFrom::Start(4097)).unwrap();
    file.write_all(&data).unwrap();
    let mut found = vec![0; data.len() + 9];
    file.read_exact_at(&mut found, 4092).unwrap();
    assert!(found[..5] == [0; 5] && found[5..data.len() + 5] == data && found[data.len() + 5..] == [0; 4]);
    // More than one request of the kernel.
    let data = pattern(2, 5 << 20);
    file.write_all_at(&data, 1 << 20).unwrap();
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, 1 << 20).unwrap();
    assert!(found == data);
    let (volume, ours) = (served.volume(|volume| volume.counters()), data.len() as u64 / (1 << 20));
    assert!(volume.writes <= 8 * ours, "requests are large: {volume:?}");
}

#[test]
fn a_file_ends_where_its_volume_does() {
    let Some(served) = Served::start(512, false) else { return };
    let mut file = served.open();
    assert_eq!(file.write_at(&[1; 100], SIZE - 60).unwrap(), 60);
    assert_eq!(errno(file.write_at(&[1; 100], SIZE)), Some(Errno::NOSPC.raw_os_error()));
    let mut found = [9; 100];
    assert_eq!(file.read_at(&mut found, SIZE - 50).unwrap(), 50);
    assert_eq!(file.read_at(&mut found, SIZE).unwrap(), 0);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), SIZE);
    for size in [0, SIZE - 512, SIZE + 512] {
        assert_eq!(errno(file.set_len(size)), Some(Errno::PERM.raw_os_error()));
    }
    assert_eq!(errno(File::create(served.place())), Some(Errno::PERM.raw_os_error()), "nothing is truncated");
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    // The file grows and shrinks with the volume.
    served.volume(|volume| volume.resize(2 * SIZE));
    served.server.resized();
    assert_eq!(file.metadata().unwrap().len(), 2 * SIZE);
    file.write_all_at(&[1; 100], 2 * SIZE - 100).unwrap();
}

#[test]
fn fsync_flushes_the_volume() {
    let Some(served) = Served::start(512, false) else { return };
    let flushes = || served.volume(|volume| volume.counters().flushes);
    let mut file = served.open();
    file.write_all(&[1; 512]).unwrap();
    assert_eq!(flushes(), 0);
    file.sync_all().unwrap();
    assert_eq!(flushes(), 1);
    file.sync_data().unwrap();
    assert_eq!(flushes(), 2);
    let options = |flag: OFlags| {
        OpenOptions::new().write(true).custom_flags(flag.bits().cast_signed()).open(served.place())
    };
    for flag in [OFlags::DSYNC, OFlags::SYNC] {
        let before = flushes();
        options(flag).unwrap().write_all_at(&[1; 512], 512).unwrap();
        assert!(flushes() > before, "a write that is to be durable is");
    }
    served.volume(|volume| volume.faults().fail_next_flush(VolumeErrorKind::Io));
    assert_eq!(errno(file.sync_all()), Some(Errno::IO.raw_os_error()));
}

#[test]
fn holes_are_made_and_found() {
    let Some(served) = Served::start(512, false) else { return };
    let mut file = served.open();
    file.write_all(&pattern(3, 64 << 10)).unwrap();
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, keep | FallocateFlags::PUNCH_HOLE, 4000, 8300).unwrap();
    let mut found = vec![0; 64 << 10];
    file.read_exact_at(&mut found, 0).unwrap();
    let mut wanted = pattern(3, 64 << 10);
    wanted[4000..12300].fill(0);
    assert!(found == wanted);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 32 << 10, 32 << 10).unwrap();
    assert_eq!(served.volume(|volume| volume.counters().zeroes), 2, "their space is given back");
    let seek = |whence: fn(u64) -> To, offset| rustix::fs::seek(&file, whence(offset));
    assert_eq!(seek(To::Hole, 0), Ok(4096));
    assert_eq!(seek(To::Data, 5000), Ok(12288));
    assert_eq!(seek(To::Hole, 12288), Ok(32 << 10));
    assert_eq!(seek(To::Data, 32 << 10), Err(Errno::NXIO));
    // A thin volume cannot allocate space, and the file does not grow.
    for mode in [FallocateFlags::empty(), keep, FallocateFlags::COLLAPSE_RANGE] {
        assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP), "{mode:?}");
    }
    assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, SIZE - 512, 1024), Err(Errno::NOSPC));
    assert_eq!(file.metadata().unwrap().len(), SIZE);
}

#[test]
fn errors_of_the_volume_are_errors_of_the_file() {
    let Some(served) = Served::start(512, false) else { return };
    let file = served.open();
    for (kind, number) in [(VolumeErrorKind::NoSpace, Errno::NOSPC), (VolumeErrorKind::Io, Errno::IO)] {
        served.volume(move |volume| volume.faults().fail_next_write(kind));
        assert_eq!(errno(file.write_at(&[1; 512], 0)), Some(number.raw_os_error()));
    }
    served.volume(|volume| volume.faults().fail_next_read(VolumeErrorKind::Io));
    assert_eq!(errno(file.read_at(&mut [0; 512], 0)), Some(Errno::IO.raw_os_error()));
    assert_eq!(file.read_at(&mut [0; 512], 0).unwrap(), 512);
    served.volume(|volume| volume.set_read_only(true));
    assert_eq!(errno(file.write_at(&[1; 512], 0)), Some(Errno::ROFS.raw_os_error()));
    assert!(served.volume(|volume| volume.read_only()));
}

#[test]
fn a_read_only_file_is_not_opened_for_writing() {
    let Some(served) = Served::start(512, true) else { return };
    let refused = OpenOptions::new().write(true).open(served.place());
    assert_eq!(errno(refused), Some(Errno::ROFS.raw_os_error()));
    let mut found = Vec::new();
    File::open(served.place()).unwrap().read_to_end(&mut found).unwrap();
    assert_eq!(found.len() as u64, SIZE);
}

/// Concurrent writes within sectors, by many threads and file handles.
#[test]
fn concurrent_writers_do_not_disturb_each_other() {
    const WRITERS: usize = 8;
    const STEP: usize = 1000;
    let Some(served) = Served::start(4096, false) else { return };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let served = &served;
            scope.spawn(move || {
                let file = served.open();
                for round in 0..50 {
                    let data = vec![writer as u8 + 1; STEP];
                    file.write_all_at(&data, ((round * WRITERS + writer) * STEP) as u64).unwrap();
                    // Whole sectors of its own, elsewhere.
                    let place = (4 << 20) + ((round * WRITERS + writer) * 4096) as u64;
                    file.write_all_at(&[writer as u8 + 1; 4096], place).unwrap();
                }
            });
        }
    });
    let file = served.open();
    for (start, step) in [(0, STEP), (4 << 20, 4096)] {
        let mut found = vec![0; 50 * WRITERS * step];
        file.read_exact_at(&mut found, start).unwrap();
        for (index, piece) in found.chunks(step).enumerate() {
            let wanted = (index % WRITERS) as u8 + 1;
            assert!(piece.iter().all(|byte| *byte == wanted), "piece {index} from {start}");
        }
    }
}
