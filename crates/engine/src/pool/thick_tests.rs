//! Thick volumes without faults: their reservations, and refused operations.

use super::tests::{create_options, drives, open_options, pattern, run};
use super::*;
use crate::{AttachedVolume, ErrorKind};

const WRITE_SIZE: u64 = 256 << 10;
const THICK: u64 = 24 << 20;

fn thick(size: u64) -> NewVolume {
    NewVolume { size, sector: 4096, thick: true, shards: None, now: 0 }
}

async fn attach(pool: &Pool, name: &str) -> AttachedVolume {
    pool.open_volume(name).await.unwrap().attach()
}

/// Writes to a volume from its start until the end or until the pool is full. Returns the bytes
/// written.
async fn fill(pool: &Pool, name: &str, bytes: u64) -> u64 {
    let volume = attach(pool, name).await;
    let data = pattern(bytes ^ 77, WRITE_SIZE as usize);
    for offset in (0..bytes).step_by(WRITE_SIZE as usize) {
        match volume.write(offset, &data.span()).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return offset;
            }
        }
    }
    bytes
}

async fn capacity(pool: &Pool) -> u64 {
    pool.status().await.unwrap().space.capacity_blocks * 4096
}

async fn freed(pool: &Pool) {
    while pool.volumes().await.unwrap().iter().any(|volume| volume.deleting) {
        reactor::Reactor::current().yield_now().await;
    }
}

#[test]
fn reserved_space_is_unavailable_to_other_volumes() {
    let drives = drives(5, 32 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("thin", 1 << 30, 4096, 0).await.unwrap();
        pool.create_volume_with("thick", thick(THICK)).await.unwrap();
        let filled = fill(&pool, "thin", 1 << 30).await;
        assert!(filled < capacity(&pool).await - THICK, "{filled}");
        let error = pool.create_volume_with("more", thick(1 << 20)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let error = pool.resize_volume("thick", THICK + (1 << 20), false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        // Dropped without closing, as in a crash: the reservation is in the catalogue.
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let volume = attach(&pool, "thin").await;
        let error =
            volume.write((1 << 30) - WRITE_SIZE, &pattern(1, WRITE_SIZE as usize).span()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "the reservation persists");
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        assert_eq!(fill(&pool, "thick", THICK).await, THICK);
        assert_eq!(pool.status().await.unwrap().space.reservation_blocks, 0);
        // Overwrites of stored data succeed, but a snapshot would require another reservation of
        // the full size.
        assert_eq!(fill(&pool, "thick", THICK).await, THICK);
        let error = pool.snapshot_volume("thick@one", 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        pool.delete_volume("thin").await.unwrap();
        freed(&pool).await;
        pool.snapshot_volume("thick@one", 0).await.unwrap();
        pool.create_volume("thin", 1 << 30, 4096, 0).await.unwrap();
        fill(&pool, "thin", 1 << 30).await;
        assert_eq!(
            fill(&pool, "thick", THICK).await,
            THICK,
            "the reservation is additional to the snapshot's blocks"
        );
        pool.close().await.unwrap();
    });
}

#[test]
fn reservations_are_released() {
    let drives = drives(5, 32 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let reserved = async || pool.status().await.unwrap().space.reservation_blocks;
        pool.create_volume("a", THICK, 4096, 0).await.unwrap();
        assert_eq!(reserved().await, 0);
        pool.set_volume_thick("a", true).await.unwrap();
        let all = reserved().await;
        assert!(all > THICK / 4096 && all < THICK / 4096 * 102 / 100, "{all}");
        fill(&pool, "a", THICK / 2).await;
        assert!(reserved().await.abs_diff(all / 2) <= 2);
        attach(&pool, "a").await.discard(0, THICK / 2).await.unwrap();
        assert_eq!(reserved().await, all);
        pool.resize_volume("a", THICK / 2, true).await.unwrap();
        assert!(reserved().await.abs_diff(all / 2) <= 2);
        pool.resize_volume("a", THICK, false).await.unwrap();
        pool.snapshot_volume("a@one", 0).await.unwrap();
        assert_eq!(reserved().await, all, "for the volume's new layer, not for the snapshot's");
        pool.clone_volume("a@one", "b", 0).await.unwrap();
        pool.roll_back_volume("a@one", 0).await.unwrap();
        assert_eq!(reserved().await, all);
        let infos = pool.volumes().await.unwrap();
        let thick: Vec<_> = infos.iter().filter(|info| info.thick).map(|info| info.name.as_str()).collect();
        assert_eq!(thick, ["a"]);
        assert_eq!(pool.set_volume_thick("a@one", true).await.unwrap_err().kind(), ErrorKind::ReadOnly);
        pool.set_volume_thick("a", false).await.unwrap();
        assert_eq!(reserved().await, 0);
        pool.set_volume_thick("b", true).await.unwrap();
        pool.delete_volume("b").await.unwrap();
        assert_eq!(reserved().await, 0);
    });
}
