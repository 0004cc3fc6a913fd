//! What each command does.

mod bench;
mod bench_churn;
mod bench_fairness;
mod bench_rebuild;
mod bench_scale;
mod bench_snapshots;
mod bench_vhost;
mod calls;
mod check;
mod drive;
mod events;
mod export;
mod identify;
pub(crate) mod image;
pub(crate) mod lab;
mod measuring;
mod pool;
mod salvage;
mod scrub;
mod serve;
mod snapshot;
mod version;
pub(crate) mod vm;
mod volume;

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::client::Client;
use clap::CommandFactory;
use serde::Serialize;

use crate::cli::{Cli, Command, Global};
use crate::failure::{Outcome, Usage};

/// What every command works with.
pub(crate) struct Setting {
    client: Client,
    json: bool,
    quiet: bool,
}

/// Runs a command.
///
/// # Errors
/// Why it failed.
pub(crate) fn run(cli: Cli) -> Result<Outcome> {
    let Cli { global, command } = cli;
    match command {
        Command::Quickstart(arguments) => crate::quickstart::run(&global, &arguments),
        Command::Serve(arguments) => serve::run(&global, &arguments),
        Command::Pool(command) => with_daemon(&global, async |setting| pool::run(&setting, command).await),
        Command::Volume(command) => {
            with_daemon(&global, async |setting| volume::run(&setting, command).await)
        }
        Command::Drive(command) => drive::run(&global, command),
        Command::Export(command) => {
            with_daemon(&global, async |setting| export::run(&setting, command).await)
        }
        Command::Vm(command) => {
            with_daemon(&global, async |setting| vm::run(&setting, &global, command).await)
        }
        Command::Check { drives } => check::run(&global, &drives),
        Command::Salvage(arguments) => salvage::run(&global, arguments),
        Command::Bench(command) => bench::run(&global, &command),
        Command::Lab(command) => lab::run(&global, command),
        Command::Version => version::run(&global),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "gabion", &mut std::io::stdout());
            Ok(Outcome::Done)
        }
    }
}

/// Runs something that talks to the daemon.
fn with_daemon<F: Future<Output = Result<Outcome>>>(
    global: &Global,
    work: impl FnOnce(Setting) -> F,
) -> Result<Outcome> {
    let socket = serve::socket(global);
    let setting = Setting { client: Client::unix(socket), json: global.json, quiet: global.quiet };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(work(setting))
}

impl Setting {
    /// Prints a result: as JSON if asked, else as people read it.
    fn print<T: Serialize>(&self, result: &T, for_people: impl FnOnce(&T) -> String) -> Result<()> {
        let text = if self.json { to_json(result)? } else { for_people(result) };
        print(&text)
    }

    /// Prints what was done, unless that is not wanted.
    fn done<T: Serialize>(&self, result: &T, sentence: impl FnOnce(&T) -> String) -> Result<()> {
        if self.quiet && !self.json { Ok(()) } else { self.print(result, sentence) }
    }

    /// Prints a list: names alone if that is enough.
    fn list<T: Serialize>(
        &self,
        items: &[T],
        name: impl Fn(&T) -> String,
        table: impl FnOnce(&[T]) -> String,
    ) -> Result<()> {
        if self.quiet && !self.json {
            return print(&items.iter().map(name).collect::<Vec<_>>().join("\n"));
        }
        self.print(&items, |items| table(items))
    }
}

pub(crate) fn to_json<T: Serialize>(result: &T) -> Result<String> {
    serde_json::to_string_pretty(result).context("writing JSON")
}

/// Prints to standard output. Whoever no longer listens is not an error of ours.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if text.is_empty() { Ok(()) } else { writeln!(out, "{}", text.trim_end()) };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Asks before something is destroyed.
///
/// # Errors
/// `Usage` if nobody can be asked and the answer was not given before; when the answer is no.
fn confirm(yes: bool, question: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Usage(format!("{question} Nobody can be asked here: repeat it with --yes")).into());
    }
    eprint!("{question} Type 'yes' to go on: ");
    std::io::stderr().flush().context("asking")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("reading the answer")?;
    if answer.trim() == "yes" { Ok(()) } else { Err(anyhow::anyhow!("nothing was changed")) }
}

/// Paths as the daemon must be told them: it has another working directory.
fn absolute(paths: &[PathBuf]) -> Result<Vec<String>> {
    paths.iter().map(|path| absolute_one(path)).collect()
}

fn absolute_one(path: &Path) -> Result<String> {
    let full = std::path::absolute(path).with_context(|| format!("'{}'", path.display()))?;
    full.into_os_string().into_string().map_err(|path| Usage(format!("{path:?} is not UTF-8")).into())
}
