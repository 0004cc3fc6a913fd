//! Formatting of scrubs.

use api::Size;
use api::types::{Scrub, ScrubResult};

use super::time::{format_duration, utc};

/// Formats the progress or the last result of scrubbing, and its settings.
pub(crate) fn scrub(scrub: &Scrub) -> String {
    let mut words = Vec::new();
    if let Some(current) = &scrub.current {
        let paused = if scrub.paused { "paused: " } else { "" };
        words.push(format!(
            "{paused}{} % done, {} read, {} remaining",
            scrub.percent,
            Size(current.bytes),
            Size(scrub.remaining)
        ));
        if scrub.bytes_per_second > 0 && !scrub.paused {
            words.push(format!("{}/s", Size(scrub.bytes_per_second)));
        }
        if let Some(seconds) = scrub.seconds_left {
            #[allow(clippy::cast_precision_loss)]
            words.push(format!("{} left", format_duration(seconds as f64)));
        }
        words.push(format_findings(current));
    } else if let Some(last) = &scrub.last {
        words.push(result(last));
        if last.damaged > 0 && last.lost == 0 && scrub.unrepaired == 0 {
            words.push("all rewritten".into());
        }
    } else {
        words.push("none yet".into());
    }
    if scrub.unrepaired > 0 {
        words.push(match scrub.unrepaired {
            1 => "1 damaged place not rewritten yet".into(),
            many => format!("{many} damaged places not rewritten yet"),
        });
    }
    words.push(settings(scrub));
    words.join(", ")
}

/// Formats the result of a complete scrub.
fn result(last: &ScrubResult) -> String {
    let ended = last.finished.unwrap_or(last.started);
    // Start and end are stored in whole seconds.
    #[allow(clippy::cast_precision_loss)]
    let duration = match ended.saturating_sub(last.started) {
        0 => "less than 1 s".to_owned(),
        seconds => format_duration(seconds as f64),
    };
    format!("finished {}: {} read in {duration}, {}", utc(ended), Size(last.bytes), format_findings(last))
}

fn format_findings(result: &ScrubResult) -> String {
    let lost = match result.lost {
        0 => String::new(),
        1 => ", 1 row LOST".into(),
        many => format!(", {many} rows LOST"),
    };
    match result.damaged {
        0 => format!("nothing damaged{lost}"),
        1 => format!("1 damaged block{lost}"),
        many => format!("{many} damaged blocks{lost}"),
    }
}

/// Formats the settings of scrubbing.
pub(crate) fn settings(scrub: &Scrub) -> String {
    let often = match scrub.every {
        0 => "on request only".to_owned(),
        86_400 => "every day".into(),
        every => format!("every {} days", every / 86_400),
    };
    let paused = if scrub.paused { ", paused" } else { "" };
    match scrub.rate_limit {
        0 => format!("{often}{paused}"),
        limit => format!("{often}{paused}, limited to {}/s", Size(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a scrub with this result and number of unrepaired places.
    fn shown(damaged: u64, lost: u64, unrepaired: u64) -> String {
        let last = ScrubResult { started: 0, finished: Some(0), bytes: 3 << 20, damaged, lost };
        let scrub_of = Scrub {
            current: None,
            last: Some(last),
            remaining: 0,
            percent: 100,
            bytes_per_second: 0,
            seconds_left: None,
            unrepaired,
            paused: false,
            rate_limit: 0,
            every: 86_400,
        };
        scrub(&scrub_of)
    }

    #[test]
    fn repaired_and_unrepaired_damage_are_distinguished() {
        let start = "finished 1970-01-01 00:00:00 UTC: 3 MiB read in less than 1 s, ";
        for (counts, expected) in [
            ((0, 0, 0), "nothing damaged, every day"),
            ((1, 0, 0), "1 damaged block, all rewritten, every day"),
            ((2, 0, 1), "2 damaged blocks, 1 damaged place not rewritten yet, every day"),
            ((2, 1, 0), "2 damaged blocks, 1 row LOST, every day"),
        ] {
            assert_eq!(shown(counts.0, counts.1, counts.2), format!("{start}{expected}"));
        }
    }
}
