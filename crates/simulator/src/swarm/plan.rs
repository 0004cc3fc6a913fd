//! The decisions that a seed makes before its run begins: hardware, settings, the mix of
//! operations, faults.
//!
//! Decisions added after many seeds had become regression tests are in [`Extras`] and use a
//! separate generator. Without the extras, old seeds keep their runs.

use engine::{RepairLimits, Tuning};

use crate::disk::Faults;
use crate::random::Random;
use crate::run::Setup;
use crate::sparse_layout::SparseLayout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Write,
    Read,
    Flush,
    Zero,
    Discard,
    Extents,
    Checkpoint,
    Create,
    Delete,
    Resize,
    SetQos,
    SetThick,
    LoseDrive,
    AddDrive,
    ReturnDrive,
    Evacuate,
    KeepDrive,
    Repair,
    LimitRepair,
    Scrub,
    Idle,
    Snapshot,
    ReadSnapshot,
    DeleteSnapshot,
    Clone,
    RollBack,
}

pub(super) const OPS: [(Op, u32); 26] = [
    (Op::Write, 40),
    (Op::Read, 20),
    (Op::Flush, 8),
    (Op::Zero, 6),
    (Op::Discard, 6),
    (Op::Extents, 3),
    (Op::Checkpoint, 2),
    (Op::Create, 2),
    (Op::Delete, 2),
    (Op::Resize, 2),
    (Op::SetQos, 1),
    (Op::SetThick, 1),
    (Op::LoseDrive, 1),
    (Op::AddDrive, 1),
    (Op::ReturnDrive, 1),
    (Op::Evacuate, 1),
    (Op::KeepDrive, 1),
    (Op::Repair, 1),
    (Op::LimitRepair, 1),
    (Op::Scrub, 1),
    (Op::Idle, 2),
    (Op::Snapshot, 2),
    (Op::ReadSnapshot, 2),
    (Op::DeleteSnapshot, 2),
    (Op::Clone, 1),
    (Op::RollBack, 1),
];

/// An operation of [`Extras`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    DeleteInUse,
    HangDrive,
    FillHost,
    Damage,
    LoseTooMany,
}

pub(super) const EXTRA_OPS: [(Extra, u32); 5] = [
    (Extra::DeleteInUse, 3),
    (Extra::HangDrive, 2),
    (Extra::FillHost, 2),
    (Extra::Damage, 1),
    (Extra::LoseTooMany, 1),
];

/// Optional additions to the plan's mix of operations.
#[derive(Clone, Debug)]
pub(super) struct Extras {
    /// One operation in this many is an extra one.
    pub(super) once_in: u64,
    pub(super) weights: Vec<u32>,
    /// Each opening has its own engine settings.
    pub(super) retunes: bool,
    /// Volumes have the maximum or the minimum size.
    pub(super) sizes_at_limits: bool,
    /// A closed pool may be opened again by the same process.
    pub(super) reopens: bool,
    /// At the end, two halves of the drives are opened separately, this many times each.
    pub(super) halves: Option<[u64; 2]>,
    /// The newest state is stored outside the drives, and openings with an older state are refused.
    pub(super) remembers: bool,
}

/// The plan of a seed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) weights: Vec<u32>,
    /// Drives that may misbehave or be lost at the start.
    pub(super) victims: Vec<usize>,
    pub(super) faults: Faults,
    pub(super) rounds: u64,
    pub(super) operations: u64,
    pub(super) workers: u64,
    /// Maximum size of a volume in bytes.
    pub(super) volume_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) stretch: SparseLayout,
    /// Days pass once in this many operations; 0 means never.
    pub(super) days_pass: u64,
    /// Days from one scrub to the next.
    pub(super) scrub_days: u64,
    /// The power is cut during the operations of a round, and operations continue until then. The
    /// cut never comes while the pool opens or after the last operation.
    pub(super) cut_at_work: bool,
    /// One write in this many is followed by a flush; 0 means none.
    pub(super) flush_after: u64,
    /// Maximum delay of a call between parts of the pool in nanoseconds; 0 means none.
    pub(super) call_delay: u64,
    pub(super) extras: Option<Extras>,
    /// One operation in this many is a compare-and-write or a copy from a snapshot; 0 means none.
    pub(super) offload_once_in: u64,
    /// One operation in this many takes snapshots of several volumes together; 0 means none.
    pub(super) group_once_in: u64,
}

impl Plan {
    /// Returns the number of drive losses that the scheme tolerates.
    pub(super) fn parity(&self) -> usize {
        self.setup.scheme.split_once('+').and_then(|(_, parity)| parity.parse().ok()).unwrap_or(0)
    }
}

