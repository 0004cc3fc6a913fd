//! The columns of a suite of objects: throughput, processors and drives, next to the published
//! ones.

use super::{shown, strings, targets};
use crate::human::time;
use crate::objects::{ObjectColumns, object_columns};
use crate::report::{Block, Report, Table};
use crate::run::RAW;
use crate::suite::Workload;

pub(super) fn objects(report: &Report) -> Vec<Block> {
    let suite = &report.plan.suite;
    if suite.workload() != Workload::Objects {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for case in &report.plan.scaled.cases {
        let row = |system: String, columns: ObjectColumns| {
            [vec![case.job.name.clone(), system], columns.cells().to_vec()].concat()
        };
        for target in targets(report).into_iter().filter(|name| *name != RAW) {
            let runs =
                || report.results.iter().filter(|one| one.target == target && one.case.name == case.name);
            rows.extend(object_columns(runs()).map(|columns| row(shown(report, target), columns)));
        }
        for published in &suite.published {
            let figure = published.figure(&case.job.name);
            rows.extend(figure.map(|figure| {
                row(format!("{}, published", published.system), ObjectColumns::published(figure, &case.job))
            }));
        }
    }
    let columns = [strings(["workload", "system"]), strings(ObjectColumns::TITLES)].concat();
    let mut blocks = vec![
        Block::Text(
            "Means of all repeats. MB are 10^6 bytes. CPU: processors of the whole machine in use, with the load. \
             Latency and utilisation: means of the drives. CPU s/GB: processor seconds of the system alone per GB of \
             bodies."
                .into(),
        ),
        Block::Table(Table { columns, rows, figures: false }),
    ];
    blocks.extend(others(report));
    blocks
}

/// Requests without a body.
fn others(report: &Report) -> Option<Block> {
    let mut rows = Vec::new();
    for one in &report.results {
        for (name, side) in &one.others {
            let figures = side.figures();
            rows.push(vec![
                one.case.name.clone(),
                shown(report, &one.target),
                one.repeat.to_string(),
                name.clone(),
                format!("{:.0}", figures.iops),
                time(figures.mean_us),
                time(figures.p99_us),
            ]);
        }
    }
    let columns = strings(["workload", "system", "repeat", "request", "per second", "mean", "99 %"]);
    (!rows.is_empty()).then_some(Block::Table(Table { columns, rows, figures: false }))
}
