//! Files and loop devices as drives, on both back ends.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::testing::{BACKENDS, bytes, on_each_backend, pattern, span_of, start};
use crate::{Buffer, Drive, IoErrorKind, Platform, Span};

const SIZE: u64 = 8 << 20;

/// A directory with a file to be used as a drive.
fn file() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    create_file(&path, SIZE).unwrap();
    (directory, path)
}

fn open(path: &PathBuf) -> DriveHandle {
    FileDrive::open(path, AT_ONCE).unwrap()
}

fn kind(path: impl AsRef<std::path::Path>, options: DriveOptions) -> OpenDriveErrorKind {
    FileDrive::open(path, options).unwrap_err().kind()
}

const AT_ONCE: DriveOptions = DriveOptions { read_only: false, direct: true, busy_timeout: Duration::ZERO };
const READ_ONLY: DriveOptions = DriveOptions { read_only: true, ..AT_ONCE };
const BUFFERED: DriveOptions = DriveOptions { direct: false, ..AT_ONCE };

async fn read(drive: &dyn Drive, offset: u64, len: usize) -> Vec<u8> {
    let span = Buffer::new(len).span();
    assert_eq!(drive.read(offset, std::slice::from_ref(&span)).await, Ok(len));
    bytes(&span)
}

#[test]
fn what_was_written_is_read() {
    let (_directory, path) = file();
    for options in [AT_ONCE, BUFFERED] {
        let handle = FileDrive::open(&path, options).unwrap();
        assert_eq!(handle.is_direct(), options.direct);
        on_each_backend(async |platform, _| {
            let drive = handle.open_on(&platform);
            assert_eq!(drive.properties().size, SIZE);
            for (seed, offset, len) in [(1, 0, 4096), (2, 8192, 1 << 20), (3, SIZE - 4096, 4096)] {
                let data = pattern(seed, len);
                assert_eq!(drive.write(offset, &[span_of(&data)]).await, Ok(len));
                assert_eq!(drive.flush().await, Ok(0));
                assert_eq!(read(&*drive, offset, len).await, data);
            }
        });
    }
}

#[test]
fn many_spans_are_one_run_of_the_file() {
    let (_directory, path) = file();
    let handle = open(&path);
    on_each_backend(async |platform, _| {
        let drive = handle.open_on(&platform);
        // More spans than one system call takes, of different lengths.
        let parts: Vec<_> = (0..1200).map(|seed| pattern(seed, 512 * (1 + seed as usize % 3))).collect();
        let whole = parts.concat();
        let len = whole.len().next_multiple_of(4096);
        let rest = vec![9; len - whole.len()];
        let from: Vec<Span> = parts.iter().chain([&rest]).map(|part| span_of(part)).collect();
        assert_eq!(drive.write(4096, &from).await, Ok(len));
        assert_eq!(read(&*drive, 4096, len).await, [whole.clone(), rest].concat());
        let into: Vec<Span> = parts.iter().map(|part| Buffer::new(part.len()).span()).collect();
        let tail = Buffer::new(len - whole.len()).span();
        let all: Vec<Span> = into.iter().cloned().chain([tail]).collect();
        assert_eq!(drive.read(4096, &all).await, Ok(len));
        assert_eq!(into.iter().flat_map(bytes).collect::<Vec<u8>>(), whole);
    });
}

#[test]
fn memory_of_any_alignment_is_served() {
    let (_directory, path) = file();
    let handle = open(&path);
    on_each_backend(async |platform, _| {
        let drive = handle.open_on(&platform);
        for shift in [1, 8, 512, 4095] {
            let data = pattern(shift as u64, 12288);
            let from = Buffer::new(20480).span().slice(shift..shift + 12288);
            from.copy_from(0, &data);
            assert_eq!(drive.write(0, &[from]).await, Ok(12288));
            assert_eq!(read(&*drive, 0, 12288).await, data);
            let buffer = Buffer::zeroed(20480);
            // Cut where no sector ends, too.
            let into =
                [buffer.span().slice(shift..shift + 5000), buffer.span().slice(shift + 5000..shift + 12288)];
            assert_eq!(drive.read(0, &into).await, Ok(12288));
            assert_eq!(into.iter().flat_map(bytes).collect::<Vec<u8>>(), data);
        }
    });
}

#[test]
fn a_flood_of_operations_is_answered_in_full() {
    let (_directory, path) = file();
    let handle = open(&path);
    for backend in BACKENDS {
        // A ring much smaller than the flood: the submission queue is full and the completion queue overflows.
        let clock: Rc<dyn crate::Clock> = Rc::new(crate::SystemClock::new());
        let platform = Platform::with_ring_entries(backend, clock.clone(), 4).unwrap();
        let reactor = crate::Reactor::new(platform.clone(), clock);
        let drive = handle.open_on(&platform);
        reactor.run(async {
            let blocks = SIZE / 4096;
            let writes: Vec<_> = (0..blocks)
                .map(|block| drive.write(block * 4096, &[span_of(&pattern(block, 4096))]))
                .collect();
            for write in writes {
                assert_eq!(write.await, Ok(4096));
            }
            let reads: Vec<_> = (0..blocks)
                .map(|block| {
                    let span = Buffer::new(4096).span();
                    (block, drive.read(block * 4096, std::slice::from_ref(&span)), span)
                })
                .collect();
            for (block, read, span) in reads {
                assert_eq!(read.await, Ok(4096));
                assert_eq!(bytes(&span), pattern(block, 4096));
            }
        });
    }
}

