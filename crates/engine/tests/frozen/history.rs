//! What was done to the frozen pools, and so what they must hold.
//!
//! The steps are applied to a plain model whenever the pools are compared, and to the engine only when they are made.

use std::collections::BTreeMap;

use engine::{CreateOptions, Pool};
use reactor::{Buffer, Reactor};

use crate::image::Image;
use crate::machine::{Machine, run};

/// Drives of the pool.
pub(crate) const DRIVES: usize = 5;
/// Three data and two parity columns: what is lost is computed with more than an XOR.
const SCHEME: &str = "3+2";
/// Superblocks and 96 of the smallest zones: two shards need no less for the reserve and what is written here.
const DRIVE_BYTES: usize = (4 << 20) + 96 * (64 << 10);

/// The content of volumes, by name.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

/// How the pool was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Closed in order.
    Closed,
    /// In the middle of things: records behind the checkpoints, a drive lost on the way, the last record torn.
    Crashed,
}

impl State {
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

    /// Cells that the crash left unwritten.
    pub(crate) fn torn_cells(self) -> u64 {
        u64::from(self == Self::Crashed)
    }

    pub(crate) fn lost_drives(self) -> usize {
        usize::from(self == Self::Crashed)
    }
}

/// Something that is done to the pool.
#[derive(Clone, Copy)]
enum Step {
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

/// Bytes of a block, and of the slices in which volumes are dealt out to the shards.
const B: u64 = 4096;
const SLICE: u64 = 4 << 20;

const fn write(volume: &'static str, offset: u64, length: u64, value: u8) -> Step {
    Step::Write { volume, offset, length, value }
}

/// Up to the closing in order.
const FIRST: [Step; 30] = [
    Step::Create { volume: "large", size: 2 * SLICE + 256 * B, sector: 4096 },
    Step::Create { volume: "small", size: 100 * B + 512, sector: 512 },
    Step::Create { volume: "gone", size: 20 * B, sector: 4096 },
    write("large", 0, 20 * B, 1),
    write("large", SLICE - 4 * B, 8 * B, 2),
    write("large", 2 * SLICE + 255 * B, B, 3),
    write("gone", 0, 5 * B, 4),
    write("small", 512, 1024, 5),
    Step::Delete { volume: "gone" },
    Step::Checkpoint,
    write("large", 3 * B, B, 6),
    write("large", 10 * B, 3 * B, 7),
    Step::Zero { volume: "large", offset: 5 * B, length: 2 * B },
    write("small", 98 * B + 3584, 1024, 8),
    Step::Resize { volume: "small", size: 99 * B },
    Step::Discard { volume: "large", offset: SLICE - 2 * B, length: 3 * B },
    write("small", 50 * B, 2 * B, 9),
    Step::Snapshot { name: "large@kept" },
    write("large", 6 * B, 3 * B, 15),
    Step::Discard { volume: "large", offset: 10 * B, length: 2 * B },
    Step::Snapshot { name: "large@merged" },
    write("large", 8 * B, 3 * B, 16),
    Step::Clone { snapshot: "large@kept", volume: "clone" },
    write("clone", 2 * B, 2 * B, 17),
    Step::Checkpoint,
    Step::Delete { volume: "large@merged" },
    Step::Snapshot { name: "small@back" },
    write("small", 50 * B, B, 18),
    Step::RollBack { snapshot: "small@back" },
    write("small", 60 * B, B, 19),
];

/// From the opening behind that to the crash.
const SECOND: [Step; 11] = [
    write("large", 15 * B, 10 * B, 10),
    Step::Checkpoint,
    write("large", SLICE + 8 * B, 4 * B, 11),
    Step::FailDrive { drive: 1 },
    write("large", 4 * B, 5 * B, 12),
    Step::Discard { volume: "large", offset: 0, length: B },
    write("small", 7 * B + 1024, 512, 13),
    Step::Snapshot { name: "clone@merged" },
    write("clone", 3 * B, 2 * B, 20),
    Step::Delete { volume: "clone@merged" },
    write("large", 40 * B, 6 * B, 14),
];

fn steps(state: State) -> Vec<Step> {
    match state {
        State::Closed => FIRST.to_vec(),
        State::Crashed => [&FIRST[..], &SECOND[..]].concat(),
    }
}

/// What is written where: 16 bytes that a reader of the images recognises, again and again.
fn pattern(volume: &str, offset: u64, length: u64, value: u8) -> Vec<u8> {
    let line = |at: u64| format!("{volume:<5}{value:>3}{:>8}", at / 512);
    let lines = (offset / 16..(offset + length) / 16).map(|at| line(at * 16));
    lines.flat_map(String::into_bytes).collect()
}

/// What the volumes hold in a state, by a plain model.
pub(crate) fn contents(state: State) -> Contents {
    let mut contents = Contents::new();
    for step in steps(state) {
        let mut change = |volume: &str, offset: u64, bytes: &[u8]| {
            let at = usize::try_from(offset).unwrap();
            contents.get_mut(volume).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        };
        match step {
            Step::Create { volume, size, .. } => {
                contents.insert(volume.to_owned(), vec![0; usize::try_from(size).unwrap()]);
            }
            Step::Delete { volume } => drop(contents.remove(volume)),
            Step::Resize { volume, size } => {
                contents.get_mut(volume).unwrap().resize(usize::try_from(size).unwrap(), 0);
            }
            Step::Write { volume, offset, length, value } => {
                change(volume, offset, &pattern(volume, offset, length, value));
            }
            Step::Zero { volume, offset, length } | Step::Discard { volume, offset, length } => {
                change(volume, offset, &vec![0; usize::try_from(length).unwrap()]);
            }
            Step::Snapshot { name } => {
                let (volume, _) = name.split_once('@').unwrap();
                contents.insert(name.to_owned(), contents[volume].clone());
            }
            Step::Clone { snapshot, volume } => {
                contents.insert(volume.to_owned(), contents[snapshot].clone());
            }
            Step::RollBack { snapshot } => {
                let (volume, _) = snapshot.split_once('@').unwrap();
                contents.insert(volume.to_owned(), contents[snapshot].clone());
            }
            Step::Checkpoint | Step::FailDrive { .. } => {}
        }
    }
    contents
}

/// Makes the drives of a state.
pub(crate) fn freeze(state: State) -> Vec<Image> {
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
        for step in FIRST {
            apply(&pool, step).await;
        }
        pool.close().await.unwrap();
    });
    if state == State::Closed {
        return machine.images();
    }
    let before = run(async || {
        let (pool, _) = machine.open(2).await.unwrap();
        let (last, others) = SECOND.split_last().unwrap();
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

/// Takes back one cell of the last record, as a power cut would that came before its drive had written it.
fn tear(machine: &Machine, before: &[Image]) {
    let after = machine.images();
    for drive in (0..DRIVES).rev() {
        let pairs = before[drive].bytes.chunks(4096).zip(after[drive].bytes.chunks(4096));
        // Not the superblocks.
        let mut zones = pairs.enumerate().skip((4 << 20) / 4096);
        if let Some((block, (old, _))) = zones.find(|(_, (old, new))| old != new) {
            return machine.write(drive, block as u64 * 4096, old);
        }
    }
    panic!("the last step has written nothing");
}

async fn apply(pool: &Pool, step: Step) {
    let open = async |volume: &str| pool.open_volume(volume).await.unwrap().attach();
    match step {
        Step::Create { volume, size, sector } => {
            pool.create_volume(volume, size, sector, 1_700_000_001).await.unwrap();
        }
        Step::Delete { volume } => {
            pool.delete_volume(volume).await.unwrap();
            while pool.volumes().await.unwrap().iter().any(|info| info.name == volume) {
                Reactor::current().yield_now().await;
            }
        }
        Step::Resize { volume, size } => pool.resize_volume(volume, size, true).await.unwrap(),
        Step::Write { volume, offset, length, value } => {
            let data = Buffer::copy_of(&pattern(volume, offset, length, value));
            open(volume).await.write(offset, &data.span()).await.unwrap();
        }
        Step::Zero { volume, offset, length } => {
            open(volume).await.write_zeroes(offset, length).await.unwrap();
        }
        Step::Discard { volume, offset, length } => {
            open(volume).await.discard(offset, length).await.unwrap();
        }
        Step::Snapshot { name } => pool.snapshot_volume(name, 1_700_000_002).await.unwrap(),
        Step::Clone { snapshot, volume } => {
            pool.clone_volume(snapshot, volume, 1_700_000_003).await.unwrap();
        }
        Step::RollBack { snapshot } => {
            pool.roll_back_volume(snapshot, 1_700_000_004).await.unwrap();
            while pool.volumes().await.unwrap().iter().any(|info| info.deleting) {
                Reactor::current().yield_now().await;
            }
        }
        Step::Checkpoint => pool.checkpoint().await.unwrap(),
        Step::FailDrive { drive } => pool.fail_drive(drive).await.unwrap(),
    }
    // What it says in the event log is there before the next one.
    assert!(!pool.events(0, 1).await.unwrap().is_empty());
}
