//! Runs a few hundred short seeds, and the crash sweep over every operation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use engine::{Pool, Tuning};
use reactor::{Buffer, Reactor, Span};

use crate::model::content;
use crate::run::{BootEnd, Machine, Setup};
use crate::swarm::{OperationSet, Stats, run_seed};
use crate::sweep::{
    ALL_OPERATIONS, DamageCounts, SweepOp, SweepOptions, sweep, sweep_crash_damage, sweep_damage,
    sweep_failures, sweep_forks, sweep_full_hosts,
};

/// Seeds that have failed with the extended set, from before [`OperationSet::Offloads`].
const EXTENDED_REGRESSIONS: [u64; 6] =
    [12_338, 2_026_114_193, 2_026_116_596, 2_026_116_899, 2_026_120_447, 2_028_011_981];

/// Seeds that have failed with offloads, from before [`OperationSet::All`].
const OFFLOAD_REGRESSIONS: [u64; 3] = [6_638, 14_086, 18_723];

/// Seeds that have failed with all operations: a full degraded pool refused a deletion or did not
/// free a deleted volume, blocks that damage made immovable, checkpoints of a full host that failed
/// because of each other or of the cleaner, walks that evicted each other's map nodes, checkpoints
/// that used up the gain of cleaning, 64 checkpoints for each refused write of a full pool, a full
/// drive beside one with free zones, a scrub that rewrote more map nodes than a checkpoint can
/// store.
const REGRESSIONS: [u64; 10] = [
    3_200_011_442,
    3_200_016_371,
    3_200_018_761,
    3_400_003_564,
    3_400_004_040,
    3_400_004_396,
    3_400_014_919,
    3_600_005_534,
    3_700_005_661,
    3_800_003_814,
];

/// Regression seeds from before [`OperationSet::Extended`]. With the basic set they keep the runs
/// that failed.
const BASIC_REGRESSIONS: [u64; 48] = [
    16,
    52,
    154,
    188,
    212,
    228,
    235,
    237,
    244,
    245,
    283,
    384,
    486,
    735,
    1232,
    2437,
    2531,
    4704,
    5187,
    7743,
    7867,
    8835,
    278,
    1484,
    2165,
    2894,
    3641,
    697,
    1237,
    3675,
    9027,
    50597,
    52235,
    500_576,
    750_283,
    906_736,
    911_192,
    912_249,
    71_300_569,
    7_000_737,
    9_439_281,
    8_200_469,
    8_201_778,
    500_022,
    2_026_116_802,
    2_026_132_077,
    2_026_131_414,
    2_026_142_009,
];

/// Runs seeds, which must pass. Returns their counters.
fn run(seeds: impl Iterator<Item = u64>, operations: OperationSet) -> Stats {
    let set = match operations {
        OperationSet::Basic => " --operations basic",
        OperationSet::Extended => " --operations extended",
        OperationSet::Offloads => " --operations offloads",
        OperationSet::All => "",
    };
    let mut sum = Stats::default();
    for seed in seeds {
        match run_seed(seed, operations, false) {
            Ok(stats) => sum.add(&stats),
            Err(message) => panic!(
                "seed {seed}: {message}\nreplay it with: cargo run --release -p simulator -- seed {seed}{set}"
            ),
        }
    }
    sum
}

#[test]
fn basic_regression_seeds_pass() {
    run(BASIC_REGRESSIONS.into_iter(), OperationSet::Basic);
}

#[test]
fn extended_regression_seeds_pass() {
    run(EXTENDED_REGRESSIONS.into_iter(), OperationSet::Extended);
    run(OFFLOAD_REGRESSIONS.into_iter(), OperationSet::Offloads);
}

/// The last seed fills a pool whose damaged map nodes stay in memory until there is space.
#[test]
fn regression_seeds_pass() {
    let stats = run(REGRESSIONS.into_iter(), OperationSet::All);
    assert!(stats.unsaved_nodes > 0, "{stats:?}");
}

