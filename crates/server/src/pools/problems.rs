//! What is wrong with a pool in service, in words: what it means, what is at risk, and what to do.

use engine::{DriveStatus, LostRange, PoolStatus, RepairState};
use format::DriveState as Engine;
use format::limits::BLOCK_BYTES;

use super::watch::percent_taken;
use api::Size;
use api::types::{OpenReport, PoolSpace, Problem};

/// Seconds for which a drive's errors are shown after the last: a week.
const SHOWN_FOR: u64 = 7 * 86_400;

/// What is wrong with a pool in service, worst first: what it means, and what to do.
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
            message: format!("writes are refused: {failure}. What was flushed before is safe on the drives"),
            action: format!(
                "find out why the drives were lost ('dmesg', power, cables), bring them back, then 'gabion pool close \
                 {name} --force' and 'gabion pool open {name}'"
            ),
        });
    }
    problems.extend(uncertain_state(name, opened));
    problems.extend(lost_drives(status, opened));
    problems.extend(returning_drives(status));
    problems.extend(leaving_drives(status));
    let in_use = status.drives.iter().filter(|drive| drive.state.is_in_use());
    problems.extend(in_use.filter_map(|drive| erring_drive(status, drive, now)));
    problems.extend(unhealed_damage(status));
    if space.free == 0 {
        problems.push(Problem {
            message: "the pool is full: writes that need more room fail; overwriting, reads, trims and deletes go on".into(),
            action: format!(
                "trim in the guests ('fstrim -av'), delete volumes or snapshots ('gabion volume list {name} --snapshots'), or \
                 add a drive: 'gabion drive add {name} DRIVE'"
            ),
        });
    } else if let Some(threshold) = warn_at.iter().filter(|at| percent_taken(space) >= **at).max() {
        let kept = if space.reserved > 0 {
            format!(", {} of that kept for thick volumes", Size(space.reserved))
        } else {
            String::new()
        };
        problems.push(Problem {
            message: format!(
                "the pool fills up: {} of {} are free, {} % are taken{kept}, and daemon.warn_at says to tell from {threshold} % on",
                Size(space.free),
                Size(space.capacity),
                percent_taken(space)
            ),
            action: format!(
                "trim in the guests ('fstrim -av'), delete volumes or snapshots ('gabion volume list {name} --snapshots'), or \
                 add a drive: 'gabion drive add {name} DRIVE'"
            ),
        });
    }
    problems
}

/// The pool was opened from a state that may not have been its newest.
fn uncertain_state(name: &str, opened: &OpenReport) -> Option<Problem> {
    opened.uncertain.then(|| Problem {
        message: "every drive showed a damaged copy of its superblock when the pool was opened: a crash while superblocks were written \
                  leaves that; if there was none, the newest changes may be lost"
            .into(),
        action: format!(
            "if the host did not crash: check the newest data of each volume against backups, look at 'smartctl' for the drives, and \
             scrub the pool: 'gabion pool scrub {name}'"
        ),
    })
}

/// Ranges of volumes that are named in one problem.
const RANGES_NAMED: usize = 8;

