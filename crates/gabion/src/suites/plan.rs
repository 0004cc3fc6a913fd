//! `gabion bench plan`: bounds before anything is measured.

use anyhow::Result;
use bench::bounds::{Bound, Layout, bounds, tightest};
use bench::lab::{DriveLimits, Lab, LabError, model};
use bench::{Scaling, Suite};
use serde::Serialize;

use super::show;
use crate::cli::{Global, PlanArgs};
use crate::commands::{print, to_json};
use crate::failure::{Outcome, Usage};

#[derive(Serialize)]
struct Planned {
    suite: String,
    limits: DriveLimits,
    layout: Layout,
    jobs: Vec<PlannedJob>,
}

#[derive(Serialize)]
struct PlannedJob {
    job: String,
    block_bytes: u64,
    /// The one that is reached first.
    bound: Option<Bound>,
    others: Vec<Bound>,
}

/// Prints what each job can give at most.
///
/// # Errors
/// When there is no such suite, lab or model.
pub(crate) fn plan(global: &Global, arguments: &PlanArgs) -> Result<Outcome> {
    let suite = super::suite(&arguments.suite)?;
    let (limits, drives, what) = drives(&suite, arguments)?;
    let scheme = arguments.scheme.clone().or(suite.scheme.clone()).unwrap_or_else(|| "4+1".into());
    let pools = arguments.pools.unwrap_or(suite.pools);
    let layout = Layout::parse(&scheme, drives, pools).map_err(|error| Usage(error.to_string()))?;
    let network = arguments.network.map(|gbits| gbits * 1e9 / 8.0);
    let jobs = suite.scaled(&Scaling::default())?;
    let mut seen = Vec::new();
    for case in jobs.cases {
        if seen.iter().any(|planned: &PlannedJob| planned.job == case.job.name) {
            continue;
        }
        let all = bounds(&case.job, &limits, layout, network);
        let bound = tightest(&all).cloned();
        let others = all.into_iter().filter(|other| Some(other) != bound.as_ref()).collect();
        seen.push(PlannedJob {
            job: case.job.name.clone(),
            block_bytes: case.job.block_bytes,
            bound,
            others,
        });
    }
    let planned = Planned { suite: suite.name.clone(), limits, layout, jobs: seen };
    let text = if global.json { to_json(&planned)? } else { table(&planned, &what, &scheme) };
    print(&text)?;
    Ok(Outcome::Done)
}

/// Limits of each drive, how many there are, and what they are.
fn drives(suite: &Suite, arguments: &PlanArgs) -> Result<(DriveLimits, u32, String)> {
    if let Some(name) = &arguments.lab {
        let lab = Lab::find(name)?.ok_or_else(|| LabError::Unknown(name.clone()))?;
        let count = u32::try_from(lab.drives.len())?;
        return Ok((
            lab.limits,
            count,
            format!("{count} drives of lab '{name}', each {} of a {}", lab.fraction, lab.model),
        ));
    }
    let name = arguments.model.clone().or(suite.drive_model.clone()).unwrap_or_else(|| "kioxia-cm7".into());
    let Some(model) = model(&name) else {
        return Err(Usage(format!("no drive '{name}' is known: 'gabion lab models' lists them")).into());
    };
    let count = arguments.count.or(suite.drives).unwrap_or(10);
    let what = format!("{count} drives, each {} of a {}", arguments.fraction, model.title);
    Ok((model.limits.share(arguments.fraction), count, what))
}

fn table(planned: &Planned, what: &str, scheme: &str) -> String {
    let layout = planned.layout;
    let mut text =
        format!("{}: at most, on {what}, in {} pools of {scheme}\n\n", planned.suite, layout.pools);
    for job in &planned.jobs {
        let Some(bound) = &job.bound else { continue };
        let mut line = |bound: &Bound, title: &str| {
            text.push_str(&format!(
                "{title:<32} {:>12}  {:>12}  {}: saturates {} ({})\n",
                show::rate(bound.iops, false),
                show::rate(bound.iops * show::float(job.block_bytes), true),
                bound.name,
                bound.saturates,
                bound.formula
            ));
        };
        line(bound, &job.job);
        job.others.iter().for_each(|other| line(other, ""));
    }
    text.push_str(
        "\nThe first line of a job is what efficiency is measured against. A system that never writes in place can go beyond\n\
         the bound of doing so, as far as full stripes divided by what its cleaning writes besides.\n",
    );
    text
}
