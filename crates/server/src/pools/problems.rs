//! The problems of a pool in service: the risk of each, and the action that solves it.

use std::collections::BTreeSet;

use engine::{DriveStatus, LostRange, PoolStatus, RepairState};
use format::DriveState as Engine;
use format::limits::BLOCK_BYTES;

use super::watch::percent_used;
use api::Size;
use api::types::{OpenReport, PoolSpace, Problem};

/// Seconds for which read errors of a drive are reported after the last one: a week.
const REPORTED_FOR: u64 = 7 * 86_400;

/// Returns the problems of a pool in service, most severe first.
pub(super) fn problems_of(
    status: &PoolStatus,
    opened: &OpenReport,
    space: &PoolSpace,
    warn_at: &[u8],
    now: u64,
) -> Vec<Problem> {
    let mut problems: Vec<Problem> = lost_data(status).into_iter().collect();
    let name = &status.name;
    if let Some(failure) = &status.failure {
        problems.push(Problem {
            message: format!("writes are refused: {failure}. All flushed data is safe on the drives"),
            action: format!(
                "find the cause ('dmesg', power, cables), reconnect the drives, then run 'gabion pool close {name} --force' \
                 and 'gabion pool open {name}'"
            ),
        });
    }
    problems.extend(unsaved_nodes(status));
    problems.extend(uncertain_state(name, opened));
    problems.extend(unrecorded_state(status));
    problems.extend(lost_drives(status, opened));
    problems.extend(returning_drives(status));
    problems.extend(stuck_removals(status));
    let in_use = status.drives.iter().filter(|drive| drive.state.is_in_use());
    problems.extend(in_use.filter_map(|drive| drive_with_errors(status, drive, now)));
    problems.extend(unrepaired_damage(status));
    if space.free == 0 {
        problems.push(Problem {
            message: "the pool is full: writes that need new space fail; overwrites, reads, trims and deletes succeed".into(),
            action: format!(
                "trim in the guests ('fstrim -av'), delete volumes or snapshots ('gabion volume list {name} --snapshots'), or \
                 add a drive: 'gabion drive add {name} DRIVE'"
            ),
        });
    } else if let Some(threshold) = warn_at.iter().filter(|at| percent_used(space) >= **at).max() {
        let kept = if space.reserved > 0 {
            format!(", of which {} are reserved for thick volumes", Size(space.reserved))
        } else {
            String::new()
        };
        problems.push(Problem {
            message: format!(
                "{} % of the space is used{kept}; {} of {} are free (warning threshold {threshold} %, daemon.warn_at)",
                percent_used(space),
                Size(space.free),
                Size(space.capacity)
            ),
            action: format!(
                "trim in the guests ('fstrim -av'), delete volumes or snapshots ('gabion volume list {name} --snapshots'), or \
                 add a drive: 'gabion drive add {name} DRIVE'"
            ),
        });
    }
    problems
}

/// Returns a problem if the pool was opened in a state that may not be its newest.
fn uncertain_state(name: &str, opened: &OpenReport) -> Option<Problem> {
    opened.uncertain.then(|| Problem {
        message: "every drive had a damaged superblock copy when the pool was opened, as after a crash during an update of the \
                  superblocks; without such a crash, the newest changes may be lost"
            .into(),
        action: format!(
            "if the host did not crash, compare the newest data of each volume with backups, examine the drives with \
             'smartctl', and run 'gabion pool scrub {name}'"
        ),
    })
}

/// Returns a problem if map nodes are only in memory.
fn unsaved_nodes(status: &PoolStatus) -> Option<Problem> {
    let name = &status.name;
    (status.unsaved_nodes > 0).then(|| Problem {
        message: format!(
            "{} map nodes, which hold the places of data blocks, are only in memory: their copies on the drives are damaged, \
             and the pool is too full to store them again. A crash or a power cut loses the data below them",
            status.unsaved_nodes
        ),
        action: format!(
            "free space now: delete volumes or snapshots ('gabion volume list {name} --snapshots') or add a drive \
             ('gabion drive add {name} DRIVE'); the pool stores the nodes as soon as there is space. Do not stop the daemon before"
        ),
    })
}

/// Returns a problem if the daemon cannot record the newest state of the pool.
fn unrecorded_state(status: &PoolStatus) -> Option<Problem> {
    status.unrecorded.as_ref().map(|reason| Problem {
        message: format!(
            "the newest state of the pool is not recorded in the daemon's state directory ({reason}): after a restart, \
             older copies of the drives may be opened unnoticed"
        ),
        action: "free space in the file system of the state directory (daemon.state_dir) or repair it; the daemon retries".into(),
    })
}

