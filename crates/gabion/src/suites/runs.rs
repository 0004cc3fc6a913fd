//! `gabion bench runs` and `gabion bench compare`.

use anyhow::{Result, bail};
use bench::compare::{CaseComparison, Series, baselines_differ, compare as compare_series};
use bench::run::{Measured, RAW, RunPlan, Store};
use serde::Serialize;

use super::format;
use crate::cli::{CompareArgs, Global, ResultsArgs};
use crate::failure::{ExitReason, Usage};
use crate::terminal::{print, to_json};

#[derive(Serialize)]
struct RunEntry {
    run: String,
    targets: Vec<String>,
    measured: usize,
    command: String,
}

/// Lists the stored runs.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn runs(global: &Global, arguments: &ResultsArgs) -> Result<ExitReason> {
    let results_dir = super::results_dir(arguments)?;
    let mut entries = Vec::new();
    for id in Store::all(&results_dir)? {
        let store = Store::open(&results_dir, &id)?;
        let plan = store.plan()?;
        entries.push(RunEntry {
            run: id,
            targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
            measured: store.results()?.iter().filter(|one| one.all.is_some()).count(),
            command: plan.command.get(1..).unwrap_or_default().join(" "),
        });
    }
    let text = match (global.json, global.quiet) {
        (true, _) => to_json(&entries)?,
        (_, true) => entries.iter().map(|one| format!("{}\n", one.run)).collect(),
        _ if entries.is_empty() => format!("no runs in {}", results_dir.display()),
        _ => entries
            .iter()
            .map(|one| format!("{}  {} results  gabion {}\n", one.run, one.measured, one.command))
            .collect(),
    };
    print(&text)?;
    Ok(ExitReason::Success)
}

/// Compares two runs, or two targets of one run.
///
/// # Errors
/// If a run does not exist, or the two cannot be compared.
pub(crate) fn compare(global: &Global, arguments: &CompareArgs) -> Result<ExitReason> {
    let results_dir = super::results_dir(&arguments.results_dir)?;
    let load = |text: &str| -> Result<(RunPlan, Vec<Measured>, String)> {
        let (id, target) = text.split_once(':').map_or((text, None), |(id, target)| (id, Some(target)));
        let store = Store::open(&results_dir, id)?;
        let (plan, results) = (store.plan()?, store.results()?);
        let target = select_target(&plan, id, target)?;
        Ok((plan, results, target))
    };
    let (left_plan, left, left_target) = load(&arguments.left)?;
    let (right_plan, right, right_target) = load(&arguments.right)?;
    if left_plan.suite.name != right_plan.suite.name {
        bail!("the runs have different suites, '{}' and '{}'", left_plan.suite.name, right_plan.suite.name);
    }
    let differ = baselines_differ(&left, &right);
    if !differ.is_empty() && !arguments.allow_different_drives {
        bail!(
            "the two runs used different drives ({}): add --allow-different-drives to compare them",
            differ.join("; ")
        );
    }
    let compared = compare_series((&left, &left_target), (&right, &right_target));
    let text = if global.json {
        to_json(&compared)?
    } else {
        let mut text = table(&compared, &left_target, &right_target);
        if left_plan.scaled.differences != right_plan.scaled.differences {
            text.push_str("the two runs have different scaling\n");
        }
        differ.iter().for_each(|differ| text.push_str(&format!("different drives: {differ}\n")));
        text
    };
    print(&text)?;
    Ok(ExitReason::Success)
}

/// Returns the named target, or the only one.
fn select_target(plan: &RunPlan, id: &str, name: Option<&str>) -> Result<String> {
    let names: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
    match (name, names.as_slice()) {
        (Some(name), names) if name == RAW || names.contains(&name) => Ok(name.into()),
        (Some(name), names) => {
            Err(Usage(format!("run '{id}' has no target '{name}'; its targets are {}", names.join(", ")))
                .into())
        }
        (None, []) => Ok(RAW.into()),
        (None, [only]) => Ok((*only).into()),
        (None, names) => Err(Usage(format!(
            "run '{id}' has several targets: give one, as in {id}:{}",
            names.join(" or :")
        ))
        .into()),
    }
}

fn table(compared: &[CaseComparison], left: &str, right: &str) -> String {
    let mut text = format!("{:<42} {left:>14} {right:>14} {:>9}  {:>21}\n", "", "change", "99.95 % us");
    for one in compared {
        let rate = |series: &Option<Series>| {
            series.as_ref().map_or("-".into(), |series| format::rate(series.rate, one.bandwidth))
        };
        let tail = |series: &Option<Series>| {
            let sides = series.iter().flat_map(|series| &series.sides);
            sides
                .map(|side| if side.p9995_us > 0.0 { format!("{:.0}", side.p9995_us) } else { "-".into() })
                .collect::<Vec<_>>()
                .join("/")
        };
        let change = one.change.map_or("-".into(), |change| format!("{:+.1} %", change * 100.0));
        let is_repeated =
            [&one.left, &one.right].iter().all(|side| side.as_ref().is_some_and(|side| side.repeats > 1));
        let remark = match (one.change.is_some(), is_repeated, one.distinct) {
            (false, ..) => "",
            (_, false, _) => "  not repeated: may be noise",
            (_, _, true) => "",
            (_, _, false) => "  ranges overlap: no difference",
        };
        let tail_change = format!("{} -> {}", tail(&one.left), tail(&one.right));
        text.push_str(&format!(
            "{:<42} {:>14} {:>14} {change:>9}  {tail_change:>21}{remark}\n",
            one.case,
            rate(&one.left),
            rate(&one.right)
        ));
    }
    text
}
