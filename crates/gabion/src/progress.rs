//! Following an operation of the daemon to its end.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::client::Client;
use api::types::Operation;
use indicatif::{ProgressBar, ProgressStyle};

/// What takes longer than this is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Waits for the end of an operation, and shows its progress if it takes long.
///
/// # Errors
/// The error of the operation.
pub(crate) async fn follow(client: &Client, operation: Operation, quiet: bool) -> Result<Operation> {
    let mut shown = Shown::new(quiet);
    let ended = client.wait(operation, |current| shown.update(current)).await;
    shown.clear();
    Ok(ended?)
}

/// One line that says how far something is that goes on by itself; gone when this is dropped.
pub(crate) struct Line {
    quiet: bool,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Line {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, started: Instant::now(), bar: None }
    }

    /// Says it, if it takes long and somebody looks.
    pub(crate) fn show(&mut self, what: &str) {
        if !self.quiet && self.started.elapsed() >= SHOWN_AFTER && std::io::stderr().is_terminal() {
            self.bar.get_or_insert_with(new_bar).set_message(what.to_owned());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// What is on the terminal.
struct Shown {
    quiet: bool,
    started: Instant,
    bar: Option<ProgressBar>,
    /// The step that was last printed where there is no terminal.
    printed: String,
}

impl Shown {
    fn new(quiet: bool) -> Self {
        Self { quiet, started: Instant::now(), bar: None, printed: String::new() }
    }

    fn update(&mut self, news: &Operation) {
        if self.quiet || self.started.elapsed() < SHOWN_AFTER {
            return;
        }
        if !std::io::stderr().is_terminal() {
            if self.printed != news.step {
                eprintln!("{} {}: {}", news.kind, news.target, news.step);
                self.printed.clone_from(&news.step);
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(new_bar);
        bar.set_message(format!("{} {}: {}", news.kind, news.target, news.step));
        match (news.done, news.total) {
            (Some(done), Some(total)) if total > 0 => {
                bar.set_style(style("{spinner} {msg} [{bar:30}] {percent} % {elapsed}"));
                bar.set_length(total);
                bar.set_position(done);
            }
            _ => bar.set_style(style("{spinner} {msg} {elapsed}")),
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
