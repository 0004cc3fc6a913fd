//! The operations applied to the frozen pools, and so their expected contents.
//!
//! The steps are applied to a simple model whenever the pools are compared, and to the engine only
//! when the pools are generated.

use std::collections::BTreeMap;

use engine::{CreateOptions, Pool};
use reactor::{Buffer, Reactor};

use crate::image::Image;
use crate::machine::{Machine, run};

/// Number of drives of the pool.
pub(crate) const DRIVES: usize = 5;
/// Three data and two parity columns: reconstruction needs more than XOR.
const SCHEME: &str = "3+2";
/// Superblocks and 96 zones of the smallest size: the minimum for the reserve of two shards and
/// this data.
const DRIVE_BYTES: usize = (4 << 20) + 96 * (64 << 10);

/// The contents of volumes, by name.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

/// The state in which the pool was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    /// Closed cleanly.
    Closed,
    /// After a crash: with records after the checkpoints, a failed drive and a torn last record.
    Crashed,
}

impl PoolState {
    pub(crate) const ALL: [Self; 2] = [Self::Closed, Self::Crashed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Crashed => "crashed",
        }
    }

    pub(crate) fn is_clean(self) -> bool {
        self == Self::Closed
    }

    /// Returns the number of cells that the crash left unwritten.
    pub(crate) fn torn_cells(self) -> u64 {
        u64::from(self == Self::Crashed)
    }

    pub(crate) fn lost_drives(self) -> usize {
        usize::from(self == Self::Crashed)
    }
}

