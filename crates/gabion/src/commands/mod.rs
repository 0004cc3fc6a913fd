//! The commands.

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

/// The context of a command that talks to the daemon.
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
        Command::Reference { page } => {
            print(&crate::reference::page(page))?;
            Ok(Outcome::Done)
        }
        Command::Version => version::run(&global),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "gabion", &mut std::io::stdout());
            Ok(Outcome::Done)
        }
    }
}

/// Runs a command that talks to the daemon.
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
    /// Prints a result: as JSON with `--json`, else as text.
    fn print<T: Serialize>(&self, result: &T, for_people: impl FnOnce(&T) -> String) -> Result<()> {
        let text = if self.json { to_json(result)? } else { for_people(result) };
        print(&text)
    }

    /// Prints the result of a change, unless `--quiet` is set.
    fn done<T: Serialize>(&self, result: &T, sentence: impl FnOnce(&T) -> String) -> Result<()> {
        if self.quiet && !self.json { Ok(()) } else { self.print(result, sentence) }
    }

    /// Prints a list; only names with `--quiet`.
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

/// Prints to standard output. A closed pipe is not an error.
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

/// Asks for confirmation before data is destroyed, unless `yes` is set.
///
/// # Errors
/// `Usage` without a terminal; another error if the answer is not "yes".
fn confirm(yes: bool, warning: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Usage(format!("add --yes to confirm, as there is no terminal to ask: {warning}")).into());
    }
    eprint!("{warning} Type 'yes' to continue: ");
    std::io::stderr().flush().context("asking for confirmation")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("reading the answer")?;
    if answer.trim() == "yes" { Ok(()) } else { Err(anyhow::anyhow!("nothing was changed")) }
}

/// Returns absolute paths, because the daemon has another working directory.
fn absolute(paths: &[PathBuf]) -> Result<Vec<String>> {
    paths.iter().map(|path| absolute_one(path)).collect()
}

fn absolute_one(path: &Path) -> Result<String> {
    let full = std::path::absolute(path).with_context(|| format!("'{}'", path.display()))?;
    full.into_os_string().into_string().map_err(|path| Usage(format!("{path:?} is not UTF-8")).into())
}
