//! Pools.

use api::Size;
use api::types::{Counters, OpenReport, Pool, PoolState, Repair, RepairState, Space, UsersLately};

use super::drive::drives_of_pool;
use super::table::table;
use super::time::{length, utc};
use super::word;

/// A list of pools.
pub(crate) fn pools(pools: &[Pool]) -> String {
    if pools.is_empty() {
        return "no pools; 'gabion pool create' makes one, 'gabion pool open NAME --drives ...' opens one from its drives"
            .into();
    }
    let row = |pool: &Pool| {
        let space = |get: fn(&Space) -> u64| {
            pool.space.as_ref().map_or("-".into(), |space| Size(get(space)).to_string())
        };
        let volumes = pool.space.as_ref().map_or("-".into(), |space| space.volumes.to_string());
        vec![
            pool.name.clone(),
            state(pool),
            pool.scheme.clone().unwrap_or_else(|| "-".into()),
            pool.drives.len().to_string(),
            space(|space| space.capacity),
            space(|space| space.free),
            volumes,
        ]
    };
    table(&["POOL", "STATE", "SCHEME", ">DRIVES", ">CAPACITY", ">FREE", ">VOLUMES"], pools.iter().map(row))
}

/// Health where there is any, else why there is none.
fn state(pool: &Pool) -> String {
    match (pool.state, &pool.doing) {
        (PoolState::Open, _) => word(&pool.health),
        (PoolState::Changing, Some(doing)) => doing.clone(),
        (state, _) => word(&state),
    }
}

/// Pools in full.
pub(crate) fn pool_statuses(list: &[Pool]) -> String {
    if list.is_empty() {
        return pools(list);
    }
    list.iter().map(pool_status).collect::<Vec<_>>().join("\n")
}

fn pool_status(pool: &Pool) -> String {
    let mut text = format!("pool '{}': {}\n", pool.name, state(pool));
    for problem in &pool.problems {
        text.push_str(&format!("  ! {}\n    to do: {}\n", problem.message, problem.action));
    }
    text.push('\n');
    let mut line = |title: &str, value: String| text.push_str(&format!("{title:<12}{value}\n"));
    if let Some(scheme) = &pool.scheme {
        let shards =
            pool.shards.map_or_else(String::new, |shards| format!("; {shards} shard{}", plural(shards)));
        line("protection", format!("{}{shards}", protection(scheme)));
    }
    if let Some(id) = &pool.id {
        line("id", id.clone());
    }
    if let Some(space) = &pool.space {
        line("space", format!("{} of {} free, {}", Size(space.free), Size(space.capacity), fill(space)));
        if space.promised > 0 {
            line("kept", format!("{} of that for what thick volumes do not store yet", Size(space.promised)));
        }
        line(
            "volumes",
            format!(
                "{}, {} in size altogether, {} stored",
                space.volumes,
                Size(space.provisioned),
                Size(space.stored)
            ),
        );
    }
    if let Some(repair) = pool.repair.as_ref().filter(|repair| is_shown(repair)) {
        line("repair", self::repair(repair));
    }
    if let Some(scrub) = &pool.scrub {
        line("scrub", super::scrub::scrub(scrub));
    }
    if let Some(users) = &pool.users {
        line("users", self::users(users));
    }
    if let Some(opened) = &pool.opened {
        line("opened", format!("{}: {}", utc(opened.at), opening(opened)));
    }
    if let Some(counters) = &pool.counters {
        line("since then", counted(counters));
    }
    text.push('\n');
    text.push_str(&drives_of_pool(&pool.drives));
    text
}

/// Nothing is said of repair that has nothing to do and found nothing.
fn is_shown(repair: &Repair) -> bool {
    repair.state != RepairState::Idle || repair.paused || repair.limit > 0 || repair.damaged_rows > 0
}

/// What users have of the pool while it is at work, in words.
#[allow(clippy::cast_precision_loss, reason = "microseconds of an operation")]
fn users(users: &UsersLately) -> String {
    let millis = |micros: u64| micros as f64 / 1000.0;
    format!(
        "p99 {:.2} ms, p50 {:.2} ms beside that, of {} operation{} lately",
        millis(users.p99_us),
        millis(users.p50_us),
        users.operations,
        plural(users.operations)
    )
}

