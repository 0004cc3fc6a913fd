//! `gabion bench report`: the files of a run's report.

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
    let store = Store::open(&super::results(&arguments.place), &arguments.id)?;
    let report = Report::new(store.plan()?, store.systems()?, store.results()?);
    if report.results.is_empty() {
        bail!("nothing has been measured yet: 'gabion bench resume {}' goes on", arguments.id);
    }
    if global.json {
        print(&to_json(&report)?)?;
        return Ok(Outcome::Done);
    }
    let folder = arguments.out.clone().unwrap_or_else(|| store.folder().join("report"));
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
    print(&written)?;
    Ok(Outcome::Done)
}
