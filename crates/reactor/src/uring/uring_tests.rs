//! Tests of the ring: setups of older kernels, overflow, slots, shutdown.

use std::cell::Cell;
use std::net::Ipv4Addr;

use super::ring::SETUPS;
use super::*;
use crate::testing::{bytes, pattern, span_of};
use crate::{
    Buffer, Drive, DriveOptions, FileDrive, Listener, Platform, Reactor, Stream, SystemClock, create_file,
};

const SIZE: u64 = 4 << 20;

fn drive() -> (tempfile::TempDir, crate::DriveHandle) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    create_file(&path, SIZE).unwrap();
    let handle = FileDrive::open(&path, DriveOptions::default()).unwrap();
    (directory, handle)
}

fn start(entries: u32, setups: &[ring::Setup]) -> (Rc<Platform>, Reactor) {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let ring = Ring::open_with(entries, setups).unwrap();
    let platform = Platform::on_ring(Uring::with_ring(ring, entries, clock.clone()).unwrap());
    (platform.clone(), Reactor::new(platform, clock))
}

#[test]
fn setups_of_older_kernels_work() {
    let (_directory, handle) = drive();
    for first in 0..SETUPS.len() {
        let (platform, reactor) = start(8, SETUPS.get(first..).unwrap());
        let drive = handle.open_on(&platform);
        reactor.run(async {
            let listener = Listener::bind_tcp(&platform, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let client = Stream::connect_tcp(&platform, listener.local_address().unwrap()).await.unwrap();
            let server = listener.accept().await.unwrap();
            let back = Buffer::new(4096).span();
            let answer = server.read_exact(std::slice::from_ref(&back));
            for seed in 0..50 {
                let data = pattern(seed, 4096);
                let offset = seed * 4096;
                assert_eq!(drive.write(offset, &[span_of(&data)]).await, Ok(4096));
                let into = Buffer::new(4096).span();
                assert_eq!(drive.read(offset, std::slice::from_ref(&into)).await, Ok(4096));
                assert_eq!(bytes(&into), data);
            }
            assert_eq!(client.write_all(&[span_of(&pattern(7, 4096))]).await, Ok(4096));
            assert_eq!(answer.await, Ok(4096));
            assert_eq!(bytes(&back), pattern(7, 4096));
        });
    }
}

#[test]
fn messages_arrive_while_and_after_completions_overflow() {
    let (_directory, handle) = drive();
    let (platform, reactor) = start(1, &SETUPS);
    let drive = handle.open_on(&platform);
    let received = Rc::new(Cell::new(0u32));
    let home = crate::Handle::register(&reactor, received.clone());
    let caller = {
        let home = home.clone();
        std::thread::spawn(move || {
            let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
            let here = Reactor::new(crate::ParkDriver::new(clock.clone()), clock);
            for _ in 0..2000 {
                here.run(home.call(async |received| received.set(received.get() + 1))).unwrap();
            }
        })
    };
    reactor.run(async {
        while received.get() < 2000 {
            // Far more operations than the completion queue holds, without reaping in between.
            let reads: Vec<_> =
                (0..100u64).map(|block| drive.read(block * 4096, &[Buffer::new(4096).span()])).collect();
            for read in reads {
                assert_eq!(read.await, Ok(4096));
            }
            reactor.sleep(std::time::Duration::from_micros(20)).await;
        }
    });
    caller.join().unwrap();
    home.unregister();
}

#[test]
fn a_shutdown_with_operations_in_flight_releases_everything() {
    let (directory, handle) = drive();
    let path = directory.path().join("drive");
    let (platform, reactor) = start(8, &SETUPS);
    let drive = handle.open_on(&platform);
    drop(handle);
    let buffers: Vec<_> = (0..32).map(|_| Buffer::zeroed(4096)).collect();
    for (index, buffer) in buffers.iter().enumerate() {
        let (drive, span, inside) = (drive.clone(), buffer.span(), reactor.clone());
        let task = async move {
            loop {
                drive.write(index as u64 * 4096, std::slice::from_ref(&span)).await.unwrap();
                drive.flush().await.unwrap();
                inside.yield_now().await;
            }
        };
        reactor.spawn(task).detach();
    }
    for _ in 0..20 {
        reactor.run(reactor.yield_now());
    }
    drop(drive);
    reactor.shut_down();
    drop((platform, reactor));
    for buffer in &buffers {
        // Panics if anything still holds the memory.
        assert_eq!(buffer.as_slice().len(), 4096);
    }
    FileDrive::open(&path, DriveOptions::default()).unwrap();
}

#[test]
fn drives_without_a_slot_work() {
    let directory = tempfile::tempdir().unwrap();
    let (platform, reactor) = start(8, &SETUPS);
    let drives: Vec<_> = (0..SLOTS + 3)
        .map(|index| {
            let path = directory.path().join(index.to_string());
            create_file(&path, 4096).unwrap();
            FileDrive::open(&path, DriveOptions::default()).unwrap().open_on(&platform)
        })
        .collect();
    reactor.run(async {
        for (drive, seed) in drives.iter().zip(0..) {
            assert_eq!(drive.write(0, &[span_of(&pattern(seed, 4096))]).await, Ok(4096));
        }
        for (drive, seed) in drives.iter().zip(0..) {
            let into = Buffer::new(4096).span();
            assert_eq!(drive.read(0, std::slice::from_ref(&into)).await, Ok(4096));
            assert_eq!(bytes(&into), pattern(seed, 4096));
        }
    });
}

#[test]
fn a_released_slot_is_reused() {
    let (_directory, handle) = drive();
    let (platform, reactor) = start(8, &SETUPS);
    let (_other_directory, other) = drive();
    for seed in 0..2 * u64::from(SLOTS) {
        // The second drive takes the first one's slot before the first one's entries are submitted.
        let first = handle.open_on(&platform);
        let write = first.write(0, &[span_of(&pattern(seed, 4096))]);
        drop(first);
        let second = other.open_on(&platform);
        assert_eq!(reactor.run(second.write(4096, &[span_of(&pattern(!seed, 4096))])), Ok(4096));
        assert_eq!(reactor.run(write), Ok(4096));
        let into = Buffer::new(8192).span();
        assert_eq!(reactor.run(second.read(0, std::slice::from_ref(&into))), Ok(8192));
        assert_eq!(bytes(&into), [vec![0; 4096], pattern(!seed, 4096)].concat());
    }
}
