//! Thick volumes without faults: what others may not take from them, and what is refused for them.

use super::tests::{create_options, drives, open_options, pattern, run};
use super::*;
use crate::{AttachedVolume, ErrorKind};

const PIECE: u64 = 256 << 10;
const THICK: u64 = 24 << 20;

fn thick(size: u64) -> NewVolume {
    NewVolume { size, sector: 4096, thick: true, shards: None, now: 0 }
}

async fn attach(pool: &Pool, name: &str) -> AttachedVolume {
    pool.open_volume(name).await.unwrap().attach()
}

/// Writes to a volume from its start until it is written or there is no room; gives how far that
/// went.
async fn fill(pool: &Pool, name: &str, bytes: u64) -> u64 {
    let volume = attach(pool, name).await;
    let data = pattern(bytes ^ 77, PIECE as usize);
    for offset in (0..bytes).step_by(PIECE as usize) {
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
fn what_is_kept_for_a_thick_volume_others_do_not_get() {
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
        // Left as a crash would: the promise is in the catalogue.
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let volume = attach(&pool, "thin").await;
        let error = volume.write((1 << 30) - PIECE, &pattern(1, PIECE as usize).span()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "what is kept is as it was");
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        assert_eq!(fill(&pool, "thick", THICK).await, THICK);
        assert_eq!(pool.status().await.unwrap().space.reservation_blocks, 0);
        // What it has, it may overwrite; a snapshot of it would take room for all of it anew.
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
            "the snapshot's blocks stay, and these have room"
        );
        pool.close().await.unwrap();
    });
}

#[test]
fn room_is_given_back() {
    let drives = drives(5, 32 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let promised = async || pool.status().await.unwrap().space.reservation_blocks;
        pool.create_volume("a", THICK, 4096, 0).await.unwrap();
        assert_eq!(promised().await, 0);
        pool.set_volume_thick("a", true).await.unwrap();
        let all = promised().await;
        assert!(all > THICK / 4096 && all < THICK / 4096 * 102 / 100, "{all}");
        fill(&pool, "a", THICK / 2).await;
        assert!(promised().await.abs_diff(all / 2) <= 2);
        attach(&pool, "a").await.discard(0, THICK / 2).await.unwrap();
        assert_eq!(promised().await, all);
        pool.resize_volume("a", THICK / 2, true).await.unwrap();
        assert!(promised().await.abs_diff(all / 2) <= 2);
        pool.resize_volume("a", THICK, false).await.unwrap();
        pool.snapshot_volume("a@one", 0).await.unwrap();
        assert_eq!(promised().await, all, "of the volume's layer now, not of the snapshot's");
        pool.clone_volume("a@one", "b", 0).await.unwrap();
        pool.roll_back_volume("a@one", 0).await.unwrap();
        assert_eq!(promised().await, all);
        let infos = pool.volumes().await.unwrap();
        let thick: Vec<_> = infos.iter().filter(|info| info.thick).map(|info| info.name.as_str()).collect();
        assert_eq!(thick, ["a"]);
        assert_eq!(pool.set_volume_thick("a@one", true).await.unwrap_err().kind(), ErrorKind::ReadOnly);
        pool.set_volume_thick("a", false).await.unwrap();
        assert_eq!(promised().await, 0);
        pool.set_volume_thick("b", true).await.unwrap();
        pool.delete_volume("b").await.unwrap();
        assert_eq!(promised().await, 0);
    });
}