/// Number of lost ranges that a problem lists.
const RANGES_NAMED: usize = 8;

/// Returns the problem for lost data, which comes first because only an administrator can restore
/// it.
fn lost_data(status: &PoolStatus) -> Option<Problem> {
    let bytes: u64 =
        status.lost.iter().map(|range| range.length).sum::<u64>() + status.lost_unlisted * BLOCK_BYTES;
    if bytes == 0 {
        return None;
    }
    let at_least = if status.lost_unlisted > 0 { "at least " } else { "" };
    let volumes: BTreeSet<&str> = status.lost.iter().map(|range| range.volume.as_str()).collect();
    let shared =
        if volumes.len() > 1 { ", counted in each volume and snapshot that contains them" } else { "" };
    let name = &status.name;
    let named = status.lost.iter().take(RANGES_NAMED).map(|LostRange { volume, offset, length }| {
        let volume = if volume.is_empty() { "the pool's catalogue" } else { volume };
        format!("{volume} at byte {offset} ({})", Size(*length))
    });
    let mut named: Vec<String> = named.collect();
    let more = status.lost.len().saturating_sub(named.len());
    if more > 0 || status.lost_unlisted > 0 {
        named.push(format!("and more; 'gabion pool status {name} --json' lists all known ranges"));
    }
    Some(Problem {
        message: format!(
            "{at_least}{} of data are lost{shared}, because more columns are damaged than scheme {} tolerates; reads of them \
             fail: {}",
            Size(bytes),
            status.scheme,
            named.join(", ")
        ),
        action: format!(
            "restore these ranges, or the files in them, from a backup: 'debugfs -R \"icheck BLOCK\"' (ext4) and 'xfs_bmap' \
             find the file of an offset in the volume's file system. Overwriting, trimming or deleting a range repairs it; \
             'gabion pool scrub {name}' finds further damage"
        ),
    })
}

fn lost_drives(status: &PoolStatus, opened: &OpenReport) -> Option<Problem> {
    let lost: Vec<String> = status
        .drives
        .iter()
        .filter(|drive| matches!(drive.state, Engine::Missing | Engine::Failed))
        .map(|drive| format!("{} ({})", drive.index, drive.path))
        .collect();
    if lost.is_empty() {
        return None;
    }
    let left = usize::from(status.scheme.parity()).saturating_sub(lost.len());
    let risk = match left {
        0 => "the failure of another drive stops the pool and loses data".to_owned(),
        1 => "the pool tolerates the failure of one more drive".to_owned(),
        more => format!("the pool tolerates the failure of {more} more drives"),
    };
    let (drives, are) = if lost.len() == 1 { ("drive", "is") } else { ("drives", "are") };
    let numbers: Vec<u16> =
        status.drives.iter().filter(|drive| drive.state.is_lost()).map(|drive| drive.index).collect();
    let served = if status.lost.is_empty() { "all data is still served" } else { "all other data is served" };
    let cause = match opened.shrunk.as_slice() {
        [] => "'dmesg' and 'smartctl' show the cause".to_owned(),
        shrunk => format!(
            "When the pool was opened, {} was smaller than when it joined, and a pool cannot use a drive that shrank",
            shrunk.join(", ")
        ),
    };
    Some(Problem {
        message: format!("{drives} {} {are} missing or failed: {served}, and {risk}", lost.join(", ")),
        action: format!("{}. {cause}", rebuild_action(status, &numbers)),
    })
}

fn listed(status: &PoolStatus, state: Engine) -> Vec<String> {
    let drives = status.drives.iter().filter(|drive| drive.state == state);
    drives.map(|drive| format!("{} ({})", drive.index, drive.path)).collect()
}

fn returning_drives(status: &PoolStatus) -> Option<Problem> {
    let back = listed(status, Engine::Returning);
    (!back.is_empty()).then(|| Problem {
        message: format!(
            "drive {} returned, and the writes that it missed are not rebuilt yet",
            back.join(", ")
        ),
        action: rebuild_action(status, &[]),
    })
}

