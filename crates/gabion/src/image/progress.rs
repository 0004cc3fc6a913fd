//! How far a copy is, and how fast.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::Size;
use indicatif::{ProgressBar, ProgressStyle};

/// What takes longer than this is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// Where there is no terminal: a line each time that so much more is done, in percent.
const STEP: u64 = 10;

/// What a copy counts.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Bytes of the disk that are dealt with: holes too.
    pub(super) done: AtomicU64,
    /// Bytes that were moved.
    pub(super) moved: AtomicU64,
}

impl Counted {
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn line(&self, what: &str, size: u64, started: Instant) -> String {
        let done = self.done.load(Ordering::Relaxed).min(size);
        let percent = percent(done, size);
        let (copied, how) = match self.moved() {
            // Another program copies, which says only how far it is.
            0 => (done, ", holes counted"),
            moved => (moved, ""),
        };
        let rate = per_second(copied, started.elapsed());
        format!("{what}: {percent} %, {} copied{how}, {}/s", Size(copied), Size(rate))
    }
}

fn percent(done: u64, size: u64) -> u64 {
    u64::try_from(u128::from(done) * 100 / u128::from(size.max(1))).unwrap_or(100)
}

/// Bytes in each second.
pub(super) fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanoseconds = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
}

/// Shows how far a copy of a disk of `size` bytes is, until it is dropped.
pub(super) async fn show(what: &str, size: u64, counted: Arc<Counted>) -> std::convert::Infallible {
    let started = Instant::now();
    tokio::time::sleep(SHOWN_AFTER).await;
    let bar = std::io::stderr().is_terminal().then(|| Bar::new(size));
    let mut printed = 0;
    loop {
        let done = counted.done.load(Ordering::Relaxed).min(size);
        let percent = percent(done, size);
        let line = counted.line(what, size, started);
        match &bar {
            Some(Bar(bar)) => {
                bar.set_position(done);
                bar.set_message(line);
            }
            None if percent >= printed + STEP => {
                eprintln!("{line}");
                printed = percent / STEP * STEP;
            }
            None => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// A bar that goes when it is no longer wanted.
struct Bar(ProgressBar);

impl Bar {
    fn new(size: u64) -> Self {
        let bar = ProgressBar::new(size);
        let style = ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {elapsed}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
