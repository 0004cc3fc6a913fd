//! Progress and rate of a copy.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::Size;
use indicatif::{ProgressBar, ProgressStyle};

/// Copies that take longer are shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Refresh interval.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// Without a terminal, a line is printed after each step of this many percent.
const STEP: u64 = 10;

/// The counters of a copy.
#[derive(Debug, Default)]
pub(super) struct CopyCounters {
    /// Processed bytes of the disk, including holes.
    pub(super) done: AtomicU64,
    /// Copied bytes.
    pub(super) moved: AtomicU64,
}

impl CopyCounters {
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn line(&self, operation: &str, size: u64, started: Instant) -> String {
        let done = self.done.load(Ordering::Relaxed).min(size);
        let percent = percent(done, size);
        let (copied, remark) = match self.moved() {
            // The copying program reports only its progress.
            0 => (done, ", including holes"),
            moved => (moved, ""),
        };
        let rate = per_second(copied, started.elapsed());
        format!("{operation}: {percent} %, {} copied{remark}, {}/s", Size(copied), Size(rate))
    }
}

fn percent(done: u64, size: u64) -> u64 {
    u64::try_from(u128::from(done) * 100 / u128::from(size.max(1))).unwrap_or(100)
}

/// Returns bytes per second.
pub(crate) fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanoseconds = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
}

/// Shows the progress of a copy of a disk of `size` bytes until it is dropped.
pub(super) async fn show(
    operation: &str,
    size: u64,
    counters: Arc<CopyCounters>,
) -> std::convert::Infallible {
    let started = Instant::now();
    tokio::time::sleep(SHOWN_AFTER).await;
    let bar = std::io::stderr().is_terminal().then(|| CopyBar::new(size));
    let mut printed = 0;
    loop {
        let done = counters.done.load(Ordering::Relaxed).min(size);
        let percent = percent(done, size);
        let line = counters.line(operation, size, started);
        match &bar {
            Some(CopyBar(bar)) => {
                bar.set_position(done);
                bar.set_message(line);
            }
            None if percent >= printed + STEP => {
                eprintln!("{line}");
                printed = percent / STEP * STEP;
            }
            None => {}
        }
        tokio::time::sleep(REFRESH_INTERVAL).await;
    }
}

/// A progress bar, removed on drop.
struct CopyBar(ProgressBar);

impl CopyBar {
    fn new(size: u64) -> Self {
        let bar = ProgressBar::new(size);
        let style = ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {elapsed}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }
}

impl Drop for CopyBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
