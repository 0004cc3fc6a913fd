//! The `gabion` command.
//!
//! Owns the command line, output tables and exit statuses. Always true: standard output holds only
//! the result of a command, with `--json` as one JSON document; everything else is written to
//! standard error. Must not know: storage internals; only the API.

mod child_daemon;
mod cli;
mod cluster_tour;
mod commands;
mod contexts;
mod failure;
mod image;
mod output;
mod progress;
mod quickstart;
mod reference;
mod suites;
mod terminal;
mod transfer;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let json = cli.global.json;
    match commands::run(cli) {
        Ok(reason) => reason.into(),
        Err(error) => failure::report(&error, json),
    }
}
