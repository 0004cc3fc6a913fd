//! Tests of drives on files, on both backends.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::testing::{BACKENDS, bytes, on_each_backend, pattern, span_of, start};
use crate::{Buffer, Drive, IoErrorKind, Platform, Span};

const SIZE: u64 = 8 << 20;

/// Returns a directory with a file for use as a drive.
fn file() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    create_file(&path, SIZE).unwrap();
    (directory, path)
}

fn open(path: &PathBuf) -> DriveHandle {
    FileDrive::open(path, NO_WAIT).unwrap()
}

fn kind(path: impl AsRef<std::path::Path>, options: DriveOptions) -> OpenDriveErrorKind {
    FileDrive::open(path, options).unwrap_err().kind()
}

const NO_WAIT: DriveOptions = DriveOptions { read_only: false, direct: true, busy_timeout: Duration::ZERO };
const READ_ONLY: DriveOptions = DriveOptions { read_only: true, ..NO_WAIT };
const BUFFERED: DriveOptions = DriveOptions { direct: false, ..NO_WAIT };

async fn read(drive: &dyn Drive, offset: u64, len: usize) -> Vec<u8> {
    let span = Buffer::new(len).span();
    assert_eq!(drive.read(offset, std::slice::from_ref(&span)).await, Ok(len));
    bytes(&span)
}

#[test]
fn written_bytes_are_read_back() {
    let (_directory, path) = file();
    for options in [NO_WAIT, BUFFERED] {
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
        // More spans than one system call accepts, of different lengths.
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
            // Also split within a sector.
            let into =
                [buffer.span().slice(shift..shift + 5000), buffer.span().slice(shift + 5000..shift + 12288)];
            assert_eq!(drive.read(0, &into).await, Ok(12288));
            assert_eq!(into.iter().flat_map(bytes).collect::<Vec<u8>>(), data);
        }
    });
}

#[test]
fn more_operations_than_the_queues_hold_all_complete() {
    let (_directory, path) = file();
    let handle = open(&path);
    for backend in BACKENDS {
        // A ring much smaller than the number of operations: the submission queue fills and the
        // completion queue overflows.
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
fn operations_past_the_end_are_rejected() {
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
fn a_truncated_file_reads_as_out_of_range() {
    for options in [NO_WAIT, BUFFERED] {
        let (_directory, path) = file();
        let handle = FileDrive::open(&path, options).unwrap();
        // Cut within a sector: the read continues up to the last whole unit and then fails.
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
fn discards_free_space_and_reservations_allocate_it() {
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
fn a_read_only_drive_rejects_changes() {
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
    assert_eq!(kind(&path, NO_WAIT), OpenDriveErrorKind::InUse);
    assert_eq!(kind(&path, READ_ONLY), OpenDriveErrorKind::InUse);
    drop(writer);
    let reader = FileDrive::open(&path, READ_ONLY).unwrap();
    let another = FileDrive::open(&path, READ_ONLY).unwrap();
    assert_eq!(kind(&path, NO_WAIT), OpenDriveErrorKind::InUse);
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
        // Longer than any test: the open succeeds only because it does not wait for all of it.
        FileDrive::open(&path, DriveOptions { busy_timeout: Duration::from_secs(3600), ..NO_WAIT }).map(drop)
    });
    opened.recv().unwrap();
    drop(first);
    second.join().unwrap().unwrap();
}

#[test]
fn the_lock_is_released_with_the_last_drive_and_operation() {
    let (_directory, path) = file();
    for backend in BACKENDS {
        let (platform, reactor) = start(backend);
        let drive = open(&path).open_on(&platform);
        let write = drive.write(0, &[span_of(&[1; 4096])]);
        drop(drive);
        assert_eq!(kind(&path, NO_WAIT), OpenDriveErrorKind::InUse);
        assert_eq!(reactor.run(write), Ok(4096));
        // The platform still exists; no reference to the drive may remain.
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
fn invalid_drives_are_rejected_by_kind() {
    let directory = tempfile::tempdir().unwrap();
    let options = NO_WAIT;
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
    // No file system supports this size, and nothing is left of the attempt.
    let huge = directory.path().join("huge");
    assert!(create_file(&huge, u64::MAX / 2).is_err());
    assert!(!huge.exists());
}

#[test]
fn a_reservation_without_space_fails_as_no_space() {
    // tmpfs rejects this size at once; nothing is written to it.
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
fn open_errors_map_to_kinds() {
    let program = std::env::current_exe().unwrap();
    assert_eq!(kind(&program, NO_WAIT), OpenDriveErrorKind::InUse);
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
