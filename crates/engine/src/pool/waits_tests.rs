//! The status of a pool names the events that writes wait for.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::{Drive, DriveProperties, Io, Reactor, Span, completion};

use super::tests::{create_options, drives, open_options, pattern, run};
use super::*;
use crate::{DriveSource, Tuning, WriteWait};

/// Drives whose writes do not complete while the flag is set.
struct StallingSource(Arc<dyn DriveSource>, Arc<AtomicBool>);

impl DriveSource for StallingSource {
    fn open(&self) -> Rc<dyn Drive> {
        Rc::new(StallingDrive(self.0.open(), self.1.clone()))
    }

    fn path(&self) -> String {
        self.0.path()
    }
}

struct StallingDrive(Rc<dyn Drive>, Arc<AtomicBool>);

impl Drive for StallingDrive {
    fn properties(&self) -> DriveProperties {
        self.0.properties()
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        self.0.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        let (completer, stalled) = completion();
        let (io, stalls) = (self.0.write(offset, from), self.1.clone());
        let finish = async move {
            let result = io.await;
            while stalls.load(Ordering::Relaxed) {
                Reactor::current().yield_now().await;
            }
            completer.complete(result);
        };
        Reactor::current().spawn(finish).detach();
        stalled
    }

    fn flush(&self) -> Io {
        self.0.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        self.0.discard(offset, length)
    }

    fn reserve(&self, offset: u64, length: u64) -> Io {
        self.0.reserve(offset, length)
    }
}

/// Returns the events with waiting writes, once all other tasks have done what they can.
async fn waits(pool: &Pool) -> Vec<(WriteWait, u64)> {
    for _ in 0..1000 {
        Reactor::current().yield_now().await;
    }
    let shards = pool.status().await.unwrap().shards;
    shards.iter().flat_map(|shard| shard.write_waits.iter()).filter(|(_, writes)| *writes > 0).collect()
}

#[test]
fn writes_wait_for_segments_then_drives_then_free_records() {
    let stalls = Arc::new(AtomicBool::new(false));
    let stalling = |drive| Arc::new(StallingSource(drive, stalls.clone())) as Arc<dyn DriveSource>;
    let drives: Vec<_> = drives(5, 64 << 20).into_iter().map(stalling).collect();
    run(async || {
        create(&drives, &CreateOptions { shards: 1, ..create_options("4+1") }).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 64 << 20, 4096, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap();
        assert_eq!(waits(&pool).await, []);
        let mut writes = Vec::new();
        let mut write = |block: u64, blocks: u64| {
            let volume = volume.attach();
            let data = pattern(block, (blocks * 4096) as usize);
            let write = async move { volume.write(block * 4096, &data.span()).await };
            writes.push(Reactor::current().spawn(write));
        };
        stalls.store(true, Ordering::Relaxed);
        // The superblocks that record the first segment of long writes are not written.
        write(0, 64);
        assert_eq!(waits(&pool).await, [(WriteWait::SegmentOpening, 1)]);
        stalls.store(false, Ordering::Relaxed);
        assert_eq!(waits(&pool).await, []);
        stalls.store(true, Ordering::Relaxed);
        for index in 1..=10 {
            write(index * 4, 4);
            let in_flight = index.min(Tuning::default().records_in_flight as u64);
            let queued = index - in_flight;
            let mut expected = vec![(WriteWait::RecordSlot, queued), (WriteWait::Drives, in_flight)];
            expected.retain(|(_, writes)| *writes > 0);
            assert_eq!(waits(&pool).await, expected);
        }
        stalls.store(false, Ordering::Relaxed);
        for write in writes {
            write.await.unwrap();
        }
        assert_eq!(waits(&pool).await, []);
        drop(volume);
        pool.close().await.unwrap();
    });
}
