//! Scrubbing, in words.

use server::Size;
use server::wire::{Scrub, ScrubResult};

use super::time::{length, utc};

/// How far it is, or what the last one found, and when the next one is due.
pub(crate) fn scrub(scrub: &Scrub) -> String {
    let mut words = Vec::new();
    if let Some(current) = &scrub.current {
        let paused = if scrub.paused { "paused: " } else { "" };
        words.push(format!(
            "{paused}{} % done, {} read, {} left",
            scrub.percent,
            Size(current.bytes),
            Size(scrub.left)
        ));
        if scrub.bytes_per_second > 0 && !scrub.paused {
            words.push(format!("{} a second", Size(scrub.bytes_per_second)));
        }
        if let Some(seconds) = scrub.seconds_left {
            #[allow(clippy::cast_precision_loss)]
            words.push(format!("{} to go", length(seconds as f64)));
        }
        words.push(found(current));
    } else if let Some(last) = &scrub.last {
        words.push(result(last));
    } else {
        words.push("none yet".into());
    }
    if scrub.unhealed > 0 {
        words.push(format!("{} damaged places are not written anew yet", scrub.unhealed));
    }
    words.push(settings(scrub));
    words.join(", ")
}

/// What one found that came to its end.
fn result(last: &ScrubResult) -> String {
    let ended = last.ended.unwrap_or(last.began);
    #[allow(clippy::cast_precision_loss)]
    let took = length(ended.saturating_sub(last.began) as f64);
    format!("finished {}: {} read in {took}, {}", utc(ended), Size(last.bytes), found(last))
}

fn found(result: &ScrubResult) -> String {
    let lost = if result.lost > 0 { format!(", {} rows LOST", result.lost) } else { String::new() };
    match result.damaged {
        0 => format!("nothing damaged{lost}"),
        1 => format!("1 damaged block{lost}"),
        many => format!("{many} damaged blocks{lost}"),
    }
}

/// How often, and how fast.
pub(crate) fn settings(scrub: &Scrub) -> String {
    let often = match scrub.every {
        0 => "only when asked".to_owned(),
        86_400 => "every day".into(),
        every => format!("every {} days", every / 86_400),
    };
    let paused = if scrub.paused { ", paused" } else { "" };
    match scrub.limit {
        0 => format!("{often}{paused}"),
        limit => format!("{often}{paused}, at most {} a second", Size(limit)),
    }
}
