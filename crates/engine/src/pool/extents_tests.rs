//! What of a volume holds data, over holes of any length.

use super::tests::{create_options, drives, open_options, pattern, run};
use super::*;
use crate::Extent;

const SIZE: u64 = 16 << 40;

/// The whole volume, and how many answers that took.
async fn look(pool: &Pool, name: &str) -> (Vec<(u64, u64)>, usize) {
    let volume = pool.open_volume(name).await.unwrap().attach();
    let (mut found, mut next, mut answers) = (Vec::<(u64, u64)>::new(), 0, 0);
    while next < SIZE {
        answers += 1;
        for Extent { length, data } in volume.extents(next, SIZE - next).await.unwrap() {
            match found.last_mut() {
                Some((at, held)) if data && *at + *held == next => *held += length,
                _ if data => found.push((next, length)),
                _ => {}
            }
            next += length;
        }
    }
    assert_eq!(next, SIZE);
    (found, answers)
}

#[test]
fn data_is_found_across_terabytes_of_nothing() {
    let drives = drives(5, 128 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", SIZE, 4096, 0).await.unwrap();
        assert_eq!(look(&pool, "a").await, (vec![], 1));
        let write = async |at: u64, length: usize| {
            let volume = pool.open_volume("a").await.unwrap().attach();
            volume.write(at, &pattern(at | 1, length).span()).await.unwrap();
        };
        write(3 << 40, 8192).await;
        write(SIZE - 4096, 4096).await;
        pool.snapshot_volume("a@below", 0).await.unwrap();
        write((7 << 40) + (5 << 20), 3 << 20).await;
        let held = vec![(3 << 40, 8192), ((7 << 40) + (5 << 20), 3 << 20), (SIZE - 4096, 4096)];
        assert_eq!(look(&pool, "a").await, (held.clone(), 1));
        assert_eq!(look(&pool, "a@below").await, (vec![held[0], held[2]], 1));
        // More than one answer looks at.
        write(1 << 40, 100 << 20).await;
        let (found, answers) = look(&pool, "a").await;
        assert_eq!((found.len(), found[0]), (4, (1 << 40, 100 << 20)));
        assert!((2..5).contains(&answers), "{answers}");
        pool.close().await.unwrap();
    });
}
