//! Space: the blocks of deleted volumes.

use std::time::Duration;

use engine::Pool;
use format::limits::SLICE;
use reactor::{Buffer, Reactor};

use crate::repair_tests::{BLOCK, machine, with_pool};
use crate::run::{BootEnd, Setup, check_findings};

/// Creates a volume with blocks in three shards.
async fn fill_three_shards(pool: &Pool) {
    pool.create_volume("v", 3 * SLICE, 4096, 0).await.unwrap();
    let volume = pool.open_volume("v").await.unwrap().attach();
    for slice in 0..3 {
        volume.write(slice * SLICE, &Buffer::copy_of(&[7; 64 * BLOCK as usize]).span()).await.unwrap();
    }
    volume.flush().await.unwrap();
}

/// Deletes the volume and waits until it is freed.
async fn delete_and_wait(pool: &Pool) {
    if pool.volume_info("v").await.unwrap().is_some_and(|info| !info.deleting) {
        pool.delete_volume("v").await.unwrap();
    }
    while pool.volume_info("v").await.unwrap().is_some() {
        Reactor::current().sleep(Duration::from_millis(1)).await;
    }
}

/// The record of a deleted volume is removed only when the blocks that its layer held are durably
/// free in every shard (F3): a power cut at any drive operation of a deletion leaks no block.
#[test]
fn a_deletion_cut_at_any_point_frees_the_blocks_of_all_shards() {
    let setup = Setup { shards: 3, ..Setup::small("1+1", 2) };
    let mut cuts = 0;
    for (cut, outcome) in (1..60).flat_map(|cut| (0..12).map(move |outcome| (cut, outcome))) {
        let machine = machine(&setup, 500 + 100 * outcome + cut);
        with_pool(&machine, fill_three_shards);
        let this = machine.clone();
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            this.cut_after(cut);
            delete_and_wait(&pool).await;
            Reactor::current().sleep(Duration::from_secs(1)).await;
        });
        machine.cut_power();
        cuts += u64::from(ended == BootEnd::PowerCut);
        with_pool(&machine, delete_and_wait);
        let report = machine.check().unwrap();
        check_findings(&report, &[]).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        assert_eq!((report.volumes, report.data_blocks), (0, 0), "cut {cut}, outcome {outcome}");
    }
    assert!(cuts > 30, "{cuts} cuts during a deletion");
}
