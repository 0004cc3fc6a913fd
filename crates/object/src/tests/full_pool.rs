//! A pool that is full for a time: changes are refused, and nothing else is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::audit::{audit, describe, drain};
use super::random::{copy_of, stream_body};
use super::readers::put;
use super::same_results::{options, oracle};
use super::scenarios::{prepare, singles};
use crate::{BlockVolume, Change, MemoryBlocks, ObjectErrorKind, ObjectStore, VolumeStore};

/// A volume that refuses writes while its pool is full, after some that still find space.
#[derive(Debug)]
struct FullVolume {
    blocks: Arc<MemoryBlocks>,
    is_full: AtomicBool,
    writes_left: AtomicUsize,
}

impl FullVolume {
    fn fill(&self, writes_left: usize) {
        self.writes_left.store(writes_left, Ordering::SeqCst);
        self.is_full.store(true, Ordering::SeqCst);
    }
}

impl BlockVolume for FullVolume {
    fn size(&self) -> u64 {
        self.blocks.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.blocks.read(offset, into)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let take = |left: usize| left.checked_sub(1);
        if self.is_full.load(Ordering::SeqCst)
            && self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err()
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.blocks.write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.blocks.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.blocks.discard(offset, length)
    }
}

/// Every kind of change, while a pool becomes full after each number of writes.
#[test]
fn a_full_pool_refuses_changes_only_while_it_is_full() {
    let mut refused = 0;
    for scenario in singles() {
        let change = scenario.changes.first().unwrap();
        for writes in 0.. {
            let case = format!("{}: full after {writes} writes", scenario.name);
            let blocks = Arc::new(scenario.base.copy());
            let volume = Arc::new(FullVolume {
                blocks: blocks.clone(),
                is_full: AtomicBool::new(false),
                writes_left: AtomicUsize::new(0),
            });
            let store = VolumeStore::open(volume.clone(), options()).unwrap();
            let oracle = oracle();
            prepare(&oracle);
            volume.fill(writes);
            let mut sent = copy_of(change);
            let result = stream_body(&store, &mut sent).and_then(|()| store.commit(sent).wait());
            let inline = store.commit(put("plain", "inline", b"in the index")).wait();
            volume.is_full.store(false, Ordering::SeqCst);
            let later = || put("versioned", "later", &[1; 6000]);
            store.commit(later()).wait().unwrap_or_else(|error| panic!("{case}: {error}"));
            let mut expected: Vec<Change> = Vec::new();
            for (result, change) in
                [(&result, copy_of(change)), (&inline, put("plain", "inline", b"in the index"))]
            {
                match result {
                    Ok(_) => expected.push(change),
                    Err(error) => assert_eq!(error.kind(), ObjectErrorKind::NoSpace, "{case}: {error}"),
                }
            }
            expected.push(later());
            expected.into_iter().for_each(|change| drop(oracle.commit(change).wait().unwrap()));
            assert_eq!(describe(&store), describe(&oracle), "{case}");
            audit(&store, &blocks, &case);
            drop(store);
            let store = VolumeStore::open(blocks.clone(), options()).unwrap();
            assert_eq!(describe(&store), describe(&oracle), "{case}: after the next open");
            audit(&store, &blocks, &case);
            drain(&store, &blocks, &case);
            refused += usize::from(result.is_err()) + usize::from(inline.is_err());
            if result.is_ok() && inline.is_ok() {
                break;
            }
        }
    }
    assert!(refused > 100, "only {refused} changes were refused");
}
