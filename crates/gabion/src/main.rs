//! The command line.
//!
//! Owns words, tables and exit statuses. Always true: what a command prints on standard output is its result, in one
//! JSON document if asked; everything else goes to standard error. Must not know: anything of storage but the API.

mod cli;
mod commands;
mod failure;
mod image;
mod output;
mod own_daemon;
mod progress;
mod quickstart;
mod reference;
mod suites;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let json = cli.global.json;
    match commands::run(cli) {
        Ok(outcome) => outcome.into(),
        Err(error) => failure::report(&error, json),
    }
}
