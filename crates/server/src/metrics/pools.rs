//! Metrics of pools and their drives.

use api::types::{DriveState, Health, Pool, PoolCounters, PoolDrive, PoolSpace, PoolState, RebuildState};
use format::limits::BLOCK_BYTES;
use prometheus_client::registry::Unit;

use super::family::{Labels, MetricFamily, Samples};

/// Number of the values of an enum and their API names.
fn states<T: serde::Serialize + PartialEq>(all: &[T], current: &T) -> Vec<(String, f64)> {
    let name = |value: &T| serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned));
    let state = |value: &T| (name(value).unwrap_or_default(), f64::from(u8::from(value == current)));
    all.iter().map(state).collect()
}

fn of_pool(pool: &Pool) -> Labels {
    vec![("pool", pool.name.clone())]
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

fn blocks(count: u64) -> f64 {
    number(count * BLOCK_BYTES)
}

/// One value of each pool that has it.
fn gauge(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    pools: &[Pool],
    value: impl Fn(&Pool) -> Option<f64>,
) -> MetricFamily {
    let samples = pools.iter().filter_map(|pool| Some((of_pool(pool), value(pool)?))).collect();
    MetricFamily { name, help, unit, samples: Samples::Gauge(samples) }
}

/// One counter of each open pool.
fn counter(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    pools: &[Pool],
    value: impl Fn(&PoolCounters) -> f64,
) -> MetricFamily {
    let sample = |pool: &Pool| Some((of_pool(pool), value(pool.counters.as_ref()?)));
    MetricFamily { name, help, unit, samples: Samples::Counter(pools.iter().filter_map(sample).collect()) }
}

/// A gauge with a label for each value of an enum: 1 for the current one.
fn state_set(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    pools: &[Pool],
    states: impl Fn(&Pool) -> Vec<(String, f64)>,
) -> MetricFamily {
    let sample = |pool: &Pool, state: String| vec![("pool", pool.name.clone()), (label, state)];
    let of_one =
        |pool: &Pool| states(pool).into_iter().map(|(state, value)| (sample(pool, state), value)).collect();
    let samples = pools.iter().flat_map(|pool| -> Vec<_> { of_one(pool) }).collect();
    MetricFamily { name, help, unit: None, samples: Samples::Gauge(samples) }
}

/// Returns the families of the pools.
pub(super) fn families(pools: &[Pool]) -> Vec<MetricFamily> {
    let mut all = health(pools);
    all.extend(space(pools));
    all.extend(log(pools));
    all.extend(background(pools));
    all.extend(drives(pools));
    all
}

fn health(pools: &[Pool]) -> Vec<MetricFamily> {
    use Health::{DataLost, Degraded, DriveFailing, Failed, Healthy, Rebuilding, Unknown};
    const ALL: [Health; 7] = [Healthy, DriveFailing, Rebuilding, Degraded, DataLost, Failed, Unknown];
    const STATES: [PoolState; 4] =
        [PoolState::Open, PoolState::Changing, PoolState::Closed, PoolState::Unavailable];
    vec![
        state_set("gabion_pool_state", "State of the pool: 1 for the current one", "state", pools, |pool| {
            states(&STATES, &pool.state)
        }),
        state_set(
            "gabion_pool_health",
            "Health of the pool: 1 for the current one",
            "health",
            pools,
            |pool| states(&ALL, &pool.health),
        ),
        gauge("gabion_pool_problems", "Number of problems that need an action", None, pools, |pool| {
            Some(number(pool.problems.len() as u64))
        }),
        gauge(
            "gabion_pool_lost_ranges",
            "Number of ranges of volumes and snapshots whose data is lost",
            None,
            pools,
            |pool| Some(number(pool.lost.len() as u64)),
        ),
    ]
}

fn space(pools: &[Pool]) -> Vec<MetricFamily> {
    let one = |name, help, value: fn(&PoolSpace) -> u64| {
        gauge(name, help, Some(Unit::Bytes), pools, |pool| Some(number(value(pool.space.as_ref()?))))
    };
    vec![
        one("gabion_pool_raw", "Bytes of the drives in use that can hold data and parity", |space| space.raw),
        one("gabion_pool_capacity", "User data that fits into the pool", |space| space.capacity),
        one("gabion_pool_free", "User data that can still be written", |space| space.free),
        one("gabion_pool_reserved", "Space reserved for thick volumes and not yet written", |space| {
            space.reserved
        }),
        one("gabion_pool_stored", "Data that volumes and snapshots store", |space| space.stored),
        one("gabion_pool_provisioned", "Sum of the sizes of all volumes", |space| space.provisioned),
        gauge("gabion_pool_volumes", "Number of volumes", None, pools, |pool| {
            Some(number(pool.space.as_ref()?.volumes))
        }),
    ]
}

fn log(pools: &[Pool]) -> Vec<MetricFamily> {
    let written = |pool: &Pool| -> Option<Vec<(Labels, f64)>> {
        let counters = pool.counters.as_ref()?;
        let causes = [
            ("user", counters.user_blocks),
            ("map", counters.map_blocks),
            ("cleaner", counters.moved_blocks),
            ("header", counters.header_blocks),
            ("padding", counters.padding_blocks),
            ("parity", counters.parity_blocks),
            ("catalogue", counters.freeing_blocks),
        ];
        let sample = |(cause, count): (&str, u64)| {
            (vec![("pool", pool.name.clone()), ("cause", cause.to_owned())], blocks(count))
        };
        Some(causes.into_iter().map(sample).collect())
    };
    let segments = |pool: &Pool| -> Option<Vec<(Labels, f64)>> {
        let fullness = &pool.counters.as_ref()?.segments_by_fullness;
        let name = |tenth: usize| if tenth == 0 { "empty".to_owned() } else { format!("{}0%", tenth) };
        let sample = |(tenth, count): (usize, &u64)| {
            (vec![("pool", pool.name.clone()), ("live", name(tenth))], number(*count))
        };
        Some(fullness.iter().enumerate().map(sample).collect())
    };
    let bytes = || Some(Unit::Bytes);
    vec![
        MetricFamily {
            name: "gabion_pool_written",
            help: "Bytes written to the drives since the pool was opened, by cause; the sum divided by the cause \
                   'user' is the write amplification",
            unit: bytes(),
            samples: Samples::Counter(pools.iter().filter_map(written).flatten().collect()),
        },
        MetricFamily {
            name: "gabion_pool_segments",
            help: "Full segments by their share of live data: empty ones wait for a checkpoint",
            unit: None,
            samples: Samples::Gauge(pools.iter().filter_map(segments).flatten().collect()),
        },
        counter("gabion_pool_records", "Log records since the pool was opened", None, pools, |counters| {
            number(counters.records)
        }),
        counter(
            "gabion_pool_checkpoints",
            "Checkpoints since the pool was opened",
            None,
            pools,
            |counters| number(counters.checkpoints),
        ),
        counter(
            "gabion_pool_checkpoints_refused",
            "Checkpoints that failed for lack of space",
            None,
            pools,
            |counters| number(counters.checkpoints_refused),
        ),
        counter(
            "gabion_pool_repaired",
            "Bytes reconstructed from other columns although their own drive is in use",
            bytes(),
            pools,
            |counters| blocks(counters.repaired_blocks),
        ),
        gauge("gabion_pool_map_memory", "Memory of the block map", bytes(), pools, |pool| {
            Some(number(pool.counters.as_ref()?.map_bytes))
        }),
        gauge(
            "gabion_pool_map_dirty",
            "Memory of the block map that is not yet written to the drives",
            bytes(),
            pools,
            |pool| Some(number(pool.counters.as_ref()?.map_dirty_bytes)),
        ),
    ]
}

fn background(pools: &[Pool]) -> Vec<MetricFamily> {
    const STATES: [RebuildState; 6] = [
        RebuildState::Idle,
        RebuildState::Working,
        RebuildState::Paused,
        RebuildState::NeedsDrive,
        RebuildState::NeedsSpace,
        RebuildState::Lost,
    ];
    let (bytes, seconds) = (|| Some(Unit::Bytes), || Some(Unit::Seconds));
    vec![
        state_set(
            "gabion_pool_rebuild_state",
            "State of the rebuild: 1 for the current one",
            "state",
            pools,
            |pool| pool.rebuild.as_ref().map_or(Vec::new(), |rebuild| states(&STATES, &rebuild.state)),
        ),
        gauge(
            "gabion_pool_rebuild_remaining",
            "Bytes that the rebuild still has to write",
            bytes(),
            pools,
            |pool| Some(number(pool.rebuild.as_ref()?.remaining)),
        ),
        gauge("gabion_pool_rebuild_done", "Bytes written since the rebuild began", bytes(), pools, |pool| {
            Some(number(pool.rebuild.as_ref()?.done))
        }),
        gauge("gabion_pool_scrub_running", "1 while a scrub runs", None, pools, |pool| {
            Some(f64::from(u8::from(pool.scrub.as_ref()?.current.is_some())))
        }),
        gauge(
            "gabion_pool_scrub_remaining",
            "Bytes that the scrub still has to read",
            bytes(),
            pools,
            |pool| Some(number(pool.scrub.as_ref()?.remaining)),
        ),
        gauge(
            "gabion_pool_scrub_interval",
            "Interval of scrubs; 0 for scrubs on request",
            seconds(),
            pools,
            |pool| Some(number(pool.scrub.as_ref()?.every)),
        ),
        gauge(
            "gabion_pool_scrub_finished_timestamp",
            "Time of the end of the last complete scrub, since 1970",
            seconds(),
            pools,
            |pool| pool.scrub.as_ref()?.last.as_ref()?.finished.map(number),
        ),
        gauge(
            "gabion_pool_scrub_damaged_blocks",
            "Damaged blocks that the last scrub found",
            None,
            pools,
            |pool| Some(number(pool.scrub.as_ref()?.last.as_ref()?.damaged)),
        ),
        gauge(
            "gabion_pool_scrub_lost_rows",
            "Rows that the last scrub could not reconstruct",
            None,
            pools,
            |pool| Some(number(pool.scrub.as_ref()?.last.as_ref()?.lost)),
        ),
    ]
}

pub(super) fn of_drive(drive: &PoolDrive) -> Option<Labels> {
    Some(vec![("pool", drive.pool.clone()), ("drive", drive.index?.to_string())])
}

fn drives(pools: &[Pool]) -> Vec<MetricFamily> {
    use DriveState::{Failed, Missing, Online, Removed, Removing, Returning, Unknown};
    const ALL: [DriveState; 7] = [Online, Removing, Returning, Missing, Failed, Removed, Unknown];
    let all = || pools.iter().flat_map(|pool| &pool.drives);
    let one = |value: fn(&PoolDrive) -> Option<u64>| -> Vec<(Labels, f64)> {
        all().filter_map(|drive| Some((of_drive(drive)?, number(value(drive)?)))).collect()
    };
    let state = |drive: &PoolDrive| -> Option<Vec<(Labels, f64)>> {
        let labels = of_drive(drive)?;
        let with = |(state, value)| ([labels.clone(), vec![("state", state)]].concat(), value);
        Some(states(&ALL, &drive.state).into_iter().map(with).collect())
    };
    let info = |drive: &PoolDrive| {
        let id = drive.id.clone().unwrap_or_default();
        Some([of_drive(drive)?, vec![("path", drive.path.clone()), ("id", id)]].concat())
    };
    let family = |name, help, unit, samples| MetricFamily { name, help, unit, samples };
    let bytes = || Some(Unit::Bytes);
    vec![
        family(
            "gabion_drive",
            "Path and identifier of the drive",
            None,
            Samples::Info(all().filter_map(info).collect()),
        ),
        family(
            "gabion_drive_state",
            "State of the drive: 1 for the current one",
            None,
            Samples::Gauge(all().filter_map(state).flatten().collect()),
        ),
        family(
            "gabion_drive_size",
            "Capacity of the drive",
            bytes(),
            Samples::Gauge(one(|drive| drive.size)),
        ),
        family(
            "gabion_drive_used",
            "Bytes of the drive that the pool uses or reserves for itself",
            bytes(),
            Samples::Gauge(one(|drive| drive.used)),
        ),
        family(
            "gabion_drive_read_errors",
            "Reads that failed or returned wrong data since the pool was created",
            None,
            Samples::Counter(one(|drive| drive.read_errors)),
        ),
        family(
            "gabion_drive_checksum_errors",
            "Reads among the read errors that returned wrong data",
            None,
            Samples::Counter(one(|drive| drive.checksum_errors)),
        ),
        family(
            "gabion_drive_failing",
            "1 if the drive has read errors in so many zones that it must be replaced",
            None,
            Samples::Gauge(one(|drive| drive.failing.map(u64::from))),
        ),
    ]
}