/// An operation on the pool.
#[derive(Clone, Copy)]
enum PoolStep {
    Create { volume: &'static str, size: u64, sector: u32 },
    Delete { volume: &'static str },
    Resize { volume: &'static str, size: u64 },
    Write { volume: &'static str, offset: u64, length: u64, value: u8 },
    Zero { volume: &'static str, offset: u64, length: u64 },
    Discard { volume: &'static str, offset: u64, length: u64 },
    Snapshot { name: &'static str },
    Clone { snapshot: &'static str, volume: &'static str },
    RollBack { snapshot: &'static str },
    Checkpoint,
    FailDrive { drive: u16 },
}

/// Block size in bytes.
const B: u64 = 4096;
/// Size of the slices in which volumes are striped over shards, in bytes.
const SLICE: u64 = 4 << 20;

const fn write(volume: &'static str, offset: u64, length: u64, value: u8) -> PoolStep {
    PoolStep::Write { volume, offset, length, value }
}

/// The steps before the clean close.
const UNTIL_CLOSE: [PoolStep; 30] = [
    PoolStep::Create { volume: "large", size: 2 * SLICE + 256 * B, sector: 4096 },
    PoolStep::Create { volume: "small", size: 100 * B + 512, sector: 512 },
    PoolStep::Create { volume: "gone", size: 20 * B, sector: 4096 },
    write("large", 0, 20 * B, 1),
    write("large", SLICE - 4 * B, 8 * B, 2),
    write("large", 2 * SLICE + 255 * B, B, 3),
    write("gone", 0, 5 * B, 4),
    write("small", 512, 1024, 5),
    PoolStep::Delete { volume: "gone" },
    PoolStep::Checkpoint,
    write("large", 3 * B, B, 6),
    write("large", 10 * B, 3 * B, 7),
    PoolStep::Zero { volume: "large", offset: 5 * B, length: 2 * B },
    write("small", 98 * B + 3584, 1024, 8),
    PoolStep::Resize { volume: "small", size: 99 * B },
    PoolStep::Discard { volume: "large", offset: SLICE - 2 * B, length: 3 * B },
    write("small", 50 * B, 2 * B, 9),
    PoolStep::Snapshot { name: "large@kept" },
    write("large", 6 * B, 3 * B, 15),
    PoolStep::Discard { volume: "large", offset: 10 * B, length: 2 * B },
    PoolStep::Snapshot { name: "large@merged" },
    write("large", 8 * B, 3 * B, 16),
    PoolStep::Clone { snapshot: "large@kept", volume: "clone" },
    write("clone", 2 * B, 2 * B, 17),
    PoolStep::Checkpoint,
    PoolStep::Delete { volume: "large@merged" },
    PoolStep::Snapshot { name: "small@back" },
    write("small", 50 * B, B, 18),
    PoolStep::RollBack { snapshot: "small@back" },
    write("small", 60 * B, B, 19),
];

/// The steps from the next open to the crash.
const UNTIL_CRASH: [PoolStep; 11] = [
    write("large", 15 * B, 10 * B, 10),
    PoolStep::Checkpoint,
    write("large", SLICE + 8 * B, 4 * B, 11),
    PoolStep::FailDrive { drive: 1 },
    write("large", 4 * B, 5 * B, 12),
    PoolStep::Discard { volume: "large", offset: 0, length: B },
    write("small", 7 * B + 1024, 512, 13),
    PoolStep::Snapshot { name: "clone@merged" },
    write("clone", 3 * B, 2 * B, 20),
    PoolStep::Delete { volume: "clone@merged" },
    write("large", 40 * B, 6 * B, 14),
];

fn steps(state: PoolState) -> Vec<PoolStep> {
    match state {
        PoolState::Closed => UNTIL_CLOSE.to_vec(),
        PoolState::Crashed => [&UNTIL_CLOSE[..], &UNTIL_CRASH[..]].concat(),
    }
}

/// Returns the data of a write: lines of 16 bytes that name the volume, the value and the sector.
fn pattern(volume: &str, offset: u64, length: u64, value: u8) -> Vec<u8> {
    let line = |at: u64| format!("{volume:<5}{value:>3}{:>8}", at / 512);
    let lines = (offset / 16..(offset + length) / 16).map(|at| line(at * 16));
    lines.flat_map(String::into_bytes).collect()
}

/// Returns the expected contents of the volumes in a state, computed by a simple model.
pub(crate) fn contents(state: PoolState) -> Contents {
    let mut contents = Contents::new();
    for step in steps(state) {
        let mut change = |volume: &str, offset: u64, bytes: &[u8]| {
            let at = usize::try_from(offset).unwrap();
            contents.get_mut(volume).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        };
        match step {
            PoolStep::Create { volume, size, .. } => {
                contents.insert(volume.to_owned(), vec![0; usize::try_from(size).unwrap()]);
            }
            PoolStep::Delete { volume } => drop(contents.remove(volume)),
            PoolStep::Resize { volume, size } => {
                contents.get_mut(volume).unwrap().resize(usize::try_from(size).unwrap(), 0);
            }
            PoolStep::Write { volume, offset, length, value } => {
                change(volume, offset, &pattern(volume, offset, length, value));
            }
            PoolStep::Zero { volume, offset, length } | PoolStep::Discard { volume, offset, length } => {
                change(volume, offset, &vec![0; usize::try_from(length).unwrap()]);
            }
            PoolStep::Snapshot { name } => {
                let (volume, _) = name.split_once('@').unwrap();
                contents.insert(name.to_owned(), contents[volume].clone());
            }
            PoolStep::Clone { snapshot, volume } => {
                contents.insert(volume.to_owned(), contents[snapshot].clone());
            }
            PoolStep::RollBack { snapshot } => {
                let (volume, _) = snapshot.split_once('@').unwrap();
                contents.insert(volume.to_owned(), contents[snapshot].clone());
            }
            PoolStep::Checkpoint | PoolStep::FailDrive { .. } => {}
        }
    }
    contents
}

/// Generates the drives of a state.
pub(crate) fn freeze(state: PoolState) -> Vec<Image> {
    let machine = Machine::new(DRIVES, DRIVE_BYTES);
    run(async || {
        let options = CreateOptions {
            name: "frozen".into(),
            scheme: SCHEME.parse().unwrap(),
            shards: 2,
            zone_bytes: Some(64 << 10),
            now: 1_700_000_000,
            entropy: *b"a frozen pool of one version ...",
        };
        engine::create(&machine.sources(), &options).await.unwrap();
        let (pool, _) = machine.open(1).await.unwrap();
        for step in UNTIL_CLOSE {
            apply(&pool, step).await;
        }
        pool.close().await.unwrap();
    });
    if state == PoolState::Closed {
        return machine.images();
    }
    let before = run(async || {
        let (pool, _) = machine.open(2).await.unwrap();
        let (last, others) = UNTIL_CRASH.split_last().unwrap();
        for step in others {
            apply(&pool, *step).await;
        }
        let before = machine.images();
        apply(&pool, *last).await;
        before
    });
    tear(&machine, &before);
    machine.images()
}

/// Reverts one cell of the last record, as if power was lost before its drive wrote it.
fn tear(machine: &Machine, before: &[Image]) {
    let after = machine.images();
    for drive in (0..DRIVES).rev() {
        let pairs = before[drive].bytes.chunks(4096).zip(after[drive].bytes.chunks(4096));
        // Skips the superblocks.
        let mut zones = pairs.enumerate().skip((4 << 20) / 4096);
        if let Some((block, (old, _))) = zones.find(|(_, (old, new))| old != new) {
            return machine.write(drive, block as u64 * 4096, old);
        }
    }
    panic!("the last step has written nothing");
}

async fn apply(pool: &Pool, step: PoolStep) {
    let open = async |volume: &str| pool.open_volume(volume).await.unwrap().attach();
    match step {
        PoolStep::Create { volume, size, sector } => {
            pool.create_volume(volume, size, sector, 1_700_000_001).await.unwrap();
        }
        PoolStep::Delete { volume } => {
            pool.delete_volume(volume).await.unwrap();
            while pool.volumes().await.unwrap().iter().any(|info| info.name == volume) {
                Reactor::current().yield_now().await;
            }
        }
        PoolStep::Resize { volume, size } => pool.resize_volume(volume, size, true).await.unwrap(),
        PoolStep::Write { volume, offset, length, value } => {
            let data = Buffer::copy_of(&pattern(volume, offset, length, value));
            open(volume).await.write(offset, &data.span()).await.unwrap();
        }
        PoolStep::Zero { volume, offset, length } => {
            open(volume).await.write_zeroes(offset, length).await.unwrap();
        }
        PoolStep::Discard { volume, offset, length } => {
            open(volume).await.discard(offset, length).await.unwrap();
        }
        PoolStep::Snapshot { name } => pool.snapshot_volume(name, 1_700_000_002).await.unwrap(),
        PoolStep::Clone { snapshot, volume } => {
            pool.clone_volume(snapshot, volume, 1_700_000_003).await.unwrap();
        }
        PoolStep::RollBack { snapshot } => {
            pool.roll_back_volume(snapshot, 1_700_000_004).await.unwrap();
            while pool.volumes().await.unwrap().iter().any(|info| info.deleting) {
                Reactor::current().yield_now().await;
            }
        }
        PoolStep::Checkpoint => pool.checkpoint().await.unwrap(),
        PoolStep::FailDrive { drive } => pool.fail_drive(drive).await.unwrap(),
    }
    // Waits until the step's event is written.
    assert!(!pool.events(0, 1).await.unwrap().is_empty());
}
