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

/// Returns the numbers of the writes in a snapshot, out of every `step` from `first` on.
async fn contained_writes(pool: &Pool, name: &str, first: u64, step: u64) -> Vec<u64> {
    let snapshot = pool.open_volume(name).await.unwrap().attach();
    let mut found = Vec::new();
    for number in (first..BLOCKS * SHARDS).step_by(step as usize) {
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
            let held = contained_writes(pool, &snapshot, 1, 1).await;
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

/// Snapshots of several volumes taken together contain a write only with everything acknowledged
/// before that write began, on all of the volumes (F2).
#[test]
fn snapshots_of_a_group_are_one_point_in_time_for_all_volumes() {
    const VOLUMES: u64 = 2;
    let machine = machine(&Setup { shards: 3, ..Setup::small("2+1", 3) }, 1);
    machine.events.set_message_delay(2_000_000, 1);
    let mut in_the_middle = 0;
    with_pool(&machine, async |pool| {
        for round in 0..20 {
            let names: Vec<String> = (0..VOLUMES).map(|volume| format!("v{round}-{volume}")).collect();
            let mut volumes = Vec::new();
            for name in &names {
                pool.create_volume(name, SHARDS * format::limits::SLICE, 4096, 0).await.unwrap();
                volumes.push(pool.open_volume(name).await.unwrap().attach());
            }
            let over = Rc::new(Cell::new(false));
            let stop = over.clone();
            // Each write goes to the next volume, and begins after the one before was acknowledged.
            let writes = Reactor::current().spawn(async move {
                let mut number = 1;
                while !stop.get() && number < BLOCKS * SHARDS {
                    let bytes = content(number, 0, 4096);
                    let volume = volumes.get((number % VOLUMES) as usize).unwrap();
                    volume.write(offset_of(number), &Buffer::copy_of(&bytes).span()).await.unwrap();
                    number += 1;
                }
                number - 1
            });
            Reactor::current().sleep(Duration::from_millis(1)).await;
            let snapshots: Vec<String> = names.iter().map(|name| format!("{name}@now")).collect();
            let group: Vec<&str> = snapshots.iter().map(String::as_str).collect();
            pool.snapshot_volumes(&group, 0).await.unwrap();
            over.set(true);
            let last = writes.await;
            let mut held = Vec::new();
            for (volume, snapshot) in (0..VOLUMES).zip(&snapshots) {
                let first = if volume == 0 { VOLUMES } else { volume };
                held.extend(contained_writes(pool, snapshot, first, VOLUMES).await);
            }
            held.sort_unstable();
            let newest = held.last().copied().unwrap_or(0);
            assert_eq!(newest, held.len() as u64, "round {round}: writes before the newest one are missing");
            in_the_middle += u32::from((1..last).contains(&(held.len() as u64)));
            for name in snapshots.iter().chain(&names) {
                pool.delete_volume(name).await.unwrap();
            }
        }
    });
    assert!(in_the_middle > 10, "only {in_the_middle} groups were taken during the writes");
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}
