//! The extents of a volume with holes of any length.

use super::tests::{create_options, drives, open_options, pattern, run};
use super::*;
use crate::Extent;

const SIZE: u64 = 16 << 40;

/// Returns the data extents of a whole volume, and the number of replies they took.
async fn scan(pool: &Pool, name: &str) -> (Vec<(u64, u64)>, usize) {
    let volume = pool.open_volume(name).await.unwrap().attach();
    let (mut found, mut next, mut replies) = (Vec::<(u64, u64)>::new(), 0, 0);
    while next < SIZE {
        replies += 1;
        for Extent { length, data } in volume.extents(next, SIZE - next).await.unwrap() {
            match found.last_mut() {
                Some((start, size)) if data && *start + *size == next => *size += length,
                _ if data => found.push((next, length)),
                _ => {}
            }
            next += length;
        }
    }
    assert_eq!(next, SIZE);
    (found, replies)
}

#[test]
fn holes_of_terabytes_take_one_reply() {
    let drives = drives(5, 128 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", SIZE, 4096, 0).await.unwrap();
        assert_eq!(scan(&pool, "a").await, (vec![], 1));
        let write = async |at: u64, length: usize| {
            let volume = pool.open_volume("a").await.unwrap().attach();
            volume.write(at, &pattern(at | 1, length).span()).await.unwrap();
        };
        write(3 << 40, 8192).await;
        write(SIZE - 4096, 4096).await;
        pool.snapshot_volume("a@below", 0).await.unwrap();
        write((7 << 40) + (5 << 20), 3 << 20).await;
        let data = vec![(3 << 40, 8192), ((7 << 40) + (5 << 20), 3 << 20), (SIZE - 4096, 4096)];
        assert_eq!(scan(&pool, "a").await, (data.clone(), 1));
        assert_eq!(scan(&pool, "a@below").await, (vec![data[0], data[2]], 1));
        // More data than one reply covers.
        write(1 << 40, 100 << 20).await;
        let (found, replies) = scan(&pool, "a").await;
        assert_eq!((found.len(), found[0]), (4, (1 << 40, 100 << 20)));
        assert!((2..5).contains(&replies), "{replies}");
        pool.close().await.unwrap();
    });
}
