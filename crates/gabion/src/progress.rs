//! Progress of daemon operations on the terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::client::Client;
use api::types::Operation;
use indicatif::{ProgressBar, ProgressStyle};

/// Operations that take longer are progress.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Waits for the end of an operation, and shows its progress if it takes long.
///
/// # Errors
/// The error of the operation.
pub(crate) async fn follow(client: &Client, operation: Operation, quiet: bool) -> Result<Operation> {
    let mut progress = OperationProgress::new(quiet);
    let ended = client.wait(operation, |current| progress.update(current)).await;
    progress.clear();
    Ok(ended?)
}

/// A status line on the terminal, removed on drop.
pub(crate) struct StatusLine {
    quiet: bool,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl StatusLine {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, started: Instant::now(), bar: None }
    }

    /// Shows a message if the command takes long and standard error is a terminal.
    pub(crate) fn show(&mut self, message: &str) {
        if !self.quiet && self.started.elapsed() >= SHOWN_AFTER && std::io::stderr().is_terminal() {
            self.bar.get_or_insert_with(new_bar).set_message(message.to_owned());
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The displayed progress of an operation.
struct OperationProgress {
    quiet: bool,
    started: Instant,
    bar: Option<ProgressBar>,
    /// The last printed step, if standard error is not a terminal.
    printed: String,
}

impl OperationProgress {
    fn new(quiet: bool) -> Self {
        Self { quiet, started: Instant::now(), bar: None, printed: String::new() }
    }

    fn update(&mut self, operation: &Operation) {
        if self.quiet || self.started.elapsed() < SHOWN_AFTER {
            return;
        }
        if !std::io::stderr().is_terminal() {
            if self.printed != operation.step {
                eprintln!("{} {}: {}", operation.kind, operation.target, operation.step);
                self.printed.clone_from(&operation.step);
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(new_bar);
        bar.set_message(format!("{} {}: {}", operation.kind, operation.target, operation.step));
        match (operation.done, operation.total) {
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
