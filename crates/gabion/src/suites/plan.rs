//! `gabion bench plan`: the upper bounds of a suite.

use anyhow::Result;
use bench::bounds::{Bound, Layout, bounds, tightest};
use bench::lab::{DriveLimits, Lab, LabError, model};
use bench::{Scaling, Suite};
use serde::Serialize;

use super::format;
use crate::cli::{Global, PlanArgs};
use crate::failure::{ExitReason, Usage};
use crate::terminal::{print, to_json};

#[derive(Serialize)]
struct SuiteBounds {
    suite: String,
    limits: DriveLimits,
    layout: Layout,
    jobs: Vec<JobBounds>,
}

#[derive(Serialize)]
struct JobBounds {
    job: String,
    block_bytes: u64,
    /// The tightest bound.
    bound: Option<Bound>,
    others: Vec<Bound>,
}

/// Prints the upper bound of each job.
///
/// # Errors
/// If the suite, lab or model does not exist.
pub(crate) fn plan(global: &Global, arguments: &PlanArgs) -> Result<ExitReason> {
    let suite = super::suite(&arguments.suite)?;
    let (limits, drives, drives_text) = drives(&suite, arguments)?;
    let scheme = arguments.scheme.clone().or(suite.scheme.clone()).unwrap_or_else(|| "4+1".into());
    let pools = arguments.pools.unwrap_or(suite.pools);
    let layout = Layout::parse(&scheme, drives, pools).map_err(|error| Usage(error.to_string()))?;
    let network = arguments.network.map(|gbits| gbits * 1e9 / 8.0);
    let jobs = suite.scaled(&Scaling::default())?;
    let mut seen = Vec::new();
    for case in jobs.cases {
        if seen.iter().any(|planned: &JobBounds| planned.job == case.job.name) {
            continue;
        }
        let all = bounds(&case.job, &limits, layout, network);
        let bound = tightest(&all).cloned();
        let others = all.into_iter().filter(|other| Some(other) != bound.as_ref()).collect();
        seen.push(JobBounds { job: case.job.name.clone(), block_bytes: case.job.block_bytes, bound, others });
    }
    let planned = SuiteBounds { suite: suite.name.clone(), limits, layout, jobs: seen };
    let text = if global.json { to_json(&planned)? } else { table(&planned, &drives_text, &scheme) };
    print(&text)?;
    Ok(ExitReason::Success)
}

/// Returns the limits of each drive, the number of drives, and a description.
fn drives(suite: &Suite, arguments: &PlanArgs) -> Result<(DriveLimits, u32, String)> {
    if let Some(name) = &arguments.lab {
        let lab = Lab::find(name)?.ok_or_else(|| LabError::Unknown(name.clone()))?;
        let count = u32::try_from(lab.drives.len())?;
        return Ok((
            lab.limits,
            count,
            format!("{count} drives of lab '{name}', each at {} of a {}", lab.fraction, lab.model),
        ));
    }
    let name = arguments.model.clone().or(suite.drive_model.clone()).unwrap_or_else(|| "kioxia-cm7".into());
    let Some(model) = model(&name) else {
        return Err(
            Usage(format!("unknown drive model '{name}': 'gabion lab models' lists the models")).into()
        );
    };
    let count = arguments.count.or(suite.drives).unwrap_or(10);
    let drives_text = format!("{count} drives, each at {} of a {}", arguments.fraction, model.title);
    Ok((model.limits.share(arguments.fraction), count, drives_text))
}

fn table(planned: &SuiteBounds, drives_text: &str, scheme: &str) -> String {
    let layout = planned.layout;
    let mut text = format!(
        "{}: upper bounds on {drives_text}, in {} pools of {scheme}\n\n",
        planned.suite, layout.pools
    );
    for job in &planned.jobs {
        let Some(bound) = &job.bound else { continue };
        let mut line = |bound: &Bound, title: &str| {
            text.push_str(&format!(
                "{title:<32} {:>12}  {:>12}  {}: saturates {} ({})\n",
                format::rate(bound.iops, false),
                format::rate(bound.iops * format::float(job.block_bytes), true),
                bound.name,
                bound.saturates,
                bound.formula
            ));
        };
        line(bound, &job.job);
        job.others.iter().for_each(|other| line(other, ""));
    }
    text.push_str(
        "\nEfficiency is measured against the first line of a job. A log-structured system can exceed the bound of in-place\n\
         writes, up to the bound of full stripes divided by its write amplification.\n",
    );
    text
}
