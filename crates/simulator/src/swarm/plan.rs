//! What a seed decides before its run begins: hardware, settings, the mix of operations, faults.

use engine::{RepairLimits, Tuning};

use crate::disk::Faults;
use crate::random::Random;
use crate::run::Setup;
use crate::stretch::Stretch;

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
    Limit,
    KeepRoom,
    LoseDrive,
    AddDrive,
    ReturnDrive,
    Evacuate,
    Keep,
    Repair,
    LimitRepair,
    Scrub,
    Rest,
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
    (Op::Limit, 1),
    (Op::KeepRoom, 1),
    (Op::LoseDrive, 1),
    (Op::AddDrive, 1),
    (Op::ReturnDrive, 1),
    (Op::Evacuate, 1),
    (Op::Keep, 1),
    (Op::Repair, 1),
    (Op::LimitRepair, 1),
    (Op::Scrub, 1),
    (Op::Rest, 2),
    (Op::Snapshot, 2),
    (Op::ReadSnapshot, 2),
    (Op::DeleteSnapshot, 2),
    (Op::Clone, 1),
    (Op::RollBack, 1),
];

/// A seed's plan.
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) weights: Vec<u32>,
    /// Drives that may misbehave or be lost to begin with.
    pub(super) victims: Vec<usize>,
    pub(super) faults: Faults,
    pub(super) rounds: u64,
    pub(super) operations: u64,
    pub(super) workers: u64,
    /// Bytes of a volume at most.
    pub(super) volume_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) stretch: Stretch,
    /// Days pass once in so many operations; 0 for never.
    pub(super) days_pass: u64,
    /// Days from one scrub to the next.
    pub(super) scrub_days: u64,
    /// The power is cut while there is work, and there is work until then: not while the pool opens, nor after the last operation.
    pub(super) cut_at_work: bool,
    /// A write is followed by a flush once in so many; 0 for never.
    pub(super) flush_after: u64,
    /// Nanoseconds that a call between parts of the pool takes at most; 0 for none.
    pub(super) apart: u64,
}

/// A seed's plan. Whatever came to be planned later is drawn from `other`, so that seeds keep what they had.
pub(super) fn plan(random: &Random, other: &Random) -> Plan {
    let scheme = *random.choose(&["4+1", "1+1", "1+2", "2+2", "4+2", "3+0", "2+1", "4+1", "4+1", "3+3"]);
    let (data, parity) = scheme.split_once('+').unwrap_or(("1", "1"));
    let parity: usize = parity.parse().unwrap_or(0);
    let width = data.parse::<usize>().unwrap_or(1) + parity;
    let drives = width + usize::try_from(random.below(3)).unwrap_or(0);
    // Not smaller than segments may be.
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
    // Most kinds of operations stay, some are switched off; one may dominate.
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
    let apart = *other.choose(&[0, 0, 20_000, 2_000_000]);
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
        stretch: Stretch(*random.choose(&[1, 1, 64])),
        days_pass,
        scrub_days,
        cut_at_work,
        flush_after,
        apart,
    }
}

pub(super) fn repair_rate(random: &Random) -> u64 {
    *random.choose(&[0, 0, 1 << 20, 64 << 20])
}