#[test]
fn nothing_is_asked_for_past_the_end() {
    let (_directory, path) = file();
    let handle = open(&path);
    on_each_backend(async |platform, _| {
        let drive = handle.open_on(&platform);
        let span = Buffer::zeroed(8192).span();
        let spans = std::slice::from_ref(&span);
        for offset in [SIZE - 4096, SIZE, u64::MAX - 4095] {
            assert_eq!(drive.read(offset, spans).await.unwrap_err().kind(), IoErrorKind::OutOfRange);
            assert_eq!(drive.write(offset, spans).await.unwrap_err().kind(), IoErrorKind::OutOfRange);
            assert_eq!(drive.discard(offset, 8192).await.unwrap_err().kind(), IoErrorKind::OutOfRange);
            assert_eq!(drive.reserve(offset, 8192).await.unwrap_err().kind(), IoErrorKind::OutOfRange);
        }
        assert_eq!(drive.read(SIZE, &[]).await, Ok(0));
    });
}

#[test]
fn a_file_that_was_cut_off_reads_as_out_of_range() {
    for options in [AT_ONCE, BUFFERED] {
        let (_directory, path) = file();
        let handle = FileDrive::open(&path, options).unwrap();
        // In the middle of a sector: what is there is given up to, and then there is nothing.
        OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
        on_each_backend(async |platform, _| {
            let drive = handle.open_on(&platform);
            let span = Buffer::zeroed(8192).span();
            for offset in [0, 4096, 8192] {
                let result = drive.read(offset, std::slice::from_ref(&span)).await;
                assert_eq!(result.unwrap_err().kind(), IoErrorKind::OutOfRange, "at {offset}");
            }
            assert_eq!(drive.read(0, &[span.slice(0..4096)]).await, Ok(4096));
        });
    }
}

#[test]
fn discarded_bytes_give_their_space_back_and_reserved_ones_take_it() {
    use std::os::unix::fs::MetadataExt;
    let (_directory, path) = file();
    let handle = open(&path);
    assert!(handle.properties().discard);
    let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
    on_each_backend(async |platform, _| {
        let drive = handle.open_on(&platform);
        assert_eq!(drive.reserve(0, SIZE).await, Ok(0));
        assert!(allocated() >= SIZE);
        assert_eq!(drive.write(4096, &[span_of(&[7; 4096])]).await, Ok(4096));
        assert_eq!(drive.discard(0, SIZE).await, Ok(0));
        assert!(allocated() < SIZE / 2);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE);
        assert_eq!(read(&*drive, 4096, 4096).await, [0; 4096]);
        assert_eq!(drive.discard(0, 0).await, Ok(0));
    });
}

#[test]
fn a_drive_opened_for_reading_refuses_changes() {
    let (_directory, path) = file();
    let handle = FileDrive::open(&path, READ_ONLY).unwrap();
    assert!(handle.is_read_only() && !handle.properties().discard);
    on_each_backend(async |platform, _| {
        let drive = handle.open_on(&platform);
        let refusals =
            [drive.write(0, &[span_of(&[1; 4096])]), drive.discard(0, 4096), drive.reserve(0, 4096)];
        for refusal in refusals {
            assert_eq!(refusal.await.unwrap_err().kind(), IoErrorKind::ReadOnly);
        }
        assert_eq!(read(&*drive, 0, 4096).await, [0; 4096]);
        assert_eq!(drive.flush().await, Ok(0));
    });
}

#[test]
fn a_drive_belongs_to_one_writer_or_to_readers() {
    let (_directory, path) = file();
    let writer = open(&path);
    assert_eq!(kind(&path, AT_ONCE), OpenDriveErrorKind::InUse);
    assert_eq!(kind(&path, READ_ONLY), OpenDriveErrorKind::InUse);
    drop(writer);
    let reader = FileDrive::open(&path, READ_ONLY).unwrap();
    let another = FileDrive::open(&path, READ_ONLY).unwrap();
    assert_eq!(kind(&path, AT_ONCE), OpenDriveErrorKind::InUse);
    drop((reader, another));
    open(&path);
}

#[test]
fn a_drive_in_use_is_waited_for() {
    let (_directory, path) = file();
    let first = open(&path);
    let (opening, opened) = std::sync::mpsc::channel();
    let second = std::thread::spawn(move || {
        opening.send(()).unwrap();
        // Longer than any test takes: that it ends shows that it ends early.
        FileDrive::open(&path, DriveOptions { busy_timeout: Duration::from_secs(3600), ..AT_ONCE }).map(drop)
    });
    opened.recv().unwrap();
    drop(first);
    second.join().unwrap().unwrap();
}