#[test]
fn a_few_hundred_seeds_pass() {
    run(20_000..20_100, OperationSet::Basic);
    run(20_100..20_150, OperationSet::Extended);
    let stats = run(20_150..20_300, OperationSet::All);
    assert!(stats.compared > 0 && stats.copied > 0 && stats.groups > 0, "{stats:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || run_seed(77, OperationSet::All, false);
    assert_eq!(run(), run());
}

#[test]
fn every_operation_survives_a_cut_at_every_point() {
    for (scheme, drives) in [("4+1", 5), ("1+1", 2)] {
        for operation in ALL_OPERATIONS {
            // This operation takes many drive operations on a pool that must be filled first.
            let step = match operation {
                SweepOp::Clean => 29,
                _ => 1,
            };
            let options = SweepOptions { step, ..SweepOptions::new(scheme, drives) };
            if let Err(message) = sweep(operation, &options) {
                panic!("{message}");
            }
        }
    }
}

#[test]
fn every_operation_survives_the_failure_of_any_write() {
    for (scheme, drives) in [("4+1", 5), ("2+2", 5), ("3+0", 3)] {
        for operation in ALL_OPERATIONS.into_iter().filter(|operation| operation.fits(scheme)) {
            // Drive changes make many writes of the same kind.
            let step = match operation {
                SweepOp::Clean => 97,
                _ if operation.changes_drives() => 11,
                SweepOp::Rebuild | SweepOp::Scrub => 11,
                _ => 2,
            };
            let options = SweepOptions { step, ..SweepOptions::new(scheme, drives) };
            if let Err(message) = sweep_failures(operation, &options) {
                panic!("{message}");
            }
        }
    }
}

/// Single parity and a free drive, with several outcomes of each cut.
#[test]
fn rebuilds_survive_a_cut_at_every_point() {
    let options = SweepOptions { outcomes: 4, ..SweepOptions::new("2+1", 4) };
    if let Err(message) = sweep(SweepOp::Rebuild, &options) {
        panic!("{message}");
    }
}

/// A drive with read errors is drained while another drive is free.
#[test]
fn draining_a_failing_drive_survives_cuts_with_double_parity() {
    let options = SweepOptions { step: 7, ..SweepOptions::new("2+2", 5) };
    if let Err(message) = sweep(SweepOp::Retire, &options) {
        panic!("{message}");
    }
}

/// Without flushes: acknowledged writes are durable if no drive has a volatile cache.
#[test]
fn acknowledged_writes_survive_a_cut_without_volatile_caches() {
    for operation in ALL_OPERATIONS {
        let step = match operation {
            SweepOp::Clean => 97,
            _ if operation.changes_drives() => 11,
            _ => 3,
        };
        let options = SweepOptions { write_through: true, step, ..SweepOptions::new("2+1", 3) };
        if let Err(message) = sweep(operation, &options) {
            panic!("{message}");
        }
    }
}

#[test]
fn every_operation_survives_a_full_host() {
    let mut full_hosts = 0;
    for (scheme, drives) in [("4+1", 5), ("1+1", 2)] {
        for operation in ALL_OPERATIONS {
            let options = SweepOptions::new(scheme, drives);
            match sweep_full_hosts(operation, &options) {
                Ok(counts) => full_hosts += counts.full_hosts,
                Err(message) => panic!("{message}"),
            }
        }
    }
    assert!(full_hosts > 0, "no operation reserves space: the sweep tests nothing");
}

#[test]
fn separately_used_halves_are_never_combined() {
    for (scheme, drives) in [("1+1", 2), ("2+2", 4)] {
        match sweep_forks(&SweepOptions::new(scheme, drives)) {
            Ok(pairs) => assert!(pairs > 0, "{scheme} tolerates the loss of half of {drives} drives"),
            Err(message) => panic!("{message}"),
        }
    }
}

#[test]
fn excess_damage_causes_errors_and_never_wrong_data() {
    for (scheme, drives) in [("4+0", 4), ("2+1", 4), ("1+2", 3)] {
        let options = SweepOptions { step: 5, ..SweepOptions::new(scheme, drives) };
        match sweep_damage(&options) {
            Ok(counts) => assert!(counts.answered > 0 && counts.refused > 0, "{scheme}: {counts:?}"),
            Err(message) => panic!("{message}"),
        }
    }
}

#[test]
fn damage_after_a_crash_never_hides_a_flushed_write() {
    let mut sum = DamageCounts::default();
    for (scheme, drives) in [("4+1", 5), ("2+2", 5), ("3+0", 3)] {
        let options = SweepOptions { step: 3, ..SweepOptions::new(scheme, drives) };
        match sweep_crash_damage(&options) {
            Ok(counts) => {
                assert!(counts.answered > 0 && counts.closed > 0, "{scheme}: {counts:?}");
                sum.add(&counts);
            }
            Err(message) => panic!("{message}"),
        }
    }
    assert!(sum.refused > 0, "no read returned an error: {sum:?}");
}

/// The allowed values of a leaf after a crash: from the last flushed to the last begun value.
#[derive(Clone, Copy, Default)]
struct Leaf {
    flushed: u64,
    begun: u64,
}

/// Bytes of the blocks below one map leaf.
const LEAF: u64 = 1 << 20;

fn block_of(value: u64) -> Span {
    Buffer::copy_of(&content(value, 0, 4096)).span()
}

/// Writes to one leaf after another, with a flush after each batch, until the power fails.
async fn scatter(pool: &Pool, leaves: &RefCell<Vec<Leaf>>, value: &Cell<u64>) {
    let volume = Rc::new(pool.open_volume("v").await.unwrap().attach());
    loop {
        let mut tasks = Vec::new();
        let mut batch = Vec::new();
        for _ in 0..48 {
            let next = value.get() + 1;
            value.set(next);
            let leaf = next * 7 % leaves.borrow().len() as u64;
            leaves.borrow_mut()[leaf as usize].begun = next;
            batch.push((leaf, next));
            let volume = volume.clone();
            tasks.push(
                Reactor::current().spawn(async move { volume.write(leaf * LEAF, &block_of(next)).await }),
            );
        }
        for task in tasks {
            task.await.unwrap();
        }
        volume.flush().await.unwrap();
        for (leaf, value) in batch {
            leaves.borrow_mut()[leaf as usize].flushed = value;
        }
    }
}

async fn verify(pool: &Pool, leaves: &RefCell<Vec<Leaf>>) {
    let volume = pool.open_volume("v").await.unwrap().attach();
    let all = leaves.borrow().clone();
    for (index, leaf) in all.into_iter().enumerate() {
        let buffer = Buffer::new(4096);
        volume.read(index as u64 * LEAF, &buffer.span()).await.unwrap();
        let found = crate::model::sector_tag(buffer.as_slice());
        assert!(
            (leaf.flushed..=leaf.begun).contains(&found),
            "leaf {index} holds {found}, not {}..={}",
            leaf.flushed,
            leaf.begun
        );
    }
}

/// A log that changes more leaves than the map may keep dirty is recovered in several steps, each
/// with its own checkpoint. If any step is cut, the next recovery finds everything.
#[test]
fn a_recovery_in_several_steps_survives_any_cut() {
    let setup = Setup {
        scheme: "1+1".into(),
        drives: vec![(4 << 20) + 350 * (128 << 10); 2],
        spares: Vec::new(),
        sectors: vec![512],
        volatile: vec![true; 2],
        zone_bytes: 128 << 10,
        shards: 1,
        tuning: Tuning { map_bytes: 0, ..Tuning::default() },
        latency: (1_000, 100_000),
        bytes_per_second: 0,
    };
    for seed in 0..30 {
        let machine = Rc::new(Machine::new(&setup, seed));
        let leaves = Rc::new(RefCell::new(vec![Leaf::default(); 400]));
        let value = Rc::new(Cell::new(0));
        let this = machine.clone();
        let made = machine.boot(async move || {
            this.create().await.unwrap();
            let (pool, _) = this.open().await.unwrap();
            pool.create_volume("v", 400 * LEAF, 4096, 0).await.unwrap();
            pool.close().await.unwrap();
        });
        assert_eq!(made, BootEnd::Completed(()));
        for crash in 0..4 {
            // The first crash cuts the writes. Each of the others cuts a recovery or the writes
            // after it.
            machine.cut_after(if crash == 0 { 3000 + 211 * seed } else { 40 * crash + 97 * seed % 400 });
            let (this, all, value) = (machine.clone(), leaves.clone(), value.clone());
            let ended = machine.boot(async move || {
                let (pool, _) = this.open().await.unwrap();
                scatter(&pool, &all, &value).await;
            });
            assert_eq!(ended, BootEnd::PowerCut);
            machine.cut_power();
        }
        let (this, all) = (machine.clone(), leaves.clone());
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            verify(&pool, &all).await;
            pool.close().await.unwrap();
        });
        assert_eq!(ended, BootEnd::Completed(()));
    }
}

