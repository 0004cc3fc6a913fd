//! Snapshots of a volume under writes, with messages to shards that take much longer than a write.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::{Buffer, Reactor};

use crate::model::{content, sector_tag};
use crate::repair_tests::{BLOCK, machine, with_pool};
use crate::run::{Setup, check_findings};

const SHARDS: u64 = 3;
/// Written blocks in each slice.
const BLOCKS: u64 = 200;

/// Returns the offset of write `number`. Consecutive writes go to consecutive shards.
fn offset_of(number: u64) -> u64 {
    number % SHARDS * format::limits::SLICE + number / SHARDS * BLOCK
}

/// Returns the numbers of the writes in a snapshot.
async fn contained_writes(pool: &Pool, name: &str) -> Vec<u64> {
    let snapshot = pool.open_volume(name).await.unwrap().attach();
    let mut found = Vec::new();
    for number in 1..BLOCKS * SHARDS {
        let buffer = Buffer::new(4096);
        snapshot.read(offset_of(number), &buffer.span()).await.unwrap();
        if sector_tag(buffer.as_slice()) == number {
            found.push(number);
        }
    }
    found
}

/// A snapshot that contains a write contains everything acknowledged before that write began, in
/// all shards (F2).
#[test]
fn a_snapshot_is_one_point_in_time_for_all_shards() {
    let machine = machine(&Setup { shards: 3, ..Setup::small("2+1", 3) }, 1);
    machine.events.set_message_delay(2_000_000, 1);
    let mut in_the_middle = 0;
    with_pool(&machine, async |pool| {
        for round in 0..20 {
            let name = format!("v{round}");
            pool.create_volume(&name, SHARDS * format::limits::SLICE, 4096, 0).await.unwrap();
            let volume = pool.open_volume(&name).await.unwrap().attach();
            let over = Rc::new(Cell::new(false));
            let stop = over.clone();
            let writes = Reactor::current().spawn(async move {
                let mut number = 1;
                while !stop.get() && number < BLOCKS * SHARDS {
                    let bytes = content(number, 0, 4096);
                    volume.write(offset_of(number), &Buffer::copy_of(&bytes).span()).await.unwrap();
                    number += 1;
                }
                number - 1
            });
            Reactor::current().sleep(Duration::from_millis(1)).await;
            let snapshot = format!("{name}@now");
            pool.snapshot_volume(&snapshot, 0).await.unwrap();
            over.set(true);
            let last = writes.await;
            let held = contained_writes(pool, &snapshot).await;
            let newest = held.last().copied().unwrap_or(0);
            assert_eq!(newest, held.len() as u64, "round {round}: writes before the newest one are missing");
            in_the_middle += u32::from((1..last).contains(&(held.len() as u64)));
            pool.delete_volume(&snapshot).await.unwrap();
            pool.delete_volume(&name).await.unwrap();
        }
    });
    assert!(in_the_middle > 10, "only {in_the_middle} snapshots were taken during the writes");
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}