#[test]
fn the_lock_goes_with_the_last_drive_and_its_operations() {
    let (_directory, path) = file();
    for backend in BACKENDS {
        let (platform, reactor) = start(backend);
        let drive = open(&path).open_on(&platform);
        let write = drive.write(0, &[span_of(&[1; 4096])]);
        drop(drive);
        assert_eq!(kind(&path, AT_ONCE), OpenDriveErrorKind::InUse);
        assert_eq!(reactor.run(write), Ok(4096));
        // The platform lives on; nothing of the drive may.
        open(&path);
    }
}

#[test]
fn a_platform_dropped_with_operations_in_flight_ends_them_first() {
    let (_directory, path) = file();
    for backend in BACKENDS {
        for round in 0..50 {
            let (platform, reactor) = start(backend);
            let drive = open(&path).open_on(&platform);
            let buffers: Vec<_> = (0..64).map(|_| Buffer::zeroed(65536)).collect();
            for (index, buffer) in buffers.iter().enumerate() {
                let offset = index as u64 * 65536;
                let _abandoned = match index % 3 {
                    0 => drive.write(offset, &[buffer.span()]),
                    1 => drive.read(offset, &[buffer.span()]),
                    _ => drive.flush(),
                };
            }
            if round % 2 == 0 {
                reactor.run(reactor.yield_now());
            }
            drop((drive, reactor, platform));
            for buffer in &buffers {
                // Panics if an operation still holds the memory.
                assert_eq!(buffer.as_slice().len(), 65536);
            }
        }
    }
}

#[test]
fn one_drive_serves_several_reactors() {
    let (_directory, path) = file();
    let handle = open(&path);
    for backend in BACKENDS {
        let threads: Vec<_> = (0..4)
            .map(|index| {
                let handle = handle.clone();
                std::thread::spawn(move || {
                    let (platform, reactor) = start(backend);
                    let drive = handle.open_on(&platform);
                    let data = pattern(index, 4096);
                    reactor.run(async {
                        for round in 0..50 {
                            let offset = (round * 4 + index) * 4096;
                            assert_eq!(drive.write(offset, &[span_of(&data)]).await, Ok(4096));
                            assert_eq!(read(&*drive, offset, 4096).await, data);
                        }
                    });
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn what_is_no_drive_is_refused_by_kind() {
    let directory = tempfile::tempdir().unwrap();
    let options = AT_ONCE;
    assert_eq!(kind(directory.path().join("missing"), options), OpenDriveErrorKind::NotFound);
    assert_eq!(kind(directory.path(), options), OpenDriveErrorKind::NotADrive);
    assert_eq!(kind("/dev/null", options), OpenDriveErrorKind::NotADrive);
    let empty = directory.path().join("empty");
    create_file(&empty, 0).unwrap();
    assert_eq!(kind(&empty, options), OpenDriveErrorKind::Empty);
    assert_eq!(create_file(&empty, 4096).unwrap_err().kind(), OpenDriveErrorKind::Exists);
    let nowhere = create_file(directory.path().join("no/where"), 4096).unwrap_err();
    assert_eq!(nowhere.kind(), OpenDriveErrorKind::NotFound);
    assert!(nowhere.to_string().contains("no/where"), "{nowhere}");
    // No filesystem takes that much, and nothing is left of the attempt.
    let huge = directory.path().join("huge");
    assert!(create_file(&huge, u64::MAX / 2).is_err());
    assert!(!huge.exists());
}

#[test]
fn a_filesystem_without_room_says_so_when_space_is_reserved() {
    // The shared memory filesystem knows at once that it will never have this much; nothing is written to it.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("drive");
    let size = 1 << 44;
    create_file(&path, size).unwrap();
    let handle = open(&path);
    on_each_backend(async |platform, _| {
        let drive = handle.open_on(&platform);
        assert_eq!(drive.reserve(0, size).await.unwrap_err().kind(), IoErrorKind::NoSpace);
        assert_eq!(drive.reserve(0, 4096).await, Ok(0));
    });
}

#[test]
fn what_somebody_runs_or_may_not_be_written_is_refused_by_kind() {
    let program = std::env::current_exe().unwrap();
    assert_eq!(kind(&program, AT_ONCE), OpenDriveErrorKind::InUse);
    assert!(FileDrive::open(&program, READ_ONLY).is_ok());
    use rustix::io::Errno;
    let refusals = [
        (Errno::ACCESS, OpenDriveErrorKind::Denied),
        (Errno::PERM, OpenDriveErrorKind::Denied),
        (Errno::ROFS, OpenDriveErrorKind::ReadOnly),
        (Errno::NXIO, OpenDriveErrorKind::NotFound),
        (Errno::BUSY, OpenDriveErrorKind::InUse),
        (Errno::NOSPC, OpenDriveErrorKind::NoSpace),
        (Errno::IO, OpenDriveErrorKind::Other),
    ];
    for (errno, kind) in refusals {
        let error = OpenDriveError::from_errno(errno, "some/path".as_ref(), "open");
        assert_eq!(error.kind(), kind);
        assert!(std::error::Error::source(&error).is_some());
    }
}
