//! The promise about the numbers and identities of volumes: a number is reused only after all
//! others, or by a later opening, and then the identity differs by the time of creation.

use format::VolumeId;
use reactor::Reactor;

use super::tests::{create_options, drives, open_options, read, run};
use super::*;
use crate::VolumeUid;

/// Creates a volume and returns its number and identity.
async fn created(pool: &Pool, name: &str, now: u64) -> (VolumeId, VolumeUid) {
    pool.create_volume(name, 1 << 20, 4096, now).await.unwrap();
    let info = pool.volume_info(name).await.unwrap().unwrap();
    (info.id, info.uid)
}

/// Deletes a volume, and waits until it is freed.
async fn delete(pool: &Pool, name: &str) {
    pool.delete_volume(name).await.unwrap();
    while pool.volume_info(name).await.unwrap().is_some() {
        Reactor::current().yield_now().await;
    }
}

#[test]
fn numbers_are_not_reused_within_an_opening() {
    let drives = drives(3, 64 << 20);
    run(async || {
        create(&drives, &create_options("2+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for name in ["a", "b", "a", "a", "b"] {
            // All at the same second: only the number tells them apart.
            let (number, uid) = created(&pool, name, 1000).await;
            assert!(seen.insert((number, uid)), "{name} has the number {number} of a deleted volume");
            assert!(seen.iter().filter(|(other, _)| *other == number).count() == 1);
            delete(&pool, name).await;
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn a_number_reused_by_a_later_opening_has_another_identity_and_no_data() {
    let drives = drives(3, 64 << 20);
    let mut first = None;
    for (opening, now) in [(0, 1000), (1, 1001)] {
        run(async || {
            if opening == 0 {
                create(&drives, &create_options("2+1")).await.unwrap();
            }
            let (pool, _) = open(&drives, &open_options()).await.unwrap();
            let (number, uid) = created(&pool, "a", now).await;
            let volume = pool.open_volume("a").await.unwrap().attach();
            assert_eq!(read(&volume, 0, 4096).await, vec![0; 4096]);
            volume.write(0, &super::tests::pattern(3, 4096).span()).await.unwrap();
            drop(volume);
            if let Some((earlier, earlier_uid)) = first.replace((number, uid)) {
                assert_eq!(number, earlier, "an opening begins with the lowest free number");
                assert_ne!(uid, earlier_uid);
            }
            delete(&pool, "a").await;
            pool.close().await.unwrap();
        });
    }
}