/// A process dies while it writes superblocks, and the power fails while the next process opens the
/// pool. The first process's cached writes may then be torn together with the second one's.
#[test]
fn a_kill_and_a_power_cut_leave_a_superblock_on_every_drive() {
    // Superblocks of several pages, and no free drive.
    let setup = Setup { drives: vec![(4 << 20) + 70 * (128 << 10); 8], shards: 8, ..Setup::small("3+0", 8) };
    let open = async |machine: &Machine| {
        let (pool, _) = machine.open().await?;
        // Each checkpoint publishes superblocks.
        pool.checkpoint().await?;
        pool.checkpoint().await
    };
    let mut opening = 1;
    for seed in 400..480 {
        let machine = Machine::new(&setup, seed);
        assert!(matches!(machine.boot(async || machine.create().await), BootEnd::Completed(Ok(()))));
        let begin = machine.trigger.operations.get();
        if opening > 1 {
            machine.cut_after(1 + seed * 13 % opening);
        }
        let _ = machine.boot(async || open(&machine).await);
        machine.kill_process();
        opening = opening.max(machine.trigger.operations.get() - begin);
        machine.cut_after(1 + seed * 7 % opening);
        let _ = machine.boot(async || machine.open().await.map(|_| ()));
        machine.cut_power();
        let ended = machine.boot(async || machine.open().await.map(|_| ()));
        assert!(matches!(ended, BootEnd::Completed(Ok(()))), "seed {seed}: {ended:?}");
    }
}