/// How far repair is, in words.
pub(crate) fn repair(repair: &Repair) -> String {
    let progress = || format!("{} % done, {} left", repair.percent, Size(repair.left));
    let mut words = vec![match repair.state {
        RepairState::Idle => "nothing is missing".to_owned(),
        RepairState::Working => progress(),
        RepairState::Paused => format!("paused: {}", progress()),
        RepairState::NeedsDrive => format!("waits for another drive: {}", progress()),
        RepairState::NeedsSpace => format!("waits for free space: {}", progress()),
        RepairState::Lost => "some of it cannot be computed: more is lost than the scheme bears".to_owned(),
    }];
    if repair.bytes_per_second > 0 {
        words.push(format!("{} a second", Size(repair.bytes_per_second)));
    }
    if let Some(seconds) = repair.seconds_left {
        #[allow(clippy::cast_precision_loss)]
        words.push(format!("{} to go", length(seconds as f64)));
    }
    if repair.limit > 0 {
        words.push(format!("limited to {} a second", Size(repair.limit)));
    }
    if repair.damaged_rows > 0 {
        words.push(format!(
            "{} row{} could not be computed: other drives were damaged there as well",
            repair.damaged_rows,
            plural(repair.damaged_rows)
        ));
    }
    words.join(", ")
}

/// How fast repair may go, in words.
pub(crate) fn repair_limits(repair: &Repair) -> String {
    let paused = if repair.paused { "paused, " } else { "" };
    match repair.limit {
        0 => format!("{paused}as fast as the drives allow"),
        limit => format!("{paused}at most {} a second", Size(limit)),
    }
}

/// What a scheme bears, in words.
fn protection(scheme: &str) -> String {
    match scheme.split_once('+') {
        Some((_, "0")) => format!("{scheme}, none: the loss of any drive loses data"),
        Some((_, "1")) => format!("{scheme}, bears the loss of any one drive"),
        Some((_, parity)) => format!("{scheme}, bears the loss of any {parity} drives"),
        None => scheme.to_owned(),
    }
}

fn fill(space: &Space) -> String {
    let used = space.capacity.saturating_sub(space.free);
    let percent = (used * 100).checked_div(space.capacity).unwrap_or(100);
    format!("{percent} % taken")
}

/// What an opening found, in words.
pub(crate) fn opening(report: &OpenReport) -> String {
    let mut words = Vec::new();
    if report.clean {
        words.push("it had been closed in order".to_owned());
    } else {
        words.push(format!(
            "recovered: it had not been closed in order; {} record{} replayed",
            report.replayed,
            plural(report.replayed)
        ));
        if report.dropped > 0 {
            words.push(format!("{} cut off by the crash and never acknowledged", report.dropped));
        }
        if report.completed > 0 {
            words.push(format!("{} block{} completed", report.completed, plural(report.completed)));
        }
    }
    if !report.missing.is_empty() {
        words.push(format!("without {}", report.missing.join(", ")));
    }
    if !report.returned.is_empty() {
        words.push(format!("{} back again", report.returned.join(", ")));
    }
    if !report.stale.is_empty() {
        words.push(format!("{} held an old copy of itself and is rebuilt", report.stale.join(", ")));
    }
    if !report.shrunk.is_empty() {
        words.push(format!("without {}, smaller than before", report.shrunk.join(", ")));
    }
    if !report.copies.is_empty() {
        words.push(format!("without {}, a copy of another drive", report.copies.join(", ")));
    }
    if !report.damaged_superblocks.is_empty() {
        words.push(format!(
            "damaged superblock copies rewritten on {}",
            report.damaged_superblocks.join(", ")
        ));
    }
    words.push(format!("in {}", length(report.seconds)));
    words.join(", ")
}

fn counted(counters: &Counters) -> String {
    const BLOCK: u64 = 4096;
    let user = counters.user_blocks;
    let own = counters.map_blocks + counters.freeing_blocks + counters.moved_blocks + counters.header_blocks;
    let redundant = counters.padding_blocks + counters.parity_blocks;
    let mut words = vec![format!("{} written by volumes", Size(user * BLOCK))];
    if user > 0 {
        let all = user + own + redundant;
        words.push(format!(
            "{} to the drives ({}.{:02} times)",
            Size(all * BLOCK),
            all / user,
            all * 100 / user % 100
        ));
    }
    words.push(format!("{} checkpoint{}", counters.checkpoints, plural(counters.checkpoints)));
    if counters.checkpoints_refused > 0 {
        words.push(format!(
            "{} without space for {}",
            counters.checkpoints_refused,
            if counters.checkpoints_refused == 1 { "it" } else { "them" }
        ));
    }
    words.push(format!("map {} in memory", Size(counters.map_bytes)));
    if counters.repaired_blocks > 0 {
        words.push(format!(
            "{} block{} given back by other drives",
            counters.repaired_blocks,
            plural(counters.repaired_blocks)
        ));
    }
    words.join(", ")
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
