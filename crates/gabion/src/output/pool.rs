//! Formatting of pools.

use api::Size;
use api::types::{
    OpenReport, Pool, PoolCounters, PoolSpace, PoolState, Rebuild, RebuildState, RecentLatency,
};

use super::drive::drives_of_pool;
use super::table::table;
use super::time::{format_duration, utc};
use super::word;

/// Formats pools as a table.
pub(crate) fn pools(pools: &[Pool]) -> String {
    if pools.is_empty() {
        return "no pools; 'gabion pool create' creates one, 'gabion pool open NAME --drives ...' opens one from its drives"
            .into();
    }
    let row = |pool: &Pool| {
        let space = |get: fn(&PoolSpace) -> u64| {
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

/// Returns the health of an open pool, or the state of any other pool.
fn state(pool: &Pool) -> String {
    match (pool.state, &pool.activity) {
        (PoolState::Open, _) => word(&pool.health),
        (PoolState::Changing, Some(activity)) => activity.clone(),
        (state, _) => word(&state),
    }
}

/// Formats the full status of pools.
pub(crate) fn pool_statuses(list: &[Pool]) -> String {
    if list.is_empty() {
        return pools(list);
    }
    list.iter().map(pool_status).collect::<Vec<_>>().join("\n")
}

fn pool_status(pool: &Pool) -> String {
    let mut text = format!("pool '{}': {}\n", pool.name, state(pool));
    for problem in &pool.problems {
        text.push_str(&format!("  ! {}\n    action: {}\n", problem.message, problem.action));
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
        if space.reserved > 0 {
            line("reserved", format!("{} of that for thick volumes", Size(space.reserved)));
        }
        line(
            "volumes",
            format!(
                "{}, {} provisioned, {} stored",
                space.volumes,
                Size(space.provisioned),
                Size(space.stored)
            ),
        );
    }
    if let Some(rebuild) = pool.rebuild.as_ref().filter(|rebuild| is_shown(rebuild)) {
        line("rebuild", self::rebuild(rebuild));
    }
    if let Some(scrub) = &pool.scrub {
        line("scrub", super::scrub::scrub(scrub));
    }
    if let Some(latency) = &pool.latency {
        line("latency", self::latency(latency));
    }
    if let Some(opened) = &pool.opened {
        line("opened", format!("{}: {}", utc(opened.time), opening(opened)));
    }
    if let Some(counters) = &pool.counters {
        line("since open", format_counters(counters));
    }
    text.push('\n');
    text.push_str(&drives_of_pool(&pool.drives));
    text
}

/// Returns false for a rebuild without work, settings and findings.
fn is_shown(rebuild: &Rebuild) -> bool {
    rebuild.state != RebuildState::Idle
        || rebuild.paused
        || rebuild.rate_limit > 0
        || rebuild.damaged_rows > 0
}

/// Formats the latency of client I/O during a rebuild or scrub.
#[allow(clippy::cast_precision_loss, reason = "microseconds of an operation")]
fn latency(latency: &RecentLatency) -> String {
    let millis = |micros: u64| micros as f64 / 1000.0;
    format!(
        "p99 {:.2} ms, p50 {:.2} ms of {} recent operation{}",
        millis(latency.p99_us),
        millis(latency.p50_us),
        latency.operations,
        plural(latency.operations)
    )
}

/// Formats the progress of a rebuild.
pub(crate) fn rebuild(rebuild: &Rebuild) -> String {
    let progress = || format!("{} % done, {} remaining", rebuild.percent, Size(rebuild.remaining));
    let mut parts = vec![match rebuild.state {
        RebuildState::Idle => "no missing data".to_owned(),
        RebuildState::Working => progress(),
        RebuildState::Paused => format!("paused: {}", progress()),
        RebuildState::NeedsDrive => format!("waiting for another drive: {}", progress()),
        RebuildState::NeedsSpace => format!("waiting for free space: {}", progress()),
        RebuildState::Lost => {
            "incomplete: more drives are missing or damaged than the scheme tolerates".to_owned()
        }
    }];
    if rebuild.bytes_per_second > 0 {
        parts.push(format!("{}/s", Size(rebuild.bytes_per_second)));
    }
    if let Some(seconds) = rebuild.seconds_left {
        #[allow(clippy::cast_precision_loss)]
        parts.push(format!("{} left", format_duration(seconds as f64)));
    }
    if rebuild.rate_limit > 0 {
        parts.push(format!("limited to {}/s", Size(rebuild.rate_limit)));
    }
    if rebuild.damaged_rows > 0 {
        parts.push(format!(
            "{} row{} not reconstructed: other columns are damaged",
            rebuild.damaged_rows,
            plural(rebuild.damaged_rows)
        ));
    }
    parts.join(", ")
}

/// Formats the settings of the rebuild.
pub(crate) fn rebuild_settings(rebuild: &Rebuild) -> String {
    let paused = if rebuild.paused { "paused, " } else { "" };
    match rebuild.rate_limit {
        0 => format!("{paused}no rate limit"),
        limit => format!("{paused}limited to {}/s", Size(limit)),
    }
}

/// Formats the failures that a scheme tolerates.
fn protection(scheme: &str) -> String {
    match scheme.split_once('+') {
        Some((_, "0")) => format!("{scheme}, none: the failure of any drive loses data"),
        Some((_, "1")) => format!("{scheme}, tolerates the failure of any one drive"),
        Some((_, parity)) => format!("{scheme}, tolerates the failure of any {parity} drives"),
        None => scheme.to_owned(),
    }
}

fn fill(space: &PoolSpace) -> String {
    let used = space.capacity.saturating_sub(space.free);
    let percent = (used * 100).checked_div(space.capacity).unwrap_or(100);
    format!("{percent} % used")
}

/// Formats the findings of an open.
pub(crate) fn opening(report: &OpenReport) -> String {
    let mut parts = Vec::new();
    if report.clean {
        parts.push("after a clean close".to_owned());
    } else {
        parts.push(format!(
            "recovered after a crash: {} log record{} replayed",
            report.replayed,
            plural(report.replayed)
        ));
        if report.discarded > 0 {
            parts.push(format!("{} incomplete and never acknowledged discarded", report.discarded));
        }
        if report.completed > 0 {
            parts.push(format!("{} block{} completed", report.completed, plural(report.completed)));
        }
    }
    // A drive that shrank counts as missing, and is named below with its sizes.
    let shrank = |path: &String| report.shrunk.iter().any(|shrunk| shrunk.starts_with(&format!("{path} (")));
    let missing: Vec<String> = report.missing.iter().filter(|path| !shrank(path)).cloned().collect();
    if !missing.is_empty() {
        parts.push(format!("without {}", missing.join(", ")));
    }
    if !report.returned.is_empty() {
        parts.push(format!("{} returned", report.returned.join(", ")));
    }
    if !report.stale.is_empty() {
        parts.push(format!("{} outdated and rebuilt", report.stale.join(", ")));
    }
    if !report.shrunk.is_empty() {
        parts.push(format!("without {}, smaller than before", report.shrunk.join(", ")));
    }
    if !report.copies.is_empty() {
        parts.push(format!("without {}, a copy of another drive", report.copies.join(", ")));
    }
    if !report.damaged_superblocks.is_empty() {
        parts.push(format!(
            "damaged superblock copies rewritten on {}",
            report.damaged_superblocks.join(", ")
        ));
    }
    parts.push(format!("in {}", format_duration(report.seconds)));
    parts.join(", ")
}

fn format_counters(counters: &PoolCounters) -> String {
    const BLOCK: u64 = 4096;
    let user = counters.user_blocks;
    let own = counters.map_blocks + counters.freeing_blocks + counters.moved_blocks + counters.header_blocks;
    let redundant = counters.padding_blocks + counters.parity_blocks;
    let mut parts = vec![format!("{} written by volumes", Size(user * BLOCK))];
    if user > 0 {
        let all = user + own + redundant;
        parts.push(format!(
            "{} to the drives ({}.{:02} times)",
            Size(all * BLOCK),
            all / user,
            all * 100 / user % 100
        ));
    }
    parts.push(format!("{} checkpoint{}", counters.checkpoints, plural(counters.checkpoints)));
    if counters.checkpoints_refused > 0 {
        parts.push(format!("{} postponed for lack of space", counters.checkpoints_refused));
    }
    parts.push(format!("map {} in memory", Size(counters.map_bytes)));
    if counters.repaired_blocks > 0 {
        parts.push(format!(
            "{} damaged block{} repaired",
            counters.repaired_blocks,
            plural(counters.repaired_blocks)
        ));
    }
    parts.join(", ")
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
