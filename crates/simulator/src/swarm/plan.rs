//! What a seed decides before its run begins: hardware, settings, the mix of operations, faults.
//!
//! What was added after many seeds had become regression tests is in [`Extras`], and is drawn from a generator of its own: without it, seeds
//! keep the runs that they had.

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

/// What a run may have besides the plan's mix of operations.
#[derive(Clone, Debug)]
pub(super) struct Extras {
    /// One operation in so many is one of these.
    pub(super) once_in: u64,
    pub(super) weights: Vec<u32>,
    /// Every opening has settings of its own.
    pub(super) retunes: bool,
    /// Volumes are as large as they may be, or as small.
    pub(super) sizes_at_limits: bool,
    /// A pool that was closed may be opened again by the same process.
    pub(super) reopens: bool,
    /// In the end two halves of the drives are opened apart from each other, so often each.
    pub(super) halves: Option<[u64; 2]>,
    /// The newest state is kept beside the drives, and openings of an older one are refused.
    pub(super) remembers: bool,
}

/// A seed's plan.
#[derive(Debug)]
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
    pub(super) call_delay: u64,
    pub(super) extras: Option<Extras>,
}

impl Plan {
    /// Drives that the scheme bears to lose.
    pub(super) fn parity(&self) -> usize {
        self.setup.scheme.split_once('+').and_then(|(_, parity)| parity.parse().ok()).unwrap_or(0)
    }
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
        stretch: Stretch::by(*random.choose(&[1, 1, 64])),
        days_pass,
        scrub_days,
        cut_at_work,
        flush_after,
        call_delay,
        extras: None,
    }
}

pub(super) fn repair_rate(random: &Random) -> u64 {
    *random.choose(&[0, 0, 1 << 20, 64 << 20])
}

/// Adds what is drawn from a third generator; most plans get some of it.
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
        // What a drive forgot or garbled before cannot be told from what is lost with the others.
        plan.faults = Faults::default();
    }
    if extras.sizes_at_limits {
        plan.stretch = plan.stretch.up_to_the_limit(plan.volume_bytes);
    }
    plan.extras = Some(extras);
}

/// Settings for one opening.
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
