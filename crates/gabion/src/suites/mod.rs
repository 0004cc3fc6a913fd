//! `gabion bench` with suites: what is asked for, on which targets, and how results are shown.
//!
//! Must not know: how anything is measured, which is the room `bench`'s.

mod gabion;
mod list;
mod machines;
mod plan;
mod report;
mod runs;
mod show;
mod start;
mod target;

pub(crate) use list::list;
pub(crate) use plan::plan;
pub(crate) use report::report;
pub(crate) use runs::{compare, runs};
pub(crate) use start::{resume, run};

use std::path::PathBuf;

use anyhow::{Context, Result};
use bench::Suite;

use crate::cli::ResultsArgs;
use crate::failure::Usage;

/// The suite of that name, or in that file.
fn suite(name: &str) -> Result<Suite> {
    if let Some(suite) = Suite::find(name) {
        return Ok(suite);
    }
    if name.contains('/') || name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
        return Suite::parse(&text).with_context(|| name.to_owned());
    }
    let known: Vec<String> = Suite::built_in().into_iter().map(|suite| suite.name).collect();
    Err(Usage(format!("there is no suite '{name}': there are {}, or name a .toml file", known.join(", ")))
        .into())
}

/// Where runs are kept.
fn results(arguments: &ResultsArgs) -> PathBuf {
    if let Some(place) = &arguments.results {
        return place.clone();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/gabion/bench".into();
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    data.unwrap_or_else(|| "/var/tmp".into()).join("gabion/bench")
}
