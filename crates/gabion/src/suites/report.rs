//! `gabion bench report`: the files of a run's report.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bench::report::Report;
use bench::run::Store;

use crate::cli::{Global, ReportArgs};
use crate::commands::{print, to_json};
use crate::failure::Outcome;

/// Writes a run's report, or prints it as JSON.
///
/// # Errors
/// When there is no such run or nothing in it, or the files cannot be written.
pub(crate) fn report(global: &Global, arguments: &ReportArgs) -> Result<Outcome> {
    let place = super::results(&arguments.results_dir);
    let text = if global.json {
        to_json(&of(&Store::open(&place, &arguments.id)?, &arguments.id)?)?
    } else {
        write(&place, &arguments.id, arguments.out.as_deref())?
    };
    print(&text)?;
    Ok(Outcome::Done)
}

fn of(store: &Store, id: &str) -> Result<Report> {
    let report = Report::new(store.plan()?, store.systems()?, store.results()?);
    if report.results.is_empty() {
        bail!("nothing has been measured yet: 'gabion bench resume {id}' goes on");
    }
    Ok(report)
}

/// Writes the report of the run `id` in `place` into `out` or the run's folder; gives the names of the files.
///
/// # Errors
/// When there is nothing to report, or the files cannot be written.
pub(super) fn write(place: &Path, id: &str, out: Option<&Path>) -> Result<String> {
    let store = Store::open(place, id)?;
    let report = of(&store, id)?;
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
