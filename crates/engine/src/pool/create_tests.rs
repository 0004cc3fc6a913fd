//! The limit on the zones of a pool, which its tables must be able to describe: at creation and
//! when a drive is added.

use std::rc::Rc;

use format::pool_zones_max;
use reactor::{Drive, DriveProperties, Io, Memory, Span};

use super::*;
use crate::pool::open;
use crate::pool::tests::{create_options, drives, open_options, run};

/// A drive that is larger than its memory. I/O beyond the memory fails.
struct LargeDrive(Rc<dyn Drive>, u64);

impl Drive for LargeDrive {
    fn properties(&self) -> DriveProperties {
        DriveProperties { size: self.1, ..self.0.properties() }
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        self.0.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        self.0.write(offset, from)
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

struct LargeSource(Arc<Memory>, u64);

impl DriveSource for LargeSource {
    fn open(&self) -> Rc<dyn Drive> {
        Rc::new(LargeDrive(self.0.open(), self.1))
    }

    fn path(&self) -> String {
        "large".into()
    }
}

const ZONE: u64 = 128 << 10;

/// A drive with `zones` zones, and memory for the superblocks only.
fn large(zones: u64) -> Arc<dyn DriveSource> {
    Arc::new(LargeSource(Memory::new(8 << 20).unwrap(), data_start_for(ZONE) + zones * ZONE))
}

fn options() -> CreateOptions {
    CreateOptions { shards: 1, zone_bytes: Some(ZONE), ..create_options("1+1") }
}

/// Returns the most zones of such a pool.
fn max_zones() -> u64 {
    pool_zones_max(options().scheme, 1, 2, ZONE)
}

#[test]
fn a_pool_with_too_many_zones_is_refused() {
    let create = |zones: [u64; 2]| {
        let drives = zones.map(large);
        run(async || create(&drives, &options()).await)
    };
    assert!(create([max_zones() - 8, 8]).is_ok());
    let error = create([max_zones() - 8, 9]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let (zones, max) = (max_zones() + 1, max_zones());
    assert!(error.to_string().contains(&format!("{zones} zones of {ZONE} bytes")), "{error}");
    assert!(error.to_string().contains(&format!("describe up to {max}:")), "{error}");
}

#[test]
fn a_drive_with_too_many_zones_is_not_added() {
    let drives = drives(2, 64 << 20);
    run(async || {
        create(&drives, &options()).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let error = pool.add_drive(large(max_zones()), [9; 16]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("zones of 131072 bytes"), "{error}");
        assert_eq!(pool.status().await.unwrap().drives.len(), 2, "the pool is unchanged");
        pool.close().await.unwrap();
    });
}

#[test]
fn removed_drives_do_not_count() {
    let drives = [("a".into(), data_start_for(ZONE) + (max_zones() - 8) * ZONE), ("b".into(), 8 << 20)];
    let mut superblock = initial_superblock(&options(), ZONE, &drives);
    superblock.drives[1].zones = 8;
    assert!(check_zones(&superblock, 0).is_ok());
    assert!(check_zones(&superblock, 1).is_err());
    superblock.drives[1].state = DriveState::Removed;
    assert!(check_zones(&superblock, 8).is_ok());
    assert!(check_zones(&superblock, 9).is_err());
    superblock.drives[1].state = DriveState::Failed;
    assert!(check_zones(&superblock, 1).is_err());
}
