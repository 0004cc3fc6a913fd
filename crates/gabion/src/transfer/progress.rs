//! Progress of a transfer on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use api::Size;

use crate::image::per_second;
use crate::progress::StatusLine;

/// Interval of the lines without a terminal; the first one comes after two seconds.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const FIRST_LINE: Duration = Duration::from_secs(2);

/// The progress of one transfer.
pub(super) struct TransferProgress {
    action: String,
    total: Option<u64>,
    done: u64,
    started: Instant,
    quiet: bool,
    line: StatusLine,
    next_line: Instant,
}

impl TransferProgress {
    /// Begins with an action, for example `put fast/photos/a.jpg`, and its size if it is known.
    pub(super) fn new(action: String, total: Option<u64>, quiet: bool) -> Self {
        let started = Instant::now();
        let (line, next_line) = (StatusLine::new(quiet), started + FIRST_LINE);
        Self { action, total, done: 0, started, quiet, line, next_line }
    }

    /// Sets the size.
    pub(super) fn set_total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// Adds transferred bytes, and shows the progress of transfers that take long.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        self.line.show(&self.text());
        if !self.quiet && !std::io::stderr().is_terminal() && Instant::now() >= self.next_line {
            eprintln!("{}", self.text());
            self.next_line = Instant::now() + LINE_INTERVAL;
        }
    }

    fn text(&self) -> String {
        let rate = Size(per_second(self.done, self.started.elapsed()));
        match self.total {
            Some(total) => {
                let percent = u128::from(self.done) * 100 / u128::from(total.max(1));
                format!("{}: {percent} % of {}, {rate}/s", self.action, Size(total))
            }
            None => format!("{}: {}, {rate}/s", self.action, Size(self.done)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_shown_if_the_size_is_known() {
        let mut progress = TransferProgress::new("put a/b".into(), None, true);
        progress.add(1 << 20);
        assert!(progress.text().starts_with("put a/b: 1 MiB, "), "{}", progress.text());
        progress.set_total(4 << 20);
        assert!(progress.text().starts_with("put a/b: 25 % of 4 MiB, "), "{}", progress.text());
    }
}
