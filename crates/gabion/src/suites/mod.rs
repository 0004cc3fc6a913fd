//! `gabion bench` with suites: arguments, targets, and the output of results.
//!
//! Must not know: how anything is measured; the crate `bench` does that.

mod cleanup_record;
mod cluster;
mod execute;
mod format;
mod gabion;
mod kubernetes;
mod list;
mod machines;
mod plan;
mod report;
mod runs;
mod target;

pub(crate) use execute::{resume, run};
pub(crate) use list::list;
pub(crate) use plan::plan;
pub(crate) use report::report;
pub(crate) use runs::{compare, runs};

use std::path::PathBuf;

use anyhow::{Context, Result};
use bench::Suite;

use crate::cli::ResultsArgs;
use crate::failure::Usage;

/// Returns the suite of this name, or in this file.
fn suite(name: &str) -> Result<Suite> {
    if let Some(suite) = Suite::find(name) {
        return Ok(suite);
    }
    if name.contains('/') || name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
        return Suite::parse(&text).with_context(|| name.to_owned());
    }
    let known: Vec<String> = Suite::built_in().into_iter().map(|suite| suite.name).collect();
    Err(Usage(format!("unknown suite '{name}': give one of {}, or a .toml file", known.join(", "))).into())
}

/// Returns the directory of the stored runs, as an absolute path: fio runs in another directory.
fn results_dir(arguments: &ResultsArgs) -> Result<PathBuf> {
    let directory = arguments.results.clone().unwrap_or_else(default_results_dir);
    std::path::absolute(&directory).with_context(|| directory.display().to_string())
}

/// Returns the directory of runs if none is named, which is the default of `daemon.runs_directory`.
pub(crate) fn default_results_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/var/lib/gabion/bench".into();
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    data.unwrap_or_else(|| "/var/tmp".into()).join("gabion/bench")
}
