//! The commands.

mod bench;
mod bench_churn;
mod bench_disks;
mod bench_fairness;
mod bench_listing;
mod bench_nvme;
mod bench_objects;
mod bench_rebuild;
mod bench_scale;
mod bench_snapshots;
mod bench_vhost;
mod calls;
mod check;
mod cluster;
mod context;
mod csi;
mod drive;
mod events;
mod export;
mod host_objects;
mod identify;
mod image;
pub(crate) mod lab;
mod measurement;
mod mirror;
mod object;
mod objects;
mod operation;
mod pool;
mod roles;
mod salvage;
mod scrub;
mod serve;
mod snapshot;
mod token;
mod users;
mod version;
pub(crate) mod vm;
mod volume;
mod webhooks;

use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::client::Client;
use clap::CommandFactory;
use serde::Serialize;

use crate::cli::{Cli, Command, Global};
use crate::failure::{ExitReason, Usage};
use crate::terminal::{confirm, print, to_json};

/// The context of a command that uses the daemon.
pub(crate) struct CommandContext {
    client: Client,
    json: bool,
    quiet: bool,
}

/// Runs a command.
///
/// # Errors
/// The error of the command.
pub(crate) fn run(cli: Cli) -> Result<ExitReason> {
    let Cli { global, command } = cli;
    match command {
        Command::Quickstart(arguments) => crate::quickstart::run(&global, &arguments),
        Command::Serve(arguments) => serve::run(&global, &arguments),
        Command::Pool(command) => with_daemon(&global, async |ctx| pool::run(&ctx, command).await),
        Command::Volume(command) => with_daemon(&global, async |ctx| volume::run(&ctx, command).await),
        Command::Drive(command) => drive::run(&global, command),
        Command::Export(command) => with_daemon(&global, async |ctx| export::run(&ctx, command).await),
        Command::S3(command) => with_daemon(&global, async |ctx| objects::run(&ctx, command).await),
        Command::Bucket(command) => {
            with_daemon(&global, async |ctx| objects::run_bucket(&ctx, command).await)
        }
        Command::Object(command) => with_daemon(&global, async |ctx| object::run(&ctx, command).await),
        Command::Key(command) => with_daemon(&global, async |ctx| objects::run_key(&ctx, command).await),
        Command::User(command) => with_daemon(&global, async |ctx| users::run_user(&ctx, command).await),
        Command::Group(command) => with_daemon(&global, async |ctx| users::run_group(&ctx, command).await),
        Command::Policy(command) => with_daemon(&global, async |ctx| users::run_policy(&ctx, command).await),
        Command::Provider(command) => {
            with_daemon(&global, async |ctx| roles::run_provider(&ctx, command).await)
        }
        Command::Role(command) => with_daemon(&global, async |ctx| roles::run_role(&ctx, command).await),
        Command::Webhook(command) => with_daemon(&global, async |ctx| webhooks::run(&ctx, command).await),
        Command::Operation(command) => with_daemon(&global, async |ctx| operation::run(&ctx, command).await),
        Command::Vm(command) => with_daemon(&global, async |ctx| vm::run(&ctx, &global, command).await),
        Command::Token(command) => with_daemon(&global, async |ctx| token::run(&ctx, command).await),
        Command::Context(command) => context::run(&global, command),
        Command::Audit { last } => with_daemon(&global, async |ctx| token::audit(&ctx, last).await),
        Command::Check { drives } => check::run(&global, &drives),
        Command::Salvage(arguments) => salvage::run(&global, arguments),
        Command::Csi(arguments) => csi::run(&global, arguments),
        Command::Bench(command) => bench::run(&global, &command),
        Command::Lab(command) => lab::run(&global, command),
        Command::Cluster(command) => cluster::run(&global, command),
        Command::Reference { page } => {
            print(&crate::reference::page(page))?;
            Ok(ExitReason::Success)
        }
        Command::ManualPages { directory } => {
            let written = clap_mangen::generate_to(Cli::command(), &directory);
            written.with_context(|| format!("cannot write manual pages into {}", directory.display()))?;
            Ok(ExitReason::Success)
        }
        Command::Version => version::run(&global),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "gabion", &mut std::io::stdout());
            Ok(ExitReason::Success)
        }
    }
}

/// Runs a command that uses the daemon.
fn with_daemon<F: Future<Output = Result<ExitReason>>>(
    global: &Global,
    work: impl FnOnce(CommandContext) -> F,
) -> Result<ExitReason> {
    let ctx = CommandContext { client: context::client(global)?, json: global.json, quiet: global.quiet };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(work(ctx))
}

impl CommandContext {
    /// Prints a result: as JSON with `--json`, else as text.
    fn print<T: Serialize>(&self, result: &T, to_text: impl FnOnce(&T) -> String) -> Result<()> {
        let text = if self.json { to_json(result)? } else { to_text(result) };
        print(&text)
    }

    /// Prints the result of a change, unless `--quiet` is set.
    fn done<T: Serialize>(&self, result: &T, to_text: impl FnOnce(&T) -> String) -> Result<()> {
        if self.quiet && !self.json { Ok(()) } else { self.print(result, to_text) }
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

/// Returns absolute paths, because the daemon has another working directory.
fn absolute(paths: &[PathBuf]) -> Result<Vec<String>> {
    paths.iter().map(|path| absolute_one(path)).collect()
}

fn absolute_one(path: &Path) -> Result<String> {
    let full = std::path::absolute(path).with_context(|| format!("'{}'", path.display()))?;
    full.into_os_string().into_string().map_err(|path| Usage(format!("{path:?} is not UTF-8")).into())
}
