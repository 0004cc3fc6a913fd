//! `gabion bench report`: writes the report of a run.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bench::report::Report;
use bench::run::Store;

use crate::cli::{Global, ReportArgs};
use crate::failure::ExitReason;
use crate::terminal::{print, to_json};

/// Writes a run's report, or prints it as JSON.
///
/// # Errors
/// If the run does not exist or has no results, or the files cannot be written.
pub(crate) fn report(global: &Global, arguments: &ReportArgs) -> Result<ExitReason> {
    let results_dir = super::results_dir(&arguments.results_dir)?;
    let text = if global.json {
        to_json(&build_report(&Store::open(&results_dir, &arguments.id)?, &arguments.id)?)?
    } else {
        write(&results_dir, &arguments.id, arguments.out.as_deref())?
    };
    print(&text)?;
    Ok(ExitReason::Success)
}

fn build_report(store: &Store, id: &str) -> Result<Report> {
    let report = Report::new(store.plan()?, store.systems()?, store.results()?);
    if report.results.is_empty() {
        bail!("the run has no results yet: 'gabion bench resume {id}' continues it");
    }
    Ok(report)
}

/// Writes the report of run `id` into `out` or the directory of the run. Returns the names of the
/// files.
///
/// # Errors
/// If there are no results, or the files cannot be written.
pub(super) fn write(results_dir: &Path, id: &str, out: Option<&Path>) -> Result<String> {
    let store = Store::open(results_dir, id)?;
    let report = build_report(&store, id)?;
    let folder = out.map_or_else(|| store.folder().join("report"), Path::to_owned);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let files = [
        ("report.html", report.html()?),
        ("report.md", report.markdown()),
        ("report.csv", report.csv()),
        ("report.json", to_json(&report)?),
    ];
    let mut written = String::new();
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        written.push_str(&format!("{}\n", path.display()));
    }
    Ok(written)
}