/// Makes the plan of a seed. Decisions that were added later are drawn from `other`, so that old
/// seeds keep their runs.
pub(super) fn plan(random: &Random, other: &Random) -> Plan {
    let scheme = *random.choose(&["4+1", "1+1", "1+2", "2+2", "4+2", "3+0", "2+1", "4+1", "4+1", "3+3"]);
    let (data, parity) = scheme.split_once('+').unwrap_or(("1", "1"));
    let parity: usize = parity.parse().unwrap_or(0);
    let width = data.parse::<usize>().unwrap_or(1) + parity;
    let drives = width + usize::try_from(random.below(3)).unwrap_or(0);
    // The minimum size of a segment's zone.
    let least = if data == "1" { 128 << 10 } else { 64 << 10 };
    let zone_bytes = (*random.choose(&[64 << 10, 128 << 10, 256 << 10])).max(least);
    let zones = random.between(40, 160);
    let sizes = (0..drives).map(|_| (4 << 20) + zone_bytes * (zones + random.below(8)));
    let all_volatile = random.below(3);
    let volatile = (0..drives).map(|_| match all_volatile {
        0 => true,
        1 => false,
        _ => random.once_in(2),
    });
    let sizes: Vec<u64> = sizes.collect();
    let spares = (0..random.below(3)).map(|_| (4 << 20) + zone_bytes * random.between(8, 2 * zones));
    let mut setup = Setup {
        scheme: scheme.into(),
        drives: sizes,
        spares: spares.collect(),
        sectors: other.choose(&[vec![512], vec![4096], vec![512, 4096]]).clone(),
        volatile: volatile.collect(),
        zone_bytes,
        shards: u16::try_from(random.between(1, 3)).unwrap_or(1),
        tuning: Tuning {
            map_bytes: *random.choose(&[0, 1 << 20, 64 << 20]),
            records_in_flight: usize::try_from(random.between(1, 8)).unwrap_or(1),
            checkpoint_bytes: *random.choose(&[1 << 20, 4 << 20, 64 << 20]),
            repair: RepairLimits { paused: random.once_in(8), bytes_per_second: repair_rate(random) },
            retire_after: *other.choose(&[0, 1, 4, 32]),
            slowdown: 200,
        },
        latency: *random.choose(&[(20_000, 100_000), (1_000, 1_000_000), (5_000, 5_000)]),
        bytes_per_second: 0,
    };
    // Keeps most kinds of operations, turns some off, and may let one dominate.
    let weights = OPS.iter().map(|(op, weight)| {
        let off = !matches!(op, Op::Write | Op::Read) && random.once_in(3);
        if off {
            0
        } else if random.once_in(8) {
            weight * 10
        } else {
            *weight
        }
    });
    let rarely = |often: u64| if random.once_in(3) { often } else { 0 };
    let mut faults = Faults {
        lose_write: rarely(200),
        misdirect_write: rarely(300),
        rot: rarely(300),
        read_error: rarely(300),
        stall: rarely(100),
        fail_write: 0,
    };
    let mut victims: Vec<usize> = (0..drives).collect();
    while victims.len() > parity {
        let at = usize::try_from(random.below(victims.len() as u64)).unwrap_or(0);
        victims.remove(at);
    }
    let (days_pass, scrub_days) = (*other.choose(&[0, 20, 100]), *other.choose(&[0, 1, 30]));
    setup.tuning.slowdown = *other.choose(&[0, 150, 200, 200]);
    faults.fail_write = *other.choose(&[0, 0, 300, 3000]);
    let (cut_at_work, flush_after) = (other.once_in(2), *other.choose(&[0, 1, 4, 20]));
    let call_delay = *other.choose(&[0, 0, 20_000, 2_000_000]);
    Plan {
        weights: weights.collect(),
        setup,
        victims,
        faults,
        rounds: random.between(2, 6),
        operations: random.between(20, 250),
        workers: *random.choose(&[1, 2, 4, 16]),
        volume_bytes: *random.choose(&[256 << 10, 2 << 20, 12 << 20]),
        write_bytes: *random.choose(&[16 << 10, 128 << 10, 1 << 20]),
        stretch: SparseLayout::with_factor(*random.choose(&[1, 1, 64])),
        days_pass,
        scrub_days,
        cut_at_work,
        flush_after,
        call_delay,
        extras: None,
        offload_once_in: 0,
        group_once_in: 0,
    }
}

pub(super) fn repair_rate(random: &Random) -> u64 {
    *random.choose(&[0, 0, 1 << 20, 64 << 20])
}

/// Adds the decisions of the third generator. Most plans get some of them.
pub(super) fn add_extras(plan: &mut Plan, random: &Random) {
    if random.once_in(4) {
        return;
    }
    let excess = *random.choose(&[None, None, Some(Extra::Damage), Some(Extra::LoseTooMany)]);
    let weight = |(extra, weight): &(Extra, u32)| match extra {
        Extra::Damage | Extra::LoseTooMany if excess == Some(*extra) => *weight,
        Extra::Damage | Extra::LoseTooMany => 0,
        _ if random.once_in(2) => *weight,
        _ => 0,
    };
    let extras = Extras {
        weights: EXTRA_OPS.iter().map(weight).collect(),
        once_in: *random.choose(&[10, 40]),
        retunes: random.once_in(2),
        sizes_at_limits: random.once_in(3),
        reopens: random.once_in(2),
        halves: random.once_in(2).then(|| [random.between(1, 20), random.between(1, 20)]),
        remembers: random.once_in(2),
    };
    if excess == Some(Extra::LoseTooMany) {
        // Data that a drive lost or garbled earlier could not be distinguished from the losses of
        // the dead drives.
        plan.faults = Faults::default();
    }
    if extras.sizes_at_limits {
        plan.stretch = plan.stretch.up_to_size_limit(plan.volume_bytes);
    }
    plan.extras = Some(extras);
}

/// Draws the engine settings of one opening.
pub(super) fn tuning(random: &Random, planned: Tuning) -> Tuning {
    Tuning {
        map_bytes: *random.choose(&[0, 1 << 20, 64 << 20]),
        records_in_flight: usize::try_from(random.between(1, 8)).unwrap_or(1),
        checkpoint_bytes: *random.choose(&[1 << 20, 4 << 20, 64 << 20]),
        retire_after: *random.choose(&[0, 1, 4, 32]),
        slowdown: *random.choose(&[0, 150, 200]),
        ..planned
    }
}
