//! Following an operation of the daemon to its end.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use api::types::{Operation, OperationState};
use api::{Error, ErrorKind};

use crate::client::Client;

/// What takes longer than this is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// How long the daemon may hold back an answer for want of news, in seconds.
const WAIT: u64 = 1;

/// Waits for an operation, showing how far it is if it takes long.
///
/// # Errors
/// Why it failed.
pub(crate) async fn follow(client: &Client, operation: Operation, quiet: bool) -> Result<Operation> {
    let mut shown = Shown::new(quiet);
    let mut news = operation;
    while news.state == OperationState::Running {
        shown.update(&news);
        let path = format!("/v1/operations/{}?after={}&wait={WAIT}", news.id, news.revision);
        news = client.get(&path).await?;
    }
    shown.clear();
    match (news.state, news.error.clone()) {
        (OperationState::Succeeded, _) => Ok(news),
        (_, Some(error)) => Err(error.into()),
        (_, None) => Err(Error::new(ErrorKind::Internal, format!("{} failed", news.kind)).into()),
    }
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