/// Data that nothing gives back: named first, because nothing but a person can do something about it.
fn lost_data(status: &PoolStatus) -> Option<Problem> {
    let bytes: u64 =
        status.lost.iter().map(|range| range.length).sum::<u64>() + status.lost_unlisted * BLOCK_BYTES;
    if bytes == 0 {
        return None;
    }
    let name = &status.name;
    let named = status.lost.iter().take(RANGES_NAMED).map(|LostRange { volume, offset, length }| {
        let volume = if volume.is_empty() { "the pool's catalogue" } else { volume };
        format!("{volume} at byte {offset} ({})", Size(*length))
    });
    let mut named: Vec<String> = named.collect();
    let more = status.lost.len().saturating_sub(named.len());
    if more > 0 || status.lost_unlisted > 0 {
        named.push(format!("and more: 'gabion pool status {name} --json' lists all that are known"));
    }
    Some(Problem {
        message: format!(
            "{} of data are lost, more columns are damaged than scheme {} makes up for; reads of them fail: {}",
            Size(bytes),
            status.scheme,
            named.join(", ")
        ),
        action: format!(
            "restore these ranges from a backup, or the files that use them: inside the volume's file system, 'debugfs -R \"icheck \
             BLOCK\"' (ext4) or 'xfs_bmap' names the file of an offset. A range that is overwritten, trimmed or deleted is sound \
             again; 'gabion pool scrub {name}' looks for more"
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
        0 => "the next loss of a drive stops the pool and loses data".to_owned(),
        1 => "the pool bears the loss of one more".to_owned(),
        more => format!("the pool bears the loss of {more} more"),
    };
    let (drives, are) = if lost.len() == 1 { ("drive", "is") } else { ("drives", "are") };
    let numbers: Vec<u16> =
        status.drives.iter().filter(|drive| drive.state.is_lost()).map(|drive| drive.index).collect();
    let served = if status.lost.is_empty() { "all data is still served" } else { "all other data is served" };
    let why = match opened.shrunk.as_slice() {
        [] => "Look at 'dmesg' and 'smartctl' for why it was lost".to_owned(),
        shrunk => format!(
            "When the pool was opened, {} was smaller than when it joined: a drive must not shrink",
            shrunk.join(", ")
        ),
    };
    Some(Problem {
        message: format!("{drives} {} {are} lost: {served}, and {risk}", lost.join(", ")),
        action: format!("{}. {why}", repair_of(status, &numbers)),
    })
}

fn listed(status: &PoolStatus, state: Engine) -> Vec<String> {
    let those = status.drives.iter().filter(|drive| drive.state == state);
    those.map(|drive| format!("{} ({})", drive.index, drive.path)).collect()
}

fn returning_drives(status: &PoolStatus) -> Option<Problem> {
    let back = listed(status, Engine::Returning);
    (!back.is_empty()).then(|| Problem {
        message: format!("drive {} was lost and is back: what it missed is not there yet", back.join(", ")),
        action: repair_of(status, &[]),
    })
}

/// What a scrub found and nothing gives back, or is not written anew yet.
fn unhealed_damage(status: &PoolStatus) -> Option<Problem> {
    let (scrub, name) = (&status.scrub, &status.name);
    let lost = if scrub.running { scrub.current.lost } else { scrub.last.lost };
    let stuck = !matches!(status.repair.state, RepairState::Working | RepairState::Whole);
    if lost > 0 {
        return Some(Problem {
            message: format!(
                "the scrub found {lost} rows with blocks that cannot be computed: more was damaged than scheme {} bears",
                status.scheme
            ),
            action: format!(
                "find out what lives there: reading it gives an error; offline, 'gabion check' names the blocks. Restore them from a \
                 backup: what is overwritten is sound again, and the next scrub ('gabion pool scrub {name}') says so"
            ),
        });
    }
    (scrub.unhealed > 0 && stuck).then(|| Problem {
        message: format!("the scrub found damage in {} places that is not written anew yet", scrub.unhealed),
        action: repair_of(status, &[]),
    })
}

/// A drive that does not answer reads as it should.
fn erring_drive(status: &PoolStatus, drive: &DriveStatus, now: u64) -> Option<Problem> {
    let (name, errors) = (&status.name, &drive.errors);
    let (index, path) = (drive.index, &drive.path);
    let ago = now.saturating_sub(errors.last);
    if errors.last == 0 || !drive.failing && ago > SHOWN_FOR {
        return None;
    }
    let counted = format!(
        "{} reads failed and {} answered wrongly in its life, the last {}; the other drives gave the data back",
        errors.unreadable,
        errors.wrong,
        how_long_ago(ago)
    );
    if !drive.failing {
        return Some(Problem {
            message: format!("drive {index} ({path}) shows errors: {counted}, and it was written elsewhere"),
            action: format!(
                "look at 'smartctl -a {path}' and 'dmesg'. One that errs in many places is emptied by itself, if the others have \
                 room; 'gabion drive replace {name} {index} --with DRIVE' does it now"
            ),
        });
    }
    let message =
        format!("drive {index} ({path}) is failing: it errs in {} of its zones: {counted}", errors.zones);
    let action = if drive.state == Engine::Draining {
        format!("it is being emptied, and leaves the pool then. {}", repair_of(status, &[]))
    } else if misses_something(status) {
        format!("it is emptied as soon as nothing is missing on the others. {}", repair_of(status, &[]))
    } else {
        format!(
            "replace it: 'gabion drive replace {name} {index} --with DRIVE'. It cannot be emptied by itself: the others are too few, \
             or have no room. If it is sound after all, 'gabion drive remove {name} {index} --cancel' forgets what it counted"
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

/// True if segments may miss columns.
pub(super) fn misses_something(status: &PoolStatus) -> bool {
    status.drives.iter().any(|drive| drive.state.counts_as_lost())
}

/// Drives that are to be emptied and are not: while that goes on, there is nothing wrong.
fn leaving_drives(status: &PoolStatus) -> Option<Problem> {
    let leaving = listed(status, Engine::Draining);
    let stuck = !matches!(status.repair.state, RepairState::Working | RepairState::Whole);
    (!leaving.is_empty() && stuck).then(|| Problem {
        message: format!("drive {} is to be emptied, and that does not go on", leaving.join(", ")),
        action: repair_of(status, &[]),
    })
}

/// What becomes of the columns that are missing or to be moved; `lost` are the numbers of drives that are lost.
fn repair_of(status: &PoolStatus, lost: &[u16]) -> String {
    let (repair, name) = (&status.repair, &status.name);
    let (left, all) = (Size(repair.bytes_left), Size(repair.bytes_left + repair.bytes_done));
    match repair.state {
        RepairState::Whole => "everything is on the other drives: nothing is to be done".into(),
        RepairState::Working => {
            format!("wait: it is being written to other drives, {left} of {all} are left")
        }
        RepairState::Paused => {
            format!("'gabion pool rebuild {name} --resume': the rebuild is paused with {left} remaining")
        }
        RepairState::NeedsSpace => format!(
            "delete or trim data, or add a drive ('gabion drive add {name} DRIVE'): the others have no room for {left}"
        ),
        RepairState::NeedsDrive => {
            let number = lost.first().map_or("N".into(), u16::to_string);
            format!(
                "if it can be plugged in again, 'gabion drive return {name} {number}'; else 'gabion drive replace {name} {number} \
                 --with DRIVE': the others hold everything already, and {left} need another drive"
            )
        }
        RepairState::Lost => {
            "restore what is damaged from a backup: more was lost than the scheme bears".into()
        }
    }
}