/// Returns a problem for damage found by a scrub that cannot be repaired or is not repaired yet.
fn unrepaired_damage(status: &PoolStatus) -> Option<Problem> {
    let (scrub, name) = (&status.scrub, &status.name);
    let lost = if scrub.running { scrub.current.lost } else { scrub.last.lost };
    let stuck = status.repair.state != RepairState::Running;
    if lost > 0 {
        return Some(Problem {
            message: format!(
                "the scrub found {lost} rows with blocks that cannot be reconstructed: more columns are damaged than scheme {} tolerates",
                status.scheme
            ),
            action: format!(
                "restore these blocks from a backup: reads of them fail, and 'gabion check' lists them for a closed pool. \
                 Overwriting repairs them; the next scrub ('gabion pool scrub {name}') confirms it"
            ),
        });
    }
    let damaged = status.damaged_columns();
    (damaged > 0 && stuck).then(|| Problem {
        message: format!("damage in {damaged} columns of segments is not repaired yet"),
        action: rebuild_action(status, &[]),
    })
}

/// Returns the problem of a drive with read errors.
fn drive_with_errors(status: &PoolStatus, drive: &DriveStatus, now: u64) -> Option<Problem> {
    let (name, errors) = (&status.name, &drive.errors);
    let (index, path) = (drive.index, &drive.path);
    let ago = now.saturating_sub(errors.last);
    if errors.last == 0 || !drive.failing && ago > REPORTED_FOR {
        return None;
    }
    let counted = format!(
        "{} reads failed and {} returned wrong data, the last {}; all were answered from other drives",
        errors.unreadable,
        errors.wrong,
        how_long_ago(ago)
    );
    if !drive.failing {
        return Some(Problem {
            message: format!("drive {index} ({path}) has read errors: {counted}"),
            action: format!(
                "examine it with 'smartctl -a {path}' and 'dmesg'. A drive with errors in many places is removed automatically if \
                 the other drives have enough free space; 'gabion drive replace {name} {index} --with DRIVE' replaces it now"
            ),
        });
    }
    let message =
        format!("drive {index} ({path}) is failing: read errors in {} zones: {counted}", errors.zones);
    let action = if drive.state == Engine::Draining {
        format!("wait: the drive is being removed. {}", capitalized(&rebuild_action(status, &[])))
    } else if misses_columns(status) {
        format!(
            "wait: the drive is removed when the rebuild of the other drives is complete. {}",
            capitalized(&rebuild_action(status, &[]))
        )
    } else {
        format!(
            "replace it: 'gabion drive replace {name} {index} --with DRIVE'. It is not removed automatically because the other \
             drives are too few or too full. If it is not faulty, 'gabion drive remove {name} {index} --cancel' resets its error \
             counts"
        )
    };
    Some(Problem { message, action })
}

fn how_long_ago(seconds: u64) -> String {
    match seconds {
        0..120 => "just now".into(),
        120..7200 => format!("{} minutes ago", seconds / 60),
        7200..172_800 => format!("{} hours ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Returns the text as the start of a sentence.
fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// Returns true if segments may miss columns.
pub(super) fn misses_columns(status: &PoolStatus) -> bool {
    status.drives.iter().any(|drive| drive.state.counts_as_lost())
}

/// Returns a problem for removals of drives that make no progress.
fn stuck_removals(status: &PoolStatus) -> Option<Problem> {
    let removing = listed(status, Engine::Draining);
    let stuck = !matches!(status.repair.state, RepairState::Running | RepairState::Complete);
    (!removing.is_empty() && stuck).then(|| Problem {
        message: format!("the removal of drive {} makes no progress", removing.join(", ")),
        action: rebuild_action(status, &[]),
    })
}

/// Returns the action for columns that are missing or to be moved; `lost` are the numbers of the
/// missing and failed drives.
fn rebuild_action(status: &PoolStatus, lost: &[u16]) -> String {
    let (repair, name) = (&status.repair, &status.name);
    let (left, all) = (Size(repair.bytes_left), Size(repair.bytes_left + repair.bytes_done));
    match repair.state {
        RepairState::Complete => format!(
            "no action is required: all data is on the other drives. 'gabion drive add {name} DRIVE' adds a spare drive"
        ),
        RepairState::Running => format!("wait: the rebuild is running, {left} of {all} remain"),
        RepairState::Paused => {
            format!("resume the rebuild: 'gabion pool rebuild {name} --resume'; {left} of {all} remain")
        }
        RepairState::NeedsSpace => format!(
            "delete or trim data, or add a drive ('gabion drive add {name} DRIVE'): the other drives have no space for {left}"
        ),
        RepairState::NeedsDrive => {
            let number = lost.first().map_or("N".into(), u16::to_string);
            format!(
                "reconnect the drive and run 'gabion drive return {name} {number}', or replace it: 'gabion drive replace \
                 {name} {number} --with DRIVE'. {left} remain to be rebuilt and need another drive"
            )
        }
        RepairState::Lost => {
            "restore the damaged data from a backup: more drives are missing or damaged than the scheme tolerates".into()
        }
    }
}
