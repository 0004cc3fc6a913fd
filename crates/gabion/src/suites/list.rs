//! `gabion bench list`.

use anyhow::Result;
use bench::{Figure, Job, Suite};

use super::format;
use crate::cli::Global;
use crate::failure::ExitReason;
use crate::terminal::{print, to_json};

/// Lists the suites, or describes one.
///
/// # Errors
/// If the suite does not exist.
pub(crate) fn list(global: &Global, name: Option<&str>) -> Result<ExitReason> {
    let text = match name {
        Some(name) => {
            let suite = super::suite(name)?;
            if global.json { to_json(&suite)? } else { describe(&suite) }
        }
        None => {
            let suites = Suite::built_in();
            match (global.json, global.quiet) {
                (true, _) => to_json(&suites)?,
                (_, true) => suites.iter().map(|suite| format!("{}\n", suite.name)).collect(),
                _ => suites.iter().map(summary).collect::<Vec<_>>().join("\n"),
            }
        }
    };
    print(&text)?;
    Ok(ExitReason::Success)
}

fn summary(suite: &Suite) -> String {
    format!(
        "{}: {}\n{}\n  from  {}\n",
        suite.name,
        suite.title,
        format::indented(&suite.about, 2),
        suite.source
    )
}

fn describe(suite: &Suite) -> String {
    let is_objects = suite.workload() == bench::Workload::Objects;
    let list = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let mut text = summary(suite);
    text.push_str(&format!(
        "  runs  {}{} s ramp-up and {} s measurement per job, repeats: {}\n\njobs\n",
        if is_objects { String::new() } else { format!("{} instances; ", list(&suite.instances)) },
        suite.ramp_s,
        suite.run_s,
        suite.repeats
    ));
    for job in &suite.jobs {
        let profile = job.profile.as_ref().map_or(String::new(), |profile| format!("[{profile}] "));
        text.push_str(&format!("  {profile}{}: {}\n", job.name, format::job(job)));
        let figures = suite.published.iter().filter_map(|of| Some((of, of.figure(&job.name)?)));
        for (published, figure) in figures {
            text.push_str(&format!("      {:<22} {}\n", published.system, figure_text(figure, job)));
        }
    }
    if !suite.facts.is_empty() {
        text.push_str("\nother published facts\n");
        for fact in &suite.facts {
            text.push_str(&format!("  {}: {} {}\n", fact.what, fact.value, fact.unit));
        }
    }
    text
}

fn figure_text(figure: &Figure, job: &Job) -> String {
    let join = |values: &[f64]| values.iter().map(f64::to_string).collect::<Vec<_>>().join(" / ");
    let mut text = format!("{} {}", join(&figure.value), figure.unit(job).symbol());
    if !figure.mean_us.is_empty() {
        text.push_str(&format!(", mean {} us", join(&figure.mean_us)));
    }
    if !figure.p9995_us.is_empty() {
        text.push_str(&format!(", 99.95 % {} us", join(&figure.p9995_us)));
    }
    if let Some(percent) = figure.cpu_percent {
        text.push_str(&format!(", CPU {percent} %"));
    }
    if let Some([read, write]) = figure.drive_ms {
        text.push_str(&format!(", drives {read} / {write} ms"));
    }
    if let Some(percent) = figure.drive_percent {
        text.push_str(&format!(", drives in use {percent} %"));
    }
    if let Some(percent) = figure.efficiency {
        text.push_str(&format!(", efficiency {percent} %"));
    }
    text
}
