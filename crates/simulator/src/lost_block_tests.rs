//! Lost blocks: damage beyond the scheme's tolerance is listed until the blocks are overwritten,
//! across openings.

use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, LostRange, Pool};
use format::limits::SUPERBLOCK_SLOT;
use reactor::{Buffer, Reactor};

use crate::model::content;
use crate::repair_tests::{BLOCK, fill, machine, with_pool};
use crate::run::{Machine, Setup};

/// Makes the data pages of two drives unreadable. Each row with blocks on both is lost with single
/// parity.
fn make_two_drives_unreadable(machine: &Machine) {
    for drive in [1, 2] {
        let data =
            machine.disks[drive].pages().into_iter().filter(|page| *page >= 2 * SUPERBLOCK_SLOT / BLOCK);
        data.for_each(|page| machine.disks[drive].mark_unreadable(page));
    }
}

/// Loads the map into memory, from which its nodes can be stored again.
async fn load_map(pool: &Pool) {
    assert!(unreadable_blocks(pool, "v").await.is_empty());
}

/// Returns the blocks of a volume that cannot be read.
async fn unreadable_blocks(pool: &Pool, name: &str) -> Vec<u64> {
    let volume = pool.open_volume(name).await.unwrap().attach();
    let mut found = Vec::new();
    for block in 0..volume.size() / BLOCK {
        let buffer = Buffer::new(4096);
        let read = volume.read(block * BLOCK, &buffer.span()).await;
        match read {
            Ok(()) => assert!(buffer.as_slice() == content(3, block, 4096), "block {block}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                found.push(block);
            }
        }
    }
    found
}

fn blocks_of(lost: &[LostRange], name: &str) -> Vec<u64> {
    let of = lost.iter().filter(|range| range.volume == name);
    of.flat_map(|range| range.offset / BLOCK..(range.offset + range.length) / BLOCK).collect()
}

async fn scrub(pool: &Pool) {
    pool.start_scrub().await.unwrap();
    pool.scrub_settled().await.unwrap();
}

fn damaged(shards: u16) -> Rc<Machine> {
    let machine = machine(&Setup { shards, ..Setup::small("4+1", 5) }, 200 + u64::from(shards));
    with_pool(&machine, async |pool| {
        fill(pool, "v", 600, 3).await;
        pool.checkpoint().await.unwrap();
    });
    machine
}

/// A scrub lists each lost block of each volume, the next opening still lists them, and overwriting
/// removes them from the list.
#[test]
fn lost_blocks_are_listed_until_overwritten() {
    for shards in [1, 2] {
        let machine = damaged(shards);
        let lost = with_pool(&machine, async |pool| {
            assert_eq!(pool.status().await.unwrap().lost, []);
            load_map(pool).await;
            make_two_drives_unreadable(&machine);
            scrub(pool).await;
            let status = pool.status().await.unwrap();
            let lost = unreadable_blocks(pool, "v").await;
            assert!(lost.len() > 100, "{} blocks are lost", lost.len());
            assert_eq!(blocks_of(&status.lost, "v"), lost);
            lost
        });
        with_pool(&machine, async |pool| {
            let status = pool.status().await.unwrap();
            assert_eq!(blocks_of(&status.lost, "v"), lost, "the list survives a restart");
            let volume = pool.open_volume("v").await.unwrap().attach();
            let (first, rest) = lost.split_at(lost.len() / 2);
            for block in first {
                volume
                    .write(block * BLOCK, &Buffer::copy_of(&content(3, *block, 4096)).span())
                    .await
                    .unwrap();
            }
            volume.flush().await.unwrap();
            assert_eq!(blocks_of(&pool.status().await.unwrap().lost, "v"), rest);
            assert_eq!(unreadable_blocks(pool, "v").await, rest);
        });
        with_pool(&machine, async |pool| {
            pool.delete_volume("v").await.unwrap();
            while !pool.volumes().await.unwrap().is_empty() {
                Reactor::current().sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(pool.status().await.unwrap().lost, []);
        });
    }
}

/// A failed read adds the lost block to the list, without a scrub.
#[test]
fn a_failed_read_lists_the_lost_block() {
    let machine = damaged(1);
    with_pool(&machine, async |pool| {
        load_map(pool).await;
        make_two_drives_unreadable(&machine);
        let lost = unreadable_blocks(pool, "v").await;
        assert_eq!(blocks_of(&pool.status().await.unwrap().lost, "v"), lost);
    });
}

/// A lost block below a snapshot is listed for every volume and snapshot that shows it: until it is
/// overwritten there, and after the snapshot's deletion.
#[test]
fn lost_blocks_are_listed_where_they_are_visible() {
    let machine = damaged(2);
    with_pool(&machine, async |pool| {
        pool.snapshot_volume("v@s", 0).await.unwrap();
        pool.snapshot_volume("v@t", 0).await.unwrap();
        pool.clone_volume("v@s", "clone", 0).await.unwrap();
        pool.clone_volume("v@s", "short", 0).await.unwrap();
        pool.resize_volume("short", 300 * BLOCK, true).await.unwrap();
        load_map(pool).await;
        make_two_drives_unreadable(&machine);
        scrub(pool).await;
        let lost = unreadable_blocks(pool, "v@s").await;
        assert!(lost.len() > 100);
        let status = pool.status().await.unwrap();
        for name in ["v@s", "v@t", "v", "clone"] {
            assert_eq!(blocks_of(&status.lost, name), lost, "{name}");
        }
        let below_300: Vec<u64> = lost.iter().copied().filter(|block| *block < 300).collect();
        assert_eq!(blocks_of(&status.lost, "short"), below_300);
        // Overwritten and trimmed blocks are not visible any more, for this clone.
        let clone = pool.open_volume("clone").await.unwrap().attach();
        clone.write(lost[0] * BLOCK, &Buffer::copy_of(&content(3, lost[0], 4096)).span()).await.unwrap();
        clone.discard(lost[1] * BLOCK, BLOCK).await.unwrap();
        drop(clone);
        let status = pool.status().await.unwrap();
        assert_eq!(blocks_of(&status.lost, "clone"), lost[2..]);
        assert_eq!(blocks_of(&status.lost, "v"), lost);
        for name in ["clone", "short", "v@s", "v@t"] {
            pool.delete_volume(name).await.unwrap();
        }
        while pool.volumes().await.unwrap().len() > 1 {
            Reactor::current().sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(blocks_of(&pool.status().await.unwrap().lost, "v"), lost);
    });
}

/// If map nodes are lost, the blocks below them are listed when they are read.
#[test]
fn blocks_below_lost_map_nodes_are_listed() {
    let machine = damaged(1);
    with_pool(&machine, async |pool| {
        make_two_drives_unreadable(&machine);
        let lost = unreadable_blocks(pool, "v").await;
        assert!(!lost.is_empty());
        assert_eq!(blocks_of(&pool.status().await.unwrap().lost, "v"), lost);
    });
}
